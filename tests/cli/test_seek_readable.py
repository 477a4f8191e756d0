"""`seek --readable`: what a reader with transactions was given, and why others are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.cli.program import pulsar_meta_here

Capture = Callable[[str], Path]
CASES = [("transactions-4.2.4", "money"), ("transactions-4.0.7", "money"), ("pulsar-4.2.4", "txn")]


def seek(folder: Path, *arguments: str, code: int) -> list[dict[str, Any]]:
    where = ["--store", f"snapshot:{folder / 'metadata.ndjson'}", "--entries", f"bookie-disk:{folder}"]
    done = pulsar_meta_here("seek", *arguments, "--readable", *where, "-o", "json")
    assert done.returncode == code, done.stderr.decode()
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def stated(folder: Path, topic: str) -> list[dict[str, Any]]:
    truth = orjson.loads((folder / "truth.json").read_bytes())
    return list(truth[f"persistent://public/default/{topic}"]["messages"])


@pytest.mark.parametrize(("name", "topic"), CASES)
def test_by_time_the_first_entry_that_a_reader_was_given(capture: Capture, name: str, topic: str) -> None:
    messages = stated(capture(name), topic)
    times = sorted({message["bt"] + more for message in messages for more in (-1, 0, 1)})[:-1]
    asked = [part for time in times for part in ("--time", str(time))]
    for answer in seek(capture(name), topic, *asked, code=0):
        first = next(message for message in messages if message["bt"] >= answer["time"])
        assert (answer["ledger_id"], answer["entry_id"]) == (first["l"], first["e"])


def test_by_time_behind_the_first_open_transaction(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    late = max(message["bt"] for message in stated(folder, "money")) + 1
    assert [one["status"] for one in seek(folder, "money", "--time", str(late), code=3)] == ["open"]
    assert [one["status"] for one in seek(folder, "plain", "--time", str(2**50), code=3)] == ["after-last"]


def test_by_index_only_what_a_reader_was_given_is_found(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    readable = {(message["l"], message["e"]) for message in stated(folder, "money")}
    asked = [part for index in range(91) for part in ("--index", str(index))]
    answers = seek(folder, "money", *asked, code=3)
    found = {(one["ledger_id"], one["entry_id"]) for one in answers if one["status"] == "found"}
    assert found == readable
    others = {one["index"]: (one["status"], one.get("transaction")) for one in answers}
    assert others[77] == ("aborted", "0:17")
    assert others[78] == ("marker", "0:17")
    assert others[85] == ("open", "0:19")
    assert others[86] == ("open", None)


def test_what_may_be_missing_leaves_it_unknown(capture: Capture, tmp_path: Path) -> None:
    folder = capture("transactions-4.2.4")
    # The store without the snapshots, whose ledgers then decide alone; and of them the last is not here.
    kept = [
        line
        for line in (folder / "metadata.ndjson").read_text().splitlines()
        if "__transaction_buffer_snapshot" not in line
    ]
    (tmp_path / "metadata.ndjson").write_text("\n".join(kept))
    store = f"snapshot:{tmp_path / 'metadata.ndjson'}"
    frames = tmp_path / "frames"
    dump = ("dump-entries", "money", "--to", "20:8", "-o", "raw", "--output", str(frames))
    disks = f"bookie-disk:{folder}"
    assert pulsar_meta_here(*dump, "--store", store, "--entries", disks).returncode == 0
    done = pulsar_meta_here(
        *("seek", "money", "--readable", "--index", "0", "--index", "47", "-o", "json"),
        *("--store", store, "--entries", f"frames:{frames}"),
    )
    assert done.returncode == 3
    answers = json.loads(done.stdout)
    assert [one["status"] for one in answers] == ["found", "unknown"]
    assert json.loads(done.stderr)["not_checked"] == {"persistent://public/default/money": "unknown"}


def test_what_expires_is_not_asked_for_readers(capture: Capture) -> None:
    done = pulsar_meta_here("seek", "money", "--readable", "--expired", "1d")
    assert done.returncode == 2


def test_a_time_over_all_segments_of_a_scalable_topic(capture: Capture) -> None:
    folder = capture("pulsar-5.0.0-M1-scalable-running")
    truth = orjson.loads((folder / "truth.json").read_bytes())
    segments = [name for name in truth if name.startswith("segment://public/default/txn/")]
    messages = [message for name in segments for message in truth[name]["messages"]]
    last = max(message["bt"] for message in messages)
    asked = ("topic://public/default/txn", "--time", str(2**40), "--time", str(last), "--time", str(last + 1))
    first, newest, later = seek(folder, *asked, code=3)
    for answer, time in ((first, min(message["bt"] for message in messages)), (newest, last)):
        assert (answer["status"], answer["broker_timestamp"]) == ("found", time)
    assert later["status"] == "open"

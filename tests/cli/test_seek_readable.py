"""`seek --readable` finds messages that consumers with transactions see, and explains the others."""

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
    sources = ["--store", f"snapshot:{folder / 'metadata.ndjson'}", "--entries", f"bookie-disk:{folder}"]
    done = pulsar_meta_here("seek", *arguments, "--readable", *sources, "-o", "json")
    assert done.returncode == code, done.stderr.decode()
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def truth_of(folder: Path, topic: str) -> list[dict[str, Any]]:
    truth = orjson.loads((folder / "truth.json").read_bytes())
    return list(truth[f"persistent://public/default/{topic}"]["messages"])


@pytest.mark.parametrize(("name", "topic"), CASES)
def test_a_time_finds_the_first_readable_entry(capture: Capture, name: str, topic: str) -> None:
    messages = truth_of(capture(name), topic)
    times = sorted({message["bt"] + more for message in messages for more in (-1, 0, 1)})[:-1]
    times_sought = [part for time in times for part in ("--time", str(time))]
    for answer in seek(capture(name), topic, *times_sought, code=0):
        first = next(message for message in messages if message["bt"] >= answer["time"])
        assert (answer["ledger_id"], answer["entry_id"]) == (first["l"], first["e"])


def test_a_time_after_the_first_open_transaction_has_status_open(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    late = max(message["bt"] for message in truth_of(folder, "money")) + 1
    assert [answer["status"] for answer in seek(folder, "money", "--time", str(late), code=3)] == ["open"]
    assert [answer["status"] for answer in seek(folder, "plain", "--time", str(2**50), code=3)] == [
        "after-last"
    ]


def test_an_index_finds_only_readable_messages(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    readable = {(message["l"], message["e"]) for message in truth_of(folder, "money")}
    indexes = [part for index in range(91) for part in ("--index", str(index))]
    answers = seek(folder, "money", *indexes, code=3)
    positions = {
        (answer["ledger_id"], answer["entry_id"]) for answer in answers if answer["status"] == "found"
    }
    assert positions == readable
    others = {answer["index"]: (answer["status"], answer.get("transaction")) for answer in answers}
    assert others[77] == ("aborted", "0:17")
    assert others[78] == ("marker", "0:17")
    assert others[85] == ("open", "0:19")
    assert others[86] == ("open", None)


def test_missing_snapshots_and_entries_leave_the_answer_unknown(capture: Capture, tmp_path: Path) -> None:
    folder = capture("transactions-4.2.4")
    # Without the snapshots, only the topic's own ledgers decide, and the last of these is missing.
    lines = [
        line
        for line in (folder / "metadata.ndjson").read_text().splitlines()
        if "__transaction_buffer_snapshot" not in line
    ]
    (tmp_path / "metadata.ndjson").write_text("\n".join(lines))
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
    assert [answer["status"] for answer in answers] == ["found", "unknown"]
    assert json.loads(done.stderr)["not_checked"] == {"persistent://public/default/money": "unknown"}


def test_readable_cannot_be_combined_with_expired(capture: Capture) -> None:
    done = pulsar_meta_here("seek", "money", "--readable", "--expired", "1d")
    assert done.returncode == 2


def test_a_time_gets_one_answer_for_a_scalable_topic(capture: Capture) -> None:
    folder = capture("pulsar-5.0.0-M1-scalable-running")
    truth = orjson.loads((folder / "truth.json").read_bytes())
    segments = [name for name in truth if name.startswith("segment://public/default/txn/")]
    messages = [message for name in segments for message in truth[name]["messages"]]
    last = max(message["bt"] for message in messages)
    arguments = (
        "topic://public/default/txn",
        "--time",
        str(2**40),
        "--time",
        str(last),
        "--time",
        str(last + 1),
    )
    first, newest, later = seek(folder, *arguments, code=3)
    for answer, time in ((first, min(message["bt"] for message in messages)), (newest, last)):
        assert (answer["status"], answer["broker_timestamp"]) == ("found", time)
    assert later["status"] == "open"

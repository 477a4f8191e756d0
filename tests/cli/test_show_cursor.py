"""`show-cursor` against what brokers said of their subscriptions, and where it cannot know."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.cursors.limits import BATCHES, RANGES, RANGES_IN_RECORD
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo
from tests.cli.program import as_text, pulsar_meta_here
from tests.cli.test_what_was_looked_at import snapshot_without
from tests.cursor_truth import compare_cursors, show
from tests.seek_truth import CAPTURES, read_truth

Capture = Callable[[str], Path]
KILLED = "pulsar-4.2.4-killed"
MORE = ("pulsar-4.2.4-shadows", "transactions-4.0.7", "transactions-4.2.4")
FEWEST = {
    "pulsar-5.0.0-M1-scalable": 25, "pulsar-5.0.0-M1-scalable-running": 35,
    "pulsar-4.2.4-shadows": 8, "transactions-4.0.7": 5, "transactions-4.2.4": 5,
}  # fmt: skip
IN_LEDGERS = {"pulsar-2.8.2": 5, KILLED: 1, "pulsar-5.0.0-M1-scalable-running": 4}
READER = ("show-cursor", "last-words", "reader")


def run(*arguments: object) -> CompletedProcess[str]:
    return as_text(pulsar_meta_here(*arguments))


def frames_of(folder: Path, ledger_id: int, *entries: bytes) -> str:
    """Write entries of a ledger as a file of frames and return its URL."""
    (folder / "f").write_bytes(b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries))
    lines = (f'{{"ledger": {ledger_id}, "entry": {at}}}\n' for at in range(len(entries)))
    (folder / "f.idx").write_text("".join(lines))
    return f"frames:{folder / 'f'}"


@pytest.fixture
def killed(capture: Capture) -> Path:
    return capture(KILLED)


@pytest.fixture
def where(killed: Path) -> list[str]:
    return ["--store", f"snapshot:{killed}/metadata.ndjson", "--entries", f"bookie-disk:{killed}/bookie0"]


@pytest.mark.parametrize("name", [*CAPTURES, *MORE])
def test_every_subscription_stands_where_its_broker_said(name: str, capture: Capture) -> None:
    table = compare_cursors(capture(name))
    assert table.wrong == []
    assert table.right == table.stated >= FEWEST.get(name, 60)
    assert table.in_ledgers == IN_LEDGERS.get(name, 0)


@pytest.mark.parametrize("part", ["killed", "killed-long-arrays", "closed", "closed-long-arrays"])
def test_states_in_ledgers_and_in_records_in_both_forms(part: str, capture: Capture) -> None:
    table = compare_cursors(capture(f"pulsar-4.2.4-batch-acks-{part}"))
    assert table.wrong == []
    assert (table.right, table.in_ledgers) == (5, 5 if part.startswith("killed") else 0)


@pytest.mark.parametrize("topic", ["orders", "last-words", "marks", "delayed"])
def test_a_backlog_in_messages_is_what_a_consumer_is_given(
    topic: str, capture: Capture, killed: Path
) -> None:
    folder = killed if topic == "last-words" else capture("pulsar-4.2.4-3bookies")
    messages = read_truth(folder)[str(TopicName.parse(topic))]["messages"]
    lines = show(folder, topic)
    for line in lines:
        (document,) = show(folder, topic, line["cursor"])
        state = document.get("ledger_state") or document["record"]
        after = tuple(map(int, line["position"].split(":")))
        acked = {
            (one["ledger_id"], entry)
            for one in state.get("acked", ())
            for first, last in one["entries"]
            for entry in range(first, last + 1)
        }
        left = [one for one in messages if (one["l"], one["e"]) > after and (one["l"], one["e"]) not in acked]
        if "ledger_state" in document:
            still = {one["position"]: one["unacked"] for one in state["batches"]}
            left = [one for one in left if is_open(one, still.get(f"{one['l']}:{one['e']}"))]
        assert line["backlog_messages"] == document["backlog_messages"] == len(left)
    assert lines


def is_open(message: dict[str, Any], unacked: list[list[int]] | None) -> bool:
    """Return whether a message of a batch is still to be acknowledged."""
    return unacked is None or any(first <= message["b"] <= last for first, last in unacked)


def test_without_entries_a_state_in_a_ledger_is_not_known(where: list[str]) -> None:
    done = run(*READER, *where[:2], "-o", "json")
    (document,) = json.loads(done.stdout)
    unknown = ("position", "backlog", "backlog_at_least", "backlog_messages", "acked_ranges")
    assert done.returncode == 0
    assert {document[name] for name in unknown} == {None}
    assert (document["state"], document["why"]) == ("unknown", "ledger 375 not given")
    assert document["record"]["mark_delete"] == "354:-1"
    assert json.loads(done.stderr) == {
        "checked": {"topics": 1, "cursors": 1},
        "not_checked": {"the state of 1 cursor": "give --entries"},
    }
    assert "unknown: ledger 375 not given" in run("show-cursor", "last-words", *where[:2]).stdout


def test_entries_without_the_cursors_ledger_are_not_found(where: list[str], tmp_path: Path) -> None:
    done = run(*READER, *where[:2], "--entries", frames_of(tmp_path, 1, b"x"))
    assert done.returncode == 3
    assert "its state lies in ledger 375, of which no source has an entry" in done.stderr
    assert "position" in done.stdout


def test_where_the_last_entry_is_missing_an_older_one_is_not_taken_for_the_state(
    where: list[str], tmp_path: Path
) -> None:
    """BookKeeper closed ledger 346 of the cursor at entry 1; only entry 0 is given."""
    state = PositionInfo(ledgerId=1, entryId=2).SerializeToString()
    store = tmp_path / "closed.ndjson"
    lines = Path(where[1].removeprefix("snapshot:")).read_text(encoding="utf-8").splitlines()
    closed = next(line for line in lines if json.loads(line)["path"] == ledger_path(18))
    moved = json.dumps(json.loads(closed) | {"path": ledger_path(375)})
    kept = [line for line in lines if json.loads(line)["path"] != ledger_path(375)]
    store.write_text("\n".join([*kept, moved]) + "\n", encoding="utf-8")
    given = ["--store", f"snapshot:{store}", "--entries", frames_of(tmp_path, 375, state)]
    done = run(*READER, *given, "-o", "json")
    assert done.returncode == 3
    assert "of which no source has the last entry" in done.stderr
    got = run("get", "cursor", "last-words", "reader", *given)
    assert got.returncode == 3
    assert "of ledger 375 the last entry, 49, counts, and entries after 0 may be on bookies" in got.stderr
    assert json.loads(done.stdout)[0]["state"] == "unknown"


def test_some_disks_of_a_striped_ledger_do_not_have_the_state_for_sure(capture: Capture) -> None:
    """Open ledger 260 goes to two of three bookies by turns: one disk alone may lack the last entry."""
    folder = capture("pulsar-4.2.4-3bookies")
    disks = [
        part for path in folder.glob("bookie*") for part in ("--entries", f"bookie-disk:{path}?index=scan")
    ]
    words = [
        "show-cursor",
        "marks",
        "longs",
        "--store",
        f"snapshot:{folder}/metadata-after-step-3-killed.ndjson",
    ]
    alone = run(*words, *disks[:2], "-o", "json")
    assert (alone.returncode, json.loads(alone.stdout)[0]["state"]) == (3, "unknown")
    whole = run(*words, *disks, "-o", "json")
    (document,) = json.loads(whole.stdout)
    assert (whole.returncode, document["state"], document["acked_ranges"]) == (0, "ledger", 1360)
    assert document["ledger_state"]["form"] == "bitset"


def test_a_last_entry_that_cannot_be_read_is_a_fault(where: list[str], tmp_path: Path) -> None:
    states = PositionInfo(ledgerId=1, entryId=2).SerializeToString(), b'{"numParts": 2}'
    given = [*where[:2], "--entries", frames_of(tmp_path, 375, *states)]
    for command in (READER, ("get", "cursor", "last-words", "reader")):
        done = run(*command, *given)
        assert done.returncode == 4
        assert "entry 375:1 of its ledger: the footer of a cursor state" in done.stderr
    # Where the subscription goes on nobody knows: nothing is looked for from an older state on.
    sought = run("seek", "last-words", "--index", "3", "--cursor", "reader", *given, "-o", "json")
    assert (sought.returncode, json.loads(sought.stdout)[0]["status"]) == (4, "unreadable")
    history = run(*READER, "--history", *given, "-o", "ndjson")
    assert history.returncode == 4
    assert [json.loads(line)["position"] for line in history.stdout.splitlines()] == ["1:2"]


def test_a_broker_goes_back_where_bookkeeper_does_not_know_the_cursors_ledger(
    killed: Path, where: list[str], tmp_path: Path
) -> None:
    store = snapshot_without(killed, tmp_path / "without.ndjson", ledger_path(375))
    done = run(*READER, "--store", store, *where[2:], "-o", "json")
    (document,) = json.loads(done.stdout)
    assert (done.returncode, document["state"], document["position"]) == (0, "rewind", "354:-1")
    assert (document["backlog"], document["acked_ranges"]) == (222, 0)
    assert "which BookKeeper does not know: back to the record's position" in document["why"]


def test_record_and_ledger_stand_side_by_side(where: list[str]) -> None:
    (document,) = json.loads(run(*READER, *where, "-o", "json").stdout)
    assert (document["state"], document["state_ledger"], document["state_entry"]) == ("ledger", 375, 1)
    assert document["ledger_state"]["form"] == "ranges"
    assert len(document["ledger_state"]["batches"]) == document["partial_batches"] == 45
    assert document["record"]["snapshot_only"] is True
    assert document["cursor_ledger"]["metadata"] == "known"
    limits = {one["setting"]: (one["limit"], one["used"], one["from"]) for one in document["limits"]}
    assert limits == {
        RANGES: (10000, 3, "default"),
        RANGES_IN_RECORD: (1000, 3, "default"),
        BATCHES: (10000, 45, "default"),
    }
    text = run(*READER, *where).stdout
    assert "a broker that loads the topic goes on after 354:-1 (ledger: the record names ledger 375" in text


def test_history_walks_the_cursors_ledger(where: list[str]) -> None:
    done = run(*READER, "--history", *where, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["entry_id"], row["position"], row["acked_ranges"]) for row in rows] == [
        ("0", "354:-1", "1"),
        ("1", "354:-1", "3"),
    ]
    closed = run("show-cursor", "orders", "batch-idx", "--history", *where)
    assert (closed.returncode, closed.stdout) == (0, "")
    assert "its state is in the record, it has no ledger" in closed.stderr


def test_the_end_of_an_open_ledger_comes_from_the_entries(where: list[str]) -> None:
    (known,) = json.loads(run("show-cursor", "orders", *where, "-o", "json").stdout)
    done = run("show-cursor", "orders", *where[:2], "-o", "json")
    (without,) = json.loads(done.stdout)
    assert (known["backlog"], known["backlog_at_least"]) == (207, 207)
    assert without["backlog"] is None
    assert without["backlog_at_least"] < 207
    assert "the end of the open ledger behind 1 cursor" in json.loads(done.stderr)["not_checked"]
    assert f"{without['backlog_at_least']} or more" in run("show-cursor", "orders", *where[:2]).stdout


def test_limits_of_a_broker_conf(where: list[str], tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{BATCHES}=45\nmanagedLedgerMaxUnackedRangesToPersistInZooKeeper=2\n")
    done = run(*READER, *where, "--from-conf", conf)
    assert f"{BATCHES}: 45 of 45 (of {conf}), REACHED: batches beyond" in done.stdout
    assert f"{RANGES_IN_RECORD}: 3 of 2 (of {conf}), REACHED: with more the state stays" in done.stdout
    assert f"{RANGES}: 3 of 10000 (default), 9997 left" in done.stdout


def test_a_broker_conf_that_is_none(where: list[str], tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{RANGES}=many\n")
    done = run(*READER, *where, "--from-conf", conf)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"{conf}: {RANGES}=many: not a number" in done.stderr
    assert run(*READER, *where, "--from-conf", tmp_path).returncode == 6


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nosuch"], 3, "no topic persistent://public/default/nosuch"),
        (["last-words", "raeder"], 3, "did you mean reader?"),
        (["last-words", "--history"], 2, "--history is of one subscription"),
        (["last-words", "--from-conf", "/nowhere/broker.conf"], 3, "no such file"),
        (["a/b/c/d/e//"], 2, "a topic is"),
    ],
)
def test_what_is_not_there_and_what_makes_no_sense(
    arguments: list[str], code: int, says: str, where: list[str]
) -> None:
    done = run("show-cursor", *arguments, *where)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


def test_a_broken_record_is_reported_and_the_others_are_shown(where: list[str], tmp_path: Path) -> None:
    path = TopicName.parse("fanout").cursor_path("aaa")
    text = Path(where[1].removeprefix("snapshot:")).read_text(encoding="utf-8")
    store = tmp_path / "broken.ndjson"
    store.write_text(
        text + json.dumps({"path": path, "version": 0, "value": "/w=="}) + "\n", encoding="utf-8"
    )
    done = run("show-cursor", "fanout", "--store", f"snapshot:{store}", *where[2:])
    assert (done.returncode, len(done.stdout.splitlines())) == (4, 60)
    assert f"{path}: not a ManagedCursorInfo" in done.stderr
    one = run("show-cursor", "fanout", "aaa", "--store", f"snapshot:{store}", *where[2:])
    assert (one.returncode, one.stdout) == (4, "")

"""`show-cursor` compared with brokers' statistics, and its reports if the state is not available."""

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
from pulsar_meta.jobs.cursors.subscriptions import BATCHES, RANGES, RANGES_IN_RECORD
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo
from tests.cli.program import as_text, pulsar_meta_here
from tests.cli.test_summaries import snapshot_without
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
    """Write entries of a ledger to a file of frames and return its URL."""
    (folder / "f").write_bytes(b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries))
    lines = (f'{{"ledger": {ledger_id}, "entry": {at}}}\n' for at in range(len(entries)))
    (folder / "f.idx").write_text("".join(lines))
    return f"frames:{folder / 'f'}"


@pytest.fixture
def killed(capture: Capture) -> Path:
    return capture(KILLED)


@pytest.fixture
def sources(killed: Path) -> list[str]:
    return ["--store", f"snapshot:{killed}/metadata.ndjson", "--entries", f"bookie-disk:{killed}/bookie0"]


@pytest.mark.parametrize("name", [*CAPTURES, *MORE])
def test_every_position_agrees_with_the_brokers_statistics(name: str, capture: Capture) -> None:
    table = compare_cursors(capture(name))
    assert table.wrong == []
    assert table.right == table.total >= FEWEST.get(name, 60)
    assert table.in_ledgers == IN_LEDGERS.get(name, 0)


@pytest.mark.parametrize("part", ["killed", "killed-long-arrays", "closed", "closed-long-arrays"])
def test_states_in_ledgers_and_records_are_read_in_both_formats(part: str, capture: Capture) -> None:
    table = compare_cursors(capture(f"pulsar-4.2.4-batch-acks-{part}"))
    assert table.wrong == []
    assert (table.right, table.in_ledgers) == (5, 5 if part.startswith("killed") else 0)


@pytest.mark.parametrize("topic", ["orders", "last-words", "marks", "delayed"])
def test_the_backlog_counts_the_messages_that_a_consumer_gets(
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
            (ledger["ledger_id"], entry)
            for ledger in state.get("acked", ())
            for first, last in ledger["entries"]
            for entry in range(first, last + 1)
        }
        pending = [
            message
            for message in messages
            if (message["l"], message["e"]) > after and (message["l"], message["e"]) not in acked
        ]
        if "ledger_state" in document:
            unacked = {batch["position"]: batch["unacked"] for batch in state["batches"]}
            pending = [
                message
                for message in pending
                if is_open(message, unacked.get(f"{message['l']}:{message['e']}"))
            ]
        assert line["backlog_messages"] == document["backlog_messages"] == len(pending)
    assert lines


def is_open(message: dict[str, Any], unacked: list[list[int]] | None) -> bool:
    """Return True if a message of a batch is not acknowledged yet."""
    return unacked is None or any(first <= message["b"] <= last for first, last in unacked)


def test_a_state_in_a_ledger_is_unknown_without_entries(sources: list[str]) -> None:
    done = run(*READER, *sources[:2], "-o", "json")
    (document,) = json.loads(done.stdout)
    unknown = ("position", "backlog", "backlog_at_least", "backlog_messages", "acked_ranges")
    assert done.returncode == 0
    assert {document[name] for name in unknown} == {None}
    assert (document["state"], document["why"]) == ("unknown", "ledger 375 not given")
    assert document["record"]["mark_delete"] == "354:-1"
    assert json.loads(done.stderr) == {
        "checked": {"topics": 1, "cursors": 1},
        "not_checked": {"the state of 1 cursor": "add --entries"},
    }
    assert "unknown: ledger 375 not given" in run("show-cursor", "last-words", *sources[:2]).stdout


def test_a_missing_cursor_ledger_is_not_found(sources: list[str], tmp_path: Path) -> None:
    done = run(*READER, *sources[:2], "--entries", frames_of(tmp_path, 1, b"x"))
    assert done.returncode == 3
    assert "its state is in ledger 375, but no source has an entry of it" in done.stderr
    assert "position" in done.stdout


def test_an_older_entry_does_not_replace_a_missing_last_one(sources: list[str], tmp_path: Path) -> None:
    """BookKeeper closed ledger 375 at entry 49, but only entry 0 is given."""
    state = PositionInfo(ledgerId=1, entryId=2).SerializeToString()
    store = tmp_path / "closed.ndjson"
    lines = Path(sources[1].removeprefix("snapshot:")).read_text(encoding="utf-8").splitlines()
    closed = next(line for line in lines if json.loads(line)["path"] == ledger_path(18))
    moved = json.dumps(json.loads(closed) | {"path": ledger_path(375)})
    remaining = [line for line in lines if json.loads(line)["path"] != ledger_path(375)]
    store.write_text("\n".join([*remaining, moved]) + "\n", encoding="utf-8")
    closed_sources = ["--store", f"snapshot:{store}", "--entries", frames_of(tmp_path, 375, state)]
    done = run(*READER, *closed_sources, "-o", "json")
    assert done.returncode == 3
    assert "but no source has the last entry of it" in done.stderr
    shown = run("get", "cursor", "last-words", "reader", *closed_sources)
    assert shown.returncode == 3
    assert "the last entry, 49, of ledger 375 counts, but entries after 0 may be on bookies" in shown.stderr
    assert json.loads(done.stdout)[0]["state"] == "unknown"


def test_a_single_disk_of_a_striped_ledger_leaves_the_state_unknown(capture: Capture) -> None:
    """The entries of open ledger 260 alternate between three bookies, so one disk may lack the last one."""
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
    one_disk = run(*words, *disks[:2], "-o", "json")
    assert (one_disk.returncode, json.loads(one_disk.stdout)[0]["state"]) == (3, "unknown")
    all_disks = run(*words, *disks, "-o", "json")
    (document,) = json.loads(all_disks.stdout)
    assert (all_disks.returncode, document["state"], document["acked_ranges"]) == (0, "ledger", 1360)
    assert document["ledger_state"]["form"] == "bitset"


def test_a_last_entry_that_cannot_be_read_is_an_error(sources: list[str], tmp_path: Path) -> None:
    states = PositionInfo(ledgerId=1, entryId=2).SerializeToString(), b'{"numParts": 2}'
    broken_sources = [*sources[:2], "--entries", frames_of(tmp_path, 375, *states)]
    for command in (READER, ("get", "cursor", "last-words", "reader")):
        done = run(*command, *broken_sources)
        assert done.returncode == 4
        assert "entry 375:1 of its ledger: the footer of a cursor state" in done.stderr
    assert "see how to repair it: pulsar-meta check last-words\n" in run(*READER, *broken_sources).stderr
    # The position is unknown, so seek does not search from an older state.
    sought = run("seek", "last-words", "--index", "3", "--cursor", "reader", *broken_sources, "-o", "json")
    assert (sought.returncode, json.loads(sought.stdout)[0]["status"]) == (4, "unreadable")
    history = run(*READER, "--history", *broken_sources, "-o", "ndjson")
    assert history.returncode == 4
    assert [json.loads(line)["position"] for line in history.stdout.splitlines()] == ["1:2"]


def test_a_cursor_whose_ledger_was_deleted_rewinds_to_its_record(
    killed: Path, sources: list[str], tmp_path: Path
) -> None:
    store = snapshot_without(killed, tmp_path / "without.ndjson", ledger_path(375))
    done = run(*READER, "--store", store, *sources[2:], "-o", "json")
    (document,) = json.loads(done.stdout)
    assert (done.returncode, document["state"], document["position"]) == (0, "rewind", "354:-1")
    assert (document["backlog"], document["acked_ranges"]) == (222, 0)
    assert (
        "for which BookKeeper has no metadata, so the cursor goes back to the record's position"
        in document["why"]
    )


def test_the_record_and_the_ledger_state_are_both_shown(sources: list[str]) -> None:
    (document,) = json.loads(run(*READER, *sources, "-o", "json").stdout)
    assert (document["state"], document["state_ledger"], document["state_entry"]) == ("ledger", 375, 1)
    assert document["ledger_state"]["form"] == "ranges"
    assert len(document["ledger_state"]["batches"]) == document["partial_batches"] == 45
    assert document["record"]["snapshot_only"] is True
    assert document["cursor_ledger"]["metadata"] == "known"
    limits = {
        limit["setting"]: (limit["limit"], limit["used"], limit["from"]) for limit in document["limits"]
    }
    assert limits == {
        RANGES: (10000, 3, "default"),
        RANGES_IN_RECORD: (1000, 3, "default"),
        BATCHES: (10000, 45, "default"),
    }
    text = run(*READER, *sources).stdout
    assert (
        "a broker that loads the topic resumes after 354:-1 (ledger: the record refers to ledger 375" in text
    )


def test_history_shows_the_entries_of_the_cursor_ledger(sources: list[str]) -> None:
    done = run(*READER, "--history", *sources, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["entry_id"], row["position"], row["acked_ranges"]) for row in rows] == [
        ("0", "354:-1", "1"),
        ("1", "354:-1", "3"),
    ]
    closed = run("show-cursor", "orders", "batch-idx", "--history", *sources)
    assert (closed.returncode, closed.stdout) == (0, "")
    assert "has no ledger, because its state is in the record" in closed.stderr


def test_the_end_of_an_open_ledger_comes_from_the_entries(sources: list[str]) -> None:
    (known,) = json.loads(run("show-cursor", "orders", *sources, "-o", "json").stdout)
    done = run("show-cursor", "orders", *sources[:2], "-o", "json")
    (without,) = json.loads(done.stdout)
    assert (known["backlog"], known["backlog_at_least"]) == (207, 207)
    assert without["backlog"] is None
    assert without["backlog_at_least"] < 207
    assert "the end of the open ledger after 1 cursor" in json.loads(done.stderr)["not_checked"]
    assert f"{without['backlog_at_least']} or more" in run("show-cursor", "orders", *sources[:2]).stdout


def test_limits_can_come_from_broker_conf(sources: list[str], tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{BATCHES}=45\nmanagedLedgerMaxUnackedRangesToPersistInZooKeeper=2\n")
    done = run(*READER, *sources, "--from-conf", conf)
    assert f"{BATCHES}: 45 of 45 (of {conf}), REACHED: batches beyond" in done.stdout
    assert f"{RANGES_IN_RECORD}: 3 of 2 (of {conf}), REACHED: with more, the state stays" in done.stdout
    assert f"{RANGES}: 3 of 10000 (default), 9997 left" in done.stdout


def test_an_invalid_broker_conf_is_an_error(sources: list[str], tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{RANGES}=many\n")
    done = run(*READER, *sources, "--from-conf", conf)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"{conf}: {RANGES}=many: not a number" in done.stderr
    assert run(*READER, *sources, "--from-conf", tmp_path).returncode == 6


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nosuch"], 3, "no topic persistent://public/default/nosuch"),
        (["last-words", "raeder"], 3, "did you mean reader?"),
        (["last-words", "--history"], 2, "--history needs one subscription"),
        (["last-words", "--from-conf", "/nowhere/broker.conf"], 3, "no such file"),
        (["a/b/c/d/e//"], 2, "invalid topic"),
    ],
)
def test_invalid_arguments_are_explained(
    arguments: list[str], code: int, message: str, sources: list[str]
) -> None:
    done = run("show-cursor", *arguments, *sources)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_a_broken_record_is_reported_and_the_others_are_shown(sources: list[str], tmp_path: Path) -> None:
    path = TopicName.parse("fanout").cursor_path("aaa")
    text = Path(sources[1].removeprefix("snapshot:")).read_text(encoding="utf-8")
    store = tmp_path / "broken.ndjson"
    store.write_text(
        text + json.dumps({"path": path, "version": 0, "value": "/w=="}) + "\n", encoding="utf-8"
    )
    done = run("show-cursor", "fanout", "--store", f"snapshot:{store}", *sources[2:])
    assert (done.returncode, len(done.stdout.splitlines())) == (4, 60)
    assert f"{path}: not a ManagedCursorInfo" in done.stderr
    single = run("show-cursor", "fanout", "aaa", "--store", f"snapshot:{store}", *sources[2:])
    assert (single.returncode, single.stdout) == (4, "")

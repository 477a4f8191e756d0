"""Entries of transaction logs and snapshots of transaction buffers in `dump-entries`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.cli.program import pulsar_meta_here

Capture = Callable[[str], Path]
CAPTURES = ("transactions-4.2.4", "transactions-4.0.7")
COORDINATOR = "persistent://pulsar/system/__transaction_log_0"


def run(folder: Path, *arguments: str, code: int = 0, form: str = "ndjson", store: bool = True) -> str:
    """Run `dump-entries` on a capture and return its stdout."""
    sources = ["--entries", f"bookie-disk:{folder}"]
    sources += ["--store", f"snapshot:{folder / 'metadata.ndjson'}"] if store else []
    done = pulsar_meta_here("dump-entries", *arguments, *sources, "-o", form)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode()


def frames_of(folder: Path, topic: str) -> Iterator[bytes]:
    """Yield the raw entries of a topic."""
    sources = ["--entries", f"bookie-disk:{folder}", "--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    frames = io.BytesIO(pulsar_meta_here("dump-entries", topic, *sources, "-o", "raw").stdout)
    while size := frames.read(4):
        yield frames.read(int.from_bytes(size, "big"))


def dump(folder: Path, *arguments: str, code: int = 0, store: bool = True) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(folder, *arguments, code=code, store=store).splitlines()]


@pytest.mark.parametrize("name", CAPTURES)
def test_the_coordinators_log_has_the_outcomes_of_transactions(capture: Capture, name: str) -> None:
    truth = orjson.loads((capture(name) / "truth.json").read_bytes())
    outcomes = truth["persistent://public/default/money"]["transactions"]
    outcomes_in_log: dict[str, str] = {}
    for entry in dump(capture(name), COORDINATOR):
        assert entry["unopened"] == "no frame: the log of a transaction coordinator"
        assert entry["log"]["batched"] == (name == "transactions-4.2.4")
        outcomes_in_log |= {
            record["txn"]: record["new_status"].lower()
            for record in entry["log"]["records"]
            if record["metadata_op"] == "UPDATE"
        }
    assert outcomes_in_log
    assert outcomes_in_log == {txn: outcome for txn, outcome in outcomes.items() if txn in outcomes_in_log}


def test_plain_output_explains_log_records(capture: Capture) -> None:
    lines = run(
        capture("transactions-4.2.4"), "acked-work__transaction_pending_ack", form="plain"
    ).splitlines()
    assert lines[1].split("\t")[-1] == (
        "acknowledgments in transactions: txn 0:20 COMMIT Individual; txn 0:21 ABORT Individual"
    )
    assert "txn 0:22 ACK Individual 31:8" in lines[0]


def test_a_ledger_of_unknown_owner_has_its_possible_readings(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    for entry in dump(folder, "27", store=False):
        assert "log" not in entry
        assert [reading["kind"] for reading in entry["readings"]] == ["transaction-log"]
        assert entry["unopened"].startswith("no frame: whose ledger it is, is not known")
    assert [entry["log"]["kind"] for entry in dump(folder, "32")] == ["pending-acks"] * 2


def test_segmented_snapshots_are_decoded(capture: Capture) -> None:
    topics = ("__transaction_buffer_snapshot_segments", "__transaction_buffer_snapshot_indexes")
    entries = dump(capture("transactions-4.2.4"), *topics, "--deep")
    snapshots = [message["snapshot"] for entry in entries for message in entry["messages"]]
    segments = [snapshot for snapshot in snapshots if "sequenceId" in snapshot]
    assert [len(segment["aborts"]) for segment in segments] == [2, 2, 2]
    last = snapshots[-1]
    assert last["topicName"] == "persistent://public/default/money"
    assert [index["sequenceID"] for index in last["indexList"]] == [0, 1, 2]
    assert last["snapshot"]["aborts"] == [{"leastSigBits": 17, "mostSigBits": 0}]


def test_plain_output_explains_single_snapshots(capture: Capture) -> None:
    lines = run(
        capture("transactions-4.0.7"), "__transaction_buffer_snapshot", "--deep", form="plain"
    ).splitlines()
    assert lines[-1].endswith("snapshot of persistent://public/default/money: up to 26:7, 7 aborted")


def test_a_snapshot_in_a_compacted_ledger_is_decoded(capture: Capture) -> None:
    (entry,) = dump(capture("pulsar-4.2.4"), "300", "--deep")
    assert entry["compacted_from"] == {"ledger_id": 234, "entry_id": 0}
    assert [abort["txnIdLeastBits"] for abort in entry["messages"][0]["snapshot"]["aborts"]] == [0, 3]


def positions(entries: list[dict[str, Any]]) -> Iterator[tuple[int, int, int]]:
    """Yield the ledger, entry and batch index of each readable message."""
    for entry in entries:
        for message in entry["messages"] if entry["readable"] else ():
            yield entry["ledger_id"], entry["entry_id"], message.get("batch_index", -1)


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        *((name, "money") for name in CAPTURES),
        *((f"pulsar-{version}", "txn") for version in ("3.0.7", "4.0.7", "4.2.4", "5.0.0-M1")),
    ],
)
def test_readable_messages_equal_those_that_a_reader_received(
    capture: Capture, name: str, topic: str
) -> None:
    truth = orjson.loads((capture(name) / "truth.json").read_bytes())[f"persistent://public/default/{topic}"]
    entries = dump(capture(name), topic, "--transactions", "--deep")
    received = [(message["l"], message["e"], message["b"]) for message in truth["messages"]]
    assert list(positions(entries)) == received
    assert any(entry.get("transaction_state") == "aborted" for entry in entries)
    outcomes = truth.get("transactions", {})
    for entry in entries:
        if entry.get("transaction") in outcomes:
            assert entry["transaction_state"] == outcomes[entry["transaction"]]


def test_outcomes_appear_in_templates_and_plain_output(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    template = ("--format", "{transaction} {transaction_state} {readable}")
    lines = run(folder, "money", "--transactions", *template, "--from", "-9", form="plain").splitlines()
    assert lines[0] == "0:17 aborted False"
    notes = [
        line.split("\t")[-1] for line in run(folder, "money", "--transactions", form="plain").splitlines()
    ]
    assert notes[-2:] == ["txn 0:25 committed, behind an open transaction", "marker 21, txn 0:25 committed"]


def test_raw_output_cannot_be_combined_with_transactions(capture: Capture) -> None:
    run(capture("transactions-4.2.4"), "money", "--transactions", form="raw", code=2)


@pytest.mark.parametrize("name", CAPTURES)
def test_decode_gives_the_same_log_records(capture: Capture, name: str) -> None:
    """Each entry of the logs decodes to the same records and encodes to its bytes."""
    logs = {COORDINATOR: "TransactionLogEntry", "acked-work__transaction_pending_ack": "PendingAckLogEntry"}
    for topic, kind in logs.items():
        shown = dump(capture(name), topic)
        for entry, data in zip(shown, frames_of(capture(name), topic), strict=True):
            decoded = pulsar_meta_here("decode", "-", "--type", kind, "-o", "json", stdin=data)
            value = json.loads(decoded.stdout)["value"]
            assert value["batched"] == entry["log"]["batched"]
            assert value["records"] == [
                {name: part for name, part in record.items() if name != "txn"}
                for record in entry["log"]["records"]
            ]
            assert pulsar_meta_here("encode", "-", stdin=decoded.stdout).stdout == data


def test_a_transaction_that_the_broker_forgot_is_reported(capture: Capture, tmp_path: Path) -> None:
    """A 4.2.4 broker lost an aborted transaction from its snapshots; its marker still has it."""
    folder = capture("transactions-4.2.4-forgotten")
    truth = orjson.loads((folder / "truth.json").read_bytes())["persistent://public/default/money"]
    received = [(message["l"], message["e"], message["b"]) for message in truth["messages"]]
    sources = ["--entries", f"bookie-disk:{folder}", "--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    done = pulsar_meta_here("dump-entries", "money", "--transactions", "--deep", *sources, "-o", "ndjson")
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    by_markers = list(positions(entries))
    assert [(entry["ledger_id"], entry["entry_id"]) for entry in entries if "forgotten" in entry] == [
        (16, 7), (16, 8), (16, 9)
    ]  # fmt: skip
    assert [place for place in received if place not in by_markers] == [(16, 7, -1), (16, 8, -1), (16, 9, -1)]
    assert b"1 aborted transaction missing in the newest snapshot" in done.stderr
    assert b"delivers their messages (0:9 of persistent://public/default/money)" in done.stderr
    # export uses the newest snapshot like a broker does, so it includes these messages.
    export = [
        "export",
        "money",
        "--readable",
        "--to",
        tmp_path,
        "--columns",
        "ledger_id,entry_id,batch_index",
    ]
    assert pulsar_meta_here(*export, *sources, "-o", "ndjson").returncode == 0
    rows = [
        json.loads(line) for file in tmp_path.rglob("*-*.ndjson") for line in file.read_text().splitlines()
    ]
    assert sorted((row["ledger_id"], row["entry_id"]) for row in rows) == sorted(
        position[:2] for position in received
    )
    complete = capture("transactions-4.2.4")
    sources = ["--entries", f"bookie-disk:{complete}", "--store", f"snapshot:{complete / 'metadata.ndjson'}"]
    assert (
        b"newest snapshot" not in pulsar_meta_here("dump-entries", "money", "--transactions", *sources).stderr
    )


def test_a_transaction_without_marker_in_a_single_ledger_is_unknown(capture: Capture) -> None:
    entries = dump(capture("transactions-4.2.4"), "13", "--transactions", store=False)
    states = {entry["transaction"]: entry["transaction_state"] for entry in entries if "transaction" in entry}
    assert states["0:3"] == "aborted"
    assert states["0:5"] == "committed"
    assert states["0:6"] == "unknown"
    assert all(entry["readable"] is not True for entry in entries)
    sources = ("--entries", f"bookie-disk:{capture('transactions-4.2.4')}", "-o", "ndjson")
    summary = json.loads(pulsar_meta_here("dump-entries", "13", "--transactions", *sources).stderr)
    unknown = sum(entry["readable"] is None for entry in entries)
    assert list(summary["not_checked"]) == [f"whether {unknown} entries are readable"]


@pytest.mark.parametrize("name", ["pulsar-5.0.0-M1-scalable", "pulsar-5.0.0-M1-scalable-running"])
def test_the_store_decides_which_messages_of_segments_are_readable(capture: Capture, name: str) -> None:
    truth = orjson.loads((capture(name) / "truth.json").read_bytes())
    entries = dump(capture(name), "topic://public/default/txn", "--transactions", "--deep")
    segments = {entry["topic"] for entry in entries}
    assert len(segments) == 4
    for segment in segments:
        segment_entries = [entry for entry in entries if entry["topic"] == segment]
        received = [(message["l"], message["e"], message["b"]) for message in truth[segment]["messages"]]
        assert list(positions(segment_entries)) == received
    states = {entry["transaction"]: entry["transaction_state"] for entry in entries if "transaction" in entry}
    assert (states["1:0"], states["2:0"], states.get("1:2")) == (
        "committed",
        "aborted",
        "open" if name.endswith("running") else None,
    )


def show_cursor(folder: Path, *arguments: str, form: str = "json", entries: bool = True) -> tuple[str, str]:
    sources = ["--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    sources += ["--entries", f"bookie-disk:{folder}"] if entries else []
    done = pulsar_meta_here("show-cursor", *arguments, *sources, "-o", form)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def test_acknowledgements_in_open_transactions_are_shown(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    (shown,) = json.loads(show_cursor(folder, "acked", "work")[0])
    assert shown["pending_acks"] == [
        {"txn": "0:22", "type": "individual", "position": "31:3"},
        {"txn": "0:22", "type": "individual", "position": "31:4"},
        {"txn": "0:22", "type": "individual", "position": "31:8", "batch_size": 4, "acked": [[2, 3]]},
    ]
    assert "pending_acks_unknown" not in shown
    text, _ = show_cursor(folder, "acked", "work", form="plain")
    assert "acknowledged in the open transaction 0:22: 31:8, batch indexes 2-3 of 4" in text
    text, _ = show_cursor(folder, "acked", "all", form="plain")
    assert "acknowledged in the open transaction 0:23: all up to 31:6" in text


def test_acknowledgements_in_open_transactions_are_unknown_without_entries(capture: Capture) -> None:
    out, messages = show_cursor(capture("transactions-4.2.4"), "acked", "work", entries=False)
    (shown,) = json.loads(out)
    assert (shown["pending_acks"], shown["pending_acks_unknown"]) == ([], "no source of entries was given")
    not_checked = json.loads(messages)["not_checked"]
    assert not_checked["acknowledgements in open transactions of 1 cursor"] == "add --entries"


def test_the_store_has_the_pending_acknowledgements_of_segments(capture: Capture) -> None:
    folder = capture("pulsar-5.0.0-M1-scalable-running")
    out, _ = show_cursor(folder, "segment://public/default/txn/0000-7fff-0", "audit")
    (shown,) = json.loads(out)
    assert shown["pending_acks"] == [{"txn": "2:1", "type": "individual", "position": "73:0"}]

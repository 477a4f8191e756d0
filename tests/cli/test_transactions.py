"""Entries of transaction logs and snapshots of transaction buffers, as `dump-entries` shows them."""

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
    """Return stdout of `dump-entries` over a capture."""
    where = ["--entries", f"bookie-disk:{folder}"]
    where += ["--store", f"snapshot:{folder / 'metadata.ndjson'}"] if store else []
    done = pulsar_meta_here("dump-entries", *arguments, *where, "-o", form)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode()


def frames_of(folder: Path, topic: str) -> Iterator[bytes]:
    """Yield the entries of a topic as they are."""
    where = ["--entries", f"bookie-disk:{folder}", "--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    frames = io.BytesIO(pulsar_meta_here("dump-entries", topic, *where, "-o", "raw").stdout)
    while size := frames.read(4):
        yield frames.read(int.from_bytes(size, "big"))


def dump(folder: Path, *arguments: str, code: int = 0, store: bool = True) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(folder, *arguments, code=code, store=store).splitlines()]


@pytest.mark.parametrize("name", CAPTURES)
def test_the_coordinators_log_tells_how_transactions_ended(capture: Capture, name: str) -> None:
    stated = orjson.loads((capture(name) / "truth.json").read_bytes())
    outcomes = stated["persistent://public/default/money"]["transactions"]
    ended: dict[str, str] = {}
    for entry in dump(capture(name), COORDINATOR):
        assert entry["unopened"] == "no frame: the log of a transaction coordinator"
        assert entry["log"]["batched"] == (name == "transactions-4.2.4")
        ended |= {
            record["txn"]: record["new_status"].lower()
            for record in entry["log"]["records"]
            if record["metadata_op"] == "UPDATE"
        }
    assert ended
    assert ended == {txn: outcome for txn, outcome in outcomes.items() if txn in ended}


def test_records_for_eyes(capture: Capture) -> None:
    lines = run(
        capture("transactions-4.2.4"), "acked-work__transaction_pending_ack", form="plain"
    ).splitlines()
    assert lines[1].split("\t")[-1] == (
        "acknowledgments in transactions: txn 0:20 COMMIT Individual; txn 0:21 ABORT Individual"
    )
    assert "txn 0:22 ACK Individual 31:8" in lines[0]


def test_a_ledger_without_a_known_owner_shows_what_it_could_be(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    for entry in dump(folder, "27", store=False):
        assert "log" not in entry
        assert [reading["kind"] for reading in entry["readings"]] == ["transaction-log"]
        assert entry["unopened"].startswith("no frame: whose ledger it is, is not known")
    assert [entry["log"]["kind"] for entry in dump(folder, "32")] == ["pending-acks"] * 2


def test_snapshots_in_segments(capture: Capture) -> None:
    topics = ("__transaction_buffer_snapshot_segments", "__transaction_buffer_snapshot_indexes")
    entries = dump(capture("transactions-4.2.4"), *topics, "--deep")
    snapshots = [message["snapshot"] for entry in entries for message in entry["messages"]]
    segments = [one for one in snapshots if "sequenceId" in one]
    assert [len(one["aborts"]) for one in segments] == [2, 2, 2]
    last = snapshots[-1]
    assert last["topicName"] == "persistent://public/default/money"
    assert [index["sequenceID"] for index in last["indexList"]] == [0, 1, 2]
    assert last["snapshot"]["aborts"] == [{"leastSigBits": 17, "mostSigBits": 0}]


def test_single_snapshots_for_eyes(capture: Capture) -> None:
    lines = run(
        capture("transactions-4.0.7"), "__transaction_buffer_snapshot", "--deep", form="plain"
    ).splitlines()
    assert lines[-1].endswith("snapshot of persistent://public/default/money: up to 26:7, 7 aborted")


def test_a_compacted_snapshot_that_only_its_ledger_has(capture: Capture) -> None:
    (entry,) = dump(capture("pulsar-4.2.4"), "300", "--deep")
    assert entry["compacted_from"] == {"ledger_id": 234, "entry_id": 0}
    assert [one["txnIdLeastBits"] for one in entry["messages"][0]["snapshot"]["aborts"]] == [0, 3]


def positions(entries: list[dict[str, Any]]) -> Iterator[tuple[int, int, int]]:
    """Yield ledger, entry and batch index of the messages that readers are given."""
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
def test_readable_is_what_a_reader_was_given(capture: Capture, name: str, topic: str) -> None:
    truth = orjson.loads((capture(name) / "truth.json").read_bytes())[f"persistent://public/default/{topic}"]
    entries = dump(capture(name), topic, "--transactions", "--deep")
    stated = [(message["l"], message["e"], message["b"]) for message in truth["messages"]]
    assert list(positions(entries)) == stated
    assert any(entry.get("transaction_state") == "aborted" for entry in entries)
    outcomes = truth.get("transactions", {})
    for entry in entries:
        if entry.get("transaction") in outcomes:
            assert entry["transaction_state"] == outcomes[entry["transaction"]]


def test_outcomes_in_a_template_and_for_eyes(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    template = ("--format", "{transaction} {transaction_state} {readable}")
    lines = run(folder, "money", "--transactions", *template, "--from", "-9", form="plain").splitlines()
    assert lines[0] == "0:17 aborted False"
    notes = [
        line.split("\t")[-1] for line in run(folder, "money", "--transactions", form="plain").splitlines()
    ]
    assert notes[-2:] == ["txn 0:25 committed, behind an open transaction", "marker 21, txn 0:25 committed"]


def test_frames_alone_have_no_place_for_outcomes(capture: Capture) -> None:
    run(capture("transactions-4.2.4"), "money", "--transactions", form="raw", code=2)


@pytest.mark.parametrize("name", CAPTURES)
def test_what_the_entries_are_decode_says_too(capture: Capture, name: str) -> None:
    """Every entry of the logs, written out, decodes to the same records, and back to its bytes."""
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


def test_what_a_broker_has_forgotten_is_said(capture: Capture, tmp_path: Path) -> None:
    """A real 4.2.4 lost an aborted transaction out of its snapshots: markers know it, its reader did not."""
    folder = capture("transactions-4.2.4-forgotten")
    truth = orjson.loads((folder / "truth.json").read_bytes())["persistent://public/default/money"]
    received = [(one["l"], one["e"], one["b"]) for one in truth["messages"]]
    where = ["--entries", f"bookie-disk:{folder}", "--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    done = pulsar_meta_here("dump-entries", "money", "--transactions", "--deep", *where, "-o", "ndjson")
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    by_markers = list(positions(entries))
    assert [(one["ledger_id"], one["entry_id"]) for one in entries if "forgotten" in one] == [
        (16, 7), (16, 8), (16, 9)
    ]  # fmt: skip
    assert [place for place in received if place not in by_markers] == [(16, 7, -1), (16, 8, -1), (16, 9, -1)]
    assert b"1 aborted transaction missing in the newest snapshot" in done.stderr
    assert b"gives readers such messages (0:9 of persistent://public/default/money)" in done.stderr
    # What goes by the newest snapshot, as a broker does, has them.
    export = [
        "export",
        "money",
        "--readable",
        "--to",
        tmp_path,
        "--columns",
        "ledger_id,entry_id,batch_index",
    ]
    assert pulsar_meta_here(*export, *where, "-o", "ndjson").returncode == 0
    rows = [
        json.loads(line) for file in tmp_path.rglob("*-*.ndjson") for line in file.read_text().splitlines()
    ]
    assert sorted((row["ledger_id"], row["entry_id"]) for row in rows) == sorted(one[:2] for one in received)
    whole = capture("transactions-4.2.4")
    where = ["--entries", f"bookie-disk:{whole}", "--store", f"snapshot:{whole / 'metadata.ndjson'}"]
    assert (
        b"newest snapshot" not in pulsar_meta_here("dump-entries", "money", "--transactions", *where).stderr
    )


def test_of_a_ledger_alone_what_has_no_marker_there_is_unknown(capture: Capture) -> None:
    entries = dump(capture("transactions-4.2.4"), "13", "--transactions", store=False)
    states = {entry["transaction"]: entry["transaction_state"] for entry in entries if "transaction" in entry}
    assert states["0:3"] == "aborted"
    assert states["0:5"] == "committed"
    assert states["0:6"] == "unknown"
    assert all(entry["readable"] is not True for entry in entries)
    where = ("--entries", f"bookie-disk:{capture('transactions-4.2.4')}", "-o", "ndjson")
    said = json.loads(pulsar_meta_here("dump-entries", "13", "--transactions", *where).stderr)
    unknown = sum(entry["readable"] is None for entry in entries)
    assert list(said["not_checked"]) == [f"whether {unknown} entries are readable"]


@pytest.mark.parametrize("name", ["pulsar-5.0.0-M1-scalable", "pulsar-5.0.0-M1-scalable-running"])
def test_of_segments_the_store_says_what_readers_were_given(capture: Capture, name: str) -> None:
    truth = orjson.loads((capture(name) / "truth.json").read_bytes())
    entries = dump(capture(name), "topic://public/default/txn", "--transactions", "--deep")
    segments = {entry["topic"] for entry in entries}
    assert len(segments) == 4
    for segment in segments:
        given = [entry for entry in entries if entry["topic"] == segment]
        stated = [(message["l"], message["e"], message["b"]) for message in truth[segment]["messages"]]
        assert list(positions(given)) == stated
    states = {entry["transaction"]: entry["transaction_state"] for entry in entries if "transaction" in entry}
    assert (states["1:0"], states["2:0"], states.get("1:2")) == (
        "committed",
        "aborted",
        "open" if name.endswith("running") else None,
    )


def show_cursor(folder: Path, *arguments: str, form: str = "json", entries: bool = True) -> tuple[str, str]:
    where = ["--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    where += ["--entries", f"bookie-disk:{folder}"] if entries else []
    done = pulsar_meta_here("show-cursor", *arguments, *where, "-o", form)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def test_a_subscription_says_what_it_acknowledged_in_open_transactions(capture: Capture) -> None:
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


def test_without_entries_what_is_pending_is_not_known(capture: Capture) -> None:
    out, said = show_cursor(capture("transactions-4.2.4"), "acked", "work", entries=False)
    (shown,) = json.loads(out)
    assert (shown["pending_acks"], shown["pending_acks_unknown"]) == ([], "no source of entries was given")
    left_out = json.loads(said)["not_checked"]
    assert left_out["acknowledgments in open transactions of 1 cursor"] == "give --entries"


def test_a_segments_subscription_has_them_in_the_store(capture: Capture) -> None:
    folder = capture("pulsar-5.0.0-M1-scalable-running")
    out, _ = show_cursor(folder, "segment://public/default/txn/0000-7fff-0", "audit")
    (shown,) = json.loads(out)
    assert shown["pending_acks"] == [{"txn": "2:1", "type": "individual", "position": "73:0"}]

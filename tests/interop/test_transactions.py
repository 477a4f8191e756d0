"""Transactions of a real broker, made anew: what we say of them against what it says after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.transactions.pending_acks import pending_acks
from pulsar_meta.stores.registry import open_store
from tests.cli.program import pulsar_meta_here
from tests.servers import transactions
from tests.servers.transactions import ACKED, TOPIC

pytestmark = pytest.mark.interop
Truth = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", params=transactions.HOW)
def made(
    request: pytest.FixtureRequest, version: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Truth]:
    """A capture of this version and how the broker said it is."""
    folder = tmp_path_factory.mktemp(f"transactions-{version}")
    return folder, transactions.make(version, folder, request.param)


def dump(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    return said(folder, *arguments)[0]


def said(folder: Path, *arguments: str) -> tuple[list[dict[str, Any]], bytes]:
    """Return the entries that are shown, and what stderr has."""
    where = ["--store", f"snapshot:{folder / 'metadata.ndjson'}", "--entries", f"bookie-disk:{folder}"]
    done = pulsar_meta_here("dump-entries", *arguments, *where, "-o", "ndjson")
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def exported(folder: Path, out: Path) -> list[tuple[int, int, int]]:
    """Return the places of the messages that `export --readable` writes."""
    where = ["--store", f"snapshot:{folder / 'metadata.ndjson'}", "--entries", f"bookie-disk:{folder}"]
    done = pulsar_meta_here("export", TOPIC, "--readable", "--to", out, *where, "-o", "ndjson")
    assert done.returncode == 0, done.stderr.decode()
    rows = [json.loads(line) for file in out.rglob("*-*.ndjson") for line in file.read_text().splitlines()]
    batches = (-1 if row["batch_index"] is None else row["batch_index"] for row in rows)
    return sorted((row["ledger_id"], row["entry_id"], at) for row, at in zip(rows, batches, strict=True))


def test_readable_is_what_a_reader_is_given(made: tuple[Path, Truth], tmp_path: Path) -> None:
    folder, stated = made
    entries, warned = said(folder, TOPIC, "--transactions", "--deep")
    given = [
        (entry["ledger_id"], entry["entry_id"], message.get("batch_index", -1))
        for entry in entries
        if entry["readable"]
        for message in entry["messages"]
    ]
    states = {
        (entry["ledger_id"], entry["entry_id"]): (entry.get("transaction"), entry.get("transaction_state"))
        for entry in entries
    }
    received = [(one["l"], one["e"], one["b"]) for one in stated[TOPIC]["messages"]]
    read = exported(folder, tmp_path)
    # Brokers may lose a segment of their snapshots when they come up: they write another with its mark. By
    # the newest snapshot readers are then given the messages of the aborted transactions in it.
    lost = {states[place[:2]] for place in {*read} ^ {*given}}
    assert {state for _, state in lost} <= {"aborted"}
    assert (b"missing in the newest snapshot" in warned) == bool(lost)
    aborted = {state for state in states.values() if state[1] == "aborted"}
    known = stated[TOPIC]["transactionBuffer"]["aborted"]
    # The broker that answered came up from that snapshot, or wrote it itself and still knew all.
    assert (sorted(received), known) in ((read, len(aborted - lost)), (sorted(given), len(aborted)))
    for entry in entries:
        if "transaction" in entry:
            assert entry["transaction_state"] == stated[TOPIC]["transactions"][entry["transaction"]]
    assert {entry.get("transaction_state") for entry in entries} == {None, "committed", "aborted", "open"}


def test_pending_acknowledgments_are_the_brokers(made: tuple[Path, Truth]) -> None:
    folder, stated = made
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries([f"bookie-disk:{folder}"]) as source,
    ):
        for cursor, expected in stated[ACKED]["pendingAcks"].items():
            found = pending_acks(store, source, TopicName.parse(ACKED), cursor)
            assert found.unknown is None
            places = {
                (str(ack.txn), ack.ledger_id, ack.entry_id) for ack in found.acks if ack.kind == "individual"
            }
            held = expected["individual"].items()
            assert places == {(txn, place[0], place[1]) for txn, some in held for place in some}
            upto = {str(ack.txn): ack.entry_id for ack in found.acks if ack.kind == "cumulative"}
            assert upto == {txn: place[1] for txn, place in (expected["cumulative"] or {}).items()}


def test_every_record_of_the_logs_is_decoded(made: tuple[Path, Truth]) -> None:
    folder, stated = made
    outcomes, ended = stated[TOPIC]["transactions"], dict[str, str]()
    for entry in dump(folder, "persistent://pulsar/system/__transaction_log_0"):
        for record in entry["log"]["records"]:
            if record["metadata_op"] == "UPDATE":
                ended[record["txn"]] = record["new_status"].lower()
    assert ended
    assert ended.items() <= outcomes.items()

"""BookKeeper's metadata rebuilt from disks alone, compared with the stores of the captures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.frames.bookie_entry import master_key
from pulsar_meta.codecs.metadata.ledger_metadata import decode_cookie, decode_ledger_metadata
from pulsar_meta.codecs.names import LEDGERS, ledger_of_path
from pulsar_meta.entries.bookie_client import Segment
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.rebuild.ledgers import (
    FoundLedger,
    choose_stripings,
    disks_of,
    examine,
    ledger_on_disks,
)
from pulsar_meta.jobs.rebuild.striping import Quorum, Striping
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.registry import open_store
from tests.topic_builder import MemoryEntries

# (Equal ledgers, ledgers that both the store and the disks have), custom metadata aside.
EXACT = {
    "pulsar-2.8.2": (142, 143),
    "pulsar-3.0.7": (163, 163),
    "pulsar-4.0.7": (159, 159),
    "pulsar-4.2.4": (156, 156),
    # Three were open.
    "pulsar-4.2.4-killed": (156, 159),
    # A ledger with one entry does not show the order of its bookies; three have another order.
    "pulsar-4.2.4-3bookies": (154, 157),
    "pulsar-5.0.0-M1": (156, 156),
}


def rebuilt_ledgers(
    folder: Path, *disks: str, lost: tuple[str, ...] = (), password: bytes = b""
) -> dict[int, FoundLedger]:
    faults: list[PulsarMetaError] = []
    urls = [f"bookie-disk:{folder / disk}" for disk in disks]
    with open_entries(urls) as source:
        ledgers, of = source.ledgers(), disks_of(source)
        every = [
            examine(source, of, ledger, faults.append, password=password, lost=lost) for ledger in ledgers
        ]
    assert not faults
    return {ledger.ledger_id: ledger for ledger in choose_stripings(every, password)}


def stored(folder: Path) -> dict[int, LedgerMetadataFormat]:
    """Return the ledger metadata in the store, without the fields that no disk has."""
    expected = {}
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        for record in store.scan(LEDGERS):
            ledger_id = ledger_of_path(record.path)
            if ledger_id is not None:
                expected[ledger_id] = decode_ledger_metadata(record.value).metadata
                for name in ("customMetadata", "ctime", "cToken"):
                    expected[ledger_id].ClearField(name)
    return expected


def count_equal(
    rebuilt: dict[int, FoundLedger], expected: dict[int, LedgerMetadataFormat]
) -> tuple[int, int]:
    both = len(rebuilt.keys() & expected.keys())
    return both - len(unequal(rebuilt, expected)), both


def unequal(rebuilt: dict[int, FoundLedger], expected: dict[int, LedgerMetadataFormat]) -> list[int]:
    both = sorted(rebuilt.keys() & expected.keys())
    return [
        ledger_id
        for ledger_id in both
        if decode_ledger_metadata(rebuilt[ledger_id].value(b"")).metadata != expected[ledger_id]
    ]


@pytest.mark.parametrize("name", EXACT)
def test_the_metadata_equals_that_of_the_store(capture: Callable[[str], Path], name: str) -> None:
    folder = capture(name)
    rebuilt = rebuilt_ledgers(folder, *sorted(path.name for path in folder.glob("bookie*")))
    assert count_equal(rebuilt, stored(folder)) == EXACT[name]
    # With one bookie, there is one order.
    assert name.endswith("3bookies") == any(ledger.striping.ambiguous for ledger in rebuilt.values())
    assert name.endswith("3bookies") <= all(
        rebuilt[ledger_id].striping.ambiguous for ledger_id in unequal(rebuilt, stored(folder))
    )
    assert all(scan.refused is None and not scan.missing for scan in rebuilt.values())


@pytest.mark.parametrize("lost", ["bookie0", "bookie1", "bookie2"])
def test_two_of_three_bookies_are_enough(capture: Callable[[str], Path], lost: str) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    cookie = decode_cookie((folder / lost / "current" / "VERSION").read_bytes())
    disks = sorted({"bookie0", "bookie1", "bookie2"} - {lost})
    equal, total = count_equal(
        rebuilt_ledgers(folder, *disks, lost=(cookie.fields.bookieHost,)), stored(folder)
    )
    assert total == 157
    assert equal >= 150


def test_ledgers_on_one_of_three_bookies_are_uncertain(capture: Callable[[str], Path]) -> None:
    rebuilt = rebuilt_ledgers(capture("pulsar-4.2.4-3bookies"), "bookie0")
    assert any(scan.missing for scan in rebuilt.values())
    long = [scan for scan in rebuilt.values() if scan.last_entry > 20]
    assert all(scan.unsure for scan in long)


def test_a_wrong_password_is_reported(capture: Callable[[str], Path]) -> None:
    rebuilt = rebuilt_ledgers(capture("pulsar-4.2.4"), "bookie0", password=b"not it")
    assert {scan.refused for scan in rebuilt.values()} == {"its master key does not match the password given"}


def test_the_master_key_is_derived_from_the_password(capture: Callable[[str], Path]) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        state = source.ledger_state(source.ledgers()[0])
    assert state is not None
    assert state.master_key == master_key(b"") != master_key(b"x")


def test_a_ledger_without_a_readable_last_entry_has_no_length() -> None:
    """The length is the number of bytes up to the last entry, so an earlier entry does not have it."""
    source, faults = MemoryEntries(), list[PulsarMetaError]()
    for entry_id in range(12):
        source.put(7, entry_id, bytes(100))
    ledger = ledger_on_disks(source, 7, faults.append)
    assert ledger is not None
    assert (ledger.length, ledger.last_entry, ledger.entries, ledger.refused) == (100, 11, 12, None)
    source.held[7][11] = b"\x00"
    ledger = ledger_on_disks(source, 7, faults.append)
    assert ledger is not None
    assert (ledger.length, ledger.refused) == (None, "its last entry can't be read")
    assert len(faults) == 1


@pytest.mark.parametrize(("given", "written"), [(None, 2), (1, 1), (2, 2), (3, 2)])
def test_the_ack_quorum_is_at_most_the_write_quorum(given: int | None, written: int) -> None:
    members = ("a:1", "b:1", "c:1")
    striping = Striping(Quorum(3, 2), (Segment(0, members),))
    found = FoundLedger(7, 12, 11, 1100, "CRC32C", striping)
    metadata = decode_ledger_metadata(found.value(b"", given)).metadata
    assert (metadata.ensembleSize, metadata.quorumSize, metadata.ackQuorumSize) == (3, 2, written)
    assert (metadata.length, metadata.lastEntryId) == (1100, 11)

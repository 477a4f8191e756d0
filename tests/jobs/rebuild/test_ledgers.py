"""BookKeeper's metadata from disks alone, against what the stores of the captures had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.metadata.ledger_metadata import decode_cookie, decode_ledger_metadata
from pulsar_meta.codecs.names import LEDGERS, ledger_of_path
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.rebuild.ledgers import FoundLedger, disks_of, examine, judged, master_key
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.registry import open_store

# Of the ledgers that store and disks both have: how many are equal but for custom metadata.
EXACT = {
    "pulsar-2.8.2": (142, 143),
    "pulsar-3.0.7": (163, 163),
    "pulsar-4.0.7": (159, 159),
    "pulsar-4.2.4": (156, 156),
    # Three were open.
    "pulsar-4.2.4-killed": (156, 159),
    # Of ledgers with one entry the order of the bookies does not show; three are the other way round.
    "pulsar-4.2.4-3bookies": (154, 157),
    "pulsar-5.0.0-M1": (156, 156),
}


def found_on(
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
    return {one.ledger_id: one for one in judged(every, password)}


def stored(folder: Path) -> dict[int, LedgerMetadataFormat]:
    """Return what the store said of ledgers, without what no disk has."""
    stated = {}
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        for record in store.scan(LEDGERS):
            ledger_id = ledger_of_path(record.path)
            if ledger_id is not None:
                stated[ledger_id] = decode_ledger_metadata(record.value).metadata
                for name in ("customMetadata", "ctime", "cToken"):
                    stated[ledger_id].ClearField(name)
    return stated


def compared(found: dict[int, FoundLedger], stated: dict[int, LedgerMetadataFormat]) -> tuple[int, int]:
    both = len(found.keys() & stated.keys())
    return both - len(unequal(found, stated)), both


def unequal(found: dict[int, FoundLedger], stated: dict[int, LedgerMetadataFormat]) -> list[int]:
    both = sorted(found.keys() & stated.keys())
    return [one for one in both if decode_ledger_metadata(found[one].value(b"")).metadata != stated[one]]


@pytest.mark.parametrize("name", EXACT)
def test_equal_to_what_the_store_had(capture: Callable[[str], Path], name: str) -> None:
    folder = capture(name)
    found = found_on(folder, *sorted(path.name for path in folder.glob("bookie*")))
    assert compared(found, stored(folder)) == EXACT[name]
    assert name.endswith("3bookies") <= all(
        found[one].striping.ambiguous for one in unequal(found, stored(folder))
    )
    assert all(scan.key_checked and scan.refused is None and not scan.missing for scan in found.values())


@pytest.mark.parametrize("lost", ["bookie0", "bookie1", "bookie2"])
def test_two_of_three_bookies(capture: Callable[[str], Path], lost: str) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    cookie = decode_cookie((folder / lost / "current" / "VERSION").read_bytes())
    disks = sorted({"bookie0", "bookie1", "bookie2"} - {lost})
    exact, of = compared(found_on(folder, *disks, lost=(cookie.fields.bookieHost,)), stored(folder))
    assert of == 157
    assert exact >= 150


def test_one_of_three_bookies(capture: Callable[[str], Path]) -> None:
    found = found_on(capture("pulsar-4.2.4-3bookies"), "bookie0")
    assert any(scan.missing for scan in found.values())
    long = [scan for scan in found.values() if scan.last_entry > 20]
    assert all(one.unsure for one in long)


def test_another_password(capture: Callable[[str], Path]) -> None:
    found = found_on(capture("pulsar-4.2.4"), "bookie0", password=b"not it")
    assert {scan.refused for scan in found.values()} == {"its master key is not that of the password given"}


def test_a_master_key(capture: Callable[[str], Path]) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        note = source.ledger_note(source.ledgers()[0])
    assert note is not None
    assert note.master_key == master_key(b"") != master_key(b"x")

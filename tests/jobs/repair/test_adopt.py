"""Ledgers that only the disks have come back into their topics, if their messages show whose they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.adopt import repair_adopt
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import check_findings
from tests.jobs.repair.conftest import Patient

PLAIN = TopicName.parse("plain")


@pytest.fixture
def disk(capture: Callable[[str], Path]) -> Iterator[EntrySource]:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4')}"]) as source:
        yield source


def forget(patient: Patient, ledger_id: int) -> None:
    """Remove a ledger from the list and from BookKeeper."""
    info = decode_managed_ledger(patient.values()[PLAIN.path])
    kept = [ledger for ledger in info.ledgerInfo if ledger.ledgerId != ledger_id]
    del info.ledgerInfo[:]
    info.ledgerInfo.extend(kept)
    patient.put(PLAIN.path, info.SerializeToString())
    patient.remove(ledger_path(ledger_id))


def adopted(patient: Patient, source: EntrySource | None, ledger_id: int, *others: MemoryStore) -> Repair:
    return repair_adopt(patient.store, source, PLAIN, ledger_id, lambda error: None, others=others)


def test_a_lost_ledger_is_found_and_adopted(patient: Patient, disk: EntrySource) -> None:
    healthy, path = patient.values(), ledger_path(25)
    forget(patient, 25)
    damaged = patient.values()
    [finding] = [each for each in check_findings(patient.store, disk) if each.code == "ledger-lost"]
    assert (finding.topic, finding.ledger_id) == (str(PLAIN), 25)
    assert finding.repair == f"pulsar-meta repair adopt {PLAIN} 25"
    repair = adopted(patient, disk, 25)
    assert (repair.losses, repair.confirm) == ((), None)
    patient.apply(repair)
    before, after = (decode_managed_ledger(values[PLAIN.path]) for values in (healthy, patient.values()))
    for info in (before, after):
        for ledger in info.ledgerInfo:
            # The time at which it was closed is not on the disks.
            ledger.timestamp = 0 if ledger.ledgerId == 25 else ledger.timestamp
    assert list(after.ledgerInfo) == list(before.ledgerInfo)
    written, known = (decode_ledger_metadata(values[path]).metadata for values in (patient.values(), healthy))
    for name in ("ctime", "cToken", "customMetadata"):
        written.ClearField(name)
        known.ClearField(name)
    assert written == known
    assert not [each for each in check_findings(patient.store, disk) if each.ledger_id == 25]
    patient.take_back()
    assert patient.values() == damaged


def test_a_ledger_that_a_record_names_is_not_adopted(patient: Patient, disk: EntrySource) -> None:
    with pytest.raises(UsageError, match="ledger 25 has metadata: run repair topic-record"):
        adopted(patient, disk, 25)
    healthy = dict(patient.store.values)
    patient.remove(ledger_path(25))
    with pytest.raises(UsageError, match="refers to ledger 25: run repair ledger-metadata 25"):
        adopted(patient, disk, 25)
    patient.store.values = healthy
    other = MemoryStore()
    other.put(PLAIN.path, patient.values()[PLAIN.path], -1)
    forget(patient, 25)
    with pytest.raises(UsageError, match="ledger 25 belongs to another cluster"):
        adopted(patient, disk, 25, other)


def test_without_the_ledger_on_the_disks_nothing_is_adopted(patient: Patient, disk: EntrySource) -> None:
    forget(patient, 25)
    with pytest.raises(UsageError, match="add --entries bookie-disk:PATH"):
        adopted(patient, None, 25)
    with pytest.raises(NotFoundError, match="no entry of ledger 987654"):
        adopted(patient, disk, 987654)


def test_a_ledger_of_another_topic_is_refused(patient: Patient, disk: EntrySource) -> None:
    orders = TopicName.parse("orders")
    info = decode_managed_ledger(patient.values()[orders.path])
    strange = info.ledgerInfo[1].ledgerId
    del info.ledgerInfo[1]
    patient.put(orders.path, info.SerializeToString())
    patient.remove(ledger_path(strange))
    with pytest.raises(UsageError, match=f"refusing to adopt ledger {strange}"):
        adopted(patient, disk, strange)

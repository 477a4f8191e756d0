"""Unfinished offloads, and offloaded objects that are gone although BookKeeper has the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger, is_enveloped
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.generator import repair_offload
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.topic import read_topic
from tests.codecs.bookie_files.offload_objects import offloaded as offloaded_objects
from tests.jobs.repair.conftest import Patient

PLAIN = TopicName.parse("plain")


@pytest.fixture
def ledgers(patient: Patient) -> list[int]:
    return [ledger.ledger_id for ledger in read_topic(patient.store, PLAIN).ledgers]


@pytest.fixture
def disk(capture: Callable[[str], Path]) -> Iterator[EntrySource]:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        yield source


def offload(patient: Patient, ledger_id: int, *, complete: bool, deleted: bool = False) -> None:
    """Mark a ledger as offloaded, as brokers do."""
    record = patient.store.values[PLAIN.path]
    info = decode_managed_ledger(record.value)
    [ledger] = [ledger for ledger in info.ledgerInfo if ledger.ledgerId == ledger_id]
    context = ledger.offloadContext
    context.uidMsb, context.uidLsb, context.complete, context.bookkeeperDeleted = 5, 6, complete, deleted
    patient.store.values[PLAIN.path] = record._replace(value=info.SerializeToString())


def repaired(patient: Patient, source: EntrySource | None, *ledgers: int) -> Repair:
    return repair_offload(patient.store, source, PLAIN, ledgers, Readers(("4.2.4",)))


def offloaded(patient: Patient) -> list[int]:
    topic = read_topic(patient.store, PLAIN)
    return [ledger.ledger_id for ledger in topic.ledgers if ledger.offload is not None]


def test_an_unfinished_offload_is_removed(patient: Patient, ledgers: list[int]) -> None:
    healthy = decode_managed_ledger(patient.values()[PLAIN.path])
    offload(patient, ledgers[0], complete=False)
    damaged = patient.values()
    repair = repaired(patient, None)
    assert "00000000-0000-0005-0000-000000000006" in repair.said[0]
    assert patient.apply(repair).rewritten == 1
    assert decode_managed_ledger(patient.values()[PLAIN.path]) == healthy
    patient.take_back()
    assert patient.values() == damaged


def test_a_ledger_without_its_object_is_read_from_bookkeeper(
    patient: Patient, ledgers: list[int], disk: EntrySource, tmp_path: Path
) -> None:
    offload(patient, ledgers[0], complete=True)
    offload(patient, ledgers[1], complete=True)
    assert patient.apply(repaired(patient, disk)).skipped_for == {"undecided": 1}
    patient.undo_files.pop()
    storage, name = tmp_path / "tiered", f"00000000-0000-0005-0000-000000000006-ledger-{ledgers[1]}"
    storage.mkdir()
    for key, data in zip((name, f"{name}-index"), offloaded_objects([b"frame"]), strict=True):
        (storage / key).write_bytes(data)
    with open_entries([disk.url, f"offload:{storage}"]) as both:
        repair = repaired(patient, both)
        assert repair.not_checked == {}
        patient.apply(repair)
    assert offloaded(patient) == [ledgers[1]]
    patient.take_back()
    # A ledger given by its id is changed too.
    patient.apply(repaired(patient, None, ledgers[1]))
    assert offloaded(patient) == [ledgers[0]]


def test_an_offload_without_a_copy_in_bookkeeper_is_kept(
    patient: Patient, ledgers: list[int], disk: EntrySource
) -> None:
    offload(patient, ledgers[0], complete=True, deleted=True)
    summary = patient.apply(repaired(patient, None, ledgers[0]))
    assert summary.skipped_for == {"undecided": 1}
    # The record marks it as deleted, but the bookies still have it.
    assert patient.apply(repaired(patient, disk, ledgers[0])).rewritten == 1
    patient.take_back()
    del patient.store.values[ledger_path(ledgers[0])]
    assert "BookKeeper no longer has it" in repaired(patient, disk, ledgers[0]).said[0]
    assert patient.apply(repaired(patient, disk, ledgers[0])).skipped_for == {"undecided": 1}
    assert offloaded(patient) == [ledgers[0]]


def test_a_ledger_that_was_not_offloaded_is_refused(patient: Patient, ledgers: list[int]) -> None:
    assert patient.apply(repaired(patient, None)).kept_for == {"already": 1}
    with pytest.raises(UsageError, match=f"ledger {ledgers[0]} was not offloaded"):
        repaired(patient, None, ledgers[0])
    with pytest.raises(NotFoundError, match="has no ledger 7"):
        repaired(patient, None, 7)
    assert not is_enveloped(patient.values()[PLAIN.path]) or offloaded(patient) == []

"""Ledger ends on which the list and BookKeeper disagree, with disks and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.count import repair_count
from pulsar_meta.jobs.topics.bookkeeper import read_bookkeeper_ledger
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.jobs.repair.conftest import Patient

PLAIN = TopicName.parse("plain")


@pytest.fixture
def disks(capture: Callable[[str], Path]) -> Iterator[EntrySource]:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        yield source


def ends(patient: Patient) -> list[tuple[int, int, int | None, int | None]]:
    """Return (count and size in the list, last entry and length in BookKeeper) of each ledger."""
    info = patient.info(read_topic(patient.store, PLAIN))
    known = [read_bookkeeper_ledger(patient.store, ledger.ledgerId) for ledger in info.ledgerInfo]
    both = zip(info.ledgerInfo, known, strict=True)
    return [(mine.entries, mine.size, theirs.last_entry, theirs.length) for mine, theirs in both]


def second(patient: Patient) -> int:
    return read_topic(patient.store, PLAIN).ledgers[1].ledger_id


def end_at(patient: Patient, last: int) -> None:
    def change(metadata: LedgerMetadataFormat) -> None:
        metadata.lastEntryId = last

    patient.change_metadata(second(patient), change)


def count_as(patient: Patient, entries: int) -> None:
    info = patient.info(read_topic(patient.store, PLAIN))
    info.ledgerInfo[1].entries = entries
    if not entries:
        info.ledgerInfo[1].size = info.ledgerInfo[1].timestamp = 0
    patient.put(PLAIN.path, info.SerializeToString())


@pytest.mark.parametrize("last", [20, 60])
def test_with_disks_both_get_the_real_end(patient: Patient, disks: EntrySource, last: int) -> None:
    before = ends(patient)
    end_at(patient, last)
    damaged = patient.values()
    assert patient.reported(str(PLAIN))
    repair = repair_count(patient.store, disks, PLAIN)
    assert (repair.confirm, repair.losses) == (None, ())
    patient.apply(repair)
    assert ends(patient) == before
    assert patient.reported(str(PLAIN)) == []
    patient.take_back()
    assert patient.values() == damaged


@pytest.mark.parametrize("last", [20, 60])
def test_without_disks_the_ledger_is_reopened_for_recovery(patient: Patient, last: int) -> None:
    end_at(patient, last)
    patient.apply(repair_count(patient.store, None, PLAIN, [second(patient)]))
    assert read_bookkeeper_ledger(patient.store, second(patient)).state == "OPEN"
    assert patient.reported(str(PLAIN)) == []


@pytest.mark.parametrize("with_disks", [True, False])
def test_a_zero_count_is_replaced_by_the_real_one(
    patient: Patient, disks: EntrySource, with_disks: bool
) -> None:
    before = ends(patient)
    count_as(patient, 0)
    assert patient.reported(str(PLAIN)) == [("ledger-counts-zero", second(patient))]
    patient.apply(repair_count(patient.store, disks if with_disks else None, PLAIN))
    assert ends(patient) == before
    assert patient.reported(str(PLAIN)) == []


def test_a_zero_count_of_an_open_ledger_needs_the_disks(patient: Patient, disks: EntrySource) -> None:
    def reopen(metadata: LedgerMetadataFormat) -> None:
        metadata.state, metadata.length = LedgerMetadataFormat.OPEN, 0
        metadata.ClearField("lastEntryId")

    before = ends(patient)
    count_as(patient, 0)
    patient.change_metadata(second(patient), reopen)
    assert repair_count(patient.store, None, PLAIN).decided[-1][1].reason == "undecided"
    patient.apply(repair_count(patient.store, disks, PLAIN))
    assert ends(patient) == before


def test_giving_up_lost_entries_needs_confirmation(patient: Patient, disks: EntrySource) -> None:
    before = ends(patient)
    count_as(patient, 55)
    repair = repair_count(patient.store, disks, PLAIN)
    assert repair.confirm == str(PLAIN)
    assert "5 entries" in repair.losses[0]
    patient.apply(repair)
    assert ends(patient) == before


def test_an_end_that_the_disks_lack_is_lowered_only_with_disks(patient: Patient, disks: EntrySource) -> None:
    before = ends(patient)
    count_as(patient, 55)
    end_at(patient, 54)
    lost = ("ledger-end-differs", second(patient))
    assert patient.reported(str(PLAIN), source=disks) == [lost]
    assert patient.apply(repair_count(patient.store, None, PLAIN)).rewritten == 0
    repair = repair_count(patient.store, disks, PLAIN, [second(patient)])
    assert (repair.confirm, "5 entries" in repair.losses[0]) == (str(PLAIN), True)
    patient.apply(repair)
    assert ends(patient) == before
    assert patient.reported(str(PLAIN), source=disks) == []


@pytest.mark.parametrize("in_list", [True, False])
def test_a_wrong_size_is_replaced_only_with_disks(
    patient: Patient, disks: EntrySource, *, in_list: bool
) -> None:
    before, ledger_id = ends(patient), second(patient)

    def enlarge(metadata: LedgerMetadataFormat) -> None:
        metadata.length *= 100

    if in_list:
        info = patient.info(read_topic(patient.store, PLAIN))
        info.ledgerInfo[1].size *= 100
        patient.put(PLAIN.path, info.SerializeToString())
    else:
        patient.change_metadata(ledger_id, enlarge)
    (undecided,) = [one for one in patient.findings() if one.code == "ledger-size-differs"]
    assert undecided.repair is None
    assert patient.apply(repair_count(patient.store, None, PLAIN)).rewritten == 0
    # Brokers don't use a wrong length in BookKeeper, so that is a note.
    with_disks = [one.repair for one in patient.findings(str(PLAIN), source=disks)]
    assert with_disks == ([f"pulsar-meta repair count {PLAIN} {ledger_id}"] if in_list else [])
    patient.apply(repair_count(patient.store, disks, PLAIN, [ledger_id]))
    assert ends(patient) == before
    assert patient.reported(str(PLAIN), source=disks) == []


def test_consistent_ledgers_are_kept(patient: Patient, disks: EntrySource) -> None:
    before = patient.values()
    for source in (None, disks):
        for name in ("plain", "orders", "parted", "empty"):
            assert patient.apply(repair_count(patient.store, source, TopicName.parse(name))).rewritten == 0
    assert patient.values() == before
    with pytest.raises(NotFoundError, match="does not list ledger 999"):
        repair_count(patient.store, None, PLAIN, [999])

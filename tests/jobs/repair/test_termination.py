"""Topics that are terminated before or after their last entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.count import repair_termination
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.jobs.repair.conftest import Patient

PLAIN = TopicName.parse("plain")


def terminate(patient: Patient, name: TopicName = PLAIN, entry_id: int = 3) -> int:
    topic = read_topic(patient.store, name)
    info = patient.info(topic)
    ledger_id = info.ledgerInfo[0].ledgerId
    info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = ledger_id, entry_id
    patient.put(name.path, info.SerializeToString())
    return ledger_id


def test_the_termination_is_removed(patient: Patient) -> None:
    before = patient.values()
    ledger_id = terminate(patient)
    damaged = patient.values()
    assert patient.reported(str(PLAIN)) == [("terminated-before-end", ledger_id)]
    patient.apply(repair_termination(patient.store, None, PLAIN))
    assert patient.values() == before
    assert patient.reported(str(PLAIN)) == []
    patient.take_back()
    assert patient.values() == damaged
    # A second repair has nothing to do.
    patient.apply(repair_termination(patient.store, None, PLAIN))
    assert patient.apply(repair_termination(patient.store, None, PLAIN)).rewritten == 0


def test_a_topic_can_be_terminated_at_its_end_instead(
    patient: Patient, capture: Callable[[str], Path]
) -> None:
    terminate(patient)
    ledgers = read_topic(patient.store, PLAIN).ledgers
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4')}"]) as source:
        patient.apply(repair_termination(patient.store, source, PLAIN, at_end=True))
    end = read_topic(patient.store, PLAIN).terminated
    assert end == max((ledger.ledger_id, ledger.counted - 1) for ledger in ledgers if ledger.counted)
    assert patient.reported(str(PLAIN)) == []


def test_a_termination_after_the_end_moves_back_to_the_last_entry(
    patient: Patient, capture: Callable[[str], Path]
) -> None:
    ledger = next(each for each in reversed(read_topic(patient.store, PLAIN).ledgers) if each.counted)
    info = patient.info(read_topic(patient.store, PLAIN))
    info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = 5_000_000, 7
    patient.put(PLAIN.path, info.SerializeToString())
    assert patient.reported(str(PLAIN)) == [("terminated-after-end", 5_000_000)]
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4')}"]) as source:
        patient.apply(repair_termination(patient.store, source, PLAIN, at_end=True))
    assert read_topic(patient.store, PLAIN).terminated == (ledger.ledger_id, ledger.counted - 1)
    assert patient.reported(str(PLAIN)) == []


def test_the_end_of_an_open_ledger_is_undecided(patient: Patient) -> None:
    terminate(patient)
    last = read_topic(patient.store, PLAIN).ledgers[-1].ledger_id

    def reopen(metadata: LedgerMetadataFormat) -> None:
        metadata.ClearField("lastEntryId")
        metadata.state = LedgerMetadataFormat.OPEN

    patient.change_metadata(last, reopen)
    repair = repair_termination(patient.store, None, PLAIN, at_end=True)
    assert repair.decided[0][1].reason == "undecided"
    assert "--entries" in repair.said[0]


def test_only_damaged_partitions_are_repaired(patient: Patient) -> None:
    base = TopicName.parse("parted")
    terminate(patient, base.with_partition(1), -1)
    repair = repair_termination(patient.store, None, base)
    assert [decision.action for _, decision in repair.decided] == ["keep", "rewrite", "keep"]
    assert patient.apply(repair).rewritten == 1
    before = patient.values()
    for name in ("plain", "terminated"):
        if TopicName.parse(name).path in before:
            assert (
                patient.apply(repair_termination(patient.store, None, TopicName.parse(name))).rewritten == 0
            )
    assert patient.values() == before
    with pytest.raises(NotFoundError):
        repair_termination(patient.store, None, TopicName.parse("no-such"))

"""Topics that were terminated before their last entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.registry import open_entries
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


def test_the_position_goes(patient: Patient) -> None:
    before = patient.values()
    ledger_id = terminate(patient)
    damaged = patient.values()
    assert patient.found(str(PLAIN)) == [("terminated-before-end", ledger_id)]
    patient.apply(repair_termination(patient.store, None, PLAIN))
    assert patient.values() == before
    assert patient.found(str(PLAIN)) == []
    patient.take_back()
    assert patient.values() == damaged
    # Nothing is left to do.
    patient.apply(repair_termination(patient.store, None, PLAIN))
    assert patient.apply(repair_termination(patient.store, None, PLAIN)).rewritten == 0


def test_it_can_stay_terminated_where_it_ends(patient: Patient, capture: Callable[[str], Path]) -> None:
    terminate(patient)
    ledgers = read_topic(patient.store, PLAIN).ledgers
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4')}"]) as source:
        patient.apply(repair_termination(patient.store, source, PLAIN, at_end=True))
    end = read_topic(patient.store, PLAIN).terminated
    assert end == max((ledger.ledger_id, ledger.counted - 1) for ledger in ledgers if ledger.counted)
    assert patient.found(str(PLAIN)) == []


def test_where_an_open_ledger_ends_nobody_knows(patient: Patient) -> None:
    terminate(patient)
    last = read_topic(patient.store, PLAIN).ledgers[-1].ledger_id

    def reopen(metadata: LedgerMetadataFormat) -> None:
        metadata.ClearField("lastEntryId")
        metadata.state = LedgerMetadataFormat.OPEN

    patient.change_metadata(last, reopen)
    repair = repair_termination(patient.store, None, PLAIN, at_end=True)
    assert repair.decided[0][1].reason == "undecided"
    assert "--entries" in repair.said[0]


def test_each_partition_and_what_is_well(patient: Patient) -> None:
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

"""Metadata of ledgers: by the list and by neighbours, by disks, striped over three bookies; refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.repair.ledger_metadata import repair_ledger_metadata
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, read_bookkeeper_ledger
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.damage import GARBAGE, healthy_store
from tests.jobs.repair.conftest import Patient

PLAIN = TopicName.parse("plain")
ROLES = ("pulsar/cursor", "pulsar/schemaId", "pulsar/compactedTopic")
Capture = Callable[[str], Path]


def repaired(
    patient: Patient, *names: object, source: EntrySource | None = None, again: bool = False
) -> Repair:
    def no_fault(error: PulsarMetaError) -> None:
        raise error

    return repair_ledger_metadata(patient.store, source, list(map(str, names)), no_fault, again=again)


def ledgers(patient: Patient, name: TopicName = PLAIN) -> list[int]:
    return [ledger.ledger_id for ledger in read_topic(patient.store, name).ledgers if ledger.counted]


def said_by(patient: Patient, ledger_id: int) -> BookkeeperLedger:
    return read_bookkeeper_ledger(patient.store, ledger_id)


@pytest.mark.parametrize("damage", [None, GARBAGE])
@pytest.mark.parametrize("by", ["topic", "number"])
def test_it_says_again_what_it_said(patient: Patient, damage: bytes | None, by: str) -> None:
    before = {ledger: said_by(patient, ledger) for ledger in ledgers(patient)[:3]}
    for ledger_id in before:
        path = ledger_path(ledger_id)
        if damage is None:
            patient.remove(path)
        else:
            patient.put(path, damage)
    damaged = patient.values()
    assert len(patient.found(str(PLAIN))) == 3
    patient.apply(repaired(patient, *([PLAIN] if by == "topic" else before)))
    assert {one: said_by(patient, one) for one in before} == before
    assert patient.found(str(PLAIN)) == []
    patient.take_back()
    assert patient.values() == damaged


def test_the_last_ledger_is_open_so_that_it_is_recovered(patient: Patient) -> None:
    last = read_topic(patient.store, PLAIN).ledgers[-1].ledger_id
    patient.remove(ledger_path(last))
    patient.apply(repaired(patient, last))
    assert (said_by(patient, last).state, said_by(patient, last).last_entry) == ("OPEN", None)
    assert patient.found(str(PLAIN)) == []


def test_disks_of_three_bookies_say_all_of_it(capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    patient = Patient(healthy_store(folder), Random(1), folder=tmp_path)
    chosen = ledgers(patient)[:2]
    before = {one: said_by(patient, one) for one in chosen}
    for ledger_id in chosen:
        patient.remove(ledger_path(ledger_id))
    with open_entries([f"bookie-disk:{folder / f'bookie{number}'}" for number in range(3)]) as source:
        patient.apply(repaired(patient, *chosen, source=source))
        assert {one: said_by(patient, one) for one in chosen} == before
        # A bookie under another name is put right.
        strange = decode_ledger_metadata(patient.values()[ledger_path(chosen[0])])
        strange.metadata.segment[0].ensembleMember[0] = "nobody:3181"
        patient.put(ledger_path(chosen[0]), encode_ledger_metadata(strange))
        assert repaired(patient, *chosen, source=source).decided[0][1].reason == "already"
        patient.apply(repaired(patient, *chosen, source=source, again=True))
        assert {one: said_by(patient, one) for one in chosen} == before


def test_without_disks_all_bookies_are_asked(capture: Capture, tmp_path: Path) -> None:
    patient = Patient(healthy_store(capture("pulsar-4.2.4-3bookies")), Random(1), folder=tmp_path)
    first = ledgers(patient)[0]
    before = said_by(patient, first)
    patient.remove(ledger_path(first))
    repair = repaired(patient, first)
    assert any("which of 3 bookies had it is not known" in text for text in repair.said)
    patient.apply(repair)
    after = said_by(patient, first)
    assert sorted(after.segments[0].members) == sorted(before.segments[0].members)
    assert (after.write_quorum, after.ack_quorum, after.last_entry) == (3, 1, before.last_entry)


def test_a_ledger_in_the_middle_without_a_count_is_undecided_without_disks(
    patient: Patient, capture: Capture
) -> None:
    first = ledgers(patient)[0]
    before = said_by(patient, first)
    topic = read_topic(patient.store, PLAIN)
    info = patient.info(topic)
    info.ledgerInfo[0].entries = info.ledgerInfo[0].size = info.ledgerInfo[0].timestamp = 0
    patient.put(topic.path, info.SerializeToString())
    patient.remove(ledger_path(first))
    assert repaired(patient, first).decided[0][1].reason == "undecided"
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        patient.apply(repaired(patient, first, source=source))
    assert said_by(patient, first) == before


def test_entries_that_are_gone_are_not_promised(patient: Patient, capture: Capture) -> None:
    topic = read_topic(patient.store, PLAIN)
    info = patient.info(topic)
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        here = set(source.ledgers())
        gone = next(
            number
            for number in range(1, 300)
            if number not in here and ledger_path(number) not in patient.values()
        )
        info.ledgerInfo.add(ledgerId=gone, entries=5, size=100, timestamp=1)
        patient.put(topic.path, info.SerializeToString())
        [(_, decision)] = repaired(patient, gone, source=source).decided
    assert (decision.reason, "missing-ledger" in (decision.note or "")) == ("undecided", True)


def test_ledgers_of_cursors_schemas_and_compaction_come_back_open(patient: Patient) -> None:
    roles = set()
    for path, value in patient.values().items():
        if path.startswith("/ledgers/00/"):
            metadata = decode_ledger_metadata(value).metadata
            custom = {pair.key for pair in metadata.customMetadata}
            role = next((one for one in ROLES if one in custom), "")
            if role and role not in roles:
                roles.add(role)
                ledger_id = int(path[-4:])
                patient.remove(path)
                try:
                    patient.apply(repaired(patient, ledger_id))
                except NotFoundError:
                    # Nobody names it any more.
                    roles.discard(role)
                    patient.put(path, value)
                    continue
                after = decode_ledger_metadata(patient.values()[path]).metadata
                assert after.state == LedgerMetadataFormat.OPEN
                assert after.digestType == metadata.digestType
                assert role in {pair.key for pair in after.customMetadata}
    assert roles >= {"pulsar/schemaId", "pulsar/compactedTopic"}


def test_what_nobody_names_is_refused(patient: Patient) -> None:
    with pytest.raises(NotFoundError, match="no topic, cursor or schema names ledger 999"):
        repaired(patient, 999)
    with pytest.raises(NotFoundError):
        repaired(patient, "no-such-topic")

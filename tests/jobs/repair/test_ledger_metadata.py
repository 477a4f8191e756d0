"""Ledger metadata restored from the list, from other ledgers, or from the disks of three bookies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.ledger_metadata import repair_ledger_metadata
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, read_bookkeeper_ledger
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.damage import GARBAGE, check_findings, healthy_store
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


def metadata_of(patient: Patient, ledger_id: int) -> BookkeeperLedger:
    return read_bookkeeper_ledger(patient.store, ledger_id)


@pytest.mark.parametrize("damage", [None, GARBAGE])
@pytest.mark.parametrize("by", ["topic", "number"])
def test_the_restored_metadata_equals_the_lost(patient: Patient, damage: bytes | None, by: str) -> None:
    before = {ledger: metadata_of(patient, ledger) for ledger in ledgers(patient)[:3]}
    for ledger_id in before:
        path = ledger_path(ledger_id)
        if damage is None:
            patient.remove(path)
        else:
            patient.put(path, damage)
    damaged = patient.values()
    assert len(patient.reported(str(PLAIN))) == 3
    patient.apply(repaired(patient, *([PLAIN] if by == "topic" else before)))
    assert {ledger_id: metadata_of(patient, ledger_id) for ledger_id in before} == before
    assert patient.reported(str(PLAIN)) == []
    patient.take_back()
    assert patient.values() == damaged


def test_the_last_ledger_is_restored_as_open(patient: Patient) -> None:
    last = read_topic(patient.store, PLAIN).ledgers[-1].ledger_id
    patient.remove(ledger_path(last))
    patient.apply(repaired(patient, last))
    assert (metadata_of(patient, last).state, metadata_of(patient, last).last_entry) == ("OPEN", None)
    assert patient.reported(str(PLAIN)) == []


def test_disks_of_three_bookies_are_enough_to_restore_everything(capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    patient = Patient(healthy_store(folder), Random(1), folder=tmp_path)
    chosen = ledgers(patient)[:2]
    before = {ledger_id: metadata_of(patient, ledger_id) for ledger_id in chosen}
    for ledger_id in chosen:
        patient.remove(ledger_path(ledger_id))
    with open_entries([f"bookie-disk:{folder / f'bookie{number}'}" for number in range(3)]) as source:
        patient.apply(repaired(patient, *chosen, source=source))
        assert {ledger_id: metadata_of(patient, ledger_id) for ledger_id in chosen} == before
        # A wrong bookie name is corrected.
        strange = decode_ledger_metadata(patient.values()[ledger_path(chosen[0])])
        strange.metadata.segment[0].ensembleMember[0] = "nobody:3181"
        patient.put(ledger_path(chosen[0]), encode_ledger_metadata(strange))
        assert repaired(patient, *chosen, source=source).decided[0][1].reason == "already"
        patient.apply(repaired(patient, *chosen, source=source, again=True))
        assert {ledger_id: metadata_of(patient, ledger_id) for ledger_id in chosen} == before


def test_metadata_that_ends_earlier_than_before_needs_confirmation(capture: Capture, tmp_path: Path) -> None:
    patient = Patient(healthy_store(capture("pulsar-4.2.4")), Random(1), folder=tmp_path)
    patient.change_metadata(25, lambda metadata: setattr(metadata, "lastEntryId", metadata.lastEntryId + 3))
    repair = repaired(patient, 25, again=True)
    assert repair.losses == ("ledger 25: its last 3 entries become unreachable",)
    assert repair.confirm == "persistent://public/default/plain"
    # The disks show that the ledger has no such entries.
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        repair = repaired(patient, 25, source=source, again=True)
    assert (repair.losses, repair.confirm) == ((), None)


def test_without_disks_the_ensemble_has_all_bookies(capture: Capture, tmp_path: Path) -> None:
    patient = Patient(healthy_store(capture("pulsar-4.2.4-3bookies")), Random(1), folder=tmp_path)
    first = ledgers(patient)[0]
    before = metadata_of(patient, first)
    patient.remove(ledger_path(first))
    repair = repaired(patient, first)
    assert any("it is unknown which of 3 bookies had it" in text for text in repair.said)
    patient.apply(repair)
    after = metadata_of(patient, first)
    assert sorted(after.segments[0].members) == sorted(before.segments[0].members)
    assert (after.write_quorum, after.ack_quorum, after.last_entry) == (3, 1, before.last_entry)


def test_a_ledger_without_a_count_in_the_middle_needs_the_disks(patient: Patient, capture: Capture) -> None:
    first = ledgers(patient)[0]
    before = metadata_of(patient, first)
    topic = read_topic(patient.store, PLAIN)
    info = patient.info(topic)
    info.ledgerInfo[0].entries = info.ledgerInfo[0].size = info.ledgerInfo[0].timestamp = 0
    patient.put(topic.path, info.SerializeToString())
    patient.remove(ledger_path(first))
    assert repaired(patient, first).decided[0][1].reason == "undecided"
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        patient.apply(repaired(patient, first, source=source))
    assert metadata_of(patient, first) == before


def test_a_ledger_without_entries_is_not_restored(patient: Patient, capture: Capture) -> None:
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


def test_ledgers_of_cursors_schemas_and_compaction_are_restored_as_open(patient: Patient) -> None:
    roles = set()
    for path, value in patient.values().items():
        if path.startswith("/ledgers/00/"):
            metadata = decode_ledger_metadata(value).metadata
            custom = {pair.key for pair in metadata.customMetadata}
            role = next((known_role for known_role in ROLES if known_role in custom), "")
            if role and role not in roles:
                roles.add(role)
                ledger_id = int(path[-4:])
                patient.remove(path)
                try:
                    patient.apply(repaired(patient, ledger_id))
                except NotFoundError:
                    # No record refers to it any more.
                    roles.discard(role)
                    patient.put(path, value)
                    continue
                after = decode_ledger_metadata(patient.values()[path]).metadata
                assert after.state == LedgerMetadataFormat.OPEN
                assert after.digestType == metadata.digestType
                assert role in {pair.key for pair in after.customMetadata}
    assert roles >= {"pulsar/schemaId", "pulsar/compactedTopic"}


def test_a_ledger_without_references_is_refused(patient: Patient) -> None:
    with pytest.raises(NotFoundError, match="no topic, cursor or schema refers to ledger 999"):
        repaired(patient, 999)
    with pytest.raises(NotFoundError):
        repaired(patient, "no-such-topic")


def body_at(value: bytes) -> int:
    """Return where the message of a metadata record begins."""
    return value.index(b"\n") + 3


@pytest.mark.parametrize("part", ["first", "last", "with other end"])
def test_every_truncation_of_metadata_is_restored_from_the_rest_the_list_and_its_neighbours(
    patient: Patient, part: str
) -> None:
    topic = read_topic(patient.store, PLAIN)
    listed = topic.ledgers[-1] if part == "last" else topic.ledgers[0]
    path = ledger_path(listed.ledger_id)
    if part == "last":
        patient.change_metadata(listed.ledger_id, close)
    value = patient.values()[path]
    before, kept_ends = metadata_of(patient, listed.ledger_id), set()
    for size in range(body_at(value) + 1, len(value)):
        patient.put(path, value[:size])
        patient.apply(repaired(patient, listed.ledger_id))
        after = metadata_of(patient, listed.ledger_id)
        assert (after.segments, after.digest_type) == (before.segments, before.digest_type)
        assert after.last_entry in (before.last_entry, None)
        kept_ends.add(after.last_entry)
    assert kept_ends == ({before.last_entry, None} if part == "last" else {before.last_entry})


def close(metadata: LedgerMetadataFormat) -> None:
    metadata.state, metadata.lastEntryId, metadata.length = LedgerMetadataFormat.CLOSED, 4, 500


def test_readable_ensembles_of_a_damaged_record_are_kept(capture: Capture, tmp_path: Path) -> None:
    """Without disks and without the record, every bookie would have to be asked."""
    patient = Patient(healthy_store(capture("pulsar-4.2.4-3bookies")), Random(1), folder=tmp_path)
    ledger_id = ledgers(patient)[0]
    before, value = metadata_of(patient, ledger_id), patient.values()[ledger_path(ledger_id)]
    patient.put(ledger_path(ledger_id), value[:-20])
    repair = repaired(patient, ledger_id)
    assert any("bookies as in the readable part of the record" in text for text in repair.said)
    patient.apply(repair)
    after = metadata_of(patient, ledger_id)
    assert (after.segments, after.write_quorum) == (before.segments, before.write_quorum)
    assert (after.last_entry, after.length, after.password) == (
        before.last_entry,
        before.length,
        before.password,
    )


def test_readable_bookies_that_do_not_exist_are_not_kept(capture: Capture, tmp_path: Path) -> None:
    patient = Patient(healthy_store(capture("pulsar-4.2.4-3bookies")), Random(1), folder=tmp_path)
    ledger_id = ledgers(patient)[0]
    path = ledger_path(ledger_id)
    bookie = metadata_of(patient, ledger_id).segments[0].members[0].encode()
    patient.put(path, patient.values()[path].replace(bookie, b"x" * len(bookie))[:-20])
    patient.apply(repaired(patient, ledger_id))
    assert b"xxxx" not in patient.values()[path]


def test_an_end_that_the_list_contradicts_needs_the_disks(patient: Patient, capture: Capture) -> None:
    ledger_id = ledgers(patient)[0]
    before = metadata_of(patient, ledger_id)
    patient.change_metadata(ledger_id, lambda metadata: setattr(metadata, "lastEntryId", 1000))
    patient.put(ledger_path(ledger_id), patient.values()[ledger_path(ledger_id)][:-10])
    [(_, decision)] = repaired(patient, ledger_id).decided
    assert decision.new is None
    assert "the readable part of the record ends at 1000" in str(decision.note)
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        patient.apply(repaired(patient, ledger_id, source=source))
    assert metadata_of(patient, ledger_id).last_entry == before.last_entry


def test_the_finding_says_what_is_readable(patient: Patient) -> None:
    ledger_id = ledgers(patient)[0]
    path = ledger_path(ledger_id)
    patient.put(path, patient.values()[path][:-20])
    findings = check_findings(patient.store, None, str(PLAIN))
    [finding] = [each for each in findings if each.code == "record-undecodable"]
    last = read_topic(patient.store, PLAIN).ledgers[0].counted - 1
    assert f"readable: CLOSED, last entry {last}, bookies " in finding.message

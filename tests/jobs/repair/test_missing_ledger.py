"""Removing a lost ledger from its list, with the cursors in it, and acknowledging single lost entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger, wrap_envelope
from pulsar_meta.codecs.names import TopicName, ledger_path, split_managed_ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.count import repair_count
from pulsar_meta.jobs.repair.missing_ledger import drop_ledger, skip_entries
from pulsar_meta.jobs.rewrite.decision import Decision
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.cursors import state_of
from pulsar_meta.jobs.topics.topic import Ledger, read_topic
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from tests.damage import healthy_store
from tests.jobs.repair.conftest import Patient

PLAIN = TopicName.parse("plain")


def ledgers(patient: Patient) -> list[int]:
    return [ledger.ledger_id for ledger in read_topic(patient.store, PLAIN).ledgers]


def subscribe(patient: Patient, name: str, at: tuple[int, int], *acked: tuple[int, int, int]) -> str:
    """Create a subscription whose state is in its record, and return its path."""
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=at[0], markDeleteEntryId=at[1])
    for ledger_id, first, last in acked:
        added = info.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId, added.lowerEndpoint.entryId = ledger_id, first - 1
        added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = ledger_id, last
    path = PLAIN.cursor_path(name)
    patient.store.values.pop(path, None)
    patient.store.put(path, info.SerializeToString(), -1)
    return path


def position_and_acks(
    patient: Patient, path: str
) -> tuple[tuple[int, int], dict[int, list[tuple[int, int]]]]:
    info = decode_cursor(patient.values()[path])
    return (info.markDeleteLedgerId, info.markDeleteEntryId), acks_of(info).entries


def test_cursors_in_a_removed_ledger_move_to_the_next_one(patient: Patient) -> None:
    first, second, third, *_ = ledgers(patient)
    inside = subscribe(patient, "inside", (second, 7), (second, 9, 12), (third, 3, 4))
    before = subscribe(patient, "before", (first, 3), (first, 5, 6), (second, 0, 2))
    behind = subscribe(patient, "behind", (third, 1))
    patient.remove(ledger_path(second))
    damaged = patient.values()
    assert ("ledger-without-metadata", second) in patient.reported(str(PLAIN))
    repair = drop_ledger(patient.store, PLAIN, second)
    assert repair.confirm == str(PLAIN)
    assert "50 entries of ledger" in repair.losses[0]
    patient.apply(repair)
    assert second not in ledgers(patient)
    assert position_and_acks(patient, inside) == ((third, -1), {third: [(3, 4)]})
    assert position_and_acks(patient, before) == ((first, 3), {first: [(5, 6)]})
    assert position_and_acks(patient, behind) == ((third, 1), {})
    assert patient.reported(str(PLAIN)) == []
    patient.take_back()
    assert patient.values() == damaged


def test_cursors_in_a_removed_last_ledger_move_to_the_new_end(patient: Patient) -> None:
    *_, before, last = ledgers(patient)
    info = patient.info(read_topic(patient.store, PLAIN))
    inside = subscribe(patient, "inside", (last, 2))
    end = next(ledger.entries for ledger in info.ledgerInfo if ledger.ledgerId == before) - 1
    patient.apply(drop_ledger(patient.store, PLAIN, last))
    assert position_and_acks(patient, inside)[0] == (before, end)


def test_a_topic_terminated_in_the_removed_ledger_ends_before_it(patient: Patient) -> None:
    name = TopicName.parse("terminated")
    info = decode_managed_ledger(patient.values()[name.path])
    at = info.terminatedPosition.ledgerId
    if len(info.ledgerInfo) == 1:
        info.ledgerInfo.add(ledgerId=at - 1, entries=4, size=9, timestamp=1)
        patient.put(name.path, info.SerializeToString())
    patient.apply(drop_ledger(patient.store, name, at))
    after = decode_managed_ledger(patient.values()[name.path])
    assert after.terminatedPosition.ledgerId < at
    assert after.terminatedPosition.entryId >= 0


def test_lost_entries_are_acknowledged_in_each_subscription(patient: Patient) -> None:
    first, second, *_ = ledgers(patient)
    at_start = subscribe(patient, "start", (first, -1), (second, 5, 6), (second, 20, 21))
    next_to = subscribe(patient, "next", (second, 6))
    behind = subscribe(patient, "behind", (second, 40))
    repair = skip_entries(patient.store, None, PLAIN, second, [(7, 8), (10, 10)])
    assert "3 entries of ledger" in repair.losses[0]
    patient.apply(repair)
    assert position_and_acks(patient, at_start) == ((first, -1), {second: [(5, 8), (10, 10), (20, 21)]})
    assert position_and_acks(patient, next_to) == ((second, 8), {second: [(10, 10)]})
    assert position_and_acks(patient, behind) == ((second, 40), {})
    assert patient.apply(skip_entries(patient.store, None, PLAIN, second, [(7, 8)])).rewritten == 0


def test_disks_show_which_entries_are_lost(patient: Patient, capture: Callable[[str], Path]) -> None:
    first, second, *_ = ledgers(patient)
    subscribe(patient, "start", (first, -1))
    info = patient.info(read_topic(patient.store, PLAIN))
    info.ledgerInfo[1].entries += 2
    patient.put(PLAIN.path, info.SerializeToString())
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        repair = skip_entries(patient.store, source, PLAIN, second, None)
        assert "2 entries" in repair.losses[0]
        assert "(50-51)" in repair.losses[0]
        assert skip_entries(patient.store, source, PLAIN, first, None).decided == ()


def test_a_state_in_a_ledger_moves_to_the_record_if_it_can_be_read(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = capture("pulsar-4.2.4-killed")
    patient = Patient(healthy_store(folder), Random(1), folder=tmp_path)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        topic, path = next(
            place
            for path, value in patient.values().items()
            if (place := in_ledger(path, value)) is not None and read_topic(patient.store, place[0]).ledgers
        )
        truth = state_of(decode_cursor(patient.values()[path]), source).mark_delete
        ahead = [
            ledger
            for ledger in read_topic(patient.store, topic).ledgers
            if ledger.ledger_id > truth.ledger_id
        ]
        [ledger, *_] = ahead or [patient_ledger(patient, topic, truth.ledger_id)]
        entry = truth.entry_id + 3 if ledger.ledger_id == truth.ledger_id else 1
        without = dict(skipped(patient, None, topic, ledger.ledger_id, entry))
        assert without[path].reason == "undecided"
        patient.apply(skip_entries(patient.store, source, topic, ledger.ledger_id, [(entry, entry)]))
    info = decode_cursor(patient.values()[path])
    assert (info.cursorsLedgerId, (info.markDeleteLedgerId, info.markDeleteEntryId)) == (-1, truth)
    acked = acks_of(info).entries[ledger.ledger_id]
    assert any(first <= entry <= last for first, last in acked)


def in_ledger(path: str, value: bytes) -> tuple[TopicName, str] | None:
    """Return the topic and the path of a cursor whose state is in a ledger, else None."""
    place = split_managed_ledger_path(path)
    if place is None or place[1] is None or "__" in path or decode_cursor(value).cursorsLedgerId == -1:
        return None
    return place[0], path


def patient_ledger(patient: Patient, topic: TopicName, ledger_id: int) -> Ledger:
    return next(
        ledger for ledger in read_topic(patient.store, topic).ledgers if ledger.ledger_id == ledger_id
    )


def skipped(
    patient: Patient, source: EntrySource | None, topic: TopicName, ledger_id: int, entry: int
) -> Iterator[tuple[str, Decision]]:
    for seen, decision in skip_entries(patient.store, source, topic, ledger_id, [(entry, entry)]).decided:
        yield seen.path, decision


def test_unlisted_ledgers_and_missing_entries_are_refused(patient: Patient) -> None:
    second = ledgers(patient)[1]
    with pytest.raises(NotFoundError, match="does not list ledger 999"):
        drop_ledger(patient.store, PLAIN, 999)
    with pytest.raises(UsageError, match="has 50 entries"):
        skip_entries(patient.store, None, PLAIN, second, [(49, 50)])
    with pytest.raises(UsageError, match="name the entries"):
        skip_entries(patient.store, None, PLAIN, second, None)


def test_a_shadow_topic_is_refused(patient: Patient) -> None:
    info = patient.info(read_topic(patient.store, PLAIN))
    info.properties.add(key="PULSAR.SHADOW_SOURCE", value="persistent://public/default/orders")
    patient.put(PLAIN.path, info.SerializeToString())
    with pytest.raises(UsageError, match="is the shadow of persistent://public/default/orders"):
        drop_ledger(patient.store, PLAIN, info.ledgerInfo[1].ledgerId)
    with pytest.raises(UsageError, match="is the shadow of"):
        repair_count(patient.store, None, PLAIN)


def test_a_record_keeps_its_codec_if_brokers_can_load_it(patient: Patient) -> None:
    second = ledgers(patient)[1]
    path = subscribe(patient, "packed", (second, 3))
    info = decode_cursor(patient.values()[path])
    patient.put(path, wrap_envelope(info.SerializeToString(), "zstd"))
    patient.apply(drop_ledger(patient.store, PLAIN, second))
    assert patient.values()[path][:2] == b"Gx"
    third = ledgers(patient)[1]
    info.markDeleteLedgerId = third
    info.properties.add(name="p", value=1)
    patient.put(path, wrap_envelope(info.SerializeToString(), "zstd"))
    patient.apply(drop_ledger(patient.store, PLAIN, third, Readers(("4.2.4",))))
    assert patient.values()[path][:2] != b"Gx"
    assert position_and_acks(patient, path)[0] == (ledgers(patient)[1], -1)

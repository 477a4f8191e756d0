"""Repairs of cursors that can't be loaded or whose ledger is gone, from ledgers or to a given position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor, read_header, wrap_envelope
from pulsar_meta.codecs.names import TopicName, ledger_of_path, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.cursor import Target, repair_cursor
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.cursors import cursor_state
from pulsar_meta.jobs.topics.topic import Position, read_topic
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from tests.damage import GARBAGE, healthy_store
from tests.jobs.repair.conftest import Patient

ACKED = TopicName.parse("persistent://public/default/acked")
CURSOR = "some"
PATH = ACKED.cursor_path(CURSOR)
RELEASES = Readers(("4.2.4",))


@pytest.fixture
def killed(capture: Callable[[str], Path], tmp_path: Path) -> Patient:
    """The store of a killed 4.2.4 broker that kept cursor states as bit sets in ledgers."""
    store = healthy_store(capture("pulsar-4.2.4-batch-acks-killed-long-arrays"))
    # The killed broker's ephemeral records are still in the store.
    store.values = {path: record for path, record in store.values.items() if not record.ephemeral}
    return Patient(store, Random(1), folder=tmp_path)


@pytest.fixture
def disk(capture: Callable[[str], Path]) -> Iterator[EntrySource]:
    """The disk of the bookie of that broker."""
    folder = capture("pulsar-4.2.4-batch-acks-killed-long-arrays")
    with open_entries([f"bookie-disk:{folder / 'bookie0'}"]) as source:
        yield source


def repaired(patient: Patient, source: EntrySource | None, target: Target | None = None) -> Repair:
    return repair_cursor(patient.store, source, ACKED, CURSOR, target, RELEASES)


def record(patient: Patient) -> ManagedCursorInfo:
    return decode_cursor(patient.values()[PATH])


def put(patient: Patient, value: bytes) -> None:
    patient.store.values[PATH] = patient.store.values[PATH]._replace(value=value)


def make_garbage(patient: Patient) -> None:
    put(patient, GARBAGE)


def cut_record(patient: Patient) -> None:
    put(patient, patient.values()[PATH][:-1])


def remove_ledger(patient: Patient) -> None:
    del patient.store.values[ledger_path(record(patient).cursorsLedgerId)]


def break_ledger(patient: Patient) -> None:
    path = ledger_path(record(patient).cursorsLedgerId)
    patient.store.values[path] = patient.store.values[path]._replace(value=GARBAGE)


def use_data_ledger(patient: Patient) -> None:
    info = record(patient)
    info.cursorsLedgerId = read_topic(patient.store, ACKED).ledgers[0].ledger_id
    put(patient, info.SerializeToString())


def use_ledger_of_another_cursor(patient: Patient) -> None:
    info = record(patient)
    info.cursorsLedgerId = decode_cursor(patient.values()[ACKED.cursor_path("ends")]).cursorsLedgerId
    put(patient, info.SerializeToString())


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (make_garbage, "record-undecodable"),
        (cut_record, "record-undecodable"),
        (remove_ledger, "cursor-ledger-missing"),
        (break_ledger, "record-undecodable"),
        (use_data_ledger, "cursor-ledger-foreign"),
        (use_ledger_of_another_cursor, "cursor-ledger-foreign"),
    ],
)
def test_the_state_is_restored_from_the_cursor_ledger(
    killed: Patient, disk: EntrySource, damage: Callable[[Patient], None], code: str
) -> None:
    true = cursor_state(killed.store, disk, ACKED, CURSOR)
    assert true.state is not None
    before, properties = killed.reported(str(ACKED), source=disk), record(killed).cursorProperties
    damage(killed)
    damaged = killed.values()
    assert code in [found_code for found_code, _ in killed.reported(str(ACKED), source=disk)]
    assert killed.apply(repaired(killed, disk)).rewritten == 1
    assert [finding for finding in killed.reported(str(ACKED), source=disk) if finding not in before] == []
    restored = record(killed)
    assert (restored.cursorsLedgerId, list(restored.cursorProperties)) == (STATE_IN_RECORD, list(properties))
    assert Position(restored.markDeleteLedgerId, restored.markDeleteEntryId) == true.mark_delete
    assert acks_of(restored).entries == acks_of(true.state).entries
    killed.take_back()
    assert killed.values() == damaged


def test_a_missing_record_is_restored_from_its_ledger(killed: Patient, disk: EntrySource) -> None:
    true = cursor_state(killed.store, disk, ACKED, CURSOR).mark_delete
    del killed.store.values[PATH]
    assert killed.apply(repaired(killed, disk)).created == 1
    assert cursor_state(killed.store, None, ACKED, CURSOR).mark_delete == true
    with pytest.raises(NotFoundError, match="nobody"):
        repair_cursor(killed.store, disk, ACKED, "nobody", "earliest", RELEASES)


def test_redelivered_and_skipped_entries_are_counted(killed: Patient, disk: EntrySource) -> None:
    ledgers = read_topic(killed.store, ACKED).ledgers
    entries = 40
    state = cursor_state(killed.store, disk, ACKED, CURSOR)
    assert state.state is not None
    at = ledgers[1].ledger_id
    for target, left in (("earliest", entries), (Position(at, 4), entries - 20), ("latest", 0)):
        repair = repaired(killed, disk, target)  # type: ignore[arg-type]
        assert f"{left} entries are left" in repair.said[1]
        assert repair.confirm == str(ACKED)
        killed.apply(repair)
        assert acks_of(record(killed)).range_count == 0
        killed.take_back()
    # One entry, the last one, is acknowledged completely; batches of the others are acknowledged in part.
    assert repaired(killed, disk, "earliest").said[2].startswith("its position was ")
    assert repaired(killed, disk, "earliest").losses == (
        f"{ACKED}: 1 acknowledgement is lost, and the subscription {CURSOR!r} gets these entries again",
    )
    assert repaired(killed, disk, "latest").losses == (
        f"{ACKED}: 39 entries are skipped that the subscription {CURSOR!r} has not acknowledged",
    )


def test_without_a_state_the_entries_before_the_position_are_a_possible_loss(killed: Patient) -> None:
    make_garbage(killed)
    ledgers = read_topic(killed.store, ACKED).ledgers
    repair = repaired(killed, None, Position(ledgers[1].ledger_id, 4))
    assert repair.losses == (
        "the 20 entries before it will count as acknowledged, and it is unknown if they were",
    )
    assert repair.confirm == str(ACKED)
    assert repair.not_checked == {"entries": "no --entries"}
    assert repaired(killed, None, "earliest").losses == ()


def test_a_cursor_that_brokers_can_load_is_kept(killed: Patient, disk: EntrySource, patient: Patient) -> None:
    assert killed.apply(repaired(killed, disk)).kept_for == {"already": 1}
    marks = TopicName.parse("marks")
    repair = repair_cursor(patient.store, None, marks, "holes", None, RELEASES)
    assert patient.apply(repair).kept_for == {"already": 1}


def test_positions_outside_the_topic_are_refused(killed: Patient, disk: EntrySource) -> None:
    ledgers = read_topic(killed.store, ACKED).ledgers
    make_garbage(killed)
    with pytest.raises(UsageError, match="no entry has its position: add --position"):
        repaired(killed, None)
    with pytest.raises(UsageError, match="does not list ledger 7"):
        repaired(killed, disk, Position(7, 0))
    with pytest.raises(UsageError, match=f"ledger {ledgers[0].ledger_id} ends with entry 14"):
        repaired(killed, disk, Position(ledgers[0].ledger_id, 15))
    with pytest.raises(UsageError, match="its end is only on the bookies"):
        repaired(killed, None, "latest")
    with pytest.raises(NotFoundError, match="nowhere"):
        repair_cursor(killed.store, disk, TopicName.parse("nowhere"), CURSOR, None, RELEASES)


def test_a_cursor_whose_ledger_is_not_given_is_not_judged(killed: Patient) -> None:
    with pytest.raises(UsageError, match="cannot tell if it needs repair"):
        repaired(killed, None)


def test_a_compressed_record_with_properties_becomes_plain_for_a_release_that_cannot_load_it(
    patient: Patient,
) -> None:
    name, cursor = TopicName.parse("marks"), "with-props"
    path = name.cursor_path(cursor)
    assert patient.values()[path][:2] == b"Gx"
    patient.apply(repair_cursor(patient.store, None, name, cursor, "earliest", RELEASES))
    assert patient.values()[path][:2] != b"Gx"
    assert len(decode_cursor(patient.values()[path]).cursorProperties) == 2
    patient.take_back()
    older = Readers(("4.0.7",))
    patient.apply(repair_cursor(patient.store, None, name, cursor, "earliest", older))
    assert patient.values()[path][:2] == b"Gx"


MARKS, HOLES = TopicName.parse("marks"), "holes"


def holes(patient: Patient, value: bytes) -> tuple[Repair, ManagedCursorInfo]:
    """Damage a cursor whose state is in its record, repair it, and return the repair and the new record."""
    patient.put(MARKS.cursor_path(HOLES), value)
    repair = repair_cursor(patient.store, None, MARKS, HOLES, None, RELEASES)
    patient.apply(repair)
    return repair, decode_cursor(patient.values()[MARKS.cursor_path(HOLES)])


@pytest.mark.parametrize("codec", ["lz4", "zlib", "zstd", "snappy"])
def test_a_record_with_a_wrong_size_or_codec_is_kept(patient: Patient, codec: str) -> None:
    before = decode_cursor(patient.values()[MARKS.cursor_path(HOLES)])
    value = wrap_envelope(before.SerializeToString(), codec)
    body = value[read_header(value).body_at :]
    for number, size in ((CODECS.index(codec), 3), (CODECS.index(codec) % 4 + 1, len(value))):
        header = bytes((8, number, 16, size & 0x7F))
        repair, after = holes(patient, value[:2] + len(header).to_bytes(4, "big") + header + body)
        assert (after, repair.confirm) == (before, None)


def test_the_position_and_ranges_before_the_damage_are_kept(patient: Patient) -> None:
    before = decode_cursor(patient.values()[MARKS.cursor_path(HOLES)])
    payload = before.SerializeToString()
    repair, after = holes(patient, payload[: len(payload) // 2])
    ranges = list(before.individualDeletedMessages)
    assert after.markDeleteLedgerId == before.markDeleteLedgerId
    assert after.markDeleteEntryId == before.markDeleteEntryId
    kept = list(after.individualDeletedMessages)
    assert kept == ranges[: len(kept)]
    assert repair.confirm is None
    assert "from its damaged record" in repair.said[1]


def damaged_at(ledger_id: int, entry_id: int) -> bytes:
    record = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=ledger_id, markDeleteEntryId=entry_id)
    return record.SerializeToString() + GARBAGE


# Ledger 64 has 50 entries.
@pytest.mark.parametrize("position", [(999999, 5), (64, 50)])
def test_a_position_outside_the_topic_is_not_believed(patient: Patient, position: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="add --position"):
        holes(patient, damaged_at(*position))


@pytest.mark.parametrize("position", [(64, -1), (64, 49)])
def test_every_position_in_a_ledger_is_believed(patient: Patient, position: tuple[int, int]) -> None:
    _, after = holes(patient, damaged_at(*position))
    assert (after.markDeleteLedgerId, after.markDeleteEntryId) == position


def test_a_damaged_record_refers_to_its_ledger_again(killed: Patient, disk: EntrySource) -> None:
    before = record(killed)
    assert before.cursorsLedgerId != STATE_IN_RECORD
    put(killed, before.SerializeToString() + GARBAGE)
    killed.apply(repaired(killed, None))
    assert record(killed).cursorsLedgerId == before.cursorsLedgerId
    killed.take_back()
    # With entries, the state itself is written.
    killed.apply(repaired(killed, disk))
    assert record(killed).cursorsLedgerId == STATE_IN_RECORD


def test_a_damaged_record_that_refers_to_a_ledger_of_something_else_is_not_believed(killed: Patient) -> None:
    before = record(killed)
    others = map(ledger_of_path, killed.store.values)
    before.cursorsLedgerId = next(other for other in others if other not in (None, before.cursorsLedgerId))
    put(killed, before.SerializeToString() + GARBAGE)
    with pytest.raises(UsageError, match="add --position"):
        repaired(killed, None)

"""Repairs of the pointer to compacted data: restored, removed or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.compaction import repair_compaction
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.proto.PulsarApi_pb2 import MessageIdData
from tests.damage import GARBAGE
from tests.jobs.repair.conftest import Patient

COMPACTED = TopicName.parse("compacted")
PATH = COMPACTED.cursor_path("__compaction")
LEDGER = 61


@pytest.fixture
def disk(capture: Callable[[str], Path]) -> Iterator[EntrySource]:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        yield source


def repaired(patient: Patient, source: EntrySource | None = None, **options: object) -> Repair:
    return repair_compaction(patient.store, source, COMPACTED, Readers(("4.2.4",)), **options)  # type: ignore[arg-type]


def put(patient: Patient, value: bytes) -> None:
    patient.store.values[PATH] = patient.store.values[PATH]._replace(value=value)


def pointer(patient: Patient) -> list[int]:
    return [prop.value for prop in decode_cursor(patient.values()[PATH]).properties]


def remove_pointer(patient: Patient) -> None:
    info = decode_cursor(patient.values()[PATH])
    info.ClearField("properties")
    put(patient, info.SerializeToString())


def make_garbage(patient: Patient) -> None:
    put(patient, GARBAGE)


def remove_cursor(patient: Patient) -> None:
    del patient.store.values[PATH]


@pytest.mark.parametrize("damage", [remove_pointer, make_garbage, remove_cursor])
@pytest.mark.parametrize("with_entries", [True, False])
def test_the_pointer_is_restored(
    patient: Patient, disk: EntrySource, damage: Callable[[Patient], None], with_entries: bool
) -> None:
    healthy = decode_cursor(patient.values()[PATH])
    damage(patient)
    damaged = patient.values()
    assert patient.reported(str(COMPACTED))
    repair = repaired(patient, disk if with_entries else None)
    assert patient.apply(repair).rewritten == 1
    assert (patient.reported(str(COMPACTED)), pointer(patient)) == ([], [LEDGER])
    restored = decode_cursor(patient.values()[PATH])
    # The last message deletes a key. Compaction acknowledges it too, and brokers deliver it again after the
    # repair.
    assert (restored.markDeleteLedgerId, restored.markDeleteEntryId + 1) == (
        healthy.markDeleteLedgerId,
        healthy.markDeleteEntryId,
    )
    patient.take_back()
    assert patient.values() == damaged


def test_a_pointer_to_a_missing_ledger_is_removed(patient: Patient) -> None:
    del patient.store.values[ledger_path(LEDGER)]
    damaged = patient.values()
    # The capture's cursor is compressed and has properties, so 4.2.4 can't load it.
    unreadable = ("record-unreadable", None)
    assert patient.reported(str(COMPACTED)) == [unreadable, ("compaction-ledger-missing", LEDGER)]
    with pytest.raises(
        UsageError, match="no ledger has compacted data of this topic: remove the pointer with --drop"
    ):
        repaired(patient)
    repair = repaired(patient, drop=True)
    assert f"points to ledger {LEDGER}, which is gone" in repair.said[0]
    # Bookies may still have its entries, and then `repair ledger-metadata` can bring the ledger back.
    assert repair.confirm == str(COMPACTED)
    patient.apply(repair)
    assert (patient.reported(str(COMPACTED)), pointer(patient)) == ([], [])
    assert patient.apply(repaired(patient, drop=True)).kept_for == {"already": 1}
    patient.undo_files.pop()
    patient.take_back()
    assert patient.values() == damaged


def test_a_loss_needs_confirmation(patient: Patient, disk: EntrySource) -> None:
    lost = f"entries that are only in ledger {LEDGER}, because they were trimmed, become unreachable"
    for source in (None, disk):
        repair = repaired(patient, source, drop=True)
        assert (repair.confirm, repair.losses) == (str(COMPACTED), (lost,))
        assert repair.said[0].endswith(f"points to ledger {LEDGER}")
    del patient.store.values[ledger_path(LEDGER)]
    assert repaired(patient, disk, drop=True).losses == (lost,)


def test_dropping_a_wrong_pointer_needs_confirmation_while_compacted_data_exists(patient: Patient) -> None:
    info = decode_cursor(patient.values()[PATH])
    info.properties[0].value = 18
    put(patient, info.SerializeToString())
    assert repaired(patient, drop=True).confirm == str(COMPACTED)
    patient.apply(repaired(patient, ledger_id=LEDGER))
    assert pointer(patient) == [LEDGER]


def test_removing_a_pointer_loses_nothing_if_no_bookie_has_the_ledger(
    patient: Patient, capture: Callable[[str], Path]
) -> None:
    del patient.store.values[ledger_path(LEDGER)]
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4-batch-acks-closed') / 'bookie0'}"]) as strange:
        repair = repaired(patient, strange, ledger_id=None, drop=True)
    assert (repair.losses, repair.confirm) == ((), None)


def test_a_correct_pointer_is_kept_and_another_ledger_is_refused(patient: Patient) -> None:
    assert patient.apply(repaired(patient)).kept_for == {"already": 1}
    with pytest.raises(NotFoundError, match="ledger 7 has no compacted data of this topic"):
        repaired(patient, ledger_id=7)
    assert patient.apply(repaired(patient, ledger_id=LEDGER)).kept_for == {"already": 1}


def test_a_ledger_beyond_the_cursor_or_without_entries_is_not_used(
    patient: Patient, disk: EntrySource, capture: Callable[[str], Path]
) -> None:
    remove_pointer(patient)
    with (
        open_entries([f"bookie-disk:{capture('pulsar-4.2.4-batch-acks-closed') / 'bookie0'}"]) as strange,
        pytest.raises(UsageError, match=rf"ledger {LEDGER} has .*: remove the pointer with --drop"),
    ):
        repaired(patient, strange)
    info = decode_cursor(patient.values()[PATH])
    info.markDeleteEntryId -= 2
    put(patient, info.SerializeToString())
    with pytest.raises(UsageError, match="it ends after the cursor, so its compaction may not have finished"):
        repaired(patient)
    # The last message of the compacted ledger comes from the entry that compaction reached, so the ledger is
    # complete.
    repair = repaired(patient, disk)
    patient.apply(repair)
    assert decode_cursor(patient.values()[PATH]).markDeleteEntryId == info.markDeleteEntryId + 1


def test_an_open_ledger_is_not_used(patient: Patient) -> None:
    remove_pointer(patient)
    path = ledger_path(LEDGER)
    decoded = decode_ledger_metadata(patient.values()[path])
    decoded.metadata.state = decoded.metadata.OPEN
    decoded.metadata.ClearField("lastEntryId")
    patient.store.values[path] = patient.store.values[path]._replace(value=encode_ledger_metadata(decoded))
    assert patient.apply(repaired(patient)).kept_for == {"already": 1}


def move(patient: Patient, ledger_id: int, entry_id: int, pointed: int = LEDGER) -> None:
    """Move the compaction cursor, and let it refer to a ledger."""
    info = decode_cursor(patient.values()[PATH])
    info.markDeleteLedgerId, info.markDeleteEntryId = ledger_id, entry_id
    info.properties[0].value = pointed
    put(patient, info.SerializeToString())


@pytest.mark.parametrize("with_entries", [True, False])
def test_a_position_before_the_compacted_data_is_moved_to_its_end(
    patient: Patient, disk: EntrySource, *, with_entries: bool
) -> None:
    move(patient, 59, -1)
    [finding] = patient.findings(str(COMPACTED))
    assert (finding.code, finding.severity) == ("compaction-horizon-differs", "warning")
    assert finding.evidence == {"mark_delete": [59, -1], "compacted_to": [60, 14]}
    assert finding.repair == f"pulsar-meta repair compaction {COMPACTED}"
    assert patient.apply(repaired(patient, disk if with_entries else None)).rewritten == 1
    info = decode_cursor(patient.values()[PATH])
    assert (info.markDeleteLedgerId, info.markDeleteEntryId, pointer(patient)) == (60, 14, [LEDGER])
    assert patient.reported(str(COMPACTED)) == []
    assert patient.apply(repaired(patient, disk)).kept_for == {"already": 1}


def test_a_pointer_to_older_compacted_data_is_replaced(patient: Patient) -> None:
    older = 62_000
    decoded = decode_ledger_metadata(patient.values()[ledger_path(LEDGER)])
    [end] = [pair for pair in decoded.metadata.customMetadata if pair.key == "pulsar/compactedTo"]
    end.value = MessageIdData(ledgerId=59, entryId=3, partition=-1).SerializeToString()
    record = patient.store.values[ledger_path(LEDGER)]
    patient.store.values[ledger_path(older)] = record._replace(
        path=ledger_path(older), value=encode_ledger_metadata(decoded)
    )
    move(patient, 60, 15, older)
    [finding] = patient.findings(str(COMPACTED))
    assert (finding.code, finding.severity, finding.ledger_id) == (
        "compaction-horizon-differs",
        "error",
        older,
    )
    assert finding.repair == f"pulsar-meta repair compaction {COMPACTED} --ledger {LEDGER}"
    assert patient.apply(repaired(patient, ledger_id=LEDGER)).rewritten == 1
    assert (patient.reported(str(COMPACTED)), pointer(patient)) == ([], [LEDGER])

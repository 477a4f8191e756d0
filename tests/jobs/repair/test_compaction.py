"""The pointer to compacted data: lost, to a ledger that is gone, taken away; and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.repair.compaction import repair_compaction
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.rewrite.readable import Readers
from tests.damage import GARBAGE
from tests.jobs.repair.conftest import Patient

COMPACTED = TopicName.parse("compacted")
PATH = COMPACTED.cursor_path("__compaction")
LEDGER = 61


@pytest.fixture
def disk(capture: Callable[[str], Path]) -> Iterator[EntrySource]:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        yield source


def repaired(patient: Patient, source: EntrySource | None = None, **asked: object) -> Repair:
    return repair_compaction(patient.store, source, COMPACTED, Readers(("4.2.4",)), **asked)  # type: ignore[arg-type]


def put(patient: Patient, value: bytes) -> None:
    patient.store.values[PATH] = patient.store.values[PATH]._replace(value=value)


def pointer(patient: Patient) -> list[int]:
    return [prop.value for prop in decode_cursor(patient.values()[PATH]).properties]


def property_lost(patient: Patient) -> None:
    info = decode_cursor(patient.values()[PATH])
    info.ClearField("properties")
    put(patient, info.SerializeToString())


def garbage(patient: Patient) -> None:
    put(patient, GARBAGE)


def cursor_gone(patient: Patient) -> None:
    del patient.store.values[PATH]


@pytest.mark.parametrize("damage", [property_lost, garbage, cursor_gone])
@pytest.mark.parametrize("with_entries", [True, False])
def test_the_pointer_comes_back(
    patient: Patient, disk: EntrySource, damage: Callable[[Patient], None], with_entries: bool
) -> None:
    healthy = decode_cursor(patient.values()[PATH])
    damage(patient)
    damaged = patient.values()
    assert patient.found(str(COMPACTED))
    repair = repaired(patient, disk if with_entries else None)
    assert patient.apply(repair).rewritten == 1
    assert (patient.found(str(COMPACTED)), pointer(patient)) == ([], [LEDGER])
    held = decode_cursor(patient.values()[PATH])
    # Behind it is a message that removes a key: brokers acknowledge that, too, and it comes again.
    assert (held.markDeleteLedgerId, held.markDeleteEntryId + 1) == (
        healthy.markDeleteLedgerId,
        healthy.markDeleteEntryId,
    )
    patient.take_back()
    assert patient.values() == damaged


def test_a_pointer_to_a_ledger_that_is_gone_is_taken_away(patient: Patient) -> None:
    del patient.store.values[ledger_path(LEDGER)]
    damaged = patient.values()
    # The capture's cursor is compressed and has properties, so 4.2.4 can't load it.
    unreadable = ("record-unreadable", None)
    assert patient.found(str(COMPACTED)) == [unreadable, ("compaction-ledger-missing", LEDGER)]
    with pytest.raises(UsageError, match="no ledger has compacted data of this topic: --drop"):
        repaired(patient)
    repair = repaired(patient, drop=True)
    assert (repair.losses, repair.confirm) == ((), None)
    patient.apply(repair)
    assert (patient.found(str(COMPACTED)), pointer(patient)) == ([], [])
    assert patient.apply(repaired(patient, drop=True)).kept_for == {"already": 1}
    patient.undo_files.pop()
    patient.take_back()
    assert patient.values() == damaged


def test_what_is_given_up_has_to_be_confirmed(patient: Patient) -> None:
    repair = repaired(patient, drop=True)
    assert repair.confirm == str(COMPACTED)
    assert repair.losses == (
        f"what is only in ledger {LEDGER}, since it was trimmed, cannot be read any more",
    )


def test_a_pointer_that_is_right_stays_and_another_ledger_is_refused(patient: Patient) -> None:
    assert patient.apply(repaired(patient)).kept_for == {"already": 1}
    with pytest.raises(NotFoundError, match="ledger 7 has no compacted data of this topic"):
        repaired(patient, ledger_id=7)
    assert patient.apply(repaired(patient, ledger_id=LEDGER)).kept_for == {"already": 1}


def test_a_ledger_beyond_the_cursor_or_without_its_entries_is_not_pointed_to(
    patient: Patient, disk: EntrySource, capture: Callable[[str], Path]
) -> None:
    property_lost(patient)
    with (
        open_entries([f"bookie-disk:{capture('pulsar-4.2.4-batch-acks-closed') / 'bookie0'}"]) as strange,
        pytest.raises(UsageError, match=rf"ledger {LEDGER} has .*: --drop takes the pointer away"),
    ):
        repaired(patient, strange)
    info = decode_cursor(patient.values()[PATH])
    info.markDeleteEntryId -= 2
    put(patient, info.SerializeToString())
    with pytest.raises(UsageError, match="beyond the cursor: its compaction may not have ended"):
        repaired(patient)
    # Its last message was made of the entry up to which it goes: it is whole.
    repair = repaired(patient, disk)
    patient.apply(repair)
    assert decode_cursor(patient.values()[PATH]).markDeleteEntryId == info.markDeleteEntryId + 1


def test_an_open_ledger_is_no_candidate(patient: Patient) -> None:
    property_lost(patient)
    path = ledger_path(LEDGER)
    decoded = decode_ledger_metadata(patient.values()[path])
    decoded.metadata.state = decoded.metadata.OPEN
    decoded.metadata.ClearField("lastEntryId")
    patient.store.values[path] = patient.store.values[path]._replace(value=encode_ledger_metadata(decoded))
    assert patient.apply(repaired(patient)).kept_for == {"already": 1}

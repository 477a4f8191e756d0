"""What becomes unreachable when a record is removed or replaced, and by which name that is confirmed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_of_path, ledger_path
from pulsar_meta.jobs.repair.losses import NOTHING, Losses, change_losses, removal_losses
from pulsar_meta.jobs.topics.topic import topic_of
from pulsar_meta.stores.base import ABSENT, current
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import GARBAGE
from tests.jobs.repair.conftest import Patient

PLAIN = TopicName.parse("plain")
STRINGS = TopicName.parse("strings")


def losses(patient: Patient, path: str, *others: MemoryStore) -> Losses:
    return removal_losses(patient.store, current(patient.store, path), others)


def test_a_topics_record_loses_the_entries_of_its_ledgers(patient: Patient) -> None:
    lost = losses(patient, PLAIN.path)
    assert lost.confirm == str(PLAIN)
    assert lost.texts == (f"{PLAIN}: 230 entries in 5 ledgers become unreachable",)
    patient.put(PLAIN.path, GARBAGE)
    assert losses(patient, PLAIN.path).confirm == str(PLAIN)


def test_a_ledger_loses_the_entries_of_the_topic_that_lists_it(patient: Patient) -> None:
    lost = losses(patient, ledger_path(25))
    assert lost.confirm == str(PLAIN)
    assert lost.texts == (f"ledger 25 is data of {PLAIN}: 50 entries become unreachable",)
    patient.put(ledger_path(25), GARBAGE)
    [text] = losses(patient, ledger_path(25)).texts
    assert text == f"ledger 25 is data of {PLAIN}: an unknown number of entries become unreachable"


def test_a_ledger_that_no_record_names_is_confirmed_by_the_topic_it_was_created_for(patient: Patient) -> None:
    patient.remove(PLAIN.path)
    lost = losses(patient, ledger_path(25))
    assert lost.confirm == str(PLAIN)
    assert "which doesn't name it now; bookies delete 50 entries" in lost.texts[0]


def test_a_ledger_of_another_cluster_is_found_in_its_store(patient: Patient) -> None:
    other = MemoryStore()
    for path in [path for path in patient.store.values if path.startswith(PLAIN.path)]:
        other.values[path] = patient.store.values.pop(path)
    lost = losses(patient, ledger_path(25), other)
    assert lost.confirm == str(PLAIN)
    assert lost.texts[0].startswith("ledger 25 belongs to another cluster, ")


def test_a_ledger_that_an_unreadable_record_may_name_says_so(patient: Patient) -> None:
    patient.put(TopicName.parse("orders").path, GARBAGE)
    assert (
        losses(patient, ledger_path(25)).texts[-1]
        == "records that can't be read and may refer to ledger 25: 1"
    )


def test_a_cursor_loses_its_position_and_acknowledgements(patient: Patient) -> None:
    name = TopicName.parse("marks")
    lost = losses(patient, name.cursor_path("holes"))
    assert lost.confirm == str(name)
    assert "single acknowledgements" in lost.texts[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "1 version of its schema becomes unreachable; messages can't be decoded with them any more"),
        (GARBAGE, "all versions of its schema are lost; the record can't be read"),
    ],
)
def test_a_schema_loses_its_versions(patient: Patient, value: bytes | None, text: str) -> None:
    if value is not None:
        patient.put(STRINGS.schema_path, value)
    assert losses(patient, STRINGS.schema_path) == Losses((f"{STRINGS}: {text}",), str(STRINGS))


def test_other_records_and_empty_ledgers_lose_nothing(patient: Patient) -> None:
    empty = list(bookkeeper_ledgers(patient))
    assert empty
    for path in ("/admin/clusters/standalone", "/nowhere", *empty):
        assert losses(patient, path) == NOTHING


def bookkeeper_ledgers(patient: Patient) -> Iterator[str]:
    """Yield the metadata paths of closed ledgers without an entry."""
    for record in patient.store.scan("/ledgers"):
        ledger_id = ledger_of_path(record.path)
        if ledger_id is not None and patient.bookkeeper(ledger_id).last_entry == -1:
            yield record.path


def changed(patient: Patient, path: str, value: bytes, *others: MemoryStore) -> Losses:
    return change_losses(patient.store, current(patient.store, path), value, others)


def test_a_list_that_lacks_a_ledger_or_ends_one_earlier_loses_entries(patient: Patient) -> None:
    info = decode_managed_ledger(patient.values()[PLAIN.path])
    assert changed(patient, PLAIN.path, info.SerializeToString()) == NOTHING
    removed = info.ledgerInfo.pop(0)
    lost = changed(patient, PLAIN.path, info.SerializeToString())
    assert lost == Losses((f"{PLAIN}: 50 entries in 1 ledger become unreachable",), str(PLAIN))
    removed.entries -= 1
    info.ledgerInfo.insert(0, removed)
    lost = changed(patient, PLAIN.path, info.SerializeToString())
    text = f"{PLAIN}: ledger {removed.ledgerId} ends earlier: its last 1 entry becomes unreachable"
    assert lost == Losses((text,), str(PLAIN))


def test_a_ledger_of_another_cluster_in_a_list_endangers_its_data(patient: Patient) -> None:
    other = MemoryStore()
    other.put(PLAIN.path, patient.values()[PLAIN.path], ABSENT)
    orders = TopicName.parse("orders")
    info = decode_managed_ledger(patient.values()[orders.path])
    info.ledgerInfo.add(ledgerId=25, entries=50, size=1, timestamp=1)
    lost = changed(patient, orders.path, info.SerializeToString(), other)
    assert lost.confirm == str(orders)
    assert "ledger 25 belongs to another cluster" in lost.texts[0]


def test_metadata_that_ends_a_ledger_earlier_is_confirmed_by_its_topic(patient: Patient) -> None:
    decoded = decode_ledger_metadata(patient.values()[ledger_path(25)])
    decoded.metadata.lastEntryId -= 7
    lost = changed(patient, ledger_path(25), encode_ledger_metadata(decoded))
    assert lost == Losses(("ledger 25: its last 7 entries become unreachable",), str(PLAIN))


def test_a_cursor_that_is_moved_skips_entries_or_loses_acknowledgements(patient: Patient) -> None:
    name = TopicName.parse("marks")
    path = name.cursor_path("holes")
    holes = decode_cursor(patient.values()[path])
    acked = acks_of(holes).entry_count
    assert changed(patient, path, holes.SerializeToString()) == NOTHING
    holes.ClearField("individualDeletedMessages")
    [text] = changed(patient, path, holes.SerializeToString()).texts
    assert text.startswith(f"{name}: {acked} acknowledgements are lost")
    ledger = topic_of(patient.store.read(name.path)).ledgers[-1]
    holes.markDeleteLedgerId, holes.markDeleteEntryId = ledger.ledger_id, ledger.counted - 1
    lost = changed(patient, path, holes.SerializeToString())
    assert lost.confirm == str(name)
    [text] = lost.texts
    assert "skipped that the subscription 'holes' has not acknowledged" in text


def test_a_schema_record_that_lacks_a_version_loses_it(patient: Patient) -> None:
    lost = changed(patient, STRINGS.schema_path, b"")
    assert lost == Losses((f"{STRINGS}: 1 version of its schema becomes unreachable",), str(STRINGS))


def test_a_value_that_can_not_be_decoded_loses_the_whole_record(patient: Patient) -> None:
    assert changed(patient, PLAIN.path, GARBAGE) == losses(patient, PLAIN.path)

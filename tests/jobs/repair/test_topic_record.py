"""Ledger lists that are gone, empty, cut, corrupt or incomplete, also with newer ledgers of a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger, read_header, wrap_envelope
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.repair.topic_record import repair_topic_record
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import GARBAGE, NOWHERE
from tests.jobs.repair.conftest import Patient

PLAIN = TopicName.parse("plain")
PATH = PLAIN.path
CURSOR = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5).SerializeToString()


def repaired(patient: Patient, name: TopicName = PLAIN, source: EntrySource | None = None) -> Repair:
    return repair_topic_record(patient.store, source, name, lambda error: None)


def counts(patient: Patient, path: str = PATH) -> dict[int, tuple[int, int]]:
    """Map each ledger with entries to (entries, size), in the order of the list."""
    info = decode_managed_ledger(patient.values()[path])
    return {ledger.ledgerId: (ledger.entries, ledger.size) for ledger in info.ledgerInfo if ledger.entries}


def test_each_kind_of_loss_is_repaired(patient: Patient) -> None:
    before, healthy = counts(patient), patient.values()[PATH]
    plain = decode_managed_ledger(healthy).SerializeToString()
    for damage in (None, b"", GARBAGE, healthy[:40], plain[:25], CURSOR):
        patient.remove(PATH) if damage is None else patient.put(PATH, damage)
        assert patient.reported(str(PLAIN)), damage
        patient.apply(repaired(patient))
        assert counts(patient) == before
        assert patient.reported(str(PLAIN)) == []
        patient.take_back()
        assert patient.values().get(PATH) == damage
        patient.store.values.pop(PATH, None)
        patient.store.put(PATH, healthy, -1)


def test_a_complete_record_is_kept(patient: Patient) -> None:
    for name in ("plain", "orders", "terminated"):
        [(_, decision)] = repaired(patient, TopicName.parse(name)).decided
        assert (decision.action, decision.reason) == ("keep", "already"), name


def test_a_missing_ledger_is_inserted_and_the_codec_kept(patient: Patient) -> None:
    before, first = counts(patient), patient.values()[PATH]
    info = decode_managed_ledger(first)
    del info.ledgerInfo[2]
    patient.put(PATH, info.SerializeToString())
    assert patient.reported(str(PLAIN)) == [("ledger-not-listed", list(before)[2])]
    patient.apply(repaired(patient))
    assert counts(patient) == before
    assert patient.reported(str(PLAIN)) == []


def test_older_ledgers_are_inserted_before_those_of_a_broker(patient: Patient) -> None:
    before = counts(patient)
    since = ManagedLedgerInfo()
    since.ledgerInfo.add(ledgerId=NOWHERE, timestamp=0)
    since.properties.add(key="index", value="7")
    patient.put(PATH, since.SerializeToString())
    cursor = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=NOWHERE, markDeleteEntryId=-1)
    patient.store.put(PLAIN.cursor_path("moved"), cursor.SerializeToString(), -1)
    assert any("--older adds them" in text for text in repaired(patient).said)
    assert repaired(patient).decided[0][1].reason == "already"
    repair = repair_topic_record(patient.store, None, PLAIN, lambda error: None, older=True)
    assert any("the subscription moved is at 987654:-1, after the restored" in text for text in repair.said)
    patient.apply(repair)
    assert counts(patient) == before
    after = decode_managed_ledger(patient.values()[PATH])
    assert after.ledgerInfo[-1].ledgerId == NOWHERE
    assert [(prop.key, prop.value) for prop in after.properties] == [("index", "7")]


def test_each_partition_is_repaired(patient: Patient) -> None:
    base = TopicName.parse("parted")
    paths = [base.with_partition(number).path for number in range(3)]
    before = {path: counts(patient, path) for path in paths}
    for path in paths:
        patient.put(path, b"")
    patient.apply(repaired(patient, base))
    assert {path: counts(patient, path) for path in paths} == before


def test_the_count_of_an_open_ledger_in_the_middle_needs_entries(
    patient: Patient, capture: Callable[[str], Path]
) -> None:
    before = counts(patient)
    path = ledger_path(list(before)[1])
    decoded = decode_ledger_metadata(patient.values()[path])
    decoded.metadata.state, decoded.metadata.length = LedgerMetadataFormat.OPEN, 0
    decoded.metadata.ClearField("lastEntryId")
    patient.put(path, encode_ledger_metadata(decoded))
    patient.remove(PATH)
    [(_, decision)] = repaired(patient).decided
    assert (decision.reason, "--entries" in (decision.note or "")) == ("undecided", True)
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        patient.apply(repaired(patient, source=source))
    assert counts(patient) == before


def test_a_list_with_a_wrong_size_is_kept_with_its_properties(patient: Patient) -> None:
    info = decode_managed_ledger(patient.values()[PATH])
    info.properties.add(key="index", value="7")
    value = wrap_envelope(info.SerializeToString(), "zstd")
    header = bytes((8, 3, 16, 5))
    patient.put(PATH, value[:2] + bytes((0, 0, 0, 4)) + header + value[read_header(value).body_at :])
    patient.apply(repaired(patient))
    assert decode_managed_ledger(patient.values()[PATH]) == info


def test_properties_before_the_damage_are_kept(patient: Patient) -> None:
    info = decode_managed_ledger(patient.values()[PATH])
    info.properties.add(key="index", value="7")
    patient.put(PATH, info.SerializeToString() + GARBAGE)
    patient.apply(repaired(patient))
    assert decode_managed_ledger(patient.values()[PATH]).properties == info.properties


def test_a_ledger_that_only_the_damaged_record_names_leaves_the_list_after_confirmation(
    patient: Patient,
) -> None:
    info = decode_managed_ledger(patient.values()[PATH])
    info.ledgerInfo.add(ledgerId=NOWHERE, entries=5, size=50, timestamp=1)
    patient.put(PATH, info.SerializeToString() + GARBAGE)
    repair = repaired(patient)
    assert repair.confirm == str(PLAIN)
    assert repair.losses == (
        f"{PLAIN}: ledger {NOWHERE} with 5 entries is removed from the list, because only the damaged record"
        " refers to it",
    )


def test_a_ledger_without_an_owner_stays_in_a_damaged_list(patient: Patient) -> None:
    before = counts(patient)
    [ledger_id] = list(before)[1:2]
    patient.change_metadata(ledger_id, lambda metadata: metadata.ClearField("customMetadata"))
    patient.put(PATH, decode_managed_ledger(patient.values()[PATH]).SerializeToString() + GARBAGE)
    repair = repaired(patient)
    assert (repair.losses, repair.confirm) == ((), None)
    patient.apply(repair)
    assert counts(patient) == before


def test_a_ledger_in_the_list_of_another_topic_stays_out(patient: Patient) -> None:
    before = counts(patient)
    ledger_id = list(before)[1]
    mine, other = decode_managed_ledger(patient.values()[PATH]), TopicName.parse("orders").path
    theirs = decode_managed_ledger(patient.values()[other])
    theirs.ledgerInfo.append(mine.ledgerInfo.pop(1))
    patient.put(PATH, mine.SerializeToString())
    patient.put(other, theirs.SerializeToString())
    repair = repaired(patient)
    [text] = [text for text in repair.said if "is not added" in text]
    assert text == f"ledger {ledger_id} is not added: it is in the list of {TopicName.parse('orders')}"
    assert repair.decided[0][1].reason == "already"


def test_a_ledger_of_another_cluster_stays_out_and_an_unreadable_one_needs_confirmation(
    patient: Patient,
) -> None:
    info = decode_managed_ledger(patient.values()[PATH])
    complete, ledger_id = info.SerializeToString(), info.ledgerInfo[1].ledgerId
    del info.ledgerInfo[1]
    patient.put(PATH, info.SerializeToString())
    other = MemoryStore()
    other.put(PATH, complete, -1)
    repair = repair_topic_record(patient.store, None, PLAIN, lambda error: None, others=[other])
    assert any(f"ledger {ledger_id} is not added" in text for text in repair.said)
    assert repair.decided[0][1].reason == "already"
    other.values[PATH] = other.values[PATH]._replace(value=GARBAGE)
    repair = repair_topic_record(patient.store, None, PLAIN, lambda error: None, others=[other])
    assert (repair.decided[0][1].action, repair.confirm) == ("rewrite", str(PLAIN))
    assert "trimming in one deletes the other's data" in repair.losses[0]


def test_a_topic_without_ledgers_is_not_found(patient: Patient) -> None:
    with pytest.raises(NotFoundError, match="no ledger has persistent://public/default/nobody as its owner"):
        repaired(patient, TopicName.parse("nobody"))

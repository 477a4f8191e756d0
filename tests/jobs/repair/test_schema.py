"""Schema records that lost versions. The record with three versions refers to ledgers of real schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.repair.schema import Wanted, repair_schema, schema_of
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from tests.damage import GARBAGE
from tests.jobs.repair.conftest import Patient

STRINGS = TopicName.parse("strings")
PATH = STRINGS.schema_path
OTHERS = ("__change_events", "__transaction_buffer_snapshot")


@pytest.fixture
def several(patient: Patient) -> list[int]:
    """Give the topic's record three versions, and return their ledgers."""
    locator = SchemaLocator.FromString(patient.values()[PATH])
    for version, name in enumerate(OTHERS, 1):
        other = SchemaLocator.FromString(patient.values()[TopicName.parse(name).schema_path])
        locator.info.CopyFrom(other.info)
        locator.info.version = version
        locator.index.add().CopyFrom(locator.info)
        make_own(patient, other.info.position.ledgerId)
    put(patient, locator.SerializeToString())
    return [entry.position.ledgerId for entry in locator.index]


def make_own(patient: Patient, ledger_id: int) -> None:
    """Make a ledger one of the topic's schema."""
    record = patient.store.values[ledger_path(ledger_id)]
    metadata = decode_ledger_metadata(record.value)
    for field in metadata.metadata.customMetadata:
        if field.key == "pulsar/schemaId":
            field.value = PATH.removeprefix("/schemas/").encode()
    patient.store.values[record.path] = record._replace(value=encode_ledger_metadata(metadata))


@pytest.fixture
def disk(capture: Callable[[str], Path]) -> Iterator[EntrySource]:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        yield source


def put(patient: Patient, value: bytes) -> None:
    patient.store.values[PATH] = patient.store.values[PATH]._replace(value=value)


def locator(patient: Patient) -> SchemaLocator:
    return SchemaLocator.FromString(patient.values()[PATH])


@pytest.mark.parametrize(("lost", "newest"), [([0], 2), ([1], 2), ([2], 1), ([0, 2], 1)])
def test_lost_versions_are_removed_and_the_others_kept(
    patient: Patient, several: list[int], lost: list[int], newest: int
) -> None:
    for version in lost:
        del patient.store.values[ledger_path(several[version])]
    damaged = patient.values()
    missing = {ledger for code, ledger in patient.reported() if code == "schema-ledger-missing"}
    assert missing == {several[version] for version in lost}
    repair = repair_schema(patient.store, None, STRINGS)
    assert any("becomes version" in text for text in repair.said) == (newest < 2)
    patient.apply(repair)
    left = locator(patient)
    assert [entry.version for entry in left.index] == [number for number in range(3) if number not in lost]
    assert (left.info.version, left.info.position.ledgerId) == (newest, several[newest])
    own = [finding for finding in patient.findings() if finding.path == PATH]
    assert own == []
    patient.take_back()
    assert patient.values() == damaged


def test_the_record_is_removed_if_no_version_is_left(patient: Patient, disk: EntrySource) -> None:
    [only] = locator(patient).index
    del patient.store.values[ledger_path(only.position.ledgerId)]
    assert patient.apply(repair_schema(patient.store, None, STRINGS)).removed == 1
    assert PATH not in patient.values()
    patient.take_back()
    repair = repair_schema(patient.store, disk, STRINGS)
    assert repair.confirm == str(STRINGS)
    version = f"version 0 (ledger {only.position.ledgerId})"
    assert repair.losses == (
        f"{version} becomes unreachable: messages of version 0 can't be decoded with it",
        f"{version} still has its entry on bookies: repair ledger-metadata {only.position.ledgerId} brings it"
        " back",
    )


def test_removing_a_version_needs_confirmation_even_if_no_entries_were_given(
    patient: Patient, several: list[int]
) -> None:
    del patient.store.values[ledger_path(several[1])]
    repair = repair_schema(patient.store, None, STRINGS)
    assert repair.confirm == str(STRINGS)
    assert [text.split(":")[0] for text in repair.losses] == [
        f"version 1 (ledger {several[1]}) becomes unreachable"
    ]


def test_a_version_is_restored_from_another_ledger_with_its_schema(
    patient: Patient, several: list[int]
) -> None:
    schema, record = b'{"type":"string"}', locator(patient)
    for entry in (record.index[0], record.index[2], record.info):
        entry.hash = sha256(schema).digest()
    put(patient, record.SerializeToString())
    del patient.store.values[ledger_path(several[0])]
    repair = repair_schema(patient.store, None, STRINGS, Wanted(0, schema))
    patient.apply(repair)
    restored = locator(patient)
    assert [entry.position.ledgerId for entry in restored.index] == [several[2], several[1], several[2]]
    assert [entry.version for entry in restored.index] == [0, 1, 2]
    assert [finding for finding in patient.findings() if finding.path == PATH] == []


def test_an_unreferenced_ledger_with_the_schema_is_found_with_entries(
    patient: Patient, several: list[int], disk: EntrySource
) -> None:
    # The real schema of `strings` is empty, as for all primitive types.
    record = locator(patient)
    record.index[1].hash = sha256(b"").digest()
    del record.index[0]
    put(patient, record.SerializeToString())
    del patient.store.values[ledger_path(several[1])]
    with pytest.raises(UsageError, match="other ledgers need --entries"):
        repair_schema(patient.store, None, STRINGS, Wanted(1, b""))
    patient.apply(repair_schema(patient.store, disk, STRINGS, Wanted(1, b"")))
    assert locator(patient).index[0].position.ledgerId == several[0]


def test_the_plan_names_the_command_that_registers_the_last_version_again(
    patient: Patient, several: list[int]
) -> None:
    record = locator(patient)
    record.index[2].hash = record.info.hash = sha256(b"{}").digest()
    put(patient, record.SerializeToString())
    del patient.store.values[ledger_path(several[2])]
    repair = repair_schema(patient.store, None, STRINGS, Wanted(2, b"{}"))
    assert f"pulsar-admin schemas upload {STRINGS}" in repair.said[-1]
    patient.apply(repair)
    assert locator(patient).info.version == 1


def test_versions_and_schemas_that_do_not_fit_are_refused(patient: Patient, several: list[int]) -> None:
    assert patient.apply(repair_schema(patient.store, None, STRINGS)).kept_for == {"already": 1}
    with pytest.raises(UsageError, match="version 1 is not lost"):
        repair_schema(patient.store, None, STRINGS, Wanted(1))
    with pytest.raises(NotFoundError, match="no version 9"):
        repair_schema(patient.store, None, STRINGS, Wanted(9))
    with pytest.raises(NotFoundError, match="has no schema"):
        repair_schema(patient.store, None, TopicName.parse("plain"))
    del patient.store.values[ledger_path(several[0])]
    with pytest.raises(UsageError, match="this is not the schema of version 0: its SHA-256"):
        repair_schema(patient.store, None, STRINGS, Wanted(0, b"another"))
    patient.store.values = {PATH: patient.store.values[PATH]}
    with pytest.raises(UsageError):
        repair_schema(patient.store, None, STRINGS)


def test_a_record_without_a_readable_version_is_removed_after_confirmation(patient: Patient) -> None:
    put(patient, GARBAGE)
    repair = repair_schema(patient.store, None, STRINGS)
    assert (repair.confirm, len(repair.losses)) == (str(STRINGS), 1)
    assert patient.apply(repair).removed == 1


def test_a_truncated_record_keeps_the_versions_before_the_damage(
    patient: Patient, several: list[int]
) -> None:
    complete = locator(patient)
    put(patient, complete.SerializeToString()[:-9])
    repair = repair_schema(patient.store, None, STRINGS)
    # The newest version is also at the start of the record.
    assert (repair.losses, repair.confirm) == ((), None)
    patient.apply(repair)
    assert locator(patient) == complete
    patient.take_back()
    head = complete.info.ByteSize() + 12
    put(patient, complete.SerializeToString()[:head])
    repair = repair_schema(patient.store, None, STRINGS)
    assert repair.confirm == str(STRINGS)
    assert [text.split(" ")[1] for text in repair.losses] == ["0", "1"]
    patient.apply(repair)
    assert [entry.version for entry in locator(patient).index] == [2]


def test_a_schema_file_may_be_a_dump_or_the_bare_schema() -> None:
    assert (
        schema_of(b'{"type":"AVRO","schema":"{\\"type\\":\\"int\\"}","properties":{}}') == b'{"type":"int"}'
    )
    assert schema_of(b'{"type":"record"}') == b'{"type":"record"}'
    assert schema_of(b"\xff") == b"\xff"

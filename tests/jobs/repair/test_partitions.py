"""Repairs and refusals for the record of a partitioned topic."""

from __future__ import annotations

import json

import pytest

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.repair.generator import repair_partitions
from tests.jobs.repair.conftest import Patient

PARTED = TopicName.parse("parted")
PATH = PARTED.partitioned_path
NAMES = tuple(str(PARTED.with_partition(number)) for number in range(3))


@pytest.mark.parametrize("damage", [None, b'{"partitions"', b'{"partitions":2,"properties":{"a":"b"}}'])
def test_the_record_is_restored_and_undone(patient: Patient, damage: bytes | None) -> None:
    healthy = patient.values()
    if damage is None:
        del patient.store.values[PATH]
    else:
        patient.store.values[PATH] = patient.store.values[PATH]._replace(value=damage)
    damaged = patient.values()
    assert patient.reported("public/default")
    patient.apply(repair_partitions(patient.store, PARTED))
    assert patient.reported(*NAMES) == []
    kept = {"properties": {"a": "b"}} if damage and b"properties" in damage else {}
    assert json.loads(patient.values()[PATH]) | {"deleted": False} == {
        "partitions": 3,
        "deleted": False,
        **kept,
    }
    assert kept or patient.values() == healthy
    patient.take_back()
    assert patient.values() == damaged


def test_a_correct_or_higher_number_is_kept(patient: Patient) -> None:
    assert patient.apply(repair_partitions(patient.store, PARTED)).kept_for == {"already": 1}
    assert patient.apply(repair_partitions(patient.store, PARTED, 5)).rewritten == 1
    assert patient.apply(repair_partitions(patient.store, PARTED)).kept_for == {"already": 1}


def test_plain_topics_partitions_and_low_numbers_are_refused(patient: Patient) -> None:
    with pytest.raises(NotFoundError, match="persistent://public/default/plain has no partition"):
        repair_partitions(patient.store, TopicName.parse("plain"))
    with pytest.raises(UsageError, match="is a partition: name its topic"):
        repair_partitions(patient.store, PARTED.with_partition(1))
    with pytest.raises(UsageError, match="partition 2 exists"):
        repair_partitions(patient.store, PARTED, 2)


def test_a_value_written_meanwhile_is_kept(patient: Patient) -> None:
    del patient.store.values[PATH]
    repair = repair_partitions(patient.store, PARTED)
    patient.store.put(PATH, b"somebody's", -1)
    with pytest.raises(AssertionError):
        patient.apply(repair)
    assert patient.values()[PATH] == b"somebody's"

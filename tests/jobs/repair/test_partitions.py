"""The record of a partitioned topic: gone, garbage, too low; and what is refused."""

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
def test_the_record_comes_back_and_goes_again(patient: Patient, damage: bytes | None) -> None:
    healthy = patient.values()
    if damage is None:
        del patient.store.values[PATH]
    else:
        patient.store.values[PATH] = patient.store.values[PATH]._replace(value=damage)
    damaged = patient.values()
    assert patient.found("public/default")
    patient.apply(repair_partitions(patient.store, PARTED))
    assert patient.found(*NAMES) == []
    kept = {"properties": {"a": "b"}} if damage and b"properties" in damage else {}
    assert json.loads(patient.values()[PATH]) | {"deleted": False} == {
        "partitions": 3,
        "deleted": False,
        **kept,
    }
    assert kept or patient.values() == healthy
    patient.take_back()
    assert patient.values() == damaged


def test_what_is_right_stays_and_what_is_higher_too(patient: Patient) -> None:
    assert patient.apply(repair_partitions(patient.store, PARTED)).kept_for == {"already": 1}
    assert patient.apply(repair_partitions(patient.store, PARTED, 5)).rewritten == 1
    assert patient.apply(repair_partitions(patient.store, PARTED)).kept_for == {"already": 1}


def test_a_topic_without_partitions_a_partition_and_too_few_are_refused(patient: Patient) -> None:
    with pytest.raises(NotFoundError, match="no partition of persistent://public/default/plain"):
        repair_partitions(patient.store, TopicName.parse("plain"))
    with pytest.raises(UsageError, match="is a partition: name its topic"):
        repair_partitions(patient.store, PARTED.with_partition(1))
    with pytest.raises(UsageError, match="there is a partition 2"):
        repair_partitions(patient.store, PARTED, 2)


def test_what_was_written_meanwhile_is_left_alone(patient: Patient) -> None:
    del patient.store.values[PATH]
    repair = repair_partitions(patient.store, PARTED)
    patient.store.put(PATH, b"somebody's", -1)
    with pytest.raises(AssertionError):
        patient.apply(repair)
    assert patient.values()[PATH] == b"somebody's"

"""Wounds of scalable topics, found by `check`: each on a copy of what a real 5.0.0-M1 wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.check.known import CheckOptions
from pulsar_meta.jobs.check.run import checkup
from pulsar_meta.stores.memory import MemoryStore
from tests.wounds import healthy

Capture = Callable[[str], Path]
SPLIT = "/topics/public/default/split"


@pytest.fixture
def store(capture: Capture) -> MemoryStore:
    return healthy(capture("pulsar-5.0.0-M1-scalable"))


def found(store: MemoryStore, *names: str) -> list[tuple[str, str | None]]:
    run = checkup(store, None, names, CheckOptions())
    codes = {"segment", "segments", "record"}
    findings: list[Finding] = [one for one in run.findings() if one.code.partition("-")[0] in codes]
    return sorted((one.code, one.topic) for one in findings if "lost" not in str(one.topic))


def wound(store: MemoryStore, number: int, **fields: Any) -> None:
    held = store.values[SPLIT]
    record = json.loads(held.value)
    record["segments"][str(number)].update(fields)
    store.values[SPLIT] = held._replace(value=json.dumps(record).encode())


def segment(name: str) -> str:
    return f"segment://public/default/split/{name}"


def test_what_was_captured_is_well(store: MemoryStore) -> None:
    assert found(store) == found(store, "public/default/split") == found(store, "public/default") == []


def test_a_hole_and_what_the_edit_leaves_behind(store: MemoryStore) -> None:
    wound(store, 4, hashRange={"start": 0xC001, "end": 0xFFFF})
    expected = [
        ("segment-without-managed-ledger", segment("c001-ffff-4")),
        ("segments-with-hole", "topic://public/default/split"),
    ]
    assert [one for one in found(store) if one[0] != "segment-without-topic"] == expected
    assert ("segment-without-topic", segment("c000-ffff-4")) in found(store)
    assert [one for one in found(store, "split") if one[0] != "segment-without-topic"] == expected
    assert found(store, "merged") == []


@pytest.mark.parametrize(
    ("number", "fields", "code"),
    [
        (2, {"state": "ACTIVE"}, "segments-overlap"),
        (1, {"parentIds": [7]}, "segment-unlinked"),
    ],
)
def test_other_wounds_of_the_record(
    store: MemoryStore, number: int, fields: dict[str, Any], code: str
) -> None:
    wound(store, number, **fields)
    assert {one for one, _ in found(store)} == {one for one, _ in found(store, "split")} == {code}


def test_a_sealed_segment_that_takes_messages(store: MemoryStore) -> None:
    wound(store, 1, state="SEALED", childIds=[])
    assert ("segment-not-terminated", segment("0000-7fff-1")) in found(store, "split")


def test_managed_ledgers_that_are_gone_or_left(store: MemoryStore) -> None:
    del store.values[TopicName.parse(segment("0000-ffff-0")).path]
    assert ("segment-without-managed-ledger", segment("0000-ffff-0")) in found(store)
    del store.values[SPLIT]
    assert ("segment-without-topic", segment("0000-7fff-1")) in found(store)


def test_a_broken_record_is_a_finding(store: MemoryStore) -> None:
    store.values[SPLIT] = store.values[SPLIT]._replace(value=b'{"epoch": 1')
    assert ("record-undecodable", None) in found(store)

"""Damage to scalable topics (in a capture of 5.0.0-M1) and to shadow topics (in one of 4.2.4)."""

from __future__ import annotations

import json
from typing import Any

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.topics.related import SOURCE
from pulsar_meta.jobs.topics.topic import read_topic
from tests.damage.ledger_damage import take_out
from tests.damage.patient import NotApplicableError, Patient, by_name, counted

SPLIT = "/topics/public/default/split"
SCALABLE = "topic://public/default/split"


def segment(name: str) -> str:
    """Return the full name of a segment of the topic that was split."""
    return f"segment://public/default/split/{name}"


def _change_segment(patient: Patient, number: int, **fields: Any) -> None:
    if SPLIT not in patient.store.values:
        raise NotApplicableError
    patient.claim(SPLIT)
    record = json.loads(patient.store.values[SPLIT].value)
    record["segments"][str(number)].update(fields)
    patient.put(SPLIT, json.dumps(record).encode())


def hole(patient: Patient) -> None:
    """Shrink a segment's hash range, which also changes the segment's name."""
    _change_segment(patient, 4, hashRange={"start": 0xC001, "end": 0xFFFF})
    patient.expect("segments-with-hole", SCALABLE)
    patient.expect("segment-without-managed-ledger", segment("c001-ffff-4"))
    patient.expect("segment-without-topic", segment("c000-ffff-4"))


def overlap(patient: Patient) -> None:
    """Make a segment active again that was split."""
    _change_segment(patient, 2, state="ACTIVE")
    for child in ("8000-bfff-3", "c000-ffff-4"):
        patient.expect("segments-overlap", segment(child))


def unlinked(patient: Patient) -> None:
    """Point a segment to a parent that does not exist."""
    _change_segment(patient, 1, parentIds=[7])
    for either in ("0000-ffff-0", "0000-7fff-1"):
        patient.expect("segment-unlinked", segment(either))


def sealed_and_open(patient: Patient) -> None:
    """Mark a segment as sealed although its managed ledger is open."""
    _change_segment(patient, 1, state="SEALED")
    patient.expect("segment-not-terminated", segment("0000-7fff-1"))
    patient.expect("segments-with-hole", SCALABLE)


def managed_ledger_gone(patient: Patient) -> None:
    """Remove the managed ledger of a segment."""
    _change_segment(patient, 4)
    name = TopicName.parse(segment("c000-ffff-4"))
    patient.remove(name.path)
    patient.expect("segment-without-managed-ledger", str(name))
    patient.expect("topic-record-lost", str(name), severity=Severity.WARNING)


def scalable_record_gone(patient: Patient) -> None:
    """Remove the record of a scalable topic and leave its segments."""
    _change_segment(patient, 0)
    patient.remove(SPLIT)
    for name in ("0000-ffff-0", "0000-7fff-1", "8000-ffff-2", "8000-bfff-3", "c000-ffff-4"):
        patient.expect("segment-without-topic", segment(name))


def scalable_record_torn(patient: Patient) -> None:
    """Cut the JSON record of a scalable topic."""
    _change_segment(patient, 0)
    patient.put(SPLIT, b'{"epoch": 1')
    patient.expect("record-undecodable", SPLIT)


def shadow_source_gone(patient: Patient) -> None:
    """Remove the record of a topic that has shadows."""
    shadows = _shadows(patient)
    source = _choose_source(patient, shadows)
    patient.remove(TopicName.parse(source).path)
    patient.expect("topic-record-lost", source)
    for name in (name for name, its_source in shadows.items() if its_source == source):
        patient.expect("shadow-without-source", name)


def shadow_behind(patient: Patient) -> None:
    """Trim a source while no broker has its shadow loaded."""
    shadows = _shadows(patient)
    source = _choose_source(patient, shadows)
    topic = read_topic(patient.store, TopicName.parse(source))
    first = counted(topic)[0]
    take_out(patient, topic, first)
    patient.remove(ledger_path(first))
    for name in shadows:
        own = decode_managed_ledger(patient.store.values[TopicName.parse(name).path].value)
        if any(ledger.ledgerId == first for ledger in own.ledgerInfo):
            patient.expect("shadow-lists-deleted-ledgers", name)


def _choose_source(patient: Patient, shadows: dict[str, str]) -> str:
    sources = sorted(set(shadows.values()) - set(shadows))
    if not sources:
        raise NotApplicableError
    return patient.rng.choice(sources)


def _shadows(patient: Patient) -> dict[str, str]:
    """Map each shadow topic to its source, if the source exists and is not partitioned."""
    patient.claim("shadows")
    topics = {topic.name: dict(topic.properties).get(SOURCE) for topic in patient.topics()}
    full = {name: str(TopicName.parse(source)) for name, source in topics.items() if source is not None}
    return {name: source for name, source in full.items() if source in topics}


SCALABLE_DAMAGE = by_name(
    hole, overlap, unlinked, sealed_and_open, managed_ledger_gone, scalable_record_gone, scalable_record_torn
)
SHADOW_DAMAGE = by_name(shadow_source_gone, shadow_behind)

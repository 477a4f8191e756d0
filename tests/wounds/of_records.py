"""Wounds of records: garbage, emptiness, other kinds, what a deletion or a restore leaves."""

from __future__ import annotations

import json

from pulsar_meta.codecs.metadata.envelope import open_envelope, wrap_envelope
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.rewrite.readable import registered_versions
from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from tests.wounds.patient import GARBAGE, NotHereError, Patient, by_name, counted, has_data

POLICIES = "/admin/policies/"


def _choose_to_break(patient: Patient) -> Topic:
    """Return a topic whose record will say nothing: it may name any object in tiered storage."""
    patient.undecided.add("offload-object-orphan")
    return patient.choose(has_data)


def topic_garbage(patient: Patient) -> None:
    """A topic's record is cut or garbage."""
    topic = _choose_to_break(patient)
    cut = patient.store.values[topic.path].value[:-3]
    patient.put(topic.path, patient.rng.choice([GARBAGE, cut]))
    patient.expect("record-undecodable", topic)


def topic_gone(patient: Patient) -> None:
    """A topic's record is gone, or empty."""
    topic = _choose_to_break(patient)
    if patient.rng.random() < 0.5:
        patient.put(topic.path, b"")
    else:
        patient.remove(topic.path)
    patient.expect("topic-record-lost", topic)


def topic_is_a_cursor(patient: Patient) -> None:
    """A topic's record has the bytes of a cursor's."""
    topic = _choose_to_break(patient)
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=7, lastActive=1)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("record-wrong-kind", topic)


def cursor_broken(patient: Patient) -> None:
    """A cursor's record is empty, or garbage."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(patient.cursors(topic)))
    path, _ = patient.rng.choice(patient.cursors(topic))
    empty = patient.rng.random() < 0.5
    patient.put(path, b"" if empty else GARBAGE)
    patient.expect("record-empty" if empty else "record-undecodable", topic)


def near_limit(patient: Patient) -> None:
    """A record is almost as big as the server takes."""
    patient.once("limit")
    topic = patient.choose(has_data)
    patient.store.max_value_size = 0xFFFFF
    info = patient.info(topic)
    info.properties.add(key="long", value="x" * 850_000)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("record-near-limit", topic)


def unreadable(patient: Patient) -> None:
    """A cursor's record is compressed: 4.2.4 cannot load it with properties, releases before 2.10 never."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(_plain(patient, topic)))
    path, info = patient.rng.choice(_plain(patient, topic))
    info.properties.add(name="a", value=1)
    patient.put(path, wrap_envelope(info.SerializeToString(), "lz4"))
    # Where no broker is registered nobody says which release is to load it.
    severity = Severity.WARNING if registered_versions(patient.store) else Severity.NOTE
    patient.expect("record-unreadable", topic, severity=severity)


def _plain(patient: Patient, topic: Topic) -> list[tuple[str, ManagedCursorInfo]]:
    """Return the cursors of a topic where none is compressed."""
    found = patient.cursors(topic)
    packed = [path for path, _ in found if open_envelope(patient.store.values[path].value) is not None]
    return [] if packed else found


def _parent(patient: Patient) -> tuple[TopicName, int]:
    """Return a partitioned topic that no other wound will touch, and how many partitions it has."""
    base = TopicName.parse("public/default/parted")
    if base.partitioned_path not in patient.store.values:
        raise NotHereError
    patient.once(str(base))
    count = json.loads(patient.store.values[base.partitioned_path].value)["partitions"]
    patient.touched |= {str(base.with_partition(number)) for number in range(count)}
    return base, count


def parent_gone(patient: Patient) -> None:
    """The record of a partitioned topic is gone."""
    base, count = _parent(patient)
    patient.remove(base.partitioned_path)
    for number in range(count):
        place = str(base.with_partition(number))
        patient.expect("partition-without-parent", place, severity=_since_pip_414(patient))


def parent_low(patient: Patient) -> None:
    """The record of a partitioned topic has too low a number."""
    base, count = _parent(patient)
    patient.put(base.partitioned_path, b'{"partitions":%d,"deleted":false}' % (count - 1))
    patient.expect("partition-beyond-count", str(base.with_partition(count - 1)))


def parent_broken(patient: Patient) -> None:
    """The record of a partitioned topic is garbage, empty, or says that the topic is deleted."""
    path = _parent(patient)[0].partitioned_path
    value, code = patient.rng.choice(
        [
            (b'{"partitions"', "record-undecodable"),
            (b"", "record-empty"),
            (b'{"partitions":3,"deleted":true}', "leftover"),
        ]
    )
    patient.put(path, value)
    patient.expect(code, path)


def _since_pip_414(patient: Patient) -> Severity:
    """Return how bad a missing record is: releases before 4.1 load the partitions."""
    releases = registered_versions(patient.store)
    old = bool(releases) and all(one.startswith(("2.", "3.", "4.0.")) for one in releases)
    return Severity.NOTE if old else Severity.WARNING


def namespace_half_deleted(patient: Patient) -> None:
    """The policies of a namespace are gone, its topics are there."""
    paths = [path for path in patient.store.values if path.startswith(f"{POLICIES}public/")]
    name = patient.rng.choice(paths).removeprefix(POLICIES)
    if not any(path.startswith(f"/managed-ledgers/{name}/") for path in patient.store.values):
        raise NotHereError
    patient.once(f"{POLICIES}{name}")
    patient.remove(f"{POLICIES}{name}")
    patient.expect("leftover", f"{POLICIES}{name}")


def topic_half_deleted(patient: Patient) -> None:
    """The cursors and the ledgers of a topic are gone, its record is there."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(counted(topic)))
    for path in [path for path in patient.store.values if path.startswith(f"{topic.path}/")]:
        patient.remove(path)
    for ledger in topic.ledgers:
        patient.remove(ledger_path(ledger.ledger_id))
    patient.expect("leftover", topic, severity=Severity.WARNING)


WOUNDS = by_name(
    *(topic_garbage, topic_gone, topic_is_a_cursor, cursor_broken, near_limit, unreadable, parent_gone),
    *(parent_low, parent_broken, namespace_half_deleted, topic_half_deleted),
)

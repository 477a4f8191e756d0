"""Damage to records: garbage, empty values, other kinds of records, half-finished deletions."""

from __future__ import annotations

import json

from pulsar_meta.codecs.metadata.envelope import open_envelope, wrap_envelope
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.rewrite.readable import registered_versions
from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from tests.damage.patient import GARBAGE, NotApplicableError, Patient, by_name, counted, has_data, has_many

POLICIES = "/admin/policies/"


def _choose_to_break(patient: Patient) -> Topic:
    """Choose a topic whose record becomes unreadable.

    After that, `check` can't know which objects in tiered storage the record referred to.
    """
    patient.undecided.add("offload-object-orphan")
    return patient.choose(has_data)


def topic_garbage(patient: Patient) -> None:
    """Cut a topic's record or replace it by garbage."""
    topic = _choose_to_break(patient)
    cut = patient.store.values[topic.path].value[:-3]
    patient.put(topic.path, patient.rng.choice([GARBAGE, cut]))
    patient.expect("record-undecodable", topic)


def topic_gone(patient: Patient) -> None:
    """Remove or empty a topic's record."""
    topic = _choose_to_break(patient)
    if patient.rng.random() < 0.5:
        patient.put(topic.path, b"")
    else:
        patient.remove(topic.path)
    patient.expect("topic-record-lost", topic)


def topic_is_a_cursor(patient: Patient) -> None:
    """Replace a topic's record by a cursor's."""
    topic = _choose_to_break(patient)
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=7, lastActive=1)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("record-wrong-kind", topic)


def cursor_broken(patient: Patient) -> None:
    """Empty a cursor's record or replace it by garbage."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(patient.cursors(topic)))
    path, _ = patient.rng.choice(patient.cursors(topic))
    empty = patient.rng.random() < 0.5
    patient.put(path, b"" if empty else GARBAGE)
    patient.expect("record-empty" if empty else "record-undecodable", topic)


def near_limit(patient: Patient) -> None:
    """Grow a record almost to the largest value that the server accepts."""
    patient.claim("limit")
    topic = patient.choose(has_data)
    patient.store.max_value_size = 0xFFFFF
    info = patient.info(topic)
    info.properties.add(key="long", value="x" * 850_000)
    patient.put(topic.path, info.SerializeToString())
    patient.expect("record-near-limit", topic)


def unreadable(patient: Patient) -> None:
    """Compress a cursor's record with properties: 4.2.4 can't load that; before 2.10 no release can."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(_uncompressed_cursors(patient, topic)))
    path, info = patient.rng.choice(_uncompressed_cursors(patient, topic))
    info.properties.add(name="a", value=1)
    patient.put(path, wrap_envelope(info.SerializeToString(), "lz4"))
    # Without a registered broker, `check` doesn't know which release will load the record.
    severity = Severity.ERROR if registered_versions(patient.store) else Severity.WARNING
    patient.expect("record-unreadable", topic, severity=severity)


def _uncompressed_cursors(patient: Patient, topic: Topic) -> list[tuple[str, ManagedCursorInfo]]:
    """Return the topic's cursors, or none if one of them is compressed."""
    cursors = patient.cursors(topic)
    compressed = [path for path, _ in cursors if open_envelope(patient.store.values[path].value) is not None]
    return [] if compressed else cursors


def _partitioned_topic(patient: Patient) -> tuple[TopicName, int]:
    """Reserve the partitioned topic and return its name and its number of partitions."""
    base = TopicName.parse("public/default/parted")
    if base.partitioned_path not in patient.store.values:
        raise NotApplicableError
    patient.claim(str(base))
    count = json.loads(patient.store.values[base.partitioned_path].value)["partitions"]
    patient.touched |= {str(base.with_partition(number)) for number in range(count)}
    return base, count


def parent_gone(patient: Patient) -> None:
    """Remove the record of a partitioned topic."""
    base, count = _partitioned_topic(patient)
    patient.remove(base.partitioned_path)
    for number in range(count):
        place = str(base.with_partition(number))
        patient.expect("partition-without-parent", place, severity=_severity_of_missing_parent(patient))


def parent_low(patient: Patient) -> None:
    """Lower the number of partitions in the record."""
    base, count = _partitioned_topic(patient)
    patient.put(base.partitioned_path, b'{"partitions":%d,"deleted":false}' % (count - 1))
    patient.expect("partition-beyond-count", str(base.with_partition(count - 1)))


def parent_broken(patient: Patient) -> None:
    """Replace the record of a partitioned topic by garbage or nothing, or mark the topic as deleted."""
    path = _partitioned_topic(patient)[0].partitioned_path
    value, code = patient.rng.choice(
        [
            (b'{"partitions"', "record-undecodable"),
            (b'{"partitions":-1}', "record-undecodable"),
            (b"", "record-empty"),
            (b'{"partitions":3,"deleted":true}', "leftover"),
        ]
    )
    patient.put(path, value)
    patient.expect(code, path)


def plain_topic_beside(patient: Patient) -> None:
    """Write a number of partitions for a topic that has none."""
    topic = patient.choose(lambda topic: has_data(topic) and TopicName.parse(topic.name).partition is None)
    patient.put(TopicName.parse(topic.name).partitioned_path, b'{"partitions":2,"deleted":false}')
    severity = Severity.ERROR if registered_versions(patient.store) else Severity.WARNING
    patient.expect("topic-beside-partitioned", topic, severity=severity)


def _severity_of_missing_parent(patient: Patient) -> Severity:
    """Return a note for releases before 4.1 (PIP-414), which load the partitions anyway.

    Later releases refuse them, which is an error. If no release is known, it is a warning.
    """
    releases = registered_versions(patient.store)
    if not releases:
        return Severity.WARNING
    old = all(release.startswith(("2.", "3.", "4.0.")) for release in releases)
    return Severity.NOTE if old else Severity.ERROR


def namespace_half_deleted(patient: Patient) -> None:
    """Remove the policies of a namespace and leave its topics."""
    paths = [path for path in patient.store.values if path.startswith(f"{POLICIES}public/")]
    name = patient.rng.choice(paths).removeprefix(POLICIES)
    if not any(path.startswith(f"/managed-ledgers/{name}/") for path in patient.store.values):
        raise NotApplicableError
    patient.claim(f"{POLICIES}{name}")
    patient.remove(f"{POLICIES}{name}")
    patient.expect("leftover", f"{POLICIES}{name}", severity=Severity.ERROR)


def topic_half_deleted(patient: Patient) -> None:
    """Remove the cursors and ledgers of a topic and leave its record."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(counted(topic)))
    for path in [path for path in patient.store.values if path.startswith(f"{topic.path}/")]:
        patient.remove(path)
    for ledger in topic.ledgers:
        patient.remove(ledger_path(ledger.ledger_id))
    patient.expect("leftover", topic, severity=Severity.WARNING)


def topic_copied(patient: Patient) -> None:
    """Write a copy of another topic's record over the topic's own."""
    topic, other = patient.choose(has_many), patient.choose(has_data)
    patient.put(topic.path, patient.store.values[other.path].value)
    patient.expect("record-copied", topic)


def coordinators_gone(patient: Patient) -> None:
    """Remove the record with the number of transaction coordinators, or leave none."""
    path = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
    if path not in patient.store.values:
        raise NotApplicableError
    patient.claim(path)
    log = "persistent://pulsar/system/__transaction_log_0"
    patient.remove(path)
    patient.expect("transaction-coordinator-missing", log, severity=Severity.WARNING)


def transaction_ids_broken(patient: Patient) -> None:
    """Replace the property with the last transaction id by text."""
    topic = patient.choose(lambda topic: topic.name.endswith("/__transaction_log_0"))
    info = patient.info(topic)
    for pair in info.properties:
        if pair.key == "max_local_txn_id":
            pair.value = "five"
            patient.put(topic.path, info.SerializeToString())
            patient.expect("transaction-ids-behind", topic)
            return
    raise NotApplicableError


DAMAGE = by_name(
    *(topic_garbage, topic_gone, topic_is_a_cursor, cursor_broken, near_limit, unreadable, parent_gone),
    *(parent_low, parent_broken, namespace_half_deleted, topic_half_deleted, topic_copied),
    plain_topic_beside,
    *(coordinators_gone, transaction_ids_broken),
)

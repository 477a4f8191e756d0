"""Damage to cursors and to ledgers that only cursors refer to: compacted data, delayed-message buckets."""

from __future__ import annotations

from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry, encode_bookie_entry
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.topics.owners import BUCKET, bucket_ledgers
from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from tests.damage.ledger_damage import take_out
from tests.damage.patient import (
    GARBAGE,
    NOWHERE,
    NotApplicableError,
    Patient,
    by_name,
    counted,
    has_data,
    has_many,
)


def _choose_cursor(patient: Patient) -> tuple[Topic, str, ManagedCursorInfo]:
    """Choose a subscription whose state is in its record; return its topic, its path and its record.

    The position of a compaction cursor must also fit the compacted data.
    """
    topic = patient.choose(lambda topic: has_data(topic) and bool(_user_cursors(patient, topic)))
    return topic, *patient.rng.choice(_user_cursors(patient, topic))


def cursor_beyond(patient: Patient) -> None:
    """Move a cursor past the end of its topic."""
    topic, path, info = _choose_cursor(patient)
    last = topic.ledgers[-1].ledger_id
    # The end of an open ledger is unknown, so a position in it can't be reported.
    inside = [] if patient.bookkeeper(last).last_entry is None else [(last, 17)]
    info.markDeleteLedgerId, info.markDeleteEntryId = patient.rng.choice([*inside, (last + 5, 3)])
    del info.individualDeletedMessages[:]
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-beyond-end", topic)


def cursor_past_a_ledger(patient: Patient) -> None:
    """Move a cursor past the end of a ledger that is followed by others."""
    topic = patient.choose(lambda topic: has_many(topic) and bool(patient.cursors(topic)))
    path, info = patient.rng.choice(patient.cursors(topic))
    ledger = topic.ledgers[0]
    info.markDeleteLedgerId, info.markDeleteEntryId = ledger.ledger_id, ledger.counted + 3
    del info.individualDeletedMessages[:]
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-beyond-end", topic)


def cursor_in_vanished(patient: Patient) -> None:
    """Move a cursor into a ledger that neither the topic nor BookKeeper has."""
    topic = patient.choose(lambda topic: has_many(topic) and len(patient.cursors(topic)) == 1)
    [(path, info)] = patient.cursors(topic)
    info.markDeleteLedgerId, info.markDeleteEntryId = counted(topic)[1], 3
    del info.individualDeletedMessages[:]
    patient.put(path, info.SerializeToString())
    take_out(patient, topic, counted(topic)[1])
    patient.remove(ledger_path(counted(topic)[1]))
    patient.expect("cursor-in-vanished-ledger", topic, severity=Severity.WARNING)
    if patient.entries is not None:
        patient.expect("ledger-lost", topic, counted(topic)[1])


def cursor_of_another_topic(patient: Patient) -> None:
    """Move a cursor into a ledger of another topic, between the ledgers of its own topic."""
    topic = patient.choose(lambda topic: has_many(topic) and bool(patient.cursors(topic)))
    path, info = patient.rng.choice(patient.cursors(topic))
    first, last = counted(topic)[0], counted(topic)[-1]
    foreign = [ledger_id for ledger_id in _foreign_ledgers(patient, topic) if first < ledger_id < last]
    if not foreign:
        raise NotApplicableError
    info.markDeleteLedgerId, info.markDeleteEntryId = patient.rng.choice(foreign), 0
    del info.individualDeletedMessages[:]
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-in-vanished-ledger", topic)


def _foreign_ledgers(patient: Patient, topic: Topic) -> list[int]:
    """Return the ledgers that other untouched topics list."""
    return [
        ledger_id for other in patient.topics() if other.name != topic.name for ledger_id in counted(other)
    ]


def cursor_before_the_next_ledger(patient: Patient) -> None:
    """Move a cursor before the first entry of a ledger that is beyond every ledger of the topic."""
    topic, path, info = _choose_cursor(patient)
    info.markDeleteLedgerId, info.markDeleteEntryId = topic.ledgers[-1].ledger_id + 5_000_000, -1
    del info.individualDeletedMessages[:]
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-beyond-end", topic)


def range_inverted(patient: Patient) -> None:
    """Exchange the ends of an acknowledged range."""
    topic, path, info = _choose_cursor(patient)
    first = topic.ledgers[0]
    if first.counted < 9:
        raise NotApplicableError
    info.markDeleteLedgerId, info.markDeleteEntryId = first.ledger_id, 0
    del info.individualDeletedMessages[:]
    added = info.individualDeletedMessages.add()
    added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = first.ledger_id
    added.lowerEndpoint.entryId, added.upperEndpoint.entryId = 7, 3
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-ranges-inverted", topic)


def ranges(patient: Patient) -> None:
    """Acknowledge a range before the mark-delete position, in an unlisted ledger, or past a ledger's end."""
    topic, path, info = _choose_cursor(patient)
    first = topic.ledgers[0]
    info.markDeleteLedgerId, info.markDeleteEntryId = first.ledger_id, first.counted - 1
    del info.individualDeletedMessages[:]
    ledger_id, start = patient.rng.choice(
        [(first.ledger_id, -1), (first.ledger_id, first.counted + 5), (first.ledger_id + 100_000, 3)]
    )
    added = info.individualDeletedMessages.add()
    added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = ledger_id
    added.lowerEndpoint.entryId, added.upperEndpoint.entryId = start, start + 1
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-ranges", topic)


def idle(patient: Patient) -> None:
    """Make a subscription look unused for a long time."""
    if not any(record.modified for record in patient.store.values.values()):
        raise NotApplicableError("nothing says when the capture was made")
    topic = patient.choose(lambda topic: has_data(topic) and bool(_user_cursors(patient, topic)))
    path, info = patient.rng.choice(_user_cursors(patient, topic))
    info.lastActive = 1_600_000_000_000
    info.markDeleteLedgerId, info.markDeleteEntryId = topic.ledgers[0].ledger_id, -1
    del info.individualDeletedMessages[:]
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-idle", topic)


def _user_cursors(patient: Patient, topic: Topic) -> list[tuple[str, ManagedCursorInfo]]:
    return [
        cursor for cursor in patient.cursors(topic) if "/__" not in cursor[0] and "/pulsar." not in cursor[0]
    ]


def cursor_ledger_gone(patient: Patient) -> None:
    """Point a cursor to a cursor ledger that does not exist."""
    topic, path, info = _choose_cursor(patient)
    info.cursorsLedgerId = NOWHERE
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-ledger-missing", topic, NOWHERE)


def cursor_ledger_foreign(patient: Patient) -> None:
    """Point a cursor to a data ledger instead of a cursor ledger."""
    topic, path, info = _choose_cursor(patient)
    info.cursorsLedgerId = counted(topic)[0]
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-ledger-foreign", topic, counted(topic)[0])


def _state_ledger(patient: Patient) -> tuple[Topic, int, int]:
    """Choose a cursor ledger; return its topic, its id and its last entry."""

    def state_ledgers(topic: Topic) -> list[int]:
        states = [state for state in patient.states(topic) if state.ledger_id is not None]
        return [
            state.ledger_id for state in states if state.state is not None and state.ledger_id is not None
        ]

    entries = patient.need_entries()
    topic = patient.choose(lambda topic: "__" not in topic.name and bool(state_ledgers(topic)))
    ledger_id = patient.rng.choice(state_ledgers(topic))
    return topic, ledger_id, entries.last_entry(ledger_id) or 0


def cursor_entries_gone(patient: Patient) -> None:
    """Lose every entry of a cursor ledger on all bookies."""
    topic, ledger_id, _ = _state_ledger(patient)
    patient.damage.lost[None, ledger_id] = lambda entry_id: True
    patient.expect("cursor-ledger-missing", topic, ledger_id)


def cursor_entry_garbage(patient: Patient) -> None:
    """Replace the newest entry of a cursor ledger by garbage, or break its digest."""
    topic, ledger_id, last = _state_ledger(patient)
    garbage = encode_bookie_entry(ledger_id, last, last - 1, 30, GARBAGE)
    position = PositionInfo(ledgerId=1, entryId=1).SerializeToString()
    damaged = encode_bookie_entry(ledger_id, last, last - 1, 30, position)[:-1] + b"\x07"
    patient.damage.changed[ledger_id, last] = patient.rng.choice([garbage, damaged])
    patient.expect("cursor-ledger-unreadable", topic, ledger_id)


def cursor_entry_large(patient: Patient) -> None:
    """Grow the newest entry of a cursor ledger almost to the largest that bookies accept."""
    topic, ledger_id, last = _state_ledger(patient)
    entry = decode_bookie_entry(patient.need_entries().read(ledger_id, last).data)
    info = parse_message(PositionInfo, entry.data)
    info.properties.add(name="x" * 4_400_000, value=1)
    data = encode_bookie_entry(ledger_id, last, last - 1, 30, info.SerializeToString())
    patient.damage.changed[ledger_id, last] = data
    patient.expect("cursor-entry-near-limit", topic, ledger_id)


def cursors_alone(patient: Patient) -> None:
    """Remove a topic's record and its ledgers and leave its cursors."""
    topic = patient.choose(lambda topic: has_data(topic) and bool(patient.cursors(topic)))
    patient.remove(topic.path)
    for ledger in topic.ledgers:
        patient.remove(ledger_path(ledger.ledger_id))
    patient.expect("cursor-without-topic", topic)


def cursor_at(path: str, patient: Patient) -> ManagedCursorInfo:
    """Decode the cursor record at a path."""
    return decode_cursor(patient.store.values[path].value)


def compacted(patient: Patient) -> tuple[Topic, str]:
    """Choose a topic with compacted data; return it with the path of its compaction cursor."""

    def points(topic: Topic) -> bool:
        path = f"{topic.path}/__compaction"
        return path in patient.store.values and bool(cursor_at(path, patient).properties)

    topic = patient.choose(points)
    return topic, f"{topic.path}/__compaction"


def compaction_gone(patient: Patient) -> None:
    """Remove the compaction cursor, or its pointer to the compacted ledger."""
    topic, path = compacted(patient)
    info = cursor_at(path, patient)
    ledger_id = info.properties[0].value
    end = patient.bookkeeper(ledger_id).compacted_to
    if end is None or info.cursorsLedgerId != -1:
        raise NotApplicableError
    kept = end >= (topic.ledgers[0].ledger_id, 0)
    if patient.rng.random() < 0.5 and kept:
        patient.remove(path)
    else:
        del info.properties[:]
        patient.put(path, info.SerializeToString())
    severity = Severity.WARNING if kept else Severity.ERROR
    patient.expect("compaction-pointer-lost", topic, ledger_id, severity)


def compacted_ledger_gone(patient: Patient) -> None:
    """Remove the compacted ledger, or its entries."""
    topic, path = compacted(patient)
    ledger_id = cursor_at(path, patient).properties[0].value
    if patient.disks is None or patient.rng.random() < 0.5:
        patient.remove(ledger_path(ledger_id))
    else:
        patient.damage.lost[None, ledger_id] = lambda entry_id: True
    patient.expect("compaction-ledger-missing", topic, ledger_id)
    if "__" in topic.name:
        patient.expect("system-topic-unreadable", topic)


def compaction_set_back(patient: Patient) -> None:
    """Let the compaction cursor stand before the first ledger of its topic."""
    topic, path = compacted(patient)
    info = cursor_at(path, patient)
    ledger_id = info.properties[0].value
    end = patient.bookkeeper(ledger_id).compacted_to
    if info.cursorsLedgerId != -1 or end is None:
        raise NotApplicableError
    info.markDeleteLedgerId, info.markDeleteEntryId = min(end[0], topic.ledgers[0].ledger_id), -1
    patient.put(path, info.SerializeToString())
    is_trimmed = end[0] < topic.ledgers[0].ledger_id
    severity = Severity.ERROR if is_trimmed else Severity.WARNING
    patient.expect("compaction-horizon-differs", topic, ledger_id, severity)


def compaction_points_to_data(patient: Patient) -> None:
    """Let the compaction cursor refer to one of the topic's data ledgers."""
    topic, path = compacted(patient)
    info = cursor_at(path, patient)
    if info.cursorsLedgerId != -1 or "__" in topic.name:
        raise NotApplicableError
    info.properties[0].value = topic.ledgers[0].ledger_id
    patient.put(path, info.SerializeToString())
    patient.expect("compaction-ledger-foreign", topic, topic.ledgers[0].ledger_id)


def too_many_acks(patient: Patient) -> None:
    """Acknowledge as many ranges as a broker persists by default."""
    topic, path, info = _choose_cursor(patient)
    ledger = max(topic.ledgers, key=lambda ledger: ledger.counted)
    metadata = patient.bookkeeper(ledger.ledger_id)
    if metadata.last_entry is None:
        raise NotApplicableError
    info.markDeleteLedgerId, info.markDeleteEntryId = ledger.ledger_id, -1
    del info.individualDeletedMessages[:]
    for number in range(10_000):
        added = info.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = ledger.ledger_id
        added.lowerEndpoint.entryId, added.upperEndpoint.entryId = 2 * number, 2 * number + 1
    patient.put(path, info.SerializeToString())
    patient.expect("cursor-ack-limit", topic)
    patient.expect("cursor-ranges", topic)


def bucket_gone(patient: Patient) -> None:
    """Remove a delayed-message bucket, or the cursor property that refers to it."""
    topic = patient.choose(
        lambda topic: (
            topic.name.endswith("delayed-buckets")
            and bool(list(bucket_ledgers(cursor_at(f"{topic.path}/later", patient))))
        )
    )
    path = f"{topic.path}/later"
    info = cursor_at(path, patient)
    ledger_id = patient.rng.choice(list(bucket_ledgers(info)))
    if patient.rng.random() < 0.5:
        patient.remove(ledger_path(ledger_id))
        patient.expect("bucket-ledger-missing", topic, ledger_id)
    else:
        kept = [prop for prop in info.cursorProperties if prop.value != str(ledger_id)]
        del info.cursorProperties[:]
        info.cursorProperties.extend(kept)
        patient.put(path, info.SerializeToString())
        patient.expect("orphan-bucket", ledger_path(ledger_id), ledger_id, Severity.NOTE)


def bucket_of_data(patient: Patient) -> None:
    """Let a subscription refer to another topic's data ledger as an index of delayed messages."""
    topic, other = (
        patient.choose(lambda topic: bool(_plain_buckets(patient, topic))),
        patient.choose(has_data),
    )
    path, info = patient.rng.choice(_plain_buckets(patient, topic))
    info.cursorProperties[0].value = str(counted(other)[0])
    patient.put(path, info.SerializeToString())
    patient.undecided |= {"orphan-bucket", "record-unreadable"}
    patient.expect("bucket-ledger-foreign", topic, counted(other)[0])


def bucket_unreadable(patient: Patient) -> None:
    """Change the property of an index of delayed messages so that Java can't read its ledgers."""
    topic = patient.choose(lambda topic: bool(_plain_buckets(patient, topic)))
    path, info = patient.rng.choice(_plain_buckets(patient, topic))
    bucket = next(item for item in info.cursorProperties if item.name.startswith(BUCKET))
    if patient.rng.random() < 0.5:
        bucket.value = patient.rng.choice(("", "x12", str(2**63), "1.5"))
    else:
        first, last = bucket.name.split("_")[1:]
        bucket.name = patient.rng.choice(
            (f"{BUCKET}{first}", f"{BUCKET}{first}_x", f"{BUCKET}{int(last) + 1}_{first}")
        )
    patient.put(path, info.SerializeToString())
    patient.undecided |= {"orphan-bucket", "record-unreadable"}
    patient.expect("bucket-property-invalid", topic)


def _plain_buckets(patient: Patient, topic: Topic) -> list[tuple[str, ManagedCursorInfo]]:
    """Return the cursors of a topic that refer to indexes of delayed messages."""
    return [record for record in patient.records(topic) if any(bucket_ledgers(record[1]))]


DAMAGE = by_name(
    *(cursor_beyond, cursor_past_a_ledger, cursor_in_vanished, ranges, idle, cursor_ledger_gone),
    *(cursor_of_another_topic, cursor_before_the_next_ledger, range_inverted, too_many_acks),
    *(compaction_points_to_data, compaction_set_back),
    *(cursor_ledger_foreign, cursor_entries_gone, cursor_entry_garbage, cursors_alone, compaction_gone),
    cursor_entry_large,
    *(compacted_ledger_gone, bucket_gone, bucket_of_data, bucket_unreadable),
)

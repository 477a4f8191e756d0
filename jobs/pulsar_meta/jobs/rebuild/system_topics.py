"""Topic names in the messages of system topics and of retry and dead-letter topics.

A snapshot of a transaction buffer has its topic's name as the key, and refers to the ledger up to which the
buffer was read. Snapshots are stored in a system topic of the same namespace, and so are topic policies
(`__change_events`). A message that a client moved to a retry or dead-letter topic has properties with its
original topic and position.

Sources: apache/pulsar broker/transaction/buffer/metadata, SystemTopicBasedTopicPoliciesService.java,
RetryMessageUtil.java, MessageIdImpl.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.batch import Message, open_entry
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame, decode_raw_message
from pulsar_meta.codecs.names import INDEXES, SEGMENTS, SNAPSHOTS, SnapshotKind, TopicName
from pulsar_meta.codecs.transactions.snapshots import decode_snapshot
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each

CHANGE_EVENTS: Final = "__change_events"
REAL_TOPIC: Final = "REAL_TOPIC"
ORIGIN: Final = "ORIGIN_MESSAGE_ID"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
# Entries at the beginning of a ledger that are searched for names.
SAMPLED_ENTRIES: Final = 4
_SNAPSHOTS: Final[dict[SnapshotKind, str]] = {"snapshot": SNAPSHOTS, "indexes": INDEXES, "segment": SEGMENTS}
# Topics that brokers compact and then trim, regardless of the retention.
SYSTEM_TOPICS: Final = frozenset((CHANGE_EVENTS, *_SNAPSHOTS.values()))
_origin_re: Final = re.compile(r"(\d+):\d+:(-?\d+)(?::-?\d+)*")


class LedgerTopic(NamedTuple):
    """The topic of a ledger, and the evidence for it."""

    ledger_id: int
    topic: TopicName
    why: str


class Subscriber(NamedTuple):
    """A subscription that moved messages to a retry or dead-letter topic."""

    topic: TopicName
    cursor: str


@dataclass(frozen=True, slots=True)
class TopicMentions:
    """Names in the messages of a ledger: its own topic (or None), topics of other ledgers, and
    subscriptions."""

    own: TopicName | None = None
    others: tuple[LedgerTopic, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()


NO_MENTIONS: Final = TopicMentions()


def topic_mentions(source: EntrySource, ledger_id: int) -> TopicMentions:
    """Search the messages of a data ledger, or of compacted data, for names of topics."""
    for message in _messages_of(source, ledger_id, SAMPLED_ENTRIES - 1):
        if _system_topic(message) is not None:
            return _of_system_topic(source, ledger_id)
        if any(prop.key == REAL_TOPIC for prop in message.metadata.properties):
            moved = list(_moved_messages(source, ledger_id))
            topics = dict.fromkeys(topic for topic, _ in moved)
            subscribers = dict.fromkeys(subscriber for _, subscriber in moved if subscriber is not None)
            return TopicMentions(None, tuple(topics), tuple(subscribers))
    return NO_MENTIONS


def _of_system_topic(source: EntrySource, ledger_id: int) -> TopicMentions:
    own: set[TopicName] = set()
    others: dict[int, LedgerTopic] = {}
    for message in _messages_of(source, ledger_id, None):
        system_topic = _system_topic(message)
        if system_topic is not None:
            own.add(system_topic[0])
            for topic, named in system_topic[1]:
                why = f"a transaction buffer snapshot in ledger {ledger_id} names it"
                others[named] = LedgerTopic(named, topic, why)
    return TopicMentions(own.pop() if len(own) == 1 else None, tuple(others.values()))


def _system_topic(message: Message) -> tuple[TopicName, list[tuple[TopicName, int]]] | None:
    """The system topic that such a message belongs to, and the (topic, ledger) pairs in it; None if
    neither."""
    snapshot = _snapshot(message)
    if snapshot is not None:
        kind, topic, named = snapshot
        own = replace(topic, local=_SNAPSHOTS[kind], short=False)
        return own, [] if named is None else [(topic, named)]
    topic_with_policies = _policies_of(message)
    return (
        None
        if topic_with_policies is None
        else (replace(topic_with_policies, local=CHANGE_EVENTS, short=False), [])
    )


def _snapshot(message: Message) -> tuple[SnapshotKind, TopicName, int | None] | None:
    """Decode a transaction buffer snapshot as (kind, topic, ledger up to which it was read); None if it is
    none."""
    for kind in _SNAPSHOTS:
        try:
            snapshot: dict[str, Any] = decode_snapshot(kind, message.payload)
            topic = TopicName.parse(snapshot["topicName"] or "")
        except (DecodeError, UsageError):
            continue
        newest = snapshot.get("snapshot") or {}
        position = snapshot.get("maxReadPositionLedgerId", newest.get("maxReadPositionLedgerId"))
        named = snapshot.get("persistentPositionLedgerId", position)
        # The key of a segment ends with the topic's name, after the segment's number.
        if str(message.metadata.partition_key).endswith(str(topic)):
            return kind, topic, named if named is not None and named >= 0 else None
    return None


def _policies_of(message: Message) -> TopicName | None:
    """The topic whose policies a message contains. Its name is the key, and each part of it is in the
    event."""
    key, event = message.metadata.partition_key, bytes(message.payload)
    if not key.startswith("persistent://"):
        return None
    try:
        topic = TopicName.parse(key)
    except UsageError:
        return None
    parts = (topic.domain, topic.tenant, topic.namespace, topic.local)
    return topic if all(_avro_text(part) in event for part in parts) else None


def _avro_text(text: str) -> bytes:
    data, length = text.encode(), bytearray()
    number = len(data) << 1
    while number > 0x7F:
        length.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(length) + bytes([number]) + data


def _moved_messages(source: EntrySource, ledger_id: int) -> Iterator[tuple[LedgerTopic, Subscriber | None]]:
    """Yield the original ledger and topic of each message in a retry or dead-letter topic, and its
    subscription."""
    for message in _messages_of(source, ledger_id, None):
        properties = {prop.key: prop.value for prop in message.metadata.properties}
        origin = _origin_re.fullmatch(properties.get(ORIGIN, ""))
        if origin is None or REAL_TOPIC not in properties:
            continue
        try:
            topic = TopicName.parse(properties[REAL_TOPIC])
        except UsageError:
            continue
        if int(origin[2]) >= 0 and topic.partition is None:
            topic = topic.with_partition(int(origin[2]))
        why = f"a message in ledger {ledger_id} was moved from it and contains its name"
        topic, subscription = replace(topic, short=False), properties.get(REAL_SUBSCRIPTION)
        yield (
            LedgerTopic(int(origin[1]), topic, why),
            Subscriber(topic, subscription) if subscription else None,
        )


def _messages_of(source: EntrySource, ledger_id: int, last: int | None) -> Iterator[Message]:
    for _, outcome in read_each(source, ledger_id, 0, last):
        if isinstance(outcome, RawEntry):
            yield from _opened(outcome)


def _opened(entry: RawEntry) -> Iterable[Message]:
    try:
        data = decode_bookie_entry(entry.data).data if entry.bookie else memoryview(entry.data)
        try:
            frame = decode_frame(data, verify=False)
        except DecodeError:
            frame = decode_frame(decode_raw_message(data).frame, verify=False)
        return open_entry(frame).messages
    except DecodeError:
        return ()

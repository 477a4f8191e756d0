"""What Pulsar's own messages, and those that its clients sent on, say of other topics and their ledgers.

Snapshots of a transaction buffer have their topic's name as the key, and name the ledger up to which it was
read; they lie in a topic of the same namespace. So do policies of topics (`__change_events`). A message that
a client put into a retry or dead-letter topic has the name and the position from where it came.

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
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.transactions.snapshots import (
    INDEXES,
    SEGMENTS,
    SNAPSHOTS,
    SnapshotKind,
    decode_snapshot,
)
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each

CHANGE_EVENTS: Final = "__change_events"
REAL_TOPIC: Final = "REAL_TOPIC"
ORIGIN: Final = "ORIGIN_MESSAGE_ID"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
# Entries at the beginning of a ledger that are looked at for names.
LOOKED_AT: Final = 4
_SNAPSHOTS: Final[dict[SnapshotKind, str]] = {"snapshot": SNAPSHOTS, "indexes": INDEXES, "segment": SEGMENTS}
# Topics that brokers keep compacted, and trim whatever the retention says.
SYSTEM_TOPICS: Final = frozenset((CHANGE_EVENTS, *_SNAPSHOTS.values()))
_origin_re: Final = re.compile(r"(\d+):\d+:(-?\d+)(?::-?\d+)*")


class Naming(NamedTuple):
    """That a ledger is one of a topic, and what says so."""

    ledger_id: int
    topic: TopicName
    why: str


class Subscriber(NamedTuple):
    """A subscription that put messages off."""

    topic: TopicName
    cursor: str


@dataclass(frozen=True, slots=True)
class Announced:
    """What the messages of a ledger say of its own topic (None: nothing), of others' ledgers and readers."""

    own: TopicName | None = None
    others: tuple[Naming, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()


NOTHING: Final = Announced()


def announced(source: EntrySource, ledger_id: int) -> Announced:
    """Return what the messages of a data ledger, or of compacted data, say of topics."""
    for message in _messages_of(source, ledger_id, LOOKED_AT - 1):
        if _system_topic(message) is not None:
            return _of_system_topic(source, ledger_id)
        if any(one.key == REAL_TOPIC for one in message.metadata.properties):
            sent_on = list(_sent_on(source, ledger_id))
            subscribers = dict.fromkeys(one for _, one in sent_on if one is not None)
            return Announced(None, tuple(dict.fromkeys(one for one, _ in sent_on)), tuple(subscribers))
    return NOTHING


def _of_system_topic(source: EntrySource, ledger_id: int) -> Announced:
    own: set[TopicName] = set()
    others: dict[int, Naming] = {}
    for message in _messages_of(source, ledger_id, None):
        found = _system_topic(message)
        if found is not None:
            own.add(found[0])
            for topic, named in found[1]:
                why = f"a snapshot of its transaction buffer, in ledger {ledger_id}, has its name"
                others[named] = Naming(named, topic, why)
    return Announced(own.pop() if len(own) == 1 else None, tuple(others.values()))


def _system_topic(message: Message) -> tuple[TopicName, list[tuple[TopicName, int]]] | None:
    """Return the system topic that alone has such messages, with what the message names; else None."""
    found = _snapshot(message)
    if found is not None:
        kind, topic, named = found
        own = replace(topic, local=_SNAPSHOTS[kind], short=False)
        return own, [] if named is None else [(topic, named)]
    of = _policies_of(message)
    return None if of is None else (replace(of, local=CHANGE_EVENTS, short=False), [])


def _snapshot(message: Message) -> tuple[SnapshotKind, TopicName, int | None] | None:
    """Return (kind, topic, ledger up to which it was read) of a snapshot of a transaction buffer."""
    for kind in _SNAPSHOTS:
        try:
            snapshot: dict[str, Any] = decode_snapshot(kind, message.payload)
            topic = TopicName.parse(snapshot["topicName"] or "")
        except (DecodeError, UsageError):
            continue
        newest = snapshot.get("snapshot") or {}
        position = snapshot.get("maxReadPositionLedgerId", newest.get("maxReadPositionLedgerId"))
        named = snapshot.get("persistentPositionLedgerId", position)
        # The key of a segment has the topic's name behind its number.
        if str(message.metadata.partition_key).endswith(str(topic)):
            return kind, topic, named if named is not None and named >= 0 else None
    return None


def _policies_of(message: Message) -> TopicName | None:
    """Return the topic of which a message has policies: the name in its key, part by part in its event."""
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


def _sent_on(source: EntrySource, ledger_id: int) -> Iterator[tuple[Naming, Subscriber | None]]:
    """Yield from which topics' ledgers the messages of a retry or dead-letter topic came, and from whom."""
    for message in _messages_of(source, ledger_id, None):
        properties = {one.key: one.value for one in message.metadata.properties}
        origin = _origin_re.fullmatch(properties.get(ORIGIN, ""))
        if origin is None or REAL_TOPIC not in properties:
            continue
        try:
            topic = TopicName.parse(properties[REAL_TOPIC])
        except UsageError:
            continue
        if int(origin[2]) >= 0 and topic.partition is None:
            topic = topic.with_partition(int(origin[2]))
        why = f"a message in ledger {ledger_id} was sent on from it, and says its name"
        topic, reader = replace(topic, short=False), properties.get(REAL_SUBSCRIPTION)
        yield Naming(int(origin[1]), topic, why), Subscriber(topic, reader) if reader else None


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

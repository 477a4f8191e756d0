"""Find the owners of ledgers: the records that refer to them.

Records of topics refer to data ledgers. Records of cursors refer to ledgers with the cursor's state,
compacted data, and indexes of delayed messages. Schema records refer to schemas. A ledger's custom metadata
is no reference: it shows what the ledger was created for, and remains when the ledger is no longer used.

Sources: apache/pulsar MLDataFormats.proto, CompactedTopicImpl and TwoPhaseCompactor (the property of the
cursor `__compaction`), BucketDelayedDeliveryTracker (properties of subscriptions), SchemaStorageFormat.proto,
LedgerMetadataUtils.java.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.metadata.envelope import (
    STATE_IN_RECORD,
    ManagedPlaces,
    decode_cursor,
    decode_managed_ledger,
    ledgers_by_id,
    managed_place,
)
from pulsar_meta.codecs.names import (
    MANAGED_LEDGERS,
    MAX_LEDGER_ID,
    TopicName,
    decode_name,
    encode_name,
    split_managed_ledger_path,
)
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.cursors import CursorState, state_of
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Store, Versioned

# The contents of a ledger.
Role = Literal["data", "cursor", "compacted", "delayed-index-bucket", "schema"]
SCHEMAS: Final = "/schemas"
COMPACTION: Final = "__compaction"
COMPACTED_LEDGER: Final = "CompactedTopicLedger"
_BUCKET: Final = "#pulsar.internal.delayed.bucket"
BUCKET: Final = f"{_BUCKET}_"
# The prefix, the first and the last ledger with delayed messages in the bucket.
_BUCKET_PARTS: Final = 3
# Called with the path of a cursor that may refer to another ledger, and why that is not visible.
Unseen = Callable[[str, str], None]
Report = Callable[[DecodeError], None]
# Returns the topic and the cursor, if any, of a record with this path and value.
PlaceOf = Callable[[str, bytes], tuple[TopicName, str | None] | None]


class Owner(NamedTuple):
    """A record that refers to a ledger.

    `name` is the topic, or `tenant/namespace/name` for a schema. `cursor` is the subscription, if any. `path`
    is the record's; None if only the ledger's custom metadata names the owner. `certain` is False for a
    pointer in the record of a cursor whose state ledger was not read, because the pointer is as old as that
    ledger.
    """

    ledger_id: int
    role: Role
    name: str
    cursor: str | None
    path: str | None
    certain: bool = True


@dataclass(slots=True)
class Gaps:
    """The references that a pass over the store could not see; each is passed on when it is found."""

    report: Report
    note: Unseen = lambda path, why: None
    records: int = 0
    pointers: int = 0

    def broken(self, error: DecodeError) -> None:
        """Count a corrupt record, which may refer to any ledger."""
        self.records += 1
        self.report(error)

    def unseen(self, path: str, why: str) -> None:
        """Count a pointer to compacted data that is not visible."""
        self.pointers += 1
        self.note(path, why)

    def may_hide(self, created_for: Owner | None) -> bool:
        """True if an unseen reference to a ledger that was created for this owner may exist."""
        role = None if created_for is None else created_for.role
        return self.records > 0 or (self.pointers > 0 and role in (None, "compacted"))


def owners(
    store: Store, source: EntrySource | None, report: Report, unseen: Unseen = lambda path, why: None
) -> Iterator[Owner]:
    """Yield all references to ledgers in the topics, cursors and schemas of a store, in one pass.

    A ledger can occur several times, for example with shadow topics, and need not exist. Corrupt records go
    to `report`. The pointer to compacted data is in the state of the cursor `__compaction`. If that state is
    in a ledger of which `source` has no entry, the cursor's path goes to `unseen`. Raises UnreachableError.
    """
    places = ManagedPlaces()
    for record in chain(store.scan(MANAGED_LEDGERS), store.scan(SCHEMAS)):
        try:
            yield from named_by(record, source, unseen, places.of)
        except DecodeError as error:
            report(error)


def topics_listing(wanted: Iterable[int], store: Store) -> dict[int, list[str]]:
    """Find the topics whose lists have each wanted ledger, in one pass. Ignores corrupt records."""
    by_ledger: dict[int, list[str]] = {ledger_id: [] for ledger_id in wanted}
    places = ManagedPlaces()
    for record in store.scan(MANAGED_LEDGERS):
        place = places.of(record.path, record.value)
        if place is None or place[1] is not None:
            continue
        with suppress(DecodeError):
            for ledger in ledgers_by_id(decode_managed_ledger(record.value)):
                if ledger.ledgerId in by_ledger:
                    by_ledger[ledger.ledgerId].append(str(place[0]))
    return by_ledger


def owners_of(
    wanted: Iterable[int],
    store: Store,
    source: EntrySource | None,
    report: Report,
    unseen: Unseen = lambda path, why: None,
) -> dict[int, list[Owner]]:
    """Find the owners of each wanted ledger (an empty list if there is none), in one pass like `owners`."""
    by_ledger: dict[int, list[Owner]] = {ledger_id: [] for ledger_id in wanted}
    for owner in owners(store, source, report, unseen):
        if owner.ledger_id in by_ledger:
            by_ledger[owner.ledger_id].append(owner)
    return by_ledger


def first_owner(named: Sequence[Owner], created_for: Owner | None) -> Owner | None:
    """Choose the owner for which the ledger was created, otherwise the first one.

    Several records can refer to a ledger, because shadow topics list the ledgers of their source.
    """
    if created_for is not None:
        for owner in named:
            if (owner.role, owner.name) == (created_for.role, created_for.name):
                return owner
    return named[0] if named else None


def named_by(
    record: Versioned, source: EntrySource | None, unseen: Unseen, place_of: PlaceOf = managed_place
) -> Iterator[Owner]:
    """Yield the references to ledgers in one record; none if it is no record of a topic, cursor or schema.

    Raises DecodeError with the record's path.
    """
    path = record.path
    with decoding(path):
        if path.startswith(f"{SCHEMAS}/"):
            yield from _of_schema(record)
            return
        place = place_of(path, record.value)
        if place is None:
            return
        topic, cursor = str(place[0]), place[1]
        if cursor is None:
            for ledger in ledgers_by_id(decode_managed_ledger(record.value)):
                yield Owner(ledger.ledgerId, "data", topic, None, path)
        else:
            yield from named_by_cursor(path, topic, cursor, decode_cursor(record.value), source, unseen)


def owner_in_custom(ledger_id: int, custom: Mapping[str, str]) -> Owner | None:
    """Read the intended owner from a ledger's custom metadata; None if Pulsar did not write it."""
    topic, cursor = custom.get("pulsar/managed-ledger"), custom.get("pulsar/cursor")
    match custom.get("component"):
        case "managed-ledger" if topic is not None:
            role: Role = "data" if cursor is None else "cursor"
            return Owner(ledger_id, role, _topic_name(topic), _decoded(cursor), None)
        case "compacted-ledger":
            return Owner(ledger_id, "compacted", custom.get("pulsar/compactedTopic", "?"), COMPACTION, None)
        case "schema":
            return Owner(ledger_id, "schema", custom.get("pulsar/schemaId", "?"), None, None)
        case "delayed-index-bucket":
            name = custom.get("pulsar/delayedIndexTopic", "?")
            cursor = _decoded(custom.get("pulsar/delayedIndexCursor"))
            return Owner(ledger_id, "delayed-index-bucket", name, cursor, None)
    return None


def custom_metadata(owner: Owner) -> Iterable[tuple[str, bytes]]:
    """Yield the custom metadata with which Pulsar creates a ledger for this owner."""
    yield "application", b"pulsar"
    match owner.role:
        case "data" | "cursor":
            path = TopicName.parse(owner.name).path.removeprefix(f"{MANAGED_LEDGERS}/")
            yield "component", b"managed-ledger"
            yield "pulsar/managed-ledger", path.encode()
            if owner.cursor is not None:
                yield "pulsar/cursor", encode_name(owner.cursor).encode()
        case "compacted":
            yield "component", b"compacted-ledger"
            yield "pulsar/compactedTopic", owner.name.encode()
        case "schema":
            yield "component", b"schema"
            yield "pulsar/schemaId", owner.name.encode()
        case "delayed-index-bucket":
            yield "component", b"delayed-index-bucket"
            yield "pulsar/delayedIndexTopic", owner.name.encode()
            yield "pulsar/delayedIndexCursor", encode_name(owner.cursor or "").encode()


def bucket_ledgers(info: ManagedCursorInfo) -> Iterator[int]:
    """Return the ledgers with indexes of delayed messages that a cursor record refers to."""
    return (ledger_id for ledger_id in _bucket_numbers(info) if ledger_id >= 0)


def impossible_buckets(info: ManagedCursorInfo) -> list[int]:
    """Return the negative numbers that a cursor record has for ledgers with indexes of delayed messages."""
    return [ledger_id for ledger_id in _bucket_numbers(info) if ledger_id < 0]


def _bucket_numbers(info: ManagedCursorInfo) -> Iterator[int]:
    """Yield the numbers that brokers read as ledgers with indexes of delayed messages."""
    for item in info.cursorProperties:
        number = _java_long(item.value) if item.name.startswith(BUCKET) else None
        if number is not None:
            yield number


def bucket_faults(info: ManagedCursorInfo) -> dict[str, str]:
    """Return the faults in the properties that name indexes of delayed messages, by property.

    The name has the first and the last ledger of the bucket's messages, the value is the ledger of its index
    (apache/pulsar BucketDelayedDeliveryTracker.recoverBucketSnapshot, Bucket.getAndUpdateBucketId).
    """
    faults = {}
    for item in info.cursorProperties:
        if not item.name.startswith(_BUCKET):
            continue
        parts = item.name.split("_")
        ends = [_java_long(part) for part in parts[1:]]
        first, last = ends if len(parts) == _BUCKET_PARTS else (None, None)
        if first is None or last is None or first > last:
            faults[item.name] = f"the property {item.name!r:.80} does not name two ledgers in order"
        elif _java_long(item.value) is None:
            faults[item.name] = f"the property {item.name!r:.80} is {item.value!r:.40}, which is no ledger"
    return faults


def _java_long(text: str) -> int | None:
    """Return the number that Java's Long.parseLong reads from a text, None if it raises an exception."""
    if not re.fullmatch("[+-]?[0-9]{1,30}", text):
        return None
    number = int(text)
    return number if -MAX_LEDGER_ID - 1 <= number <= MAX_LEDGER_ID else None


def names_any(cursor: str, info: ManagedCursorInfo) -> bool:
    """True if the record of a cursor may refer to a ledger. Most records don't."""
    return info.cursorsLedgerId != STATE_IN_RECORD or bool(len(info.cursorProperties)) or cursor == COMPACTION


def named_by_cursor(
    path: str, topic: str, cursor: str, info: ManagedCursorInfo, source: EntrySource | None, unseen: Unseen
) -> Iterator[Owner]:
    """Yield the references in the record of a cursor at `path`. Raises UnreachableError."""
    if info.cursorsLedgerId != STATE_IN_RECORD:
        yield Owner(info.cursorsLedgerId, "cursor", topic, cursor, path)
    for ledger_id in bucket_ledgers(info):
        yield Owner(ledger_id, "delayed-index-bucket", topic, cursor, path)
    if cursor == COMPACTION:
        yield from _compacted(path, topic, info, source, unseen)


def _compacted(
    path: str, topic: str, info: ManagedCursorInfo, source: EntrySource | None, unseen: Unseen
) -> Iterator[Owner]:
    """Yield the ledger with a topic's compacted data.

    The pointer is old if the current state is not available.
    """
    cursor: CursorState = state_of(info, source)
    state: ManagedCursorInfo | PositionInfo = info if cursor.state is None else cursor.state
    if cursor.state is None:
        unseen(path, f"its state is in ledger {cursor.ledger_id}, of which no source has an entry")
    for item in state.properties:
        if item.name == COMPACTED_LEDGER:
            yield Owner(item.value, "compacted", topic, COMPACTION, path, cursor.state is not None)


def _of_schema(record: Versioned) -> Iterator[Owner]:
    """Yield the ledger of each version of a schema, each once."""
    if not record.value:
        return
    locator = parse_message(SchemaLocator, record.value)
    namespace, _, local = record.path.removeprefix(f"{SCHEMAS}/").rpartition("/")
    name = f"{namespace}/{_decoded(local)}"
    versions = (entry.position.ledgerId for entry in (locator.info, *locator.index))
    for ledger_id in dict.fromkeys(versions):
        yield Owner(ledger_id, "schema", name, None, record.path)


def _topic_name(path: str) -> str:
    parts = path.split("/")
    if len(parts) == 4 and parts[2] == "persistent" and "%" not in path and "+" not in path:
        # A fast path for almost all names.
        return f"persistent://{parts[0]}/{parts[1]}/{parts[3]}"
    place = split_managed_ledger_path(f"{MANAGED_LEDGERS}/{path}")
    return path if place is None else str(place[0])


def _decoded(name: str | None) -> str | None:
    try:
        return None if name is None else decode_name(name)
    except DecodeError:
        return name

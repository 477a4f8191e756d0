"""Who names a ledger, and as what: the one answer to whom a ledger belongs.

A ledger is named by the record of a topic (its data), by that of a cursor (the cursor's state, compacted
data, indexes of delayed messages), or by a schema's. What the ledger's own custom metadata says is no naming:
that is what whoever created it meant it for, and stays when nobody needs it any more.

Sources: apache/pulsar MLDataFormats.proto, CompactedTopicImpl and TwoPhaseCompactor (the property of the
cursor `__compaction`), BucketDelayedDeliveryTracker (properties of subscriptions),
SchemaStorageFormat.proto, LedgerMetadataUtils.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.metadata.envelope import (
    STATE_IN_RECORD,
    decode_cursor,
    decode_managed_ledger,
    ledgers_by_id,
)
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.names import MANAGED_LEDGERS, decode_name, split_managed_ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.cursors import CursorState, state_of
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Store, Versioned

# What of a topic or schema a ledger holds.
Role = Literal["data", "cursor", "compacted", "delayed-index-bucket", "schema"]
SCHEMAS: Final = "/schemas"
COMPACTION: Final = "__compaction"
COMPACTED_LEDGER: Final = "CompactedTopicLedger"
BUCKET: Final = "#pulsar.internal.delayed.bucket_"
# Takes the path of a cursor that may name one more ledger, and why that cannot be seen.
Unseen = Callable[[str, str], None]
Report = Callable[[DecodeError], None]


class Owner(NamedTuple):
    """One that names a ledger.

    `name` is the topic, of a schema `tenant/namespace/name`; `cursor` the subscription where it is one's;
    `path` is the record that names it, None where only the ledger's custom metadata says so. `certain` is
    false for a pointer in the record of a cursor whose state lies in a ledger that was not read: it is as
    old as that ledger.
    """

    ledger_id: int
    role: Role
    name: str
    cursor: str | None
    path: str | None
    certain: bool = True


@dataclass(slots=True)
class Gaps:
    """What a pass over the store could not see of who names which ledger, handed on as it comes up."""

    report: Report
    note: Unseen = lambda path, why: None
    records: int = 0
    pointers: int = 0

    def broken(self, error: DecodeError) -> None:
        """Count a record that cannot be decoded: it may name any ledger."""
        self.records += 1
        self.report(error)

    def unseen(self, path: str, why: str) -> None:
        """Count a pointer to compacted data that was not seen."""
        self.pointers += 1
        self.note(path, why)

    def may_hide(self, created_for: Owner | None) -> bool:
        """Return whether a ledger that was created for this may be named, though nobody was seen to."""
        role = None if created_for is None else created_for.role
        return self.records > 0 or (self.pointers > 0 and role in (None, "compacted"))


def owners(
    store: Store, source: EntrySource | None, report: Report, unseen: Unseen = lambda path, why: None
) -> Iterator[Owner]:
    """Yield whatever names a ledger, in one pass over the topics, cursors and schemas of a store.

    A ledger may come several times (shadow topics), and one that does not exist, too. A record that is
    broken goes to `report`: what it named is not known. The pointer to compacted data lies in the state of
    the cursor `__compaction`; where that is a ledger of which `source` has no entry, its path goes to
    `unseen`.
    UnreachableError from store or source.
    """
    for record in chain(store.scan(MANAGED_LEDGERS), store.scan(SCHEMAS)):
        try:
            yield from named_by(record, source, unseen)
        except DecodeError as error:
            report(error)


def owners_of(
    wanted: Iterable[int],
    store: Store,
    source: EntrySource | None,
    report: Report,
    unseen: Unseen = lambda path, why: None,
) -> dict[int, list[Owner]]:
    """Return who names each of these ledgers, nobody being an empty list; in one pass, as `owners`."""
    found: dict[int, list[Owner]] = {ledger_id: [] for ledger_id in wanted}
    for owner in owners(store, source, report, unseen):
        if owner.ledger_id in found:
            found[owner.ledger_id].append(owner)
    return found


def first_owner(named: Sequence[Owner], created_for: Owner | None) -> Owner | None:
    """Return whose a ledger is: of several that name it the one for which it was created.

    Shadow topics name the ledgers of their source.
    """
    if created_for is not None:
        for owner in named:
            if (owner.role, owner.name) == (created_for.role, created_for.name):
                return owner
    return named[0] if named else None


def named_by(record: Versioned, source: EntrySource | None, unseen: Unseen) -> Iterator[Owner]:
    """Yield the ledgers that one record names, none where it is no topic's, cursor's or schema's.

    DecodeError, naming the record, where it is broken.
    """
    path = record.path
    with decoding(path):
        if path.startswith(f"{SCHEMAS}/"):
            yield from _of_schema(record)
            return
        place = managed_place(path, record.value)
        if place is None:
            return
        topic, cursor = str(place[0]), place[1]
        if cursor is None:
            for ledger in ledgers_by_id(decode_managed_ledger(record.value)):
                yield Owner(ledger.ledgerId, "data", topic, None, path)
        else:
            yield from named_by_cursor(path, topic, cursor, decode_cursor(record.value), source, unseen)


def owner_in_custom(ledger_id: int, custom: Mapping[str, str]) -> Owner | None:
    """Return for whom a ledger was created, by its custom metadata; None where that is not Pulsar's."""
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
            of = _decoded(custom.get("pulsar/delayedIndexCursor"))
            return Owner(ledger_id, "delayed-index-bucket", name, of, None)
    return None


def bucket_ledgers(info: ManagedCursorInfo) -> Iterator[int]:
    """Yield the ledgers with indexes of delayed messages that a subscription names."""
    for item in info.cursorProperties:
        if item.name.startswith(BUCKET) and item.value.isascii() and item.value.isdecimal():
            yield int(item.value)


def names_any(cursor: str, info: ManagedCursorInfo) -> bool:
    """Return whether the record of a cursor may name a ledger, which most do not."""
    return info.cursorsLedgerId != STATE_IN_RECORD or bool(len(info.cursorProperties)) or cursor == COMPACTION


def named_by_cursor(
    path: str, topic: str, cursor: str, info: ManagedCursorInfo, source: EntrySource | None, unseen: Unseen
) -> Iterator[Owner]:
    """Yield the ledgers that the record of a cursor at `path` names; UnreachableError from the source."""
    if info.cursorsLedgerId != STATE_IN_RECORD:
        yield Owner(info.cursorsLedgerId, "cursor", topic, cursor, path)
    for ledger_id in bucket_ledgers(info):
        yield Owner(ledger_id, "delayed-index-bucket", topic, cursor, path)
    if cursor == COMPACTION:
        yield from _compacted(path, topic, info, source, unseen)


def _compacted(
    path: str, topic: str, info: ManagedCursorInfo, source: EntrySource | None, unseen: Unseen
) -> Iterator[Owner]:
    """Yield the ledger with the compacted data of a topic; an old pointer where the state is not here."""
    found: CursorState = state_of(info, source)
    state: ManagedCursorInfo | PositionInfo = info if found.state is None else found.state
    if found.state is None:
        unseen(path, f"its state lies in ledger {found.ledger_id}, of which no source has an entry")
    for item in state.properties:
        if item.name == COMPACTED_LEDGER:
            yield Owner(item.value, "compacted", topic, COMPACTION, path, found.state is not None)


def _of_schema(record: Versioned) -> Iterator[Owner]:
    """Yield the ledger of each version of a schema, once."""
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
        # Plain, as almost all are.
        return f"persistent://{parts[0]}/{parts[1]}/{parts[3]}"
    place = split_managed_ledger_path(f"{MANAGED_LEDGERS}/{path}")
    return path if place is None else str(place[0])


def _decoded(name: str | None) -> str | None:
    try:
        return None if name is None else decode_name(name)
    except DecodeError:
        return name

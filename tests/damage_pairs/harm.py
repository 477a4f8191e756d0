"""What a repair made unreachable: entries, schemas, acknowledgements; and wrong ledgers in lists."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_of_path, ledger_path
from pulsar_meta.codecs.names import split_managed_ledger_path as place_of
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Store

Position = tuple[int, int]


class Reach(NamedTuple):
    """What brokers can reach: entries by topic and ledger, ledgers of schemas, positions of cursors."""

    entries: dict[tuple[str, int], int]
    schemas: set[tuple[str, int]]
    cursors: dict[str, tuple[Position, frozenset[tuple[Position, Position]]]]
    metadata: set[int]


def reach_of(store: Store) -> Reach:
    """What brokers can reach in a store."""
    reach = Reach({}, set(), {}, set())
    for record in store.scan(LEDGERS):
        ledger_id = ledger_of_path(record.path)
        if ledger_id is not None:
            with suppress(DecodeError):
                decode_ledger_metadata(record.value)
                reach.metadata.add(ledger_id)
    for record in store.scan("/managed-ledgers"):
        place = place_of(record.path)
        if place is None:
            continue
        with suppress(DecodeError):
            if place[1] is None:
                for ledger in decode_managed_ledger(record.value).ledgerInfo if record.value else ():
                    reach.entries[str(place[0]), ledger.ledgerId] = _entries(
                        store, ledger.ledgerId, ledger.entries
                    )
            else:
                info = decode_cursor(record.value)
                ranges = frozenset(
                    ((one.lowerEndpoint.ledgerId, one.lowerEndpoint.entryId),
                     (one.upperEndpoint.ledgerId, one.upperEndpoint.entryId))
                    for one in info.individualDeletedMessages
                )  # fmt: skip
                reach.cursors[record.path] = (info.markDeleteLedgerId, info.markDeleteEntryId), ranges
    for record in store.scan("/schemas"):
        with suppress(DecodeError):
            locator = parse_message(SchemaLocator, record.value)
            for one in (locator.info, *locator.index):
                reach.schemas.add((record.path, one.position.ledgerId))
    return reach


def _entries(store: Store, ledger_id: int, listed: int) -> int:
    (record,) = store.read_many([ledger_path(ledger_id)]) if ledger_id >= 0 else (None,)
    if record is None:
        return 0
    try:
        metadata = decode_ledger_metadata(record.value).metadata
    except DecodeError:
        return 0
    closed = metadata.state == LedgerMetadataFormat.CLOSED
    return metadata.lastEntryId + 1 if closed else max(0, listed)


def harm(before: Reach, after: Reach, truth: Reach, lost: set[int]) -> Iterator[str]:
    """Yield what is worse after a repair. `truth` is the undamaged cluster, `lost` ledgers on no disk."""
    for (topic, ledger_id), entries in before.entries.items():
        mine = min(entries, truth.entries.get((topic, ledger_id), 0))
        left = after.entries.get((topic, ledger_id), 0)
        if left < mine and ledger_id not in lost:
            yield f"{topic}: ledger {ledger_id} has {left} of {mine} entries left"
    for topic, ledger_id in after.entries.keys() - before.entries.keys() - truth.entries.keys():
        yield f"{topic}: ledger {ledger_id} came into the list, and is not the topic's"
    for ledger_id in before.metadata - after.metadata:
        yield f"the metadata of ledger {ledger_id} is gone"
    for path, ledger_id in before.schemas - after.schemas:
        if ledger_id not in lost:
            yield f"{path}: the schema in ledger {ledger_id} is gone"
    for path, (position, ranges) in before.cursors.items():
        yield from _worse_cursor(path, position, ranges, after, before)


def _worse_cursor(
    path: str, position: Position, ranges: frozenset[tuple[Position, Position]], after: Reach, before: Reach
) -> Iterator[str]:
    place = place_of(path)
    name = str(place[0]) if place is not None and isinstance(place[0], TopicName) else ""
    if path not in after.cursors:
        yield f"{path}: the cursor is gone"
        return
    moved, kept = after.cursors[path]
    # Compacted messages may be read twice, which changes nothing.
    if moved < position and not path.endswith("/__compaction"):
        yield f"{path}: moved back from {position} to {moved}"
    passed = [
        ledger_id
        for (topic, ledger_id), entries in before.entries.items()
        if topic == name and entries and position < (ledger_id, entries - 1) and (ledger_id, 0) <= moved
    ]
    if moved > position and passed:
        yield f"{path}: moved from {position} to {moved}, over entries of ledgers {passed}"
    for first, last in ranges - kept:
        if last > moved:
            yield f"{path}: the acknowledgements {first} to {last} are gone"

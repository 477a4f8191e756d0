"""A generated store of any size, as of a healthy cluster, optionally with damage.

Namespaces have a hundred topics with four partitions each. A topic has two ledgers and three subscriptions,
one of which keeps its state in a ledger. A partitioned topic has one schema. Nothing is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.rocksdb import INSTANCE_ID, SEQUENTIAL_ID, MetaValue

TOPICS, PARTITIONS, SUBSCRIPTIONS = 100, 4, 3
# Ledger ids of a topic: two data ledgers, one cursor ledger, and one for the schema that its partitions
# share.
IDS, CLOSED, OPEN, CURSOR, SCHEMA = 4, 0, 1, 2, 3
VALUES = 1 + SUBSCRIPTIONS + 3
ENTRIES, SIZE, TIME, MONTH = 100, 10_000, 1_790_000_000_000, 30 * 24 * 3_600_000
BOOKIES = tuple(f"bookie-{number}:3181" for number in range(5))


def topics_for(values: int) -> int:
    """Return the number of topics that make about this many values."""
    return max(PARTITIONS, values * 2 // (2 * VALUES + 1))


def topic_name(number: int) -> TopicName:
    """Return the name of a topic by its number."""
    base, partition = divmod(number, PARTITIONS)
    return TopicName("bench", f"ns-{number // TOPICS}", f"topic-{base}-partition-{partition}")


def ledger_id(topic: int, which: int) -> int:
    """Return the id of one of a topic's ledgers."""
    return topic * IDS + which


def values(topics: int, damaged_every: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value) in no order. Every `damaged_every`th topic has one of seven kinds of damage."""
    yield from _cluster()
    for number in range(topics):
        damage = number // damaged_every % 7 if damaged_every and number % damaged_every == 0 else None
        yield from _damaged(number, damage) if damage is not None else _topic(number)


def write_rocksdb(place: Path, topics: int, damaged_every: int = 0) -> str:
    """Write the database of a standalone and return its URL."""
    from rocksdict import Options, Rdict, WriteBatch

    database = Rdict(str(place), Options(raw_mode=True))
    database[INSTANCE_ID] = (1).to_bytes(8, "big")
    database[SEQUENTIAL_ID] = (topics * IDS).to_bytes(8, "big")
    batch = WriteBatch(raw_mode=True)
    for path, value in values(topics, damaged_every):
        batch[path.encode()] = MetaValue(0, 1, TIME, TIME, False, value).encode()
        if len(batch) == 10_000:
            database.write(batch)
            batch = WriteBatch(raw_mode=True)
    database.write(batch)
    database.flush()
    database.close()
    with suppress(FileNotFoundError):
        (place / "rocksdict-config.json").unlink()
    return f"rocksdb:{place}"


def _cluster() -> Iterator[tuple[str, bytes]]:
    for bookie in BOOKIES:
        yield f"/ledgers/cookies/{bookie}", b'4\nbookieHost: "' + bookie.encode() + b'"\n'
        yield f"/ledgers/available/{bookie}", b""
    yield "/admin/clusters/standalone", b"{}"
    yield "/admin/policies/bench", b'{"allowedClusters":["standalone"]}'


def _topic(number: int) -> Iterator[tuple[str, bytes]]:
    name = topic_name(number)
    yield name.path, _record(number)
    for subscription in range(SUBSCRIPTIONS):
        yield name.cursor_path(f"sub-{subscription}"), _cursor(number, subscription)
    inside = name.path.removeprefix("/managed-ledgers/")
    mine = {"pulsar/managed-ledger": inside, "component": "managed-ledger"}
    yield ledger_path(ledger_id(number, CLOSED)), _metadata(ENTRIES, mine)
    yield ledger_path(ledger_id(number, OPEN)), _metadata(None, mine)
    yield ledger_path(ledger_id(number, CURSOR)), _metadata(None, mine | {"pulsar/cursor": "sub-0"})
    base = name.partitioned
    if base is not None and name.partition == 0:
        yield base.partitioned_path, b'{"partitions":4,"deleted":false}'
        of = {"component": "schema", "pulsar/schemaId": f"{name.namespace_name}/{base.local}"}
        yield ledger_path(ledger_id(number, SCHEMA)), _metadata(1, of)
        yield base.schema_path, _schema(ledger_id(number, SCHEMA))
    if number % TOPICS == 0:
        yield f"/admin/policies/{name.namespace_name}", b'{"replication_clusters":["standalone"]}'


def _damaged(number: int, damage: int) -> Iterator[tuple[str, bytes]]:
    """Yield the values of a topic with one value missing or changed, or with an unreferenced ledger."""
    name, topic_values = topic_name(number), dict(_topic(number))
    match damage:
        case 0:
            del topic_values[ledger_path(ledger_id(number, CLOSED))]
        case 1:
            del topic_values[name.path]
        case 2:
            del topic_values[ledger_path(ledger_id(number, CURSOR))]
        case 3:
            topic_values[name.cursor_path("sub-1")] = b"\xff\xfe\xfd"
        case 4:
            del topic_values[name.cursor_path("sub-0")]
        case 5:
            topic_values[name.path] = _record((number + 1) // PARTITIONS * PARTITIONS + 2)
        case _:
            topic_values[ledger_path(ledger_id(number, OPEN))] = b"garbage"
    yield from topic_values.items()


def _record(number: int) -> bytes:
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=ledger_id(number, CLOSED), entries=ENTRIES, size=SIZE, timestamp=TIME)
    info.ledgerInfo.add(ledgerId=ledger_id(number, OPEN))
    return info.SerializeToString()


def _cursor(number: int, subscription: int) -> bytes:
    first = ledger_id(number, CLOSED)
    info = ManagedCursorInfo(
        cursorsLedgerId=ledger_id(number, CURSOR) if subscription == 0 else -1,
        markDeleteLedgerId=first,
        markDeleteEntryId=number % 10,
        lastActive=TIME,
    )
    for hole in range(0 if subscription == 0 else 4):
        added = info.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = first
        added.lowerEndpoint.entryId, added.upperEndpoint.entryId = 15 + 10 * hole, 20 + 10 * hole
    return info.SerializeToString()


def _metadata(entries: int | None, custom: dict[str, str]) -> bytes:
    metadata = LedgerMetadataFormat(
        quorumSize=2, ensembleSize=3, ackQuorumSize=2, length=0, state=LedgerMetadataFormat.OPEN,
        digestType=LedgerMetadataFormat.CRC32C, password=b"", ctime=TIME - MONTH,
    )  # fmt: skip
    metadata.segment.add(firstEntryId=0, ensembleMember=BOOKIES[len(custom["component"]) % 3 :][:3])
    if entries is not None:
        metadata.state, metadata.lastEntryId, metadata.length = LedgerMetadataFormat.CLOSED, entries - 1, SIZE
    for key, value in chain((("application", "pulsar"),), custom.items()):
        metadata.customMetadata.add(key=key, value=value.encode())
    return encode_ledger_metadata(LedgerMetadata(3, metadata))


def _schema(at: int) -> bytes:
    locator = SchemaLocator()
    for entry in (locator.info, locator.index.add()):
        entry.version, entry.hash = 0, b"\1" * 32
        entry.position.ledgerId, entry.position.entryId = at, 0
    return locator.SerializeToString()

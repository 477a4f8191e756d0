"""Rebuild the locators of topics' schemas from schema ledgers, each of which holds one version.

An entry contains the topic's full name, the schema, and the earlier versions with their positions. If two
brokers race to create the first version, both ledgers remain, and nothing on the disks tells which one won.

Sources: apache/pulsar SchemaStorageFormat.proto, SchemaRegistryFormat.proto, BookkeeperSchemaStorage.java
(createNewSchema, updateSchemaLocator, findSchemaEntryByVersion), SchemaRegistryServiceImpl.java.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import encode_name
from pulsar_meta.codecs.protobuf.parse import BYTES, VARINT, parse_message, read_varint, split_fields
from pulsar_meta.jobs.rebuild.evidence import Certainty, Rebuilt, RebuiltFacts
from pulsar_meta.jobs.topics.owners import SCHEMAS
from pulsar_meta.proto.SchemaStorageFormat_pb2 import IndexEntry, PositionInfo, SchemaEntry, SchemaLocator

_SCHEMA_ID: Final = 1
_SCHEMA: Final = 4
_TIMESTAMP: Final = 5
_DELETED: Final = 6


@dataclass(frozen=True, slots=True)
class SchemaClues:
    """One version of a schema: its topic (`tenant/namespace/name`), its hash, and the earlier versions.

    `earlier` are serialized IndexEntry messages; `timestamp` is in milliseconds.
    """

    ledger_id: int
    entry_id: int
    schema_id: str
    hash: bytes
    timestamp: int = 0
    deleted: bool = False
    earlier: tuple[bytes, ...] = ()

    @property
    def version(self) -> int:
        """The version number: one more than the last earlier version."""
        return max((IndexEntry.FromString(entry).version for entry in self.earlier), default=-1) + 1


def schema_clues(ledger_id: int, entry_id: int, data: bytes | memoryview) -> SchemaClues | None:
    """Decode an entry of a schema ledger; None if it is not one."""
    try:
        entry = parse_message(SchemaEntry, data)
        info = entry.schema_data
        fields = {field.number: field for field in split_fields(info)}
        name, schema = fields[_SCHEMA_ID], fields[_SCHEMA]
        schema_id = info[name.content : name.end].decode()
        numbers = {
            number: read_varint(info, fields[number].content)[0]
            for number in (_TIMESTAMP, _DELETED)
            if number in fields and fields[number].wire_type == VARINT
        }
    except (DecodeError, KeyError, UnicodeDecodeError):
        return None
    if name.wire_type != BYTES or schema.wire_type != BYTES or schema_id.count("/") < 2:
        return None
    deleted = bool(numbers.get(_DELETED))
    return SchemaClues(
        ledger_id,
        entry_id,
        schema_id,
        b"" if deleted else hashlib.sha256(info[schema.content : schema.end]).digest(),
        numbers.get(_TIMESTAMP, 0),
        deleted,
        # The first version has an index entry that points nowhere.
        tuple(index.SerializeToString() for index in entry.index if index.position.ledgerId >= 0),
    )


def rebuilt_schemas(clues: Iterable[SchemaClues], kept: Set[int]) -> Iterator[Rebuilt]:
    """Yield the schema locator of each topic; `kept` are the ledgers that get BookKeeper metadata."""
    versions_by_schema: dict[str, list[SchemaClues]] = defaultdict(list)
    for version in clues:
        if version.ledger_id in kept:
            versions_by_schema[version.schema_id].append(version)
    for schema_id, versions in sorted(versions_by_schema.items()):
        yield _locator(schema_id, versions, kept)


def schema_path(schema_id: str) -> str:
    """The path of a schema's locator in the store; `schema_id` is `tenant/namespace/name`."""
    namespace, _, local = schema_id.rpartition("/")
    return f"{SCHEMAS}/{namespace}/{encode_name(local)}"


def _locator(schema_id: str, versions: list[SchemaClues], kept: Set[int]) -> Rebuilt:
    head = max(versions, key=lambda version: (version.timestamp, version.version, version.ledger_id))
    earlier = [IndexEntry.FromString(entry) for entry in head.earlier]
    here = [entry for entry in earlier if entry.position.ledgerId in kept]
    info = _index_entry(head)
    locator = SchemaLocator(info=info, index=[*here, info])
    named = {entry.position.ledgerId for entry in earlier} | {head.ledger_id}
    others = sorted(version.ledger_id for version in versions if version.ledger_id not in named)
    evidence = [f"the schema in ledger {head.ledger_id} contains its topic's name"]
    if len(here) < len(earlier):
        evidence.append(f"{len(earlier) - len(here)} earlier versions are on no disk")
    if others:
        evidence.append(f"ledgers {', '.join(map(str, others))} also have a schema of it; the newest is used")
    facts: RebuiltFacts = {
        "schema": schema_id,
        "version": head.version,
        "deleted": head.deleted,
        "schema_ledgers": sorted(named & kept),
    }
    certainty: Certainty = "likely" if others or len(here) < len(earlier) else "certain"
    path = schema_path(schema_id)
    return Rebuilt(path, certainty, tuple(evidence), locator.SerializeToString(), facts)


def _index_entry(clues: SchemaClues) -> IndexEntry:
    position = PositionInfo(ledgerId=clues.ledger_id, entryId=clues.entry_id)
    return IndexEntry(version=clues.version, position=position, hash=clues.hash)

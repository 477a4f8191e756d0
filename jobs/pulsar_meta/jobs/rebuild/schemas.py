"""Locators of topics' schemas made again from schema ledgers, each of which holds one version.

An entry has the topic's full name, the schema itself, and which versions there were before it and where. Of
two that both began a schema (brokers race, and the loser's ledger stays) nothing says which one counted.

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
    """One version of a schema: whose (`tenant/namespace/name`), its hash, and the versions before it.

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
        """Its number: one more than that of the last version before it."""
        return max((IndexEntry.FromString(one).version for one in self.earlier), default=-1) + 1


def schema_clues(ledger_id: int, entry_id: int, data: bytes | memoryview) -> SchemaClues | None:
    """Return what an entry of a schema ledger says, None where it is no entry of one."""
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
        # The first version has one that points nowhere.
        tuple(one.SerializeToString() for one in entry.index if one.position.ledgerId >= 0),
    )


def rebuilt_schemas(clues: Iterable[SchemaClues], kept: Set[int]) -> Iterator[Rebuilt]:
    """Yield the locator of each topic's schema; `kept` are the ledgers that BookKeeper learns of."""
    of: dict[str, list[SchemaClues]] = defaultdict(list)
    for one in clues:
        if one.ledger_id in kept:
            of[one.schema_id].append(one)
    for schema_id, versions in sorted(of.items()):
        yield _locator(schema_id, versions, kept)


def schema_path(schema_id: str) -> str:
    """Return where the store keeps the locator of a schema (`tenant/namespace/name`)."""
    namespace, _, local = schema_id.rpartition("/")
    return f"{SCHEMAS}/{namespace}/{encode_name(local)}"


def _locator(schema_id: str, versions: list[SchemaClues], kept: Set[int]) -> Rebuilt:
    head = max(versions, key=lambda one: (one.timestamp, one.version, one.ledger_id))
    earlier = [IndexEntry.FromString(one) for one in head.earlier]
    here = [one for one in earlier if one.position.ledgerId in kept]
    info = _index_entry(head)
    locator = SchemaLocator(info=info, index=[*here, info])
    named = {one.position.ledgerId for one in earlier} | {head.ledger_id}
    others = sorted(one.ledger_id for one in versions if one.ledger_id not in named)
    evidence = [f"the schema in ledger {head.ledger_id} has its topic's name"]
    if len(here) < len(earlier):
        evidence.append(f"{len(earlier) - len(here)} earlier versions are on no disk")
    if others:
        evidence.append(f"ledgers {', '.join(map(str, others))} have a schema of it, too: the newest counts")
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

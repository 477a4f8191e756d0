"""`repair schema`: remove lost versions from a topic's schema record, or restore their schema.

When a client registers a schema, the broker reads every version. If one is unreadable, it deletes all of
them, and messages of any version can't be decoded any more. Removing the lost versions saves the others.

Each version is stored in a ledger, and only brokers write ledgers. So a lost version can only be restored
from another ledger of the topic with the same schema: that of another version, if the schema was deleted
and registered again, or an unreferenced one. The record has the SHA-256 of each schema.

Sources: apache/pulsar BookkeeperSchemaStorage, SchemaRegistryServiceImpl, SchemaStorageFormat.proto,
SchemaRegistryFormat.proto. Tested with 4.0.7 and 4.2.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.names import LEDGERS, TopicName
from pulsar_meta.codecs.protobuf.parse import parse_message, parse_partly
from pulsar_meta.codecs.schemas.values import decode_stored_schema
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.ledger_facts import LedgerFacts, owner_hash, read_facts
from pulsar_meta.jobs.check.ledger_index import index_ledgers
from pulsar_meta.jobs.check.topic_view import has_entry
from pulsar_meta.jobs.repair.repair import Repair, becoming, removed
from pulsar_meta.jobs.rewrite.decision import Decided, keep
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.completeness import completeness_of, missing_logs
from pulsar_meta.proto.SchemaStorageFormat_pb2 import IndexEntry, SchemaLocator
from pulsar_meta.stores.base import Store, Versioned

# SHA-256.
_HASH: Final = 32


class Wanted(NamedTuple):
    """A version that is to have this schema again; without one it is only to be taken out."""

    version: int
    schema: bytes | None = None


def repair_schema(
    store: Store, source: EntrySource | None, name: TopicName, wanted: Wanted | None = None
) -> Repair:
    """Remove lost versions from the schema record of a topic, or restore the schema of one.

    A damaged record keeps the versions that can still be read. Raises NotFoundError if the topic has no
    schema or not this version, UsageError if the version is not lost, has another schema, or none of its
    ledgers holds it.
    """
    seen = _record(store, name)
    try:
        locator = parse_message(SchemaLocator, seen.value)
    except DecodeError as error:
        return _salvaged(store, source, name, seen, error)
    lost = _lost(store, source, locator)
    looked = {"versions": len(locator.index)}
    unlooked = {"entries": "no --entries"} if source is None else {}
    chosen = _chosen(locator, lost, wanted)
    if not chosen:
        fine = f"{name}: BookKeeper has the ledger of every version"
        return Repair("schema", ((seen, keep(seen, "already")),), looked, unlooked, (fine,))
    said = [f"{name}: lost {', '.join(map(_named, lost.values()))} of {len(locator.index)} versions"]
    new = SchemaLocator()
    new.CopyFrom(locator)
    if wanted is not None and wanted.schema is not None:
        found = _with_schema(store, source, name, locator, lost, wanted)
        if found is not None:
            said.append(f"ledger {found} has the same schema: version {wanted.version} will be read from it")
            _point(new, wanted.version, found)
            decided = becoming(seen, new.SerializeToString())
            return Repair("schema", (decided,), looked, unlooked, tuple(said))
    decided, more = _without(seen, new, name, chosen)
    losses = (*_given_up(chosen), *_still_there(source, chosen))
    return Repair("schema", (decided,), looked, unlooked, (*said, *more), losses, str(name))


def _salvaged(
    store: Store, source: EntrySource | None, name: TopicName, seen: Versioned, error: DecodeError
) -> Repair:
    """Write the versions that a damaged record still shows; remove it if there are none."""
    broken = f"{name}: its record can't be read: {error.message}"
    found = _readable_versions(seen.value)
    newest = found[max(found)] if found else None
    lost = _lost(store, source, SchemaLocator(info=newest, index=found.values())) if found else {}
    kept = [entry for version, entry in sorted(found.items()) if version not in lost]
    if not kept:
        text = f"{name}: no version of its schema can be read from the record, which is removed"
        return Repair("schema", (removed(seen),), said=(broken,), losses=(text,), confirm=str(name))
    new = SchemaLocator(info=kept[-1], index=kept)
    gone = sorted(set(range(kept[-1].version)) - {entry.version for entry in kept} | lost.keys())
    losses = [f"version {version} becomes unreachable: it can't be read from the record" for version in gone]
    return Repair(
        "schema",
        (becoming(seen, new.SerializeToString()),),
        checked={"versions": len(found)},
        said=(broken, f"{name}: kept versions: {', '.join(str(entry.version) for entry in kept)}"),
        losses=tuple(losses),
        confirm=str(name) if losses else None,
    )


def _readable_versions(value: bytes) -> dict[int, IndexEntry]:
    """Return the versions before the damage. The newest one comes first in a record."""
    left, _ = parse_partly(SchemaLocator, value)
    entries = (*left.index, left.info)
    return {entry.version: entry for entry in entries if entry.IsInitialized() and len(entry.hash) == _HASH}


def schema_of(file: bytes) -> bytes:
    """Return the schema in a file: that of the JSON that `pulsar-admin schemas` takes, else all of it."""
    with suppress(ValueError):
        found = json.loads(file)
        if isinstance(found, dict) and isinstance(found.get("schema"), str):
            return str(found["schema"]).encode()
    return file


def _record(store: Store, name: TopicName) -> Versioned:
    try:
        return store.read(name.schema_path)
    except NotFoundError as error:
        raise NotFoundError(f"{name} has no schema", source=store.url) from error


def _lost(store: Store, source: EntrySource | None, locator: SchemaLocator) -> dict[int, IndexEntry]:
    """Return the versions whose ledger, or the entry in it, is gone, by their numbers."""
    if not has_metadata(store):
        raise UsageError("cannot tell which ledgers are lost: this store has no metadata of ledgers")
    versions = {one.version: one for one in (*locator.index, locator.info)}
    facts = read_facts(store, (one.position.ledgerId for one in versions.values()))
    return {
        version: one
        for version, one in sorted(versions.items())
        if facts[one.position.ledgerId].metadata == "absent"
        or _has_none(source, one, facts[one.position.ledgerId])
    }


def _has_none(source: EntrySource | None, version: IndexEntry, facts: LedgerFacts) -> bool:
    """Return True if all bookies that should have a version's entry were read completely, and none has it."""
    if source is None or facts.metadata != "known":
        return False
    given = source.sees_open_ledgers or (source.bookies is not None and facts.bookies.all <= source.bookies)
    if not given or has_entry(source, version.position.ledgerId, version.position.entryId):
        return False
    # A ledger directory that was not given, or a missing entry log, may have it.
    hidden = next(missing_logs(source, version.position.ledgerId), None)
    return hidden is None and not completeness_of(source).of(facts.bookies.all)


def _chosen(
    locator: SchemaLocator, lost: dict[int, IndexEntry], wanted: Wanted | None
) -> dict[int, IndexEntry]:
    if wanted is None:
        return lost
    if wanted.version not in {one.version for one in (*locator.index, locator.info)}:
        raise NotFoundError(f"the record has no version {wanted.version}")
    if wanted.version not in lost:
        raise UsageError(f"version {wanted.version} is not lost: BookKeeper has its ledger")
    return {wanted.version: lost[wanted.version]}


def _with_schema(
    store: Store,
    source: EntrySource | None,
    name: TopicName,
    locator: SchemaLocator,
    lost: dict[int, IndexEntry],
    wanted: Wanted,
) -> int | None:
    """Find a ledger with the wanted schema; None if a broker would register it under the same number."""
    assert wanted.schema is not None
    digest = sha256(wanted.schema).digest()
    if digest != lost[wanted.version].hash:
        had = lost[wanted.version].hash.hex()
        raise UsageError(
            f"this is not the schema of version {wanted.version}: its SHA-256 is {digest.hex()}, not {had}"
        )
    for one in locator.index:
        if one.hash == digest and one.version not in lost:
            return one.position.ledgerId
    for ledger_id in _own_ledgers(store, name):
        if source is not None and _holds(source, ledger_id, wanted.schema):
            return ledger_id
    if wanted.version == max(lost) == locator.info.version:
        return None
    unread = "" if source is not None else " that was read (other ledgers need --entries)"
    raise UsageError(
        f"no ledger{unread} has this schema, and only brokers write such ledgers: if you register it again,"
        f" it becomes version {locator.info.version + 1}; without --schema, version"
        f" {wanted.version} is removed"
    )


def _own_ledgers(store: Store, name: TopicName) -> list[int]:
    """Return the ledgers that were created for schemas of a topic."""
    base = name.partitioned or name
    return index_ledgers(store.scan(LEDGERS)).with_owner(
        owner_hash("schema", f"{base.namespace_name}/{base.local}")
    )


def _holds(source: EntrySource, ledger_id: int, schema: bytes) -> bool:
    """Return whether a ledger's first entry is this schema."""
    with suppress(DecodeError, NotFoundError):
        raw = source.read(ledger_id, 0)
        data = decode_bookie_entry(raw.data).data if raw.bookie else raw.data
        return decode_stored_schema(data).schema.definition == schema
    return False


def _point(locator: SchemaLocator, version: int, ledger_id: int) -> None:
    for one in (*locator.index, locator.info):
        if one.version == version:
            one.position.ledgerId, one.position.entryId = ledger_id, 0


def _without(
    seen: Versioned, locator: SchemaLocator, name: TopicName, lost: dict[int, IndexEntry]
) -> tuple[Decided, tuple[str, ...]]:
    """Remove versions, or the record if none is left; also return messages."""
    left = [one for one in locator.index if one.version not in lost]
    if not left:
        return removed(seen), (
            "no version is left: the record is removed, and the next schema becomes version 0",
        )
    newest, before = max(left, key=lambda one: one.version), locator.info.version
    new = SchemaLocator()
    new.CopyFrom(locator)
    new.ClearField("index")
    new.index.extend(left)
    said = []
    if before in lost:
        new.info.CopyFrom(newest)
        said.append(
            f"the next schema that is registered becomes version {newest.version + 1}, which messages of"
            " a lost version refer to: register the same schema again (pulsar-admin schemas"
            f" upload {name} --filename FILE)"
        )
    return becoming(seen, new.SerializeToString()), tuple(said)


def _given_up(lost: dict[int, IndexEntry]) -> Iterator[str]:
    """Yield the losses if these versions are removed."""
    for version, entry in lost.items():
        yield f"{_named(entry)} becomes unreachable: messages of version {version} can't be decoded with it"


def _still_there(source: EntrySource | None, lost: dict[int, IndexEntry]) -> tuple[str, ...]:
    """List the lost versions that bookies still have, so that metadata would bring them back."""
    found = [one for one in lost.values() if source is not None and _has(source, one)]
    return tuple(
        f"{_named(one)} still has its entry on bookies: repair ledger-metadata"
        f" {one.position.ledgerId} brings it back"
        for one in found
    )


def _has(source: EntrySource, version: IndexEntry) -> bool:
    with suppress(DecodeError, NotFoundError):
        return source.last_entry(version.position.ledgerId) is not None
    return False


def _named(version: IndexEntry) -> str:
    return f"version {version.version} (ledger {version.position.ledgerId})"

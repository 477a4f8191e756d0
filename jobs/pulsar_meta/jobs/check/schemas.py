"""Schemas: their records' lists of versions, the ledgers that hold them, the versions that messages refer to.

Sources: apache/pulsar BookkeeperSchemaStorage (getSchema, findSchemaEntryByVersion, putSchema,
updateSchemaLocator), SchemaStorageFormat.proto. Tested with 4.0.7 and 4.2.4, except for lists of versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Finding, Severity, finding, first_of
from pulsar_meta.jobs.check.ledger_facts import FactsOf, LedgerFacts, owner_hash, read_facts
from pulsar_meta.jobs.check.topic_view import Rule, TopicView, is_internal
from pulsar_meta.jobs.topics.owners import Owner, named_by
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.proto.SchemaStorageFormat_pb2 import IndexEntry, SchemaLocator
from pulsar_meta.stores.base import Store, Versioned

_VERSION: Final = struct.Struct(">q")
# The most versions that a finding names.
_NAMED: Final = 10


def schema_versions(view: TopicView) -> Iterator[Finding]:
    """Check that the topic's schema has the versions that messages refer to."""
    source = view.context.source
    if source is None or view.is_shadow or is_internal(view.name.local) or view.name.domain != "persistent":
        return
    known = view.context.schemas(view.name)
    if known is None:
        return
    for version, (ledger_id, entry_id) in sorted(_unknown_versions(view, source, known).items()):
        has = f"it has {max(known) + 1} versions" if known else "it has no record"
        yield finding(
            "schema-version-missing",
            f"the message at {ledger_id}:{entry_id} refers to version {version} of the schema, but {has}",
            evidence={"version": version, "position": [ledger_id, entry_id], "known": sorted(known)[-10:]},
            **view.place(ledger_id),
        )


RULES: Final[tuple[Rule, ...]] = (schema_versions,)


def _unknown_versions(
    view: TopicView, source: EntrySource, known: frozenset[int]
) -> dict[int, tuple[int, int]]:
    """Return the unknown versions in the first and last entries of the topic's ledgers, with a position."""
    unknown: dict[int, tuple[int, int]] = {}
    own = view.own_hash
    for ledger in view.ledgers:
        if view.facts(ledger.ledger_id).owner_hash not in (0, own):
            continue
        for entry_id in sorted({0, (ledger.entries or 0) - 1} - {-1}):
            version = _version_of(source, ledger, entry_id)
            if version is not None and version not in known:
                unknown.setdefault(version, (ledger.ledger_id, entry_id))
    return unknown


def _version_of(source: EntrySource, ledger: Ledger, entry_id: int) -> int | None:
    """Return the schema version in an entry, None if it has none of this cluster's registry."""
    if not ledger.format.frames and ledger.bookkeeper is not None:
        return None
    try:
        raw = source.read(ledger.ledger_id, entry_id)
        data = decode_bookie_entry(raw.data).data if raw.bookie else raw.data
        metadata = decode_frame(data, verify=False).metadata
    except (NotFoundError, DecodeError):
        # Other rules report missing and damaged entries.
        return None
    if metadata.HasField("replicated_from") or metadata.HasField("schema_id"):
        return None
    stored = metadata.schema_version
    return int(_VERSION.unpack(stored)[0]) if len(stored) == _VERSION.size else None


def index_findings(record: Versioned) -> Iterator[Finding]:
    """Check that the newest version of a schema's record is the last one of its list.

    Brokers give the newest version to new clients, and look every other version up in the list. Raises
    DecodeError.
    """
    locator = parse_message(SchemaLocator, record.value)
    newest, listed = locator.info, list(locator.index)
    fault = _index_fault(newest, listed)
    if fault is None:
        return
    text, severity = fault
    yield finding(
        "schema-index-differs",
        text,
        severity=severity,
        path=record.path,
        evidence={
            "newest": newest.version,
            "newest_ledger": newest.position.ledgerId,
            "listed": [version.version for version in listed],
            "listed_ledgers": [version.position.ledgerId for version in listed],
        },
    )


def _index_fault(newest: IndexEntry, listed: Sequence[IndexEntry]) -> tuple[str, Severity] | None:
    """Return the difference between the newest version and the list, with its severity."""
    versions = [version.version for version in listed]
    if not versions:
        return "its list of versions is empty, so brokers can't register another schema", Severity.ERROR
    if versions != sorted(set(versions)):
        text = f"its versions are not ascending ({first_of(versions, _NAMED)}), so brokers don't find all"
        return text, Severity.ERROR
    last = listed[-1]
    ends = f"its newest version is {newest.version}, and its list ends at version {last.version}"
    if last.version < newest.version:
        return f"{ends}: messages of later versions can't be decoded", Severity.ERROR
    if last.version > newest.version:
        return f"{ends}: brokers don't find later ones, and will use their numbers again", Severity.ERROR
    if last.hash != newest.hash:
        text = f"its newest version {newest.version} has another hash in the list"
        return f"{text}, so it may be one schema to new clients and another to readers", Severity.ERROR
    if last.position != newest.position:
        ledgers = f"{newest.position.ledgerId} and, in the list, {last.position.ledgerId}"
        return f"its newest version {newest.version} is in two places, in ledgers {ledgers}", Severity.WARNING
    return None


def schema_findings(path: str, store: Store) -> Iterator[Finding]:
    """Yield the ledgers of a schema's record that are gone or foreign; none if the record is gone."""
    with suppress(NotFoundError):
        record = store.read(path)
        facts = read_facts(store, [owner.ledger_id for owner in _owners_in(record)])
        yield from schema_ledgers(record, store, facts.__getitem__)


def schema_ledgers(record: Versioned, store: Store, facts_of: FactsOf) -> Iterator[Finding]:
    """Yield the ledgers of a schema's record that are gone or foreign, also when both are read again."""
    owners, path = _owners_in(record), record.path
    ends = _last_entries(record)
    suspected = [owner for owner in owners if _is_wrong(owner, facts_of(owner.ledger_id), ends)]
    if not suspected:
        return
    facts = read_facts(store, [owner.ledger_id for owner in suspected])
    with suppress(NotFoundError):
        ends = _last_entries(store.read(path))
        for owner in suspected:
            current = facts[owner.ledger_id]
            if owner.ledger_id not in ends or not _is_wrong(owner, current, ends):
                continue
            if current.metadata != "absent":
                yield _foreign(path, owner, current, ends[owner.ledger_id])
            else:
                yield finding(
                    "schema-ledger-missing",
                    "BookKeeper has no metadata of its ledger: when the schema is used, the broker deletes it"
                    " and registers it again",
                    topic=f"persistent://{owner.name}",
                    ledger_id=owner.ledger_id,
                    path=path,
                )


def _is_wrong(owner: Owner, facts: LedgerFacts, ends: Mapping[int, int]) -> bool:
    """Return True if a ledger is gone, is not this schema's, or ends before the entry in the record."""
    if facts.metadata == "absent" or not _is_own(owner, facts):
        return True
    return facts.last_entry is not None and ends.get(owner.ledger_id, 0) > facts.last_entry


def _is_own(owner: Owner, facts: LedgerFacts) -> bool:
    return facts.owner_hash in (0, owner_hash("schema", owner.name))


def _foreign(path: str, owner: Owner, facts: LedgerFacts, entry_id: int) -> Finding:
    if _is_own(owner, facts):
        return finding(
            "schema-ledger-foreign",
            f"it refers to entry {entry_id} of its ledger {owner.ledger_id}, which ends at entry"
            f" {facts.last_entry}, so brokers can't read the schema",
            topic=f"persistent://{owner.name}",
            ledger_id=owner.ledger_id,
            path=path,
        )
    return finding(
        "schema-ledger-foreign",
        f"its ledger {owner.ledger_id} was created as {facts.purpose}, so brokers can't read the schema",
        topic=f"persistent://{owner.name}",
        ledger_id=owner.ledger_id,
        path=path,
        evidence=facts.owner_evidence,
    )


def _last_entries(record: Versioned) -> dict[int, int]:
    """Return the last entry that a schema's record refers to in each ledger."""
    ends: dict[int, int] = {}
    with suppress(DecodeError):
        locator = parse_message(SchemaLocator, record.value)
        for version in (locator.info, *locator.index) if record.value else ():
            at = version.position
            ends[at.ledgerId] = max(at.entryId, ends.get(at.ledgerId, 0))
    return ends


def _owners_in(record: Versioned) -> list[Owner]:
    try:
        return list(named_by(record, None, lambda path, why: None))
    except DecodeError:
        return []

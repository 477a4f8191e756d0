"""Schemas: whether the ledgers that hold them are there, and the versions that messages name.

Sources: apache/pulsar BookkeeperSchemaStorage, SchemaStorageFormat.proto; tried on 4.0.7 and 4.2.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.cursors import is_internal
from pulsar_meta.jobs.check.facts import FactsOf, mark_of, read_facts
from pulsar_meta.jobs.check.sight import Check, Sight
from pulsar_meta.jobs.topics.owners import SCHEMAS, Owner, named_by
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Store, Versioned

LEDGER_MISSING: Final = Code(
    "schema-ledger-missing",
    Severity.WARNING,
    "The ledger with a schema is gone",
    means="A schema's record names a ledger that BookKeeper does not know.",
    broker="The topic loads. **When the schema is used the broker deletes it, every version of it, those that"
    " are whole, too**, and registers anew, from version 0: messages that were written with any version"
    " cannot be decoded by it any more, or are decoded with another one.",
    errors=("Put schema failed", "No such ledger exists on Metadata Server"),
    comes="The ledger was taken for an orphan, or lost with the store.",
    cure="Before a broker uses it: bring the ledger's metadata back where bookies still have its entry; else"
    " take the lost versions out of the record, and the others stay. Producers need neither.",
)
VERSION_MISSING: Final = Code(
    "schema-version-missing",
    Severity.WARNING,
    "Messages with a version of a schema that the topic has not",
    means="Messages name a version of the topic's schema that its record does not have: consumers that decode"
    " by the registry cannot read them. Of each ledger the first and the last entry are looked at.",
    broker="It delivers them; consumers fail to get the schema, or decode with another one.",
    errors=("SchemaSerializationException", "Schema version not found", "Get schema failed"),
    comes="A schema that was deleted or registered anew while messages of it are kept; a record that was"
    " restored from an earlier time; messages that a producer with another registry wrote.",
    cure="Register the lost schema again; or read these messages as bytes.",
    unless="Messages that were replicated from another cluster, those with a `schema_id` (PIP-420, another"
    " registry), versions that are no number of eight bytes, versions before the first that the record itself"
    " lists (the ledger of that one has them), stores without any schema, brokers' own topics.",
    evidence={"version": int, "position": tuple[int, int], "known": list[int]},
)
CODES: Final = (LEDGER_MISSING, VERSION_MISSING)
_VERSION: Final = struct.Struct(">q")


class SchemaVersions:
    """Which versions the schemas of topics have; None where the store has no schemas at all."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: tuple[str, frozenset[int] | None] = "", None

    @cached_property
    def _any(self) -> bool:
        return next((True for one in self._store.scan(SCHEMAS) if one.value), False)

    def of(self, name: TopicName) -> frozenset[int] | None:
        """Return the versions of a topic's schema, none where it has no record; None: nobody can say.

        Those before the first that the record lists lie in a ledger, and count as there.
        """
        path = name.schema_path
        if self._found[0] != path:
            self._found = path, self._read(path)
        return self._found[1]

    def _read(self, path: str) -> frozenset[int] | None:
        if not self._any:
            return None
        try:
            locator = parse_message(SchemaLocator, self._store.read(path).value)
        except NotFoundError:
            return frozenset()
        except DecodeError:
            return None
        listed = [entry.version for entry in (*locator.index, locator.info)]
        return frozenset((*listed, *range(min(listed))))


def schema_versions(sight: Sight) -> Iterator[Finding]:
    """Messages of a topic with versions of its schema that there are not."""
    source = sight.cluster.source
    if (
        source is None
        or sight.is_shadow
        or is_internal(sight.name.local)
        or sight.name.domain != "persistent"
    ):
        return
    known, mine = sight.cluster.schemas(sight.name), mark_of("data", str(sight.name))
    unknown: dict[int, tuple[int, int]] = {}
    ours = [one for one in sight.ledgers if sight.facts(one.ledger_id).mark in (0, mine)]
    for ledger in ours if known is not None else ():
        for entry_id in sorted({0, (ledger.entries or 0) - 1} - {-1}):
            version = _version_of(source, ledger, entry_id)
            if version is not None and version not in (known or ()):
                unknown.setdefault(version, (ledger.ledger_id, entry_id))
    for version, at in sorted(unknown.items()):
        has = f"it has {max(known) + 1} versions" if known else "there is no record of it"
        yield VERSION_MISSING.found(
            f"the message at {at[0]}:{at[1]} names version {version} of the schema, and {has}",
            evidence={"version": version, "position": list(at), "known": sorted(known or ())[-10:]},
            **sight.where(at[0]),
        )


def _version_of(source: EntrySource, ledger: Ledger, entry_id: int) -> int | None:
    """Return the version of this cluster's own registry that an entry names, None for none."""
    if not ledger.format.frames and ledger.bookkeeper is not None:
        return None
    try:
        raw = source.read(ledger.ledger_id, entry_id)
        data = decode_bookie_entry(raw.data).data if raw.bookie else raw.data
        metadata = decode_frame(data, verify=False).metadata
    except (NotFoundError, DecodeError):
        # That it is missing or broken others report.
        return None
    if metadata.HasField("replicated_from") or metadata.HasField("schema_id"):
        return None
    stored = metadata.schema_version
    return int(_VERSION.unpack(stored)[0]) if len(stored) == _VERSION.size else None


TOPIC_CHECKS: Final[tuple[Check, ...]] = (schema_versions,)


def schema_ledgers(path: str, owners: Iterable[Owner], store: Store, facts_of: FactsOf) -> Iterator[Finding]:
    """Yield the ledgers that a schema's record names and that are gone: at a second look, too."""
    missing = [one for one in owners if facts_of(one.ledger_id).metadata == "absent"]
    if not missing:
        return
    facts = read_facts(store, [one.ledger_id for one in missing])
    with suppress(NotFoundError):
        still = {one.ledger_id for one in _named(store.read(path))}
        for owner in missing:
            if facts[owner.ledger_id].metadata == "absent" and owner.ledger_id in still:
                yield LEDGER_MISSING.found(
                    "BookKeeper has no metadata of its ledger: when it is used the broker deletes the"
                    " schema and"
                    " registers it anew",
                    topic=f"persistent://{owner.name}",
                    ledger_id=owner.ledger_id,
                    path=path,
                )


def _named(record: Versioned) -> list[Owner]:
    try:
        return list(named_by(record, None, lambda path, why: None))
    except DecodeError:
        return []

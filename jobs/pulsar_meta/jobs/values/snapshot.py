"""Write all values of a store to the file of a `snapshot:` store, with or without secrets.

Stores without point-in-time reads (ZooKeeper, Oxia, a directory) are read twice. If a value changed in
between, the second version is written, and the change is counted.

A broker that deletes a topic deletes the ledgers of its schema a moment before the record of the schema. The
record of a schema whose ledger is gone is therefore read once more, a moment later.
(apache/pulsar BookkeeperSchemaStorage.deleteSchema)
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep
from typing import Any, Final, NotRequired, TypedDict

from pulsar_meta.access.files import refuse_dash
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.codecs.secrets import MASK, redact_text, with_masks
from pulsar_meta.codecs.snapshot_lines import Sums
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.rewrite.run_files import StoreDocument, read_identity
from pulsar_meta.jobs.spill import DiskMap
from pulsar_meta.jobs.topics.owners import SCHEMAS, named_by
from pulsar_meta.jobs.values.places import long_buckets, read_counters
from pulsar_meta.stores.base import ABSENT, Store, Versioned
from pulsar_meta.stores.snapshot import SnapshotStore
from pulsar_meta.stores.snapshot_writer import SnapshotWriter, kept_values, part_of

# Hides the secrets of a value before it is written.
Hide = Callable[[Versioned], Versioned] | None

# Seconds before each further look at such records. A busy broker needs some seconds for the deletion.
_PAUSES: Final = (1.0, 2.0, 4.0)
# Records that are read with one request.
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """The sums of a snapshot's values, and how many of them a killed run had already written.

    `changed` counts values that were changed, created or removed while the store was read; None if all values
    are from one moment.
    """

    sums: Sums
    kept: int = 0
    changed: int | None = None


def take_snapshot(
    store: Store,
    target: Path,
    *,
    tool: str,
    resume: bool = False,
    hide: Hide = None,
    progress: Callable[[int], None] = lambda count: None,
) -> SnapshotResult:
    """Write all values of a store to `target`, which appears when it is complete.

    `tool` is the program's name and version. With `resume`, continues the work of a killed run. Raises
    UsageError if a killed run left a file and `resume` is False, or if the file can't be written, and
    UnreachableError.
    """
    head = _head(store, tool, redacted=hide is not None)
    _check_target(target, head, resume=resume)
    begun = resume and next(kept_values(target), None) is not None
    with closing(SnapshotWriter(target, head)) as writer:
        if store.has_consistent_scans and not begun:
            writer.take_its_name()
            _write(writer, _counted(store.scan(), progress), hide)
            return _finish(writer, SnapshotResult(writer.sums))
        with DiskMap() as seen:
            last = _copy_kept(writer, target, seen) if resume else None
            kept = writer.sums.values
            writer.take_its_name()
            _write(writer, _noted(_counted(store.scan(after=last), progress), seen), hide)
            return _second_look(store, writer, head, seen, SnapshotResult(writer.sums, kept), hide)


class SnapshotFacts(TypedDict):
    """The store of a snapshot, when it was taken, and its counters.

    A store `rebuilt` from disks has no `store`.
    """

    store: NotRequired[StoreDocument]
    rebuilt: NotRequired[bool]
    taken: str | None
    counters: NotRequired[dict[str, int]]
    tool: str
    redacted: NotRequired[bool]


class SnapshotHead(SnapshotFacts):
    """The first line of a snapshot. `snapshot` is the number of the file format."""

    snapshot: int


def _head(store: Store, tool: str, *, redacted: bool) -> SnapshotFacts:
    """Make the first line."""
    origin = store.origin
    head: SnapshotFacts = {
        "store": origin.get("store") or read_identity(store).document(),
        "taken": origin.get("taken") or iso_time(time.time_ns() // 1_000_000),
        "counters": read_counters(store, long_buckets(store)),
        "tool": tool,
    }
    if redacted or origin.get("redacted"):
        head["redacted"] = True
    return head


def _check_target(target: Path, head: SnapshotFacts, *, resume: bool) -> None:
    refuse_dash(target)
    if target.exists() and not target.is_file():
        raise UsageError("cannot write the snapshot: not a regular file", source=str(target))
    part = part_of(target)
    if not part.exists():
        return
    if not resume:
        raise UsageError("a run that did not finish left this file: add --resume", source=str(part))
    with SnapshotStore(f"snapshot:{part}?partial") as left:
        before = left.origin
    same = all(before.get(name) == head.get(name) for name in ("store", "redacted"))
    if before and not same:
        raise UsageError(
            "refusing to resume from another store or with other options; remove this file", source=str(part)
        )


def _copy_kept(writer: SnapshotWriter, target: Path, seen: DiskMap) -> str | None:
    """Write the values of a killed run again. Returns the last path; None if there was no value."""
    last = None
    for value in _noted(kept_values(target), seen):
        writer.add(value)
        last = value.path
    return last


def _write(writer: SnapshotWriter, values: Iterable[Versioned], hide: Hide) -> None:
    for value in values:
        writer.add(value if hide is None else hide(value))


def _second_look(
    store: Store,
    writer: SnapshotWriter,
    head: SnapshotFacts,
    seen: DiskMap,
    result: SnapshotResult,
    hide: Hide,
) -> SnapshotResult:
    with DiskMap() as newest, DiskMap() as schemas:
        newest.add(changes_since(_schemas_noted(store.scan(), schemas), seen))
        newest.add(_deleted_schemas(store, schemas))
        result = replace(result, changed=len(newest))
        if not result.changed:
            return _finish(writer, result)
        writer.close()
        with closing(SnapshotWriter(writer.target, head)) as corrected:
            for value in kept_values(writer.target):
                if value.path not in newest:
                    corrected.add(value)
            _write(corrected, (value for value in newest if value.version != ABSENT), hide)
            return _finish(corrected, replace(result, sums=corrected.sums))


def changes_since(values: Iterable[Versioned], seen: DiskMap) -> Iterator[Versioned]:
    """Yield the values whose versions are not in `seen`, then the removed ones with version ABSENT.

    The values that are still there are removed from `seen`.
    """
    for value in values:
        before = seen.pop(value.path)
        if before is None or before.version != value.version:
            yield value
    for gone in seen:
        yield Versioned(gone.path, b"", ABSENT)


def _deleted_schemas(store: Store, seen: DiskMap) -> Iterator[Versioned]:
    """Yield the records of schemas in `seen` that were deleted since, with version ABSENT.

    Waits for the deletion of those whose ledgers are gone.
    """
    records, left = list[Versioned](), list[str]()
    for record in store.scan(SCHEMAS):
        seen.pop(record.path)
        records.append(record)
        if len(records) == _AT_ONCE:
            left += _without_ledger(store, records)
            records.clear()
    left += _without_ledger(store, records)
    yield from (Versioned(record.path, b"", ABSENT) for record in seen)
    for pause in _PAUSES:
        if not left:
            return
        sleep(pause)
        gone = _absent(store, left)
        yield from (Versioned(path, b"", ABSENT) for path in gone)
        left = [path for path in left if path not in gone]


def _without_ledger(store: Store, records: Iterable[Versioned]) -> Iterable[str]:
    """Return the paths of the schemas that have a ledger without metadata."""
    schemas = {ledger_path(ledger): record.path for record in records for ledger in _ledgers_of(record)}
    return dict.fromkeys(schemas[path] for path in _absent(store, list(schemas)))


def _absent(store: Store, paths: Sequence[str]) -> dict[str, None]:
    """Return the paths that have no value."""
    absent = dict[str, None]()
    for at in range(0, len(paths), _AT_ONCE):
        some = paths[at : at + _AT_ONCE]
        found = zip(some, store.read_many(some), strict=True)
        absent |= dict.fromkeys(path for path, value in found if value is None)
    return absent


def _ledgers_of(schema: Versioned) -> list[int]:
    """Return the ledgers of a schema; none if its record can't be decoded."""
    try:
        return [owner.ledger_id for owner in named_by(schema, None, lambda path, why: None)]
    except DecodeError:
        return []


def _finish(writer: SnapshotWriter, result: SnapshotResult) -> SnapshotResult:
    writer.finish({} if result.changed is None else {"changed_meanwhile": result.changed})
    return result


def _schemas_noted(values: Iterable[Versioned], schemas: DiskMap) -> Iterator[Versioned]:
    """Yield values, and add the versions of schemas to `schemas`."""
    for value in values:
        if value.path.startswith(f"{SCHEMAS}/"):
            schemas.add([value._replace(value=b"")])
        yield value


def _noted(values: Iterable[Versioned], seen: DiskMap) -> Iterator[Versioned]:
    """Yield values, and add their versions to `seen`."""
    for value in values:
        seen.add([value._replace(value=b"")])
        yield value


def _counted(values: Iterable[Versioned], progress: Callable[[int], None]) -> Iterator[Versioned]:
    for value in values:
        progress(1)
        yield value


# Kinds of values without known fields.
_LOOSE: Final = frozenset({"Bytes", "Text", None})
# The kind whose strings are base64 in its document.
_IN_BASE64: Final = "LedgerMetadata"
# Members of documents whose strings tell nothing about the users of a cluster.
_HARMLESS: Final = frozenset({
    "allowedClusters", "replication_clusters", "boundaries", "bookieHost", "host", "protocol", "id",
    "instanceId", "brokerId", "brokerServiceUrl", "brokerServiceUrlTls", "serviceUrl", "serviceUrlTls",
    "pulsarServiceUrl", "pulsarServiceUrlTls", "webServiceUrl", "webServiceUrlTls", "httpUrl", "httpUrlTls",
    "nativeUrl", "nativeUrlTls", "ensembleMember", "state", "digestType", "hash", "cToken", "key", "name",
    "codec", "type", "brokerVersionString", "loadManagerClassName", "loadReportType",
    "schema_compatibility_strategy", "schema_auto_update_compatibility_strategy", "subscription_auth_mode",
    "brokerClientSslFactoryPlugin",
    "brokerClientTlsKeyStoreType", "brokerClientTlsTrustStoreType", "deleteSet",
})  # fmt: skip
# Properties that Pulsar writes, and `build-index`.
_KNOWN_PROPERTY: Final = re.compile(
    r"#pulsar\.internal\..*|pulsar/.*|application|component|first-index|index|CompactedTopicLedger|PULSAR\..*"
)
_NUMBER: Final = re.compile(r"-?[0-9.:-]{1,40}")


def redacted_value(held: Versioned) -> Versioned:
    """Return a value with `***` for each secret, or the same bytes if it has none.

    A value that can't be decoded, and may hold a secret, becomes empty.
    """
    document = _decoded(held)
    if document is None:
        return _redacted_bytes(held)
    return _with_value(held, document, _masked_value(held))


def bundled_value(held: Versioned) -> Versioned:
    """Return a value for a bundle, which keeps only strings that are known to be harmless.

    Every other string is replaced by its type and length. A value that can't be decoded becomes empty.
    """
    document = _decoded(held)
    if document is None:
        return held._replace(value=b"")
    kept = _known(_masked_value(held), "", in_base64=document["kind"] == _IN_BASE64)
    return _with_value(held, document, kept)


def _decoded(held: Versioned) -> Document | None:
    """Return the document of a value, with secrets; None if it can't be decoded, or has no known fields."""
    options = DecodeOptions(show_secrets=True)
    decoded = decode_document(held.value, source=held.path, path=held.path, options=options)
    return None if decoded.error is not None or decoded.document["kind"] in _LOOSE else decoded.document


def _masked_value(held: Versioned) -> Any:
    """Return the `value` of a document, with a mask for each secret."""
    document = decode_document(held.value, source=held.path, path=held.path).document
    mask = b64encode(MASK.encode()).decode() if document["kind"] == _IN_BASE64 else MASK
    return with_masks(document["value"], mask)


def _redacted_bytes(held: Versioned) -> Versioned:
    text = held.value.decode("latin-1")
    redacted = redact_text(text)
    if redacted == text:
        return held
    kind = decode_document(held.value, source=held.path, path=held.path).document["kind"]
    return held._replace(value=redacted.encode("latin-1") if kind == "Text" else b"")


def _with_value(held: Versioned, document: Document, value: Any) -> Versioned:
    """Return what `document` encodes to with another `value`; empty if that can't be encoded."""
    if value == document["value"]:
        return held
    try:
        # The text in the document shows how the rest was written.
        encoded = encode_document({**document, "value": value}, place="redacted ")
    except PulsarMetaError:
        return held._replace(value=b"")
    return held._replace(value=encoded.data)


def _known(value: Any, name: str, *, in_base64: bool) -> Any:
    """Return a value with every string replaced that is not the value of a harmless member."""
    if isinstance(value, list):
        return [_known(member, name, in_base64=in_base64) for member in value]
    if isinstance(value, dict):
        key = value.get("key", value.get("name"))
        known = isinstance(key, str) and _KNOWN_PROPERTY.fullmatch(key) is not None
        return {
            member: inner if known and member == "value" else _known(inner, member, in_base64=in_base64)
            for member, inner in value.items()
        }
    if not isinstance(value, str) or name in _HARMLESS or _NUMBER.fullmatch(value) or not value:
        return value
    if in_base64 and name in ("value", "password"):
        return b64encode(f"<{len(value) * 3 // 4} bytes>".encode()).decode()
    return f"<text, {len(value)}>"

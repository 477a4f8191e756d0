"""Records that can't be decoded, are missing, or are left over.

Sources: apache/pulsar MetaStoreImpl, PartitionedTopicMetadata, PIP-414 (partitions need their topic's
record). The effects on brokers were tested with 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pulsar_meta.codecs.documents.kinds import ENVELOPED, fitting_kinds, kind_of_path
from pulsar_meta.codecs.documents.message_values import fits, fits_newer
from pulsar_meta.codecs.errors import DecodeError, LimitError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, open_envelope
from pulsar_meta.codecs.names import POLICIES_ROOTS, TopicName, decode_name, ledger_path, policies_place
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.check.broker_records import CONFIGURATION, configuration_fault
from pulsar_meta.jobs.check.codes import PARTITIONED, Finding, Place, Severity, finding
from pulsar_meta.jobs.check.context import Context
from pulsar_meta.jobs.check.namespaces import (
    CLUSTERS,
    LOCAL_POLICIES,
    POLICIES,
    RESOURCE_GROUPS,
    bundle_findings,
    partitions_of,
    type_fault,
)
from pulsar_meta.jobs.check.plain_topics import PIP_414
from pulsar_meta.jobs.check.schemas import index_findings
from pulsar_meta.jobs.check.topic_view import CursorView, Rule, TopicView
from pulsar_meta.jobs.rewrite.readable import Readers, Verdict, form_of, parse_version, tested_failures
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Versioned

_NEAR: Final = 0.8
# The number of slashes in the path of a namespace's policies.
_NAMESPACE_DEPTH: Final = 4
_MISPLACED: Final = ("ManagedLedgerInfo", "ManagedCursorInfo", "LedgerMetadata", "Cookie", "SchemaLocator")
_JSON: Final = (PARTITIONED, POLICIES, LOCAL_POLICIES, CLUSTERS)
# The effects of records that can't be read, by the beginnings of their paths. Sources: apache/pulsar
# BrokerService (handleDynamicConfigurationUpdates, getTopicPoliciesBypassSystemTopic),
# ResourceGroupConfigListener.
_EFFECTS: Final = {
    CONFIGURATION: "brokers ignore all dynamic settings",
    RESOURCE_GROUPS: "brokers do not apply its limits",
    **dict.fromkeys(POLICIES_ROOTS, "the topic does not load"),
}


def topic_records(view: TopicView) -> Iterator[Finding]:
    """Check that the records of the topic and its cursors can be decoded, and by which releases."""
    if view.record is not None:
        yield from _record(view, view.record, view.fault, None)
    for cursor in view.cursors:
        yield from _record(view, cursor.record, cursor.fault, cursor)


def ledger_records(view: TopicView) -> Iterator[Finding]:
    """Check that the metadata of the topic's and its cursors' ledgers can be decoded."""
    for ledger in view.ledgers:
        if ledger.metadata == "broken":
            fault = view.facts(ledger.ledger_id).fault
            message = f"its metadata in BookKeeper can't be decoded, so no client can open it ({fault})"
            yield finding("record-undecodable", message, **_ledger_place(view, ledger.ledger_id))
    for cursor in view.cursors:
        state = cursor.state.ledger_id if cursor.state is not None else None
        if state is not None and view.facts(state).metadata == "broken":
            yield finding(
                "record-undecodable",
                "the metadata of the cursor's ledger can't be decoded, so the topic does not load; without"
                " that record the broker would go back to the position in the cursor's record"
                f" ({view.facts(state).fault})",
                **_ledger_place(view, state) | {"cursor": cursor.name},
            )


def partition(view: TopicView) -> Iterator[Finding]:
    """Check that a partition belongs to a partitioned topic."""
    number = view.name.partition
    if number is None or (view.record is None and not view.cursors) or view.partitions == 0:
        return
    base = view.name.local.rpartition("-partition-")[0]
    if view.partitions is None and not view.context.has_configuration:
        return
    if view.partitions is None:
        yield finding(
            "partition-without-parent",
            f"{base} has no record with its number of partitions: brokers from {PIP_414} on refuse this"
            " partition",
            severity=_since_pip_414(view.context),
            evidence={"partition": number, "releases": list(view.context.releases)},
            **view.place(),
        )
    elif number >= view.partitions:
        yield finding(
            "partition-beyond-count",
            f"the record of {base} has {view.partitions} partitions, so clients don't know about this one",
            evidence={"partition": number, "partitions": view.partitions},
            **view.place(),
        )


def lost(view: TopicView) -> Iterator[Finding]:
    """Check that a topic that owns ledgers with entries has a list of ledgers."""
    if view.fault is not None or view.ledgers or view.is_shadow or _is_other(view.record):
        return
    # Brokers trim a system topic as soon as it is compacted, so these ledgers are not missed.
    owned = [ledger_id for ledger_id in view.owned if not view.is_covered(ledger_id)]
    with_entries = [ledger_id for ledger_id in owned if view.has_entries(ledger_id)]
    unclosed = [ledger_id for ledger_id in owned if view.facts(ledger_id).last_entry is None]
    if not with_entries and not (view.cursors and unclosed):
        return
    ended = view.owned[-1] not in with_entries
    # On a live store the topic may be in the middle of its deletion.
    at_rest = not view.context.live and (ended or view.partitions not in (None, 0))
    sure = view.record is not None or bool(view.cursors) or at_rest
    state = "its record is gone" if view.record is None else "its record is empty"
    yield finding(
        "topic-record-lost",
        f"{state}, but {len(view.owned)} ledgers belong to it: a broker would start it empty and move its"
        " cursors to the new end, so repair it before a broker loads it",
        severity=Severity.ERROR if sure else Severity.WARNING,
        evidence={
            "ledgers": list(view.owned),
            "with_entries": len(with_entries),
            "cursors": len(view.cursors),
        },
        **view.place(),
    )


def cursors_without_topic(view: TopicView) -> Iterator[Finding]:
    """Check that cursors have a topic, unless its record is reported as lost."""
    if view.record is None and view.cursors and next(lost(view), None) is None:
        names = [cursor.name for cursor in view.cursors]
        yield finding(
            "cursor-without-topic",
            f"{len(names)} subscriptions have records, but the topic has none",
            evidence={"cursors": names[:10], "count": len(names)},
            **view.place(),
        )


def shadow(view: TopicView) -> Iterator[Finding]:
    """Check that a shadow topic's source exists, and that the ledgers in its own list do."""
    try:
        source = view.shadow_of
    except DecodeError:
        # The record of the partitioned topic is reported separately.
        return
    if source is None:
        return
    if not view.context.shadows.has(source):
        yield finding(
            "shadow-without-source",
            f"its source {source} has no record, so it does not load",
            evidence={"source": source},
            **view.place(),
        )
        return
    gone = [ledger.ledger_id for ledger in view.ledgers if ledger.metadata == "absent"]
    if gone:
        yield finding(
            "shadow-lists-deleted-ledgers",
            f"it lists deleted ledgers, {gone[0]} to {gone[-1]}: clients that read from the beginning wait"
            " for their entries",
            evidence={"source": source, "ledgers": gone},
            **view.place(),
        )


RULES: Final[tuple[Rule, ...]] = (
    topic_records, ledger_records, partition, lost, cursors_without_topic, shadow,
)  # fmt: skip


def value_findings(record: Versioned, context: Context) -> Iterator[Finding]:
    """Check a record below /admin or /schemas."""
    fault = _value_fault(record)
    if fault is not None:
        name = "record-undecodable" if record.value else "record-empty"
        text, severity = fault.message, None
        for prefix, effect in _EFFECTS.items():
            if record.path.startswith(prefix):
                text = f"{text}: {effect}"
                severity = None if prefix in POLICIES_ROOTS else Severity.WARNING
        evidence = {"size": len(record.value)}
        yield finding(name, text, severity=severity, path=record.path, evidence=evidence)
    elif kind_of_path(record.path) == "SchemaLocator":
        yield from index_findings(record)
    yield from _near_limit(record, context, {"path": record.path})
    if fault is None and record.path.startswith(_JSON) and record.value:
        document = read_json_object(record.value)
        if document.get("deleted") is True:
            yield finding("leftover", "it is marked as deleted, but still exists", path=record.path)
        yield from bundle_findings(record.path, document)


def misnamed(record: Versioned) -> Iterator[Finding]:
    """Check the name of a record below /managed-ledgers that is not at the path of a topic or a cursor."""
    parent, _, name = record.path.rpartition("/")
    topic, own = TopicName.from_path(parent), TopicName.from_path(record.path)
    if own is not None:
        text = f"brokers look for the topic {own} at {own.path}, so none reads this record"
    else:
        try:
            decode_name(name)
        except DecodeError as error:
            reader = (
                "the topics of the namespace can't be listed" if topic is None else "the topic does not load"
            )
            text = f"{error.message}: {reader}"
        else:
            return
    yield finding(
        "record-undecodable",
        text,
        severity=Severity.WARNING if topic is None else Severity.ERROR,
        topic=None if topic is None else str(topic),
        path=record.path,
        evidence={"size": len(record.value)},
    )


def _value_fault(record: Versioned) -> DecodeError | None:
    if record.path == CONFIGURATION:
        return configuration_fault(record.value)
    try:
        if kind_of_path(record.path) == "SchemaLocator":
            parse_message(SchemaLocator, record.value)
        elif record.path.startswith(_JSON) and (record.value or _has_record(record.path)):
            document = read_json_object(record.value, source=record.path)
            wrong = None if record.path.startswith(PARTITIONED) else type_fault(record.path, document)
            if wrong is not None:
                return DecodeError(wrong, source=record.path)
            count = document.get("partitions")
            if record.path.startswith(PARTITIONED) and partitions_of(document) is None:
                text = "the number of partitions is " + ("missing" if count is None else repr(count))
                return DecodeError(text, source=record.path)
        elif record.value and _is_other_object(record.path):
            read_json_object(record.value, source=record.path)
    except DecodeError as error:
        return error
    return None


def _is_other_object(path: str) -> bool:
    """Return True if a path is that of a resource group or of a topic's policies (PIP-469)."""
    return path.startswith(RESOURCE_GROUPS) or policies_place(path) is not None


def _has_record(path: str) -> bool:
    """Return True if a path is that of a record, not only of a parent."""
    if path.startswith(CLUSTERS):
        return "/" not in path.removeprefix(CLUSTERS)
    if path.startswith((POLICIES, LOCAL_POLICIES)):
        # A tenant or a namespace. In V1, a cluster is between them, and its node is empty.
        return path.count("/") <= _NAMESPACE_DEPTH and path.startswith(POLICIES)
    parts = path.removeprefix(PARTITIONED).split("/") if path.startswith(PARTITIONED) else []
    return len(parts) in (4, 5) and parts[-2] in ("persistent", "non-persistent", "topic")


def _record(
    view: TopicView, record: Versioned, fault: DecodeError | None, cursor: CursorView | None
) -> Iterator[Finding]:
    if isinstance(fault, LimitError):
        # The record may be good. The scan reports that it was not checked.
        return
    kind = ENVELOPED[cursor is not None]
    near = _is_near_limit(record, view.context)
    positioned = cursor is None or not _is_nowhere(cursor)
    if fault is None and not near and record.value and positioned and fits(kind, record.value):
        # Uncompressed and of the right kind, as almost all records are.
        return
    place = view.place() | {"path": record.path, "cursor": None if cursor is None else cursor.name}
    if cursor is not None and _is_nowhere(cursor):
        text = "it has neither a position nor a ledger with one, so the topic does not load"
        yield finding("record-undecodable", text, evidence={"size": len(record.value)}, **place)
        return
    if not record.value:
        if cursor is not None:
            text = "the cursor's record is empty, so the whole topic does not load"
            yield finding("record-empty", text, **place)
        return
    other = _other_kind(record, kind)
    if other:
        text = f"this should be a {kind}, but it is a {other}"
        yield finding("record-wrong-kind", text, evidence={"kind": other}, **place)
    elif fault is not None or other == "":
        text = f"its fields are not those of a {kind}" if fault is None else fault.message
        size = {"size": len(record.value)}
        yield finding("record-undecodable", f"{text}: the topic does not load", evidence=size, **place)
    else:
        yield from _loadable(view.context, record, place)
    yield from _near_limit(record, view.context, place)


def _is_nowhere(cursor: CursorView) -> bool:
    """Return True if a cursor's record has no position, and refers to no ledger that has one."""
    info = cursor.info
    if info is None or info.cursorsLedgerId != STATE_IN_RECORD:
        return False
    return not (info.HasField("markDeleteLedgerId") and info.HasField("markDeleteEntryId"))


def _other_kind(record: Versioned, kind: str) -> str | None:
    """Return the kind of an intact record that is not a `kind`, "" if it is unknown; None if it is one."""
    try:
        envelope = open_envelope(record.value)
    except DecodeError:
        return None
    payload = record.value if envelope is None else envelope.payload
    if fits(kind, payload) or fits_newer(kind, payload) or not payload:
        return None
    try:
        kinds = [other for other in fitting_kinds(payload) if other in _MISPLACED and other != kind]
    except DecodeError:
        return ""
    return kinds[0] if kinds else ""


def _is_other(record: Versioned | None) -> bool:
    return record is not None and record.value != b"" and _other_kind(record, ENVELOPED[0]) is not None


def _loadable(context: Context, record: Versioned, place: Place) -> Iterator[Finding]:
    form = form_of(record.path, record.value)
    if form is None:
        return
    verdict, why = Readers(context.releases).verdict(form)
    if verdict is Verdict.LOADS:
        return
    failures = tested_failures(form)
    evidence = {
        "form": str(form),
        "verdict": str(verdict),
        "releases": list(context.releases),
        "fails_on": failures,
    }
    severity = Severity.ERROR if verdict is Verdict.CANNOT_LOAD else Severity.NOTE
    if verdict is Verdict.UNKNOWN and failures:
        # One record proves the fault, whether or not the store is a copy. Only the release is unknown.
        severity = Severity.WARNING
        known = f"{why}, but " if context.releases else ""
        why = f"{known}Pulsar {' and '.join(failures)} can't load it, so the topic does not load there"
        why += "" if context.releases else "; no broker is registered: name yours with --for-version"
    yield finding("record-unreadable", why, severity=severity, evidence=evidence, **place)


def _is_near_limit(record: Versioned, context: Context) -> bool:
    return context.value_limit is not None and len(record.value) > context.value_limit * _NEAR


def _near_limit(record: Versioned, context: Context, place: Place) -> Iterator[Finding]:
    limit = context.value_limit
    if _is_near_limit(record, context):
        text = f"{len(record.value)} bytes, and the server accepts {limit}"
        evidence = {"size": len(record.value), "limit": limit}
        yield finding("record-near-limit", text, evidence=evidence, **place)


def _ledger_place(view: TopicView, ledger_id: int) -> Place:
    return view.place(ledger_id) | {"path": ledger_path(ledger_id)}


def _since_pip_414(context: Context) -> Severity:
    """Return the severity of a partition without a parent for the context's releases."""
    if not context.releases:
        return Severity.WARNING
    refusing = any(parse_version(release) >= parse_version(PIP_414) for release in context.releases)
    return Severity.ERROR if refusing else Severity.NOTE

"""Records: what cannot be decoded, what is missing, what is left over.

Sources: apache/pulsar MetaStoreImpl, PartitionedTopicMetadata, PIP-414 (partitions need their record); what
brokers did with each was tried on 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pulsar_meta.codecs.documents.kinds import ENVELOPED, fitting_kinds, kind_of_path
from pulsar_meta.codecs.documents.message_values import fits, fits_newer
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.check.codes import Code, Finding, Severity, Where
from pulsar_meta.jobs.check.sight import Check, Cluster, CursorSight, Sight
from pulsar_meta.jobs.rewrite.readable import Readers, form_of
from pulsar_meta.jobs.rewrite.releases import Verdict, parse_version
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Versioned

UNDECODABLE: Final = Code(
    "record-undecodable",
    Severity.ERROR,
    "A record that cannot be decoded",
    means="The bytes of a record are cut or garbage: nobody can read what they said.",
    broker="A topic whose own record, or the record of one of its cursors, is garbage does not load, and no"
    " client can use it; nothing is lost by trying. With a schema's record only consumers of bytes work. Of"
    " a partitioned topic's record no partition is served. With the metadata of the last data ledger or of"
    " a cursor's ledger the topic does not load; with that of a ledger in the middle reading stalls there.",
    errors=(
        "IndexOutOfBoundsException",
        "Invalid unknonwn tag type: 3",
        "InvalidProtocolBufferException",
        "Error while using ZooKeeper error code: -9",
        "ContentDeserializationException",
        "Failed to deserialize payload",
    ),
    comes="A write by hand, a tool that does not know the compressed form, a disk that lost bytes.",
    cure="A topic: rebuild its list from the ledgers that name it (their custom metadata); an absent"
    " record is"
    " worse than garbage, because a broker would start the topic empty. A cursor: put a record with a"
    " position"
    " in its place, or remove it (then it begins at the consumer's initial position). A ledger of a cursor:"
    " remove its metadata, and the broker goes back to the position in the cursor's record. A schema: remove"
    ' the record. A partitioned topic: write `{"partitions":N,"deleted":false}`.',
    evidence={"size": int},
)
EMPTY: Final = Code(
    "record-empty",
    Severity.ERROR,
    "An empty record where there has to be something",
    means="A cursor, a schema or a partitioned topic has a record without a byte in it.",
    broker="With an empty cursor record the whole topic does not load. Nothing is lost by trying.",
    errors=("MetaStoreException: IllegalStateException: Some required fields are missing",),
    comes="A write by hand, or a copy of the store that lost the values.",
    cure="A cursor: put a record with its position there, or remove it (then it begins at the consumer's"
    " initial position).",
    unless="Metadata of ledgers (`record-undecodable`); parents of other records; topics that were never"
    " loaded: an empty topic record is healthy"
    " unless ledgers say that they are the topic's (`topic-record-lost`).",
    evidence={"size": int},
)
WRONG_KIND: Final = Code(
    "record-wrong-kind",
    Severity.ERROR,
    "A record of another kind than its path says",
    means="The bytes are whole, but they are those of something else, such as a cursor's at a topic's path.",
    broker="What it reads there has nothing to do with what the topic had: it fails to load, or loads as if"
    " there were nothing.",
    errors=("Some required fields are missing",),
    comes="A restore or a copy by hand to a wrong path.",
    cure="Put the right record back, or treat it as one that cannot be decoded.",
    evidence={"kind": str},
)
NEAR_LIMIT: Final = Code(
    "record-near-limit",
    Severity.WARNING,
    "A record almost too big for the store",
    means="The record has more than four fifths of the largest size that the server takes.",
    broker="At the limit every update of the topic's list, or of the cursor, fails: the topic stops at the"
    " next new ledger, the cursor forgets what was acknowledged.",
    errors=("ConnectionLossException", "Len error"),
    comes="Thousands of ledgers in one topic, or of acknowledged ranges in one cursor.",
    cure="Compress it (`compress-ledgers`, `compress-cursors`); shorten retention; raise jute.maxbuffer on"
    " servers and brokers.",
    evidence={"size": int, "limit": int},
)
UNREADABLE: Final = Code(
    "record-unreadable",
    Severity.ERROR,
    "A record that a release cannot load",
    means="The record is whole and right, but brokers of the release at hand fail on its form: compressed"
    " cursors with properties on 4.2.4 and 5.0.0-M1, compressed cursors before 2.10.",
    broker="The topic does not load, for any client. Nothing is lost by trying.",
    errors=("IllegalReferenceCountException: refCnt: 0", "Error while recovering cursor"),
    comes="Compression switched on (`managedCursorInfoCompressionType`), then an upgrade or a downgrade;"
    " 4.2.4 cannot load what it wrote itself.",
    cure="Write the record back plain: `compress-cursors --compression none`.",
    unless="A release that was never tried with it: then it is a note.",
    evidence={"form": str, "verdict": str, "releases": list[str]},
)
WITHOUT_PARENT: Final = Code(
    "partition-without-parent",
    Severity.ERROR,
    "A partition whose partitioned topic has no record",
    means="There is a topic NAME-partition-N, and no record says that NAME has partitions.",
    broker="Releases that have PIP-414 refuse the partition; earlier ones serve it. A client that asks for"
    " NAME creates an empty topic of that name. The messages stay where they are.",
    errors=("Partition metadata not found for the partitioned topic",),
    comes="The record was lost, or the partitioned topic was deleted half; before PIP-414 somebody may also"
    " have created a topic of such a name on purpose.",
    cure='Write the record again: `{"partitions":N,"deleted":false}`, N being the highest partition and one.',
    unless="Pending acknowledgements (`…-partition-0-SUB__transaction_pending_ack`); with a release before"
    " PIP-414 it is a note, with none known a warning.",
    evidence={"partition": int, "releases": list[str]},
)
BEYOND_COUNT: Final = Code(
    "partition-beyond-count",
    Severity.WARNING,
    "A partition with a higher number than its topic has partitions",
    means="The record of the partitioned topic says N partitions, and there is one numbered N or higher.",
    broker="Clients of the partitioned topic do not know of it: nobody reads what it holds.",
    comes="The record was written with a lower number, or an increase of partitions was interrupted.",
    cure="Raise the number (`pulsar-admin topics update-partitioned-topic`), if the partition has data.",
    evidence={"partition": int, "partitions": int},
)
LOST: Final = Code(
    "topic-record-lost",
    Severity.ERROR,
    "Ledgers of a topic whose record is gone or empty",
    means="BookKeeper has ledgers with entries that say which topic they are of, but that topic's list of"
    " ledgers is gone or empty. The data is still there.",
    broker="The topic loads and is silently empty: a new list is written, and every cursor moves to the new"
    " end. Loading destroys the cursors' positions: repair before a broker runs, since one access to any"
    " topic of its bundle loads it.",
    comes="The record was deleted or emptied by hand, or a restore of the store lost it.",
    cure="Rebuild the list from the ledgers' custom metadata (`pulsar/managed-ledger`, those without"
    " `pulsar/cursor`) before anything loads the topic. Afterwards keep the new ledger in the list too, and"
    " put the cursors back where they were.",
    unless="A ledger without entries: that is what a broker leaves that is killed between creating a ledger"
    " and naming it. Where no cursor and no ledger of the end is left it is a warning: they may be what the"
    " deletion of a topic left; on a live store wherever record and cursors are gone.",
    evidence={"ledgers": list[int], "with_entries": int, "cursors": int},
)
LEFTOVER: Final = Code(
    "leftover",
    Severity.NOTE,
    "What a deletion left behind",
    means="Records of something whose deletion began and did not end: a namespace or a partitioned topic that"
    " is marked as deleted; what lies below the name of a namespace that has no policies; a topic without a"
    " subscription of whose ledgers BookKeeper knows none (a warning: all of it may also have been lost).",
    broker="It keeps refusing the name, or ignores it. Of the topic nothing can be read.",
    comes="A broker that was stopped in the middle of deleting a namespace or a topic.",
    cure="Delete it again (`pulsar-admin … delete --force`).",
    unless="Stores without any namespace's policies (they may lie in a configuration store of their own), the"
    " brokers' own namespaces of the tenants `pulsar` and `sla-monitor`; schemas without a topic: topics that"
    " are not persistent have some, and one may be uploaded ahead.",
    evidence={"ledgers": list[int], "namespace": str, "there": str},
)
SHADOW_WITHOUT_SOURCE: Final = Code(
    "shadow-without-source",
    Severity.ERROR,
    "A shadow topic whose source has no record",
    means="The topic is the shadow of another (PIP-180), of which the store has no record. A shadow has no"
    " entries of its own.",
    broker="The shadow does not load: its broker reads the list of ledgers in the source's record.",
    errors=("ManagedLedgerNotFoundException", "MetadataNotFoundException: Managed ledger not found"),
    comes="The source was deleted, or its record was lost; or the store is that of another cluster.",
    cure="Where the source was deleted, delete the shadow too. Else write the source's record again: the"
    " shadow's own list of ledgers is as old as its last loading.",
    evidence={"source": str},
)
SHADOW_BEHIND: Final = Code(
    "shadow-lists-deleted-ledgers",
    Severity.WARNING,
    "A shadow topic whose own list has ledgers that are deleted",
    means="The source of a shadow topic (PIP-180) has dropped ledgers since the shadow was last loaded, and"
    " BookKeeper has deleted them; the shadow's own record still lists them.",
    broker="4.2.4 adds that list to the source's when it loads the shadow: whoever reads from the beginning"
    " waits for entries that never come. What the source still has can be read.",
    comes="Retention or consumption trimmed the source while no broker had the shadow loaded.",
    cure="Delete the shadow and create it again, or have its readers and cursors start behind these ledgers.",
    evidence={"source": str, "ledgers": list[int]},
)
CODES: Final = (
    UNDECODABLE, EMPTY, WRONG_KIND, NEAR_LIMIT, UNREADABLE, WITHOUT_PARENT, BEYOND_COUNT, LOST, LEFTOVER,
    SHADOW_WITHOUT_SOURCE, SHADOW_BEHIND,
)  # fmt: skip

# ZooKeeper's jute.maxbuffer, where the store itself does not say what its server takes.
DEFAULT_LIMIT: Final = 0xFFFFF
_NEAR: Final = 0.8
# From this release on a partition needs its record (PIP-414, apache/pulsar#24213).
_PIP_414: Final = "4.1.0"
_MISPLACED: Final = ("ManagedLedgerInfo", "ManagedCursorInfo", "LedgerMetadata", "Cookie", "SchemaLocator")
PARTITIONED: Final = "/admin/partitioned-topics/"
_JSON: Final = (PARTITIONED, "/admin/policies/", "/admin/local-policies/")


def topic_records(sight: Sight) -> Iterator[Finding]:
    """The topic's own record and those of its cursors: can they be decoded, and by whom."""
    if sight.record is not None:
        yield from _record(sight, sight.record, sight.fault, None)
    for cursor in sight.cursors:
        yield from _record(sight, cursor.record, cursor.fault, cursor)


def ledger_records(sight: Sight) -> Iterator[Finding]:
    """BookKeeper's metadata of the ledgers that the topic and its cursors name: can it be decoded."""
    for ledger in sight.ledgers:
        if ledger.metadata == "broken":
            message = "its metadata in BookKeeper cannot be decoded: nobody can open it"
            yield UNDECODABLE.found(message, **_ledger_place(sight, ledger.ledger_id))
    for cursor in sight.cursors:
        state = cursor.state.ledger_id if cursor.state is not None else None
        if state is not None and sight.facts(state).metadata == "broken":
            yield UNDECODABLE.found(
                "the metadata of the cursor's ledger cannot be decoded: the topic does not load; without that"
                " record the broker would go back to the position in the cursor's own",
                **_ledger_place(sight, state) | {"cursor": cursor.name},
            )


def partition(sight: Sight) -> Iterator[Finding]:
    """Whether a partition is one of a partitioned topic."""
    number = sight.name.partition
    if number is None or (sight.record is None and not sight.cursors) or sight.partitions == 0:
        return
    base = sight.name.local.rpartition("-partition-")[0]
    if sight.partitions is None:
        severity = _since_pip_414(sight.cluster)
        yield WITHOUT_PARENT.found(
            f"no record says that {base} has partitions: brokers from {_PIP_414} on refuse this one",
            severity=severity,
            evidence={"partition": number, "releases": list(sight.cluster.releases)},
            **sight.where(),
        )
    elif number >= sight.partitions:
        yield BEYOND_COUNT.found(
            f"{base} has {sight.partitions} partitions by its record: clients do not know of this one",
            evidence={"partition": number, "partitions": sight.partitions},
            **sight.where(),
        )


def lost(sight: Sight) -> Iterator[Finding]:
    """Whether ledgers are the topic's by their custom metadata, and its record names none."""
    if sight.fault is not None or sight.ledgers or sight.is_shadow or _is_other(sight.record):
        return
    held = [ledger_id for ledger_id in sight.owned if _has_entries(sight, ledger_id)]
    opened = [ledger_id for ledger_id in sight.owned if sight.facts(ledger_id).last_entry is None]
    if not held and not (sight.cursors and opened):
        return
    ended = sight.owned[-1] not in held
    # On a live store its deletion may be under way, whatever is left.
    at_rest = not sight.cluster.live and (ended or sight.partitions not in (None, 0))
    sure = sight.record is not None or bool(sight.cursors) or at_rest
    what = "its record is gone" if sight.record is None else "its record is empty"
    yield LOST.found(
        f"{what}, and {len(sight.owned)} ledgers say that they are its own: a broker starts it empty and"
        " moves its cursors to the new end; repair before one loads it",
        severity=Severity.ERROR if sure else Severity.WARNING,
        evidence={"ledgers": list(sight.owned), "with_entries": len(held), "cursors": len(sight.cursors)},
        **sight.where(),
    )


def shadow(sight: Sight) -> Iterator[Finding]:
    """Whether the ledgers of a shadow topic are there: by its source's record, and by its own list."""
    try:
        source = sight.shadow_of
    except DecodeError:
        # Reported where the record of the partitioned topic is.
        return
    if source is None:
        return
    if not sight.cluster.shadows.has(source):
        yield SHADOW_WITHOUT_SOURCE.found(
            f"there is no record of its source {source}: it does not load",
            evidence={"source": source},
            **sight.where(),
        )
        return
    gone = [ledger.ledger_id for ledger in sight.ledgers if ledger.metadata == "absent"]
    if gone:
        yield SHADOW_BEHIND.found(
            f"ledgers of its own list are deleted, {gone[0]} to {gone[-1]}: who reads it from the beginning"
            " waits for them",
            evidence={"source": source, "ledgers": gone},
            **sight.where(),
        )


def is_lost(sight: Sight) -> bool:
    """Return whether the topic's record is lost, so that nothing else about it needs saying."""
    return next(lost(sight), None) is not None


TOPIC_CHECKS: Final[tuple[Check, ...]] = (topic_records, ledger_records, partition, lost, shadow)


def value_findings(record: Versioned, cluster: Cluster) -> Iterator[Finding]:
    """Yield what is wrong with a value that is no topic's and no cursor's: of /admin and /schemas."""
    fault = _value_fault(record)
    if fault is not None:
        code = UNDECODABLE if record.value else EMPTY
        yield code.found(fault.message, path=record.path, evidence={"size": len(record.value)})
    yield from _near_limit(record, cluster, {"path": record.path})
    if fault is None and record.path.startswith(_JSON) and record.value:
        yield from _half_deleted(record)


def _value_fault(record: Versioned) -> DecodeError | None:
    try:
        if kind_of_path(record.path) == "SchemaLocator":
            parse_message(SchemaLocator, record.value)
        elif record.path.startswith(_JSON) and (record.value or _is_leaf(record.path)):
            document = read_json_object(record.value, source=record.path)
            if record.path.startswith(PARTITIONED) and type(document.get("partitions")) is not int:
                return DecodeError("the number of partitions is missing", source=record.path)
    except DecodeError as error:
        return error
    return None


def _is_leaf(path: str) -> bool:
    """Return whether a path is that of a partitioned topic, and not a parent's."""
    parts = path.removeprefix(PARTITIONED).split("/") if path.startswith(PARTITIONED) else []
    return len(parts) in (4, 5) and parts[-2] in ("persistent", "non-persistent", "topic")


def _half_deleted(record: Versioned) -> Iterator[Finding]:
    if read_json_object(record.value).get("deleted") is True:
        yield LEFTOVER.found("it is marked as deleted, and still there", path=record.path)


def _record(
    sight: Sight, record: Versioned, fault: DecodeError | None, cursor: CursorSight | None
) -> Iterator[Finding]:
    kind = ENVELOPED[cursor is not None]
    near = _is_near_limit(record, sight.cluster)
    if fault is None and not near and record.value and fits(kind, record.value):
        # Plain and right, as almost all are.
        return
    where = sight.where() | {"path": record.path, "cursor": None if cursor is None else cursor.name}
    if not record.value:
        if cursor is not None:
            yield EMPTY.found("the cursor's record is empty: the whole topic does not load", **where)
        return
    other = _other_kind(record, kind)
    if other:
        yield WRONG_KIND.found(
            f"expected a {kind} here, the bytes are those of a {other}", evidence={"kind": other}, **where
        )
    elif fault is not None or other == "":
        text = "its fields are none of such a record" if fault is None else fault.message
        yield UNDECODABLE.found(
            f"{text}: the topic does not load", evidence={"size": len(record.value)}, **where
        )
    else:
        yield from _loadable(sight.cluster, record, where)
    yield from _near_limit(record, sight.cluster, where)


def _other_kind(record: Versioned, kind: str) -> str | None:
    """Return which kind of record whole bytes are that are no `kind`, "" for none; None where they are."""
    try:
        envelope = open_envelope(record.value)
    except DecodeError:
        return None
    payload = record.value if envelope is None else envelope.payload
    if fits(kind, payload) or fits_newer(kind, payload) or not payload:
        return None
    try:
        found = [one for one in fitting_kinds(payload) if one in _MISPLACED and one != kind]
    except DecodeError:
        return ""
    return found[0] if found else ""


def _is_other(record: Versioned | None) -> bool:
    return record is not None and record.value != b"" and _other_kind(record, ENVELOPED[0]) is not None


def _loadable(cluster: Cluster, record: Versioned, where: Where) -> Iterator[Finding]:
    form = form_of(record.path, record.value)
    if form is None:
        return
    verdict, why = Readers(cluster.releases).verdict(form)
    if verdict is Verdict.LOADS:
        return
    refuted = verdict is Verdict.CANNOT_LOAD
    severity = Severity.NOTE if not refuted else Severity.ERROR if cluster.certain else Severity.WARNING
    evidence = {"form": str(form), "verdict": str(verdict), "releases": list(cluster.releases)}
    yield UNREADABLE.found(why, severity=severity, evidence=evidence, **where)


def _is_near_limit(record: Versioned, cluster: Cluster) -> bool:
    return cluster.value_limit is not None and len(record.value) > cluster.value_limit * _NEAR


def _near_limit(record: Versioned, cluster: Cluster, where: Where) -> Iterator[Finding]:
    limit = cluster.value_limit
    if _is_near_limit(record, cluster):
        text = f"{len(record.value)} bytes, the server takes {limit}"
        yield NEAR_LIMIT.found(text, evidence={"size": len(record.value), "limit": limit}, **where)


def _ledger_place(sight: Sight, ledger_id: int) -> Where:
    return sight.where(ledger_id) | {"path": ledger_path(ledger_id)}


def _since_pip_414(cluster: Cluster) -> Severity:
    """Return how bad a partition without its record is for the releases at hand."""
    if not cluster.releases:
        return Severity.WARNING
    refusing = any(parse_version(one) >= parse_version(_PIP_414) for one in cluster.releases)
    return Severity.NOTE if not refusing else Severity.ERROR if cluster.certain else Severity.WARNING


def _has_entries(sight: Sight, ledger_id: int) -> bool:
    """Return whether a ledger is known to have entries: BookKeeper closed it with some, or they are here."""
    last = sight.facts(ledger_id).last_entry
    if last is None:
        last = sight.held_of_open(ledger_id)
    return last is not None and last >= 0

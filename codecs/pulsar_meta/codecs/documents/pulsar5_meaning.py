"""The `meaning` of Pulsar 5's records: scalable topics (/topics), transactions (/txn), policies of topics.

A part of the meaning is in the paths. Members that a record lacks are missing from its meaning, too.

Sources: PIP-460, PIP-469, PIP-473, PIP-486; apache/pulsar ScalableTopicResources, SegmentInfo,
SegmentLoadStats, TopicPolicies, TxnPaths, TxnHeader, TxnOp, TxnEvent, AbortedTxnRecord, SegmentWatermark,
TcLeader, TcSequence (5.0.0-M1), and AbstractMetadataStore for `__seq_counter__`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NotRequired, TypedDict, cast

from pulsar_meta.codecs.documents.kinds import COUNTER_SUFFIX
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import Document, Number
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic, Segment, scalable_topic_of
from pulsar_meta.codecs.names import SCALABLE_TOPICS, decode_name, policies_place, split_scalable_path
from pulsar_meta.codecs.secrets import Texts
from pulsar_meta.codecs.times import iso_time

_transaction_re = re.compile(r"(\d+)_(\d+)")
_numbered_re = re.compile(r"(.+)-(\d+)")


class SegmentMeaning(TypedDict):
    """A segment of a scalable topic; `hashes` are the first and the last hash in hex, times are ISO 8601.

    `entry_buckets` are the hash ranges of its buckets of entries. `rebucketed_from` is the sealed segment of
    the same keys that it replaced, to have other buckets.
    """

    segment_id: int
    topic: str
    hashes: str
    state: str
    entry_buckets: NotRequired[list[str]]
    rebucketed_from: NotRequired[int]
    parents: NotRequired[list[int]]
    children: NotRequired[list[int]]
    created: NotRequired[str]
    sealed: NotRequired[str]


class Pulsar5Meaning(TypedDict, total=False):
    """Summary of a record below /topics or /txn, with only the members that apply to it."""

    scalable_topic: str
    active_segments: int
    sealed_segments: int
    segments: list[SegmentMeaning]
    properties: Texts
    note: str
    segment_id: int
    subscription: str
    type: Any
    consumer: str
    transaction: str
    coordinator: int
    state: Any
    created: str
    deadline: str
    finalized: str
    owner: Any
    number: int
    operation: Any
    segment: Any
    position: str
    cumulative: Any
    decision: Any
    last_position: str
    decided_through: str
    broker: Any
    next_transaction: str
    topic: str
    scope: str
    policies: list[str]


class CounterMeaning(TypedDict, total=False):
    """The records that a counter numbers, and the last number or numbers that it assigned."""

    counts: str
    last_number: int | list[int]


def pulsar5_meaning(kind: str, value: Any, path: str | None) -> Pulsar5Meaning:
    """Summarize a record of `kind`. Without a path, the summary is based on the value alone."""
    parts = [] if path is None else path.split("/")[2:]
    meaning = _MEANINGS[kind](value, parts) if kind in _MEANINGS else {}
    return cast("Pulsar5Meaning", _present(meaning))


def _present(members: Document) -> Document:
    return {name: member for name, member in members.items() if member is not None}


def counter_meaning(value: Any, path: str | None) -> CounterMeaning:
    """Summarize the counter of numbered records; `value` is the last number that it assigned."""
    if path is None:
        return {}
    parent, _, name = path.removesuffix(COUNTER_SUFFIX).rpartition("/")
    return {"counts": f"{parent}/{_decoded(name)}", "last_number": value}


def _transaction(value: Document, parts: list[str]) -> Document:
    created, timeout = _milliseconds(value.get("createdAt")), _milliseconds(value.get("timeout"))
    finalized = _milliseconds(value.get("finalizedAt"))
    deadline = None if created is None or timeout is None else iso_time(created + timeout)
    return {
        **_named(_part(parts, 1)),
        "state": value.get("state"),
        "created": None if created is None else iso_time(created),
        "deadline": deadline,
        "finalized": None if finalized is None else iso_time(finalized),
        "owner": value.get("owner"),
    }


def _op(value: Document, parts: list[str]) -> Document:
    transaction, number = _numbered(_part(parts, 1))
    return {
        **_named(transaction),
        "number": number,
        "operation": value.get("kind"),
        "segment": value.get("segment"),
        "subscription": value.get("subscription"),
        "position": _position(value, "ledgerId", "entryId"),
        "cumulative": value.get("cumulative"),
    }


def _event(value: Document, parts: list[str]) -> Document:
    place, number = _numbered(_part(parts, 1))
    segment, colon, subscription = (place or "").partition(":")
    return {
        "segment": _decoded(segment) or None,
        "subscription": _decoded(subscription) if colon else None,
        "number": number,
        **_named(value.get("txnId")),
        "decision": value.get("decision"),
    }


def _aborted(value: Document, parts: list[str]) -> Document:
    segment, _, transaction = (_part(parts, 2) or "").partition(":")
    last = _position(value, "maxLedgerId", "maxEntryId")
    return {"segment": _decoded(segment) or None, **_named(transaction), "last_position": last}


def _watermark(value: Document, parts: list[str]) -> Document:
    segment = _decoded(_part(parts, 2) or "") or None
    return {"segment": segment, "decided_through": _position(value, "ledgerId", "entryId")}


def _coordinator(value: Document, parts: list[str]) -> Document:
    return {"coordinator": _number(_part(parts, 2)), "broker": value.get("brokerId")}


def _sequence(value: Document, parts: list[str]) -> Document:
    coordinator, number = _number(_part(parts, 1)), value.get("next")
    transaction = None if coordinator is None or type(number) is not int else f"({coordinator},{number})"
    return {"coordinator": coordinator, "next_transaction": transaction}


def _topic(value: Document, parts: list[str]) -> Document:
    name = split_scalable_path(f"{SCALABLE_TOPICS}/{'/'.join(parts)}")
    if name is None:
        return {}
    try:
        topic = scalable_topic_of(name, value)
    except DecodeError as error:
        return {"scalable_topic": str(name), "note": f"no broker can read it: {error.message}"}
    active = sum(segment.is_active for segment in topic.segments)
    return {
        "scalable_topic": str(name),
        "active_segments": active,
        "sealed_segments": len(topic.segments) - active,
        "segments": [_segment(segment, topic) for segment in topic.segments],
        "properties": dict(topic.properties) or None,
    }


def _segment(segment: Segment, topic: ScalableTopic) -> Document:
    members = {
        "segment_id": segment.segment_id,
        "topic": str(segment.topic),
        "hashes": f"{segment.start:04x}-{segment.end:04x}",
        "state": segment.state,
        "entry_buckets": [f"{start:04x}-{end:04x}" for start, end in segment.entry_buckets] or None,
        "rebucketed_from": topic.rebucketed_from(segment),
        "parents": list(segment.parents) or None,
        "children": list(segment.children) or None,
        "created": None if segment.created_at is None else iso_time(segment.created_at),
        "sealed": None if segment.sealed_at is None else iso_time(segment.sealed_at),
    }
    return _present(members)


# Members that are there without a policy. Those that end with `Set` say which others are there.
_NO_POLICIES: Final = ("isGlobal", "globalPolicies")


def _policies(value: Document, parts: list[str]) -> Document:
    place = policies_place(f"/admin/{'/'.join(parts)}")
    whose = {} if place is None else {"topic": str(place.topic), "scope": place.scope}
    return {**whose, "policies": policy_names(value)}


def policy_names(record: Document) -> list[str]:
    """Return the names of the policies that a topic's record sets."""
    names = (name for name in record if not name.endswith("Set") and name not in _NO_POLICIES)
    return [name for name in names if record[name] not in (None, {}, [])]


def _below_topic(value: Document, parts: list[str]) -> Document:
    """Name the topic's segment, subscription or consumer that a record describes."""
    topic = {"scalable_topic": _topic_name(parts)}
    match parts[3:]:
        case ["segments", number, "load"]:
            return {**topic, "segment_id": _number(number)}
        case ["subscriptions", subscription]:
            return {**topic, "subscription": _decoded(subscription), "type": value.get("type")}
        case ["subscriptions", subscription, "consumers", consumer]:
            return {**topic, "subscription": _decoded(subscription), "consumer": _decoded(consumer)}
    return {}


_MEANINGS: Final[dict[str, Callable[[Document, list[str]], Document]]] = {
    "ScalableTopic": _topic,
    "TopicPolicies": _policies,
    "ScalableSubscription": _below_topic,
    "ScalableConsumer": _below_topic,
    "SegmentLoad": _below_topic,
    "Transaction": _transaction,
    "TransactionOp": _op,
    "TransactionEvent": _event,
    "AbortedTransaction": _aborted,
    "SegmentWatermark": _watermark,
    "TransactionCoordinator": _coordinator,
    "TransactionSequence": _sequence,
}


def _part(parts: list[str], at: int) -> str | None:
    return parts[at] if at < len(parts) else None


def _topic_name(parts: list[str]) -> str | None:
    return f"topic://{parts[0]}/{parts[1]}/{_decoded(parts[2])}" if len(parts) > 2 else None


def _decoded(name: str) -> str:
    try:
        return decode_name(name)
    except DecodeError:
        return name


def _named(key: Any) -> Document:
    """Name the transaction of a key `MOST_LEAST` like Pulsar, and its coordinator."""
    match = _transaction_re.fullmatch(key) if isinstance(key, str) else None
    if match is None:
        return {}
    return {"transaction": f"({match[1]},{match[2]})", "coordinator": int(match[1])}


def _numbered(name: str | None) -> tuple[str | None, int | None]:
    """Split the name of a numbered record into (prefix, number); the number is None if there is none."""
    match = _numbered_re.fullmatch(name or "")
    return (name, None) if match is None else (match[1], int(match[2]))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


def _position(value: Document, ledger: str, entry: str) -> str | None:
    ids = value.get(ledger), value.get(entry)
    return f"{ids[0]}:{ids[1]}" if all(type(number) in (int, str) for number in ids) else None


def _milliseconds(seconds: Any) -> int | None:
    """Convert seconds with nine decimals (Jackson's format of Java's times) to milliseconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float, Number)):
        return None
    exact = Decimal(seconds.text if isinstance(seconds, Number) else repr(seconds))
    return int(exact * 1000) if abs(exact) < 10**12 else None

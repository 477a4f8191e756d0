"""The record of a scalable topic (PIP-460), which lists its segments.

A scalable topic `topic://T/NS/NAME` has no ledgers; only its segments do. Its record is JSON at
`/topics/T/NS/NAME`. Each segment has the messages of a range of key hashes in a managed ledger. When a
segment is split or merged, it is sealed (its managed ledger is terminated), and its children replace it. If a
topic was migrated, its first segments are the old `persistent://` topic or its partitions, sealed. When a
sealed segment expires, the broker removes it from the record and from its children's parents.

Sources: apache/pulsar ScalableTopicResources, ScalableTopicMetadata, SegmentInfo, SegmentLayout (split,
merge, prune), SegmentTopicName; records that 5.0.0-M1 wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import Document, integer, read_json_object, shown
from pulsar_meta.codecs.names import LAST_HASH, TopicName

ACTIVE: Final = "ACTIVE"
SEALED: Final = "SEALED"
_MAX_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment for the key hashes `start` to `end` (inclusive); `topic` has its managed ledger.

    `created_at` and `sealed_at` are in milliseconds; `sealed_at` is None if the segment is active.
    """

    segment_id: int
    topic: TopicName
    start: int
    end: int
    state: Literal["ACTIVE", "SEALED"]
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    created_at: int | None = None
    sealed_at: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether producers can publish to the segment."""
        return self.state == ACTIVE

    @property
    def is_migrated(self) -> bool:
        """Whether the segment is a `persistent://` topic from before the migration."""
        return self.topic.domain != "segment"


@dataclass(frozen=True, slots=True)
class ScalableTopic:
    """A scalable topic's record. `segments` are sorted by id, so each comes after its parents."""

    name: TopicName
    epoch: int
    segments: tuple[Segment, ...]
    properties: tuple[tuple[str, str], ...] = ()


def decode_scalable_topic(name: TopicName, value: bytes) -> ScalableTopic:
    """Decode the record of the topic `name`. Raises DecodeError, naming the member, if it is broken."""
    return scalable_topic_of(name, read_json_object(value))


def scalable_topic_of(name: TopicName, record: Document) -> ScalableTopic:
    """Convert the JSON of a record. Raises DecodeError like `decode_scalable_topic`."""
    members = _object(record.get("segments"), "segments")
    segments = [_segment(name, number, member, f"segments.{number}") for number, member in members.items()]
    properties = _object(record.get("properties") or {}, "properties")
    return ScalableTopic(
        name=name,
        epoch=_number(record, "epoch", ""),
        # Brokers assign ids in order, so a parent's id is always below its children's.
        segments=tuple(sorted(segments, key=lambda segment: segment.segment_id)),
        properties=tuple((key, str(text)) for key, text in properties.items()),
    )


def _segment(name: TopicName, number: str, value: Any, path: str) -> Segment:
    record = _object(value, path)
    hashes = _object(record.get("hashRange"), f"{path}.hashRange")
    segment_id = _number(record, "segmentId", path)
    if number != str(segment_id):
        raise DecodeError(f"{path}: its segmentId is {segment_id}")
    start, end = (_number(hashes, bound, f"{path}.hashRange", LAST_HASH) for bound in ("start", "end"))
    if start > end:
        raise DecodeError(f"{path}.hashRange: it ends before it starts")
    return Segment(
        segment_id=segment_id,
        topic=_topic(name, record.get("legacyTopicName"), (start, end, segment_id), path),
        start=start,
        end=end,
        state=_state(record.get("state"), path),
        parents=_ids(record, "parentIds", path),
        children=_ids(record, "childIds", path),
        created_at=_time(record, "createdAtMs", path),
        sealed_at=_time(record, "sealedAtMs", path),
    )


def _topic(name: TopicName, old: Any, place: tuple[int, int, int], path: str) -> TopicName:
    """Return the topic with a segment's managed ledger: the segment's topic, or the old topic if migrated."""
    if not old:
        return name.segment_topic(*place)
    try:
        return TopicName.parse(old).part_of(name)
    except (UsageError, AttributeError, TypeError) as error:
        raise DecodeError(f"{path}.legacyTopicName: expected a topic, found {shown(old)}") from error


def _state(value: Any, path: str) -> Literal["ACTIVE", "SEALED"]:
    if value == "ACTIVE":
        return "ACTIVE"
    if value == "SEALED":
        return "SEALED"
    raise DecodeError(f"{path}.state: expected {ACTIVE} or {SEALED}, found {shown(value)}")


def _ids(record: Document, name: str, path: str) -> tuple[int, ...]:
    ids = record.get(name) or []
    if not isinstance(ids, list):
        raise DecodeError(f"{path}.{name}: expected a list, found {shown(ids)}")
    return tuple(integer(segment_id, f"{path}.{name}", 0, _MAX_ID) for segment_id in ids)


def _time(record: Document, name: str, path: str) -> int | None:
    """Return a time in milliseconds, or None if it is absent or -1 (not yet)."""
    value = integer(record.get(name, -1), f"{path}.{name}", -1, _MAX_ID)
    return None if value < 0 else value


def _number(record: Document, name: str, path: str, high: int = _MAX_ID) -> int:
    return integer(record.get(name), f"{path}.{name}".lstrip("."), 0, high)


def _object(value: Any, path: str) -> Document:
    if isinstance(value, dict):
        return value
    raise DecodeError(f"{path}: expected an object, found {shown(value)}")

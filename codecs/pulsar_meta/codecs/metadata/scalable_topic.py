"""The record of a scalable topic (PIP-460): of which segments it is made, and what came of which.

A scalable topic `topic://T/NS/NAME` has no ledgers of its own. Its record, JSON at `/topics/T/NS/NAME`,
lists segments: each has the messages of a range of key hashes, in a managed ledger of its own. A segment
that is split or merged is sealed (its managed ledger terminated), and its children take over. Of a topic
that was migrated the first segments are the old `persistent://` topic or its partitions, sealed. When a
sealed segment's time is over, the broker takes it out of the record, and out of its children's parents.

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
    """One segment; `topic` has its managed ledger. Hashes from `start` to `end` are its own, both included.

    `created_at` and `sealed_at` are in milliseconds, `sealed_at` None while it is active.
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
        """Whether it takes messages."""
        return self.state == ACTIVE

    @property
    def is_migrated(self) -> bool:
        """Whether it is a `persistent://` topic from before the migration."""
        return self.topic.domain != "segment"


@dataclass(frozen=True, slots=True)
class ScalableTopic:
    """What a scalable topic's record says. `segments` are by their ids: each after its parents."""

    name: TopicName
    epoch: int
    segments: tuple[Segment, ...]
    properties: tuple[tuple[str, str], ...] = ()


def decode_scalable_topic(name: TopicName, value: bytes) -> ScalableTopic:
    """Return the record of the topic `name`; DecodeError where it is broken, naming where."""
    return scalable_topic_of(name, read_json_object(value))


def scalable_topic_of(name: TopicName, record: Document) -> ScalableTopic:
    """Return what the JSON of a record says; DecodeError as `decode_scalable_topic`."""
    listed = _object(record.get("segments"), "segments")
    segments = [_segment(name, number, found, f"segments.{number}") for number, found in listed.items()]
    properties = _object(record.get("properties") or {}, "properties")
    return ScalableTopic(
        name=name,
        epoch=_number(record, "epoch", ""),
        # Ids are given in order, so a parent's is always below its children's.
        segments=tuple(sorted(segments, key=lambda segment: segment.segment_id)),
        properties=tuple((key, str(text)) for key, text in properties.items()),
    )


def _segment(name: TopicName, number: str, value: Any, path: str) -> Segment:
    found = _object(value, path)
    held = _object(found.get("hashRange"), f"{path}.hashRange")
    segment_id = _number(found, "segmentId", path)
    if number != str(segment_id):
        raise DecodeError(f"{path}: its segmentId is {segment_id}")
    start, end = (_number(held, one, f"{path}.hashRange", LAST_HASH) for one in ("start", "end"))
    if start > end:
        raise DecodeError(f"{path}.hashRange: it ends before it starts")
    return Segment(
        segment_id=segment_id,
        topic=_topic(name, found.get("legacyTopicName"), (start, end, segment_id), path),
        start=start,
        end=end,
        state=_state(found.get("state"), path),
        parents=_ids(found, "parentIds", path),
        children=_ids(found, "childIds", path),
        created_at=_time(found, "createdAtMs", path),
        sealed_at=_time(found, "sealedAtMs", path),
    )


def _topic(name: TopicName, old: Any, place: tuple[int, int, int], path: str) -> TopicName:
    """Return whose managed ledger a segment's is: its own, or the old topic's that it is."""
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


def _ids(found: Document, name: str, path: str) -> tuple[int, ...]:
    listed = found.get(name) or []
    if not isinstance(listed, list):
        raise DecodeError(f"{path}.{name}: expected a list, found {shown(listed)}")
    return tuple(integer(one, f"{path}.{name}", 0, _MAX_ID) for one in listed)


def _time(found: Document, name: str, path: str) -> int | None:
    """Return a time in milliseconds, None for -1 (not yet) and where it is absent."""
    value = integer(found.get(name, -1), f"{path}.{name}", -1, _MAX_ID)
    return None if value < 0 else value


def _number(found: Document, name: str, path: str, high: int = _MAX_ID) -> int:
    return integer(found.get(name), f"{path}.{name}".lstrip("."), 0, high)


def _object(value: Any, path: str) -> Document:
    if isinstance(value, dict):
        return value
    raise DecodeError(f"{path}: expected an object, found {shown(value)}")

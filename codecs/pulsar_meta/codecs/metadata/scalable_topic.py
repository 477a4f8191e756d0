"""The record of a scalable topic (PIP-460), which lists its segments.

A scalable topic `topic://T/NS/NAME` has no ledgers; only its segments do. Its record is JSON at
`/topics/T/NS/NAME`. Each segment has the messages of a range of key hashes in a managed ledger. When a
segment is split or merged, it is sealed (its managed ledger is terminated), and its children replace it. If a
topic was migrated, its first segments are the old `persistent://` topic or its partitions, sealed. When a
sealed segment expires, the broker removes it from the record and from its children's parents.

Producers put the messages of a segment in buckets of entries, by another hash of the key (PIP-486). A segment
keeps its buckets. To have others, it is sealed, and one segment of the same keys replaces it.

Sources: apache/pulsar ScalableTopicResources, ScalableTopicMetadata, SegmentInfo, SegmentLayout (split,
merge, prune), SegmentTopicName, EntryBucketSplits (apache/pulsar#26118, #26434); records that 5.0.0-M1 wrote.
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
    `bucket_starts` are the first hashes of its buckets of entries, without that of the first bucket.
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
    bucket_starts: tuple[int, ...] = ()

    @property
    def entry_buckets(self) -> list[tuple[int, int]]:
        """The first and last hash of each bucket of entries; empty if the record has no split."""
        starts = [0, *self.bucket_starts]
        ends = [start - 1 for start in self.bucket_starts] + [LAST_HASH]
        return list(zip(starts, ends, strict=True)) if self.bucket_starts else []

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

    def rebucketed_from(self, segment: Segment) -> int | None:
        """Return the segment that `segment` replaced to have other buckets, None if there is none."""
        parents = [parent for parent in self.segments if parent.segment_id in segment.parents]
        same = [parent for parent in parents if (parent.start, parent.end) == (segment.start, segment.end)]
        alone = len(parents) == 1 and bool(same) and same[0].children == (segment.segment_id,)
        return same[0].segment_id if alone and not same[0].is_migrated else None


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
        bucket_starts=_bucket_starts(record, path),
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


def _bucket_starts(record: Document, path: str) -> tuple[int, ...]:
    """Return the hashes at which a segment's buckets of entries are split, which must be in order."""
    starts = record.get("entryBucketSplits") or []
    path = f"{path}.entryBucketSplits"
    if not isinstance(starts, list):
        raise DecodeError(f"{path}: expected a list, found {shown(starts)}")
    numbers = tuple(integer(start, path, 1, LAST_HASH) for start in starts)
    if list(numbers) != sorted(set(numbers)):
        raise DecodeError(f"{path}: they are not in order")
    return numbers


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

"""Read scalable topics (PIP-460) from a store: their segments, and faults in the tree of segments.

A segment is an ordinary topic, with ledgers and cursors. If a topic was migrated, its first segments are the
old `persistent://` topic or its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from typing import TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, decoding
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic, Segment, decode_scalable_topic
from pulsar_meta.codecs.names import LAST_HASH, SCALABLE_TOPICS, TopicName, split_scalable_path
from pulsar_meta.stores.base import Store, Versioned

Report = Callable[[DecodeError], None]
GLOB = frozenset("*?[")


def read_scalable(store: Store, name: TopicName) -> ScalableTopic | None:
    """Read the record of the scalable topic with this name; None if there is none. Raises DecodeError."""
    if name.cluster is not None or name.domain == "segment":
        return None
    try:
        record = store.read(name.as_scalable.path)
    except NotFoundError:
        return None
    return _decoded(name.as_scalable, record)


def scalable_topics(
    store: Store, report: Report | None = None, pattern: str | None = None
) -> Iterator[ScalableTopic]:
    """Yield the scalable topics of a store whose full names match `pattern`, by default all.

    Corrupt records go to `report` and are skipped. Without `report`, their DecodeError is raised.
    """
    for record in store.scan(SCALABLE_TOPICS):
        name = split_scalable_path(record.path)
        # The children of a topic's record are consumers and loads of segments. Parents have no value.
        if name is None or not record.value or (pattern and not fnmatchcase(str(name), pattern)):
            continue
        try:
            yield _decoded(name, record)
        except DecodeError as error:
            if report is None:
                raise
            report(error)


def migrated_parts(store: Store) -> dict[str, str]:
    """Map each `persistent://` topic that is now a segment to its scalable topic, by name.

    Corrupt records are skipped, because checks read and report them separately.
    """
    return {
        str(segment.topic): str(scalable.name)
        for scalable in scalable_topics(store, lambda error: None)
        for segment in scalable.segments
        if segment.is_migrated
    }


def migrated_to(store: Store, topic: TopicName) -> ScalableTopic | None:
    """Find the scalable topic of which a persistent topic or its partitions are the sealed old part.

    None if there is none. Raises DecodeError if the record of the scalable topic is corrupt.
    """
    base = topic.partitioned or topic
    for name in dict.fromkeys((topic, base)):
        scalable = read_scalable(store, name) if name.domain == "persistent" else None
        if scalable is not None and _has_part(scalable, topic):
            return scalable
    return None


class ScalableTopics:
    """Finds the scalable topics of segments, by name, or for migrated topics by record.

    In a store without scalable topics, this costs one listing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Cached, because cursors follow their topic.
        self._last: dict[TopicName, str | None] = {}

    def of(self, topics: Iterable[TopicName]) -> dict[TopicName, str | None]:
        """Map each topic to the name of its scalable topic; None if it is no segment.

        The migrated part of a corrupt record is unknown, so it counts as none.
        """
        wanted = set(topics)
        known = {topic: self._last[topic] for topic in wanted & self._last.keys()}
        unknown = [topic for topic in wanted - known.keys() if topic.scalable_topic is None]
        records = self._records(unknown) if unknown and self._any else {}
        new = {topic: topic.scalable_topic or _owner(topic, records) for topic in wanted - known.keys()}
        self._last = known | new
        return self._last

    @cached_property
    def _any(self) -> bool:
        return bool(self._store.children(SCALABLE_TOPICS))

    def _records(self, topics: Iterable[TopicName]) -> dict[TopicName, ScalableTopic]:
        """Read the scalable topics whose old part these topics may be, by name."""
        names = list(dict.fromkeys(name for topic in topics for name in _may_be_part_of(topic)))
        scalable: dict[TopicName, ScalableTopic] = {}
        for name, record in zip(names, self._store.read_many([name.path for name in names]), strict=True):
            with suppress(DecodeError):
                scalable |= {} if record is None else {name: _decoded(name, record)}
        return scalable


def _may_be_part_of(topic: TopicName) -> list[TopicName]:
    if topic.domain != "persistent" or topic.cluster is not None:
        return []
    return [name.as_scalable for name in (topic, topic.partitioned) if name is not None]


def _owner(topic: TopicName, records: Mapping[TopicName, ScalableTopic]) -> str | None:
    candidates = (records[name] for name in _may_be_part_of(topic) if name in records)
    return next((str(scalable.name) for scalable in candidates if _has_part(scalable, topic)), None)


class PlaceNames(TypedDict, total=False):
    """The topic and cursor of a value, by the names that commands accept; empty for other values."""

    topic: str
    scalable_topic: str
    cursor: str


def named_at(place: tuple[TopicName, str | None], scalable_topic: str | None) -> PlaceNames:
    """Convert a place to the names that commands accept."""
    names: PlaceNames = {"topic": str(place[0])}
    if scalable_topic is not None:
        names["scalable_topic"] = scalable_topic
    if place[1] is not None:
        names["cursor"] = place[1]
    return names


def old_part(store: Store, name: str) -> str | None:
    """Warn about the full name of the sealed old part of a scalable topic; None for other names."""
    if not name.startswith("persistent://") or not GLOB.isdisjoint(name):
        return None
    try:
        scalable = migrated_to(store, TopicName.parse(name))
    except DecodeError as error:
        return f"cannot find out whether {name} was migrated to a scalable topic: {error}"
    if scalable is None:
        return None
    others = sum(not segment.is_migrated for segment in scalable.segments)
    return f"{name} is only the sealed old part of {scalable.name}, which has {others} more segments"


def _has_part(scalable: ScalableTopic, topic: TopicName) -> bool:
    olds = (segment.topic for segment in scalable.segments if segment.is_migrated)
    return any(topic in (old, old.partitioned) for old in olds)


def _decoded(name: TopicName, record: Versioned) -> ScalableTopic:
    with decoding(record.path):
        return decode_scalable_topic(name, record.value)


@dataclass(frozen=True, slots=True)
class TreeFault:
    """A fault in the segments of a scalable topic, or a segment that belongs to none.

    `fault`: `hole`, `overlap` (of the active segments' hashes), `no-parent`, `no-child`, `one-sided` (only
    one of parent and child refers to the other), `still-grows` (sealed, but not terminated),
    `no-managed-ledger`, `no-segment` (a managed ledger that no scalable topic refers to). `topic` is the
    segment, None if the fault concerns several.
    """

    scalable_topic: str | None
    topic: str | None
    fault: str
    why: str


def tree_faults(trees: Iterable[ScalableTopic], terminated: Mapping[TopicName, bool]) -> Iterator[TreeFault]:
    """Yield the faults of scalable topics, grouped by topic; segments that belong to none come last.

    `terminated` has the existing managed ledgers of segments and of migrated topics, and whether each is
    terminated.
    """
    known: set[TopicName] = set()
    for tree in trees:
        known.update(segment.topic for segment in tree.segments)
        yield from chain(_range_faults(tree), _edge_faults(tree), _ledger_faults(tree, terminated))
    unknown = (topic for topic in terminated if topic.domain == "segment" and topic not in known)
    for topic in sorted(unknown, key=str):
        why = "no scalable topic has this segment; it may be in the middle of its removal"
        yield TreeFault(topic.scalable_topic, str(topic), "no-segment", why)


def _range_faults(tree: ScalableTopic) -> Iterator[TreeFault]:
    """Yield the hashes that have no active segment, or more than one."""
    following = 0
    active = (segment for segment in tree.segments if segment.is_active)
    for segment in sorted(active, key=lambda segment: segment.start):
        if segment.start > following:
            yield TreeFault(str(tree.name), None, "hole", _hashes(following, segment.start - 1, "no"))
        elif segment.start < following:
            last = min(segment.end, following - 1)
            why = _hashes(segment.start, last, "more than one")
            yield TreeFault(str(tree.name), str(segment.topic), "overlap", why)
        following = max(following, segment.end + 1)
    if following <= LAST_HASH:
        yield TreeFault(str(tree.name), None, "hole", _hashes(following, LAST_HASH, "no"))


def _hashes(first: int, last: int, count: str) -> str:
    return f"{count} active segment has the hashes {first:04x} to {last:04x}"


def _edge_faults(tree: ScalableTopic) -> Iterator[TreeFault]:
    """Yield the parents and children that don't refer to each other."""
    by_id = {segment.segment_id: segment for segment in tree.segments}
    for segment in tree.segments:
        for others, kind in ((segment.parents, "parent"), (segment.children, "child")):
            for number in others:
                fault = _edge_fault(segment, kind, number, by_id.get(number))
                if fault is not None:
                    yield TreeFault(str(tree.name), str(segment.topic), *fault)


def _edge_fault(segment: Segment, kind: str, number: int, other: Segment | None) -> tuple[str, str] | None:
    if other is None:
        return f"no-{kind}", f"its {kind} {number} is not in the record"
    back = other.children if kind == "parent" else other.parents
    if segment.segment_id not in back:
        return "one-sided", f"its {kind} {number} does not refer to it"
    return None


def _ledger_faults(tree: ScalableTopic, terminated: Mapping[TopicName, bool]) -> Iterator[TreeFault]:
    """Yield the segments without a managed ledger, and sealed segments that are not terminated."""
    for segment in tree.segments:
        if segment.topic not in terminated:
            effect = "publishing to it fails" if segment.is_active else "its messages can't be read"
            why = f"it has no managed ledger, so {effect}"
            yield TreeFault(str(tree.name), str(segment.topic), "no-managed-ledger", why)
        elif not terminated[segment.topic] and not segment.is_active:
            why = "it is sealed, but its managed ledger is not terminated and accepts messages"
            yield TreeFault(str(tree.name), str(segment.topic), "still-grows", why)

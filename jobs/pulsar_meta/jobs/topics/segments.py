"""Scalable topics (PIP-460) in a store: which segments they have, and what is wrong with a tree of them.

A segment is a topic like any other: its name leads to its ledgers and cursors. Of a topic that was migrated
the first segments are the old `persistent://` topic, or its partitions.
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
    """Return the record of the scalable topic of this name, None where there is none; DecodeError."""
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
    """Yield the scalable topics of a store, those whose full name matches where a `pattern` is given.

    A broken record goes to `report` and is passed over; without `report` its DecodeError is raised.
    """
    for record in store.scan(SCALABLE_TOPICS):
        name = split_scalable_path(record.path)
        # Below a topic's record lie its consumers and the load of its segments; parents have no value.
        if name is None or not record.value or (pattern and not fnmatchcase(str(name), pattern)):
            continue
        try:
            yield _decoded(name, record)
        except DecodeError as error:
            if report is None:
                raise
            report(error)


def migrated_parts(store: Store) -> dict[str, str]:
    """Return the scalable topic of each `persistent://` topic that is a segment now, by the names of both.

    Scalable topics with a broken record are passed over: whoever looks for faults reads them itself.
    """
    return {
        str(segment.topic): str(scalable.name)
        for scalable in scalable_topics(store, lambda error: None)
        for segment in scalable.segments
        if segment.is_migrated
    }


def migrated_to(store: Store, topic: TopicName) -> ScalableTopic | None:
    """Return the scalable topic of which a persistent topic, or its partitions, are the sealed old part.

    None where there is none. DecodeError where the record of the scalable topic is broken.
    """
    base = topic.partitioned or topic
    for name in dict.fromkeys((topic, base)):
        scalable = read_scalable(store, name) if name.domain == "persistent" else None
        if scalable is not None and _has_part(scalable, topic):
            return scalable
    return None


class ScalableTopics:
    """Of which scalable topics topics are segments: by their names, of migrated ones by the records of those.

    Nothing but one listing is read in a store that has no scalable topic.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Cursors come right after their topic.
        self._last: dict[TopicName, str | None] = {}

    def of(self, topics: Iterable[TopicName]) -> dict[TopicName, str | None]:
        """Return the name of the scalable topic of each, None for what is no segment; a record serves many.

        What a broken record says of its migrated part is not known: then that counts as none.
        """
        wanted = set(topics)
        known = {topic: self._last[topic] for topic in wanted & self._last.keys()}
        asked = [topic for topic in wanted - known.keys() if topic.scalable_topic is None]
        records = self._records(asked) if asked and self._any else {}
        found = {topic: topic.scalable_topic or _owner(topic, records) for topic in wanted - known.keys()}
        self._last = known | found
        return self._last

    @cached_property
    def _any(self) -> bool:
        return bool(self._store.children(SCALABLE_TOPICS))

    def _records(self, topics: Iterable[TopicName]) -> dict[TopicName, ScalableTopic]:
        """Return the scalable topics of which these can be the old part, by their names."""
        names = list(dict.fromkeys(name for topic in topics for name in _may_be_part_of(topic)))
        found: dict[TopicName, ScalableTopic] = {}
        for name, record in zip(names, self._store.read_many([name.path for name in names]), strict=True):
            with suppress(DecodeError):
                found |= {} if record is None else {name: _decoded(name, record)}
        return found


def _may_be_part_of(topic: TopicName) -> list[TopicName]:
    if topic.domain != "persistent" or topic.cluster is not None:
        return []
    return [one.as_scalable for one in (topic, topic.partitioned) if one is not None]


def _owner(topic: TopicName, records: Mapping[TopicName, ScalableTopic]) -> str | None:
    found = (records[name] for name in _may_be_part_of(topic) if name in records)
    return next((str(scalable.name) for scalable in found if _has_part(scalable, topic)), None)


class PlaceNames(TypedDict, total=False):
    """Whose a value is, by the names that commands take; nothing of what is no topic's."""

    topic: str
    scalable_topic: str
    cursor: str


def named_at(place: tuple[TopicName, str | None], scalable_topic: str | None) -> PlaceNames:
    """Return what lies at a place by the names that commands take."""
    names: PlaceNames = {"topic": str(place[0])}
    if scalable_topic is not None:
        names["scalable_topic"] = scalable_topic
    if place[1] is not None:
        names["cursor"] = place[1]
    return names


def old_part(store: Store, name: str) -> str | None:
    """Return what to say of a full name that only the sealed old part of a scalable topic has, else None."""
    if not name.startswith("persistent://") or not GLOB.isdisjoint(name):
        return None
    try:
        scalable = migrated_to(store, TopicName.parse(name))
    except DecodeError as error:
        return f"whether {name} was migrated to a scalable topic is not known: {error}"
    if scalable is None:
        return None
    others = sum(not segment.is_migrated for segment in scalable.segments)
    return f"{name} is but the sealed old part of {scalable.name}, which has {others} segments more"


def _has_part(scalable: ScalableTopic, topic: TopicName) -> bool:
    olds = (segment.topic for segment in scalable.segments if segment.is_migrated)
    return any(topic in (old, old.partitioned) for old in olds)


def _decoded(name: TopicName, record: Versioned) -> ScalableTopic:
    with decoding(record.path):
        return decode_scalable_topic(name, record.value)


@dataclass(frozen=True, slots=True)
class TreeFault:
    """One thing that is wrong with the segments of a scalable topic, or a segment that belongs to none.

    `fault`: `hole`, `overlap` (of the active segments' hashes), `no-parent`, `no-child`, `one-sided` (only
    one of parent and child names the other), `still-grows` (sealed, and not terminated), `no-managed-ledger`,
    `no-segment` (a managed ledger that no scalable topic has). `topic` is the segment, None where it is
    about several.
    """

    scalable_topic: str | None
    topic: str | None
    fault: str
    why: str


def tree_faults(trees: Iterable[ScalableTopic], held: Mapping[TopicName, bool]) -> Iterator[TreeFault]:
    """Yield what is wrong with scalable topics, each topic's faults together.

    `held`: the managed ledgers that there are (of segments, and of topics that were migrated), and whether
    each is terminated. What among them is a segment of none of the trees comes last.
    """
    known: set[TopicName] = set()
    for tree in trees:
        known.update(segment.topic for segment in tree.segments)
        yield from chain(_range_faults(tree), _edge_faults(tree), _ledger_faults(tree, held))
    for topic in sorted(
        (topic for topic in held if topic.domain == "segment" and topic not in known), key=str
    ):
        why = "no scalable topic has this segment: it may be one that is being removed"
        yield TreeFault(topic.scalable_topic, str(topic), "no-segment", why)


def _range_faults(tree: ScalableTopic) -> Iterator[TreeFault]:
    """Yield the hashes that no active segment has, or more than one."""
    following = 0
    for segment in sorted((one for one in tree.segments if one.is_active), key=lambda one: one.start):
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
    """Yield where parents and children do not name each other."""
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
        return "one-sided", f"its {kind} {number} does not name it"
    return None


def _ledger_faults(tree: ScalableTopic, held: Mapping[TopicName, bool]) -> Iterator[TreeFault]:
    """Yield the segments whose managed ledger is missing, or goes on though they are sealed."""
    for segment in tree.segments:
        terminated = held.get(segment.topic)
        if terminated is None:
            what = "nobody can publish to it" if segment.is_active else "nobody can read what it held"
            yield TreeFault(
                str(tree.name), str(segment.topic), "no-managed-ledger", f"it has no managed ledger: {what}"
            )
        elif not terminated and not segment.is_active:
            why = "it is sealed, but its managed ledger is not terminated and takes messages"
            yield TreeFault(str(tree.name), str(segment.topic), "still-grows", why)

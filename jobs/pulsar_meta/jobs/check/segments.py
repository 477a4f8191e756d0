"""Scalable topics: whether their segments cover all keys, and whether each segment has a managed ledger.

Sources: apache/pulsar PIP-460, SegmentLayout, ScalableTopicController, ScalableTopicService. Segments without
a managed ledger were tested with 5.0.0-M1; the other effects on brokers were read in its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic, Segment
from pulsar_meta.codecs.names import LAST_HASH, TopicName
from pulsar_meta.jobs.check.codes import Finding, finding
from pulsar_meta.jobs.check.scope import CheckScope
from pulsar_meta.jobs.topics.related import read_scalable, scalable_topics
from pulsar_meta.jobs.topics.topic import topic_of
from pulsar_meta.stores.base import Store, Versioned

_CODES: Final[Mapping[str, str]] = {
    "hole": "segments-with-hole",
    "overlap": "segments-overlap",
    "no-parent": "segment-unlinked",
    "no-child": "segment-unlinked",
    "one-sided": "segment-unlinked",
    "still-grows": "segment-not-terminated",
    "no-managed-ledger": "segment-without-managed-ledger",
    "no-segment": "segment-without-topic",
}


def segment_findings(store: Store, scope: CheckScope, scanned: Iterable[TopicName]) -> Iterator[Finding]:
    """Yield the faults of the scalable topics in a scope that are still there when they are read again.

    `scanned` are the segments that have a managed ledger.
    """
    broken: list[DecodeError] = []
    trees = [tree for tree in _trees(store, scope, broken) if _is_in_scope(tree, scope)]
    for error in broken:
        yield finding("record-undecodable", error.message, path=error.source)
    unreadable = {error.source for error in broken}
    faults = tree_faults(trees, _managed_ledgers(store, trees, scanned))
    suspected = [fault for fault in faults if not _may_be_in(fault, unreadable)]
    names = dict.fromkeys(fault.scalable_topic for fault in suspected if fault.scalable_topic is not None)
    reread = [tree for tree in (_read_again(store, name) for name in names) if tree is not None]
    strays = [
        TopicName.parse(fault.topic) for fault in suspected if fault.fault == "no-segment" and fault.topic
    ]
    confirmed = set(tree_faults(reread, _managed_ledgers(store, reread, strays)))
    yield from (_finding(fault) for fault in suspected if fault in confirmed)


def _trees(store: Store, scope: CheckScope, broken: list[DecodeError]) -> Iterator[ScalableTopic]:
    """Yield the scalable topics of a scope; if it only has named topics, the others are not read."""
    whole = scope.everything or any(part.namespaces or not scope.named for part in scope.scopes)
    if whole:
        yield from scalable_topics(store, broken.append)
        return
    for name in dict.fromkeys(topic.scalable_topic or str(topic) for topic in scope.named):
        try:
            tree = read_scalable(store, TopicName.parse(name))
        except DecodeError as error:
            broken.append(error)
            continue
        if tree is not None:
            yield tree


def _is_in_scope(tree: ScalableTopic, scope: CheckScope) -> bool:
    return scope.everything or any(scope.holds(segment.topic, None) for segment in tree.segments)


def _may_be_in(fault: TreeFault, unreadable: Set[str | None]) -> bool:
    """Return True if a segment without a topic may be in a record that can't be read."""
    scalable = None if fault.topic is None else TopicName.parse(fault.topic).scalable_topic
    lacks_topic = fault.fault == "no-segment" and scalable is not None
    return lacks_topic and TopicName.parse(str(scalable)).path in unreadable


def _managed_ledgers(
    store: Store, trees: Iterable[ScalableTopic], more: Iterable[TopicName]
) -> dict[TopicName, bool]:
    """Return the segments of trees, and `more`, that have a managed ledger, with True if it is terminated."""
    topics = list(dict.fromkeys([*(segment.topic for tree in trees for segment in tree.segments), *more]))
    records = store.read_many([topic.path for topic in topics])
    pairs = zip(topics, records, strict=True)
    return {topic: _is_terminated(record) for topic, record in pairs if record is not None}


def _is_terminated(record: Versioned) -> bool:
    try:
        return topic_of(record).terminated is not None
    except DecodeError:
        # The broken record is reported separately, and may be that of a terminated topic.
        return True


def _read_again(store: Store, name: str) -> ScalableTopic | None:
    try:
        return read_scalable(store, TopicName.parse(name))
    except DecodeError:
        return None


def _finding(fault: TreeFault) -> Finding:
    scalable = None if fault.scalable_topic is None else TopicName.parse(fault.scalable_topic)
    return finding(
        _CODES[fault.fault],
        fault.why,
        topic=fault.topic or fault.scalable_topic,
        path=None if scalable is None else scalable.path,
        evidence={"scalable_topic": fault.scalable_topic, "fault": fault.fault},
    )


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

"""Scalable topics: whether their segments cover all keys, and whether each segment has a managed ledger.

Sources: apache/pulsar PIP-460, SegmentLayout, ScalableTopicController, ScalableTopicService. Segments without
a managed ledger were tested with 5.0.0-M1; the other effects on brokers were read in its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.codes import Finding, finding
from pulsar_meta.jobs.check.scope import CheckScope
from pulsar_meta.jobs.topics.segments import TreeFault, read_scalable, scalable_topics, tree_faults
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

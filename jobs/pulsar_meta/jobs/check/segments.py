"""Scalable topics: whether their segments are a whole, and whether each has a managed ledger.

Sources: apache/pulsar PIP-460, SegmentLayout, ScalableTopicController, ScalableTopicService. Run with
5.0.0-M1: segments without a managed ledger; what is said of the other codes is read there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.records import UNDECODABLE
from pulsar_meta.jobs.check.scope import CheckScope
from pulsar_meta.jobs.topics.segments import TreeFault, read_scalable, scalable_topics, tree_faults
from pulsar_meta.jobs.topics.topic import topic_of
from pulsar_meta.stores.base import Store, Versioned

EVIDENCE: Final[Mapping[str, Any]] = {"scalable_topic": str | None, "fault": str}
HOLE: Final = Code(
    "segments-with-hole",
    Severity.ERROR,
    "Keys that no segment of a scalable topic takes",
    means="The active segments of a scalable topic share the hashes of keys among them; some hashes are no"
    " active segment's.",
    broker="A message whose key has such a hash has no segment to go to: publishing it fails.",
    errors=("No active segment covers hash",),
    comes="The topic's record was edited or restored, or a segment was sealed without children.",
    cure="Put back the record at `/topics/TENANT/NAMESPACE/NAME` as it was, before a broker splits or"
    " merges on what it says now.",
    evidence=EVIDENCE,
)
OVERLAP: Final = Code(
    "segments-overlap",
    Severity.WARNING,
    "Keys that two segments of a scalable topic take",
    means="Some hashes of keys belong to more than one active segment.",
    broker="Which of them gets a message is left to chance: the order of messages with one key is lost.",
    comes="The topic's record was edited or restored.",
    cure="Put back the record as it was; what the segments hold stays readable.",
    evidence=EVIDENCE,
)
UNLINKED: Final = Code(
    "segment-unlinked",
    Severity.WARNING,
    "A segment whose parent or child does not know it",
    means="A segment names a parent or child that the topic's record has not, or that does not name it back.",
    broker="Ordered subscriptions give a segment out when its parents are read to their end: without the"
    " link messages come out of order, or not at all.",
    comes="The topic's record was edited or restored. When a broker removes an old segment it takes it out"
    " of its children's parents, too.",
    cure="Put back the record as it was.",
    evidence=EVIDENCE,
)
GROWS: Final = Code(
    "segment-not-terminated",
    Severity.WARNING,
    "A sealed segment that takes messages",
    means="The topic's record says that a segment is sealed, but its managed ledger is not terminated.",
    broker="Whoever still has a connection goes on publishing to it, beside its children: messages with one"
    " key are in two places at a time.",
    comes="A split or merge that was cut short, or records of different times (a restored store).",
    cure="`terminateSegment` of the admin interface, once nobody publishes to it.",
    evidence=EVIDENCE,
)
WITHOUT_LEDGER: Final = Code(
    "segment-without-managed-ledger",
    Severity.ERROR,
    "A segment without a managed ledger",
    means="A scalable topic has a segment of which the store has no managed ledger.",
    broker="Nothing can be read from it. Where it is active, 5.0.0-M1 refuses whoever publishes to the"
    " topic with a key of that segment.",
    errors=("Topic not found segment://",),
    comes="The record of the managed ledger was removed or not restored, or the range of a segment was"
    " edited, which is part of its name. Where a topic's name is not plain ASCII, 5.0.0-M1 makes its"
    " segments under another name, and nobody can use that topic.",
    cure="Put back the record of the managed ledger. A topic that 5.0.0-M1 made so: remove it.",
    evidence=EVIDENCE,
)
STRAY: Final = Code(
    "segment-without-topic",
    Severity.WARNING,
    "A managed ledger of a segment that no scalable topic has",
    means="A managed ledger lies where segments have theirs, and no scalable topic lists it.",
    broker="No client is led to it: what it holds is unreachable, and takes space.",
    comes="The topic's record was removed, edited or restored, or removing a segment was cut short; see"
    " `segment-without-managed-ledger` for names that 5.0.0-M1 changes.",
    cure="If its messages are wanted, put the segment back into the topic's record; else delete it"
    " (`deleteSegment` of the admin interface).",
    unless="A split that is going on, a topic that is being removed, or one whose record cannot be read.",
    evidence=EVIDENCE,
)
CODES: Final = (HOLE, OVERLAP, UNLINKED, GROWS, WITHOUT_LEDGER, STRAY)
_BY_FAULT: Final[Mapping[str, Code]] = {
    "hole": HOLE,
    "overlap": OVERLAP,
    "no-parent": UNLINKED,
    "no-child": UNLINKED,
    "one-sided": UNLINKED,
    "still-grows": GROWS,
    "no-managed-ledger": WITHOUT_LEDGER,
    "no-segment": STRAY,
}


def segment_findings(store: Store, scope: CheckScope, seen: Iterable[TopicName]) -> Iterator[Finding]:
    """Yield what is wrong with the scalable topics of a scope; what is well at a second look is left out.

    `seen` are the segments whose managed ledgers came by.
    """
    broken: list[DecodeError] = []
    trees = [tree for tree in _trees(store, scope, broken) if _is_meant(tree, scope)]
    for error in broken:
        yield UNDECODABLE.found(error.message, path=error.source)
    unknown = {error.source for error in broken}
    suspect = [
        fault for fault in tree_faults(trees, _held(store, trees, seen)) if not _is_unknown(fault, unknown)
    ]
    named = dict.fromkeys(fault.scalable_topic for fault in suspect if fault.scalable_topic is not None)
    again = [tree for tree in (_again(store, TopicName.parse(name)) for name in named) if tree is not None]
    strays = [TopicName.parse(one.topic) for one in suspect if one.fault == "no-segment" and one.topic]
    still = set(tree_faults(again, _held(store, again, strays)))
    yield from (_finding(fault) for fault in suspect if fault in still)


def _trees(store: Store, scope: CheckScope, broken: list[DecodeError]) -> Iterator[ScalableTopic]:
    """Yield the scalable topics to look at: of names these alone, without a look at all there are."""
    whole = scope.everything or any(one.namespaces or not scope.named for one in scope.scopes)
    if whole:
        yield from scalable_topics(store, broken.append)
        return
    for name in dict.fromkeys(one.scalable_topic or str(one) for one in scope.named):
        try:
            tree = read_scalable(store, TopicName.parse(name))
        except DecodeError as error:
            broken.append(error)
            continue
        if tree is not None:
            yield tree


def _is_meant(tree: ScalableTopic, scope: CheckScope) -> bool:
    return scope.everything or any(scope.holds(segment.topic, None) for segment in tree.segments)


def _is_unknown(fault: TreeFault, broken: Set[str | None]) -> bool:
    """Return whether a segment is in no tree, and may be in the record that cannot be read."""
    scalable = None if fault.topic is None else TopicName.parse(fault.topic).scalable_topic
    lacks_topic = fault.fault == "no-segment" and scalable is not None
    return lacks_topic and TopicName.parse(str(scalable)).path in broken


def _held(store: Store, trees: Iterable[ScalableTopic], more: Iterable[TopicName]) -> dict[TopicName, bool]:
    """Return the managed ledgers that there are, of the trees and more, and whether each is terminated."""
    topics = list(dict.fromkeys([*(one.topic for tree in trees for one in tree.segments), *more]))
    records = store.read_many([topic.path for topic in topics])
    found = zip(topics, records, strict=True)
    return {topic: _is_terminated(record) for topic, record in found if record is not None}


def _is_terminated(record: Versioned) -> bool:
    try:
        return topic_of(record).terminated is not None
    except DecodeError:
        # That it is broken is another finding; what it says is not known.
        return True


def _again(store: Store, name: TopicName) -> ScalableTopic | None:
    try:
        return read_scalable(store, name)
    except DecodeError:
        return None


def _finding(fault: TreeFault) -> Finding:
    code = _BY_FAULT[fault.fault]
    scalable = None if fault.scalable_topic is None else TopicName.parse(fault.scalable_topic)
    return code.found(
        fault.why,
        topic=fault.topic or fault.scalable_topic,
        path=None if scalable is None else scalable.path,
        evidence={"scalable_topic": fault.scalable_topic, "fault": fault.fault},
    )

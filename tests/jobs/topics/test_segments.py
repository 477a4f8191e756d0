"""Scalable topics in a store: what a name stands for, and the faults of wounded trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.topics.scope import Scope, named_topics, select
from pulsar_meta.jobs.topics.segments import (
    ScalableTopics,
    migrated_parts,
    old_part,
    scalable_topics,
    tree_faults,
)
from pulsar_meta.jobs.topics.topic import topics_in
from pulsar_meta.stores.base import ABSENT, Store, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store

NAME = "pulsar-5.0.0-M1-scalable"
Open = Callable[[], Store]


@pytest.fixture
def captured(capture: Callable[[str], Path]) -> Path:
    return capture(NAME)


@pytest.fixture
def store(captured: Path) -> Any:
    with open_store(f"snapshot:{captured / 'metadata.ndjson'}") as opened:
        yield opened


def names(store: Store, text: str) -> list[str]:
    return [str(topic) for topic in named_topics(store, TopicName.parse(text))]


def test_a_name_stands_for_its_segments_each_after_its_parents(store: Store, captured: Path) -> None:
    truth = orjson.loads((captured / "truth.json").read_bytes())
    for name, stated in truth.items():
        if name.startswith("topic://"):
            segments = [stated["segments"][number] for number in sorted(stated["segments"], key=int)]
            assert names(store, name) == segments
            if name not in ("topic://public/default/both",):
                assert names(store, name.removeprefix("topic://")) == segments
    assert names(store, "moved") == [
        "persistent://public/default/moved",
        "segment://public/default/moved/0000-ffff-1",
        "segment://public/default/moved/0000-7fff-2",
        "segment://public/default/moved/8000-ffff-3",
    ]


class Counting(MemoryStore):
    """A store that counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def children(self, path: str) -> list[str]:
        self.asked.append(path)
        return super().children(path)

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        self.asked += paths
        return super().read_many(paths)


def test_of_which_topic_each_is_a_segment(store: Store) -> None:
    scalable, every = ScalableTopics(store), migrated_parts(store)
    topics = [
        name for record in select(store, Scope(), "ledger") if (name := TopicName.from_path(record.path))
    ]
    found = scalable.of(topics)
    assert {str(one): owner for one, owner in found.items() if one.domain == "persistent" and owner} == every
    assert {topic.scalable_topic for topic in topics if topic.domain == "segment"} == {
        owner for one, owner in found.items() if one.domain == "segment"
    }
    assert len(every) == 3
    # One at a time, as they come by.
    assert {topic: scalable.of([topic])[topic] for topic in topics} == found


def test_stores_without_scalable_topics_are_asked_once() -> None:
    made = Counting()
    scalable = ScalableTopics(made)
    for number in range(3):
        topics = [TopicName.parse(f"t{number}"), TopicName.parse(f"t{number}-partition-0")]
        assert set(scalable.of(topics).values()) == {None}
    assert made.asked == ["/topics"]


def test_a_broken_record_says_nothing_of_its_old_part() -> None:
    made = Counting()
    made.put("/topics/public/default/t", b"{", ABSENT)
    topic = TopicName.parse("t-partition-1")
    assert ScalableTopics(made).of([topic]) == {topic: None}
    assert made.asked[1:] == ["/topics/public/default/t-partition-1", "/topics/public/default/t"]


def test_a_full_name_is_what_it_says(store: Store) -> None:
    assert names(store, "persistent://public/default/moved") == ["persistent://public/default/moved"]
    assert names(store, "persistent://public/default/both") == ["persistent://public/default/both"]
    assert len(names(store, "persistent://public/default/parted")) == 2
    assert names(store, "public/default/gone") == ["persistent://public/default/gone"]


def test_a_short_name_of_two_topics_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match=r"persistent://public/default/both or topic://public/default/both"):
        names(store, "both")
    assert len(names(store, "topic://public/default/both")) == 2


def test_an_old_part_alone_is_told_of(store: Store) -> None:
    moved = old_part(store, "persistent://public/default/moved")
    assert moved is not None
    assert "topic://public/default/moved, which has 3 segments more" in moved
    for name in ("persistent://public/default/parted", "persistent://public/default/parted-partition-1"):
        assert "topic://public/default/parted" in str(old_part(store, name))
    for name in (
        "persistent://public/default/both",
        "moved",
        "topic://public/default/moved",
        "persistent://a/b/c*",
    ):
        assert old_part(store, name) is None


def test_a_scope_holds_the_segments_and_only_those(store: Store) -> None:
    def paths(*topics: str) -> set[str]:
        return {found.path for found in select(store, Scope(topics=topics), "ledger")}

    parts = {topic.path for topic in named_topics(store, TopicName.parse("topic://public/default/split"))}
    assert paths("public/default/split") == paths("topic://public/default/spl*") == parts
    assert paths("public/default/mov*") == paths("moved")
    assert paths("persistent://public/default/mov*") == paths("persistent://public/default/moved")
    # What means nothing is nothing, and not everything.
    assert paths("topic://public/default/nix*") == paths("topic://public/default/nix") == set()
    assert len(paths("topic://public/default/both")) == 2
    assert len(paths("topic://public/default/bot*")) == 2
    assert len(paths("public/default/bot*")) == 3


def test_topics_of_a_scan_say_of_which_topic_they_are_segments(store: Store) -> None:
    found = {topic.name: topic.scalable_topic for topic in topics_in(store, Scope())}
    assert found["persistent://public/default/moved"] == "topic://public/default/moved"
    assert found["segment://public/default/split/0000-7fff-1"] == "topic://public/default/split"
    assert found["persistent://public/default/both"] is None
    assert len(migrated_parts(store)) == 3


def test_a_broken_record_is_told_of_or_raised() -> None:
    store = MemoryStore()
    store.put("/topics/public/default/t", b"{", ABSENT)
    store.put("/topics/public/default/t/controller", b"{", ABSENT)
    stated: list[DecodeError] = []
    assert list(scalable_topics(store, stated.append)) == []
    assert [error.source for error in stated] == ["/topics/public/default/t"]
    with pytest.raises(DecodeError):
        names(store, "t")
    assert "is not known" in str(old_part(store, "persistent://public/default/t"))


Wound = Callable[[ScalableTopic], ScalableTopic]


def trees(store: Store) -> tuple[dict[str, ScalableTopic], dict[TopicName, bool]]:
    held = {TopicName.parse(one.name): one.terminated is not None for one in topics_in(store, Scope())}
    return {str(tree.name): tree for tree in scalable_topics(store)}, held


def test_what_5_0_0_M1_wrote_is_well_but_for_the_topic_that_it_made_wrong(store: Store) -> None:
    whole, held = trees(store)
    found = [(fault.fault, fault.topic) for fault in tree_faults(whole.values(), held)]
    assert found == [
        ("no-managed-ledger", "segment://public/default/lost näme/0000-ffff-0"),
        ("no-segment", "segment://public/default/lost%20n%C3%A4me/0000-ffff-0"),
    ]


def changed(number: int, **fields: Any) -> Wound:
    def wound(tree: ScalableTopic) -> ScalableTopic:
        segments = tuple(
            replace(segment, **fields) if segment.segment_id == number else segment
            for segment in tree.segments
        )
        return replace(tree, segments=segments)

    return wound


def without(number: int) -> Wound:
    def wound(tree: ScalableTopic) -> ScalableTopic:
        return replace(
            tree, segments=tuple(segment for segment in tree.segments if segment.segment_id != number)
        )

    return wound


@pytest.mark.parametrize(
    ("wound", "expected"),
    [
        (changed(3, start=0x8001), [("hole", None, "8000 to 8000")]),
        (changed(4, end=0xFFFE), [("hole", None, "ffff to ffff")]),
        (changed(3, end=0xC001), [("overlap", "segment://public/default/split/c000-ffff-4", "c000 to c001")]),
        (
            changed(1, state="SEALED", children=(9,)),
            [("hole", None, "0000 to 7fff"), ("no-child",), ("still-grows",)],
        ),
        (without(2), [("no-child",), ("no-parent",), ("no-parent",), ("no-segment",)]),
        (
            changed(2, children=(3,)),
            [("one-sided", "segment://public/default/split/c000-ffff-4", "parent 2")],
        ),
        (changed(2, state="ACTIVE"), [("overlap",), ("overlap",)]),
    ],
)
def test_wounds_of_a_tree_are_found(store: Store, wound: Wound, expected: list[tuple[str, ...]]) -> None:
    whole, held = trees(store)
    known = set(tree_faults(whole.values(), held))
    whole["topic://public/default/split"] = wound(whole["topic://public/default/split"])
    found = [fault for fault in tree_faults(whole.values(), held) if fault not in known]
    assert [fault.fault for fault in found] == [one[0] for one in expected]
    for fault, (_, *more) in zip(found, expected, strict=True):
        assert fault.scalable_topic == "topic://public/default/split"
        assert not more or fault.topic == more[0]
        assert len(more) < 2 or str(more[1]) in fault.why


def test_managed_ledgers_are_held_against_the_segments(store: Store) -> None:
    whole, held = trees(store)
    sealed = TopicName.parse("segment://public/default/split/0000-ffff-0")
    active = TopicName.parse("segment://public/default/split/0000-7fff-1")
    old = TopicName.parse("persistent://public/default/moved")
    known = set(tree_faults(whole.values(), held))
    del held[active], held[old]
    held[sealed] = False
    found = {
        (fault.fault, fault.topic): fault.why
        for fault in tree_faults(whole.values(), held)
        if fault not in known
    }
    assert set(found) == {
        ("still-grows", str(sealed)),
        ("no-managed-ledger", str(active)),
        ("no-managed-ledger", str(old)),
    }
    assert "can read what it held" in found["no-managed-ledger", str(old)]
    assert "can publish to it" in found["no-managed-ledger", str(active)]

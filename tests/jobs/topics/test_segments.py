"""Scalable topics in a store: the topics that a name selects, and the faults of damaged trees."""

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
from pulsar_meta.jobs.check.segments import tree_faults
from pulsar_meta.jobs.topics.related import (
    ScalableTopics,
    migrated_parts,
    old_part,
    scalable_topics,
)
from pulsar_meta.jobs.topics.scope import Scope, named_topics, select
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


def test_a_name_selects_its_segments_after_their_parents(store: Store, captured: Path) -> None:
    truth = orjson.loads((captured / "truth.json").read_bytes())
    for name, facts in truth.items():
        if name.startswith("topic://"):
            segments = [facts["segments"][number] for number in sorted(facts["segments"], key=int)]
            assert names(store, name) == segments
            if name not in ("topic://public/default/both",):
                assert names(store, name.removeprefix("topic://")) == segments
    assert names(store, "moved") == [
        "persistent://public/default/moved",
        "segment://public/default/moved/0000-ffff-1",
        "segment://public/default/moved/0000-7fff-2",
        "segment://public/default/moved/8000-ffff-3",
    ]


class CountingStore(MemoryStore):
    """A store that records the requested paths."""

    def __init__(self) -> None:
        super().__init__()
        self.requested: list[str] = []

    def children(self, path: str) -> list[str]:
        self.requested.append(path)
        return super().children(path)

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        self.requested += paths
        return super().read_many(paths)


def test_each_segment_has_its_topic(store: Store) -> None:
    scalable, every = ScalableTopics(store), migrated_parts(store)
    topics = [
        name for record in select(store, Scope(), "ledger") if (name := TopicName.from_path(record.path))
    ]
    owners = scalable.of(topics)
    assert {
        str(topic): owner for topic, owner in owners.items() if topic.domain == "persistent" and owner
    } == every
    assert {topic.scalable_topic for topic in topics if topic.domain == "segment"} == {
        owner for topic, owner in owners.items() if topic.domain == "segment"
    }
    assert len(every) == 3
    # The answers are the same for one topic at a time.
    assert {topic: scalable.of([topic])[topic] for topic in topics} == owners


def test_a_store_without_scalable_topics_is_asked_once() -> None:
    store = CountingStore()
    scalable = ScalableTopics(store)
    for number in range(3):
        topics = [TopicName.parse(f"t{number}"), TopicName.parse(f"t{number}-partition-0")]
        assert set(scalable.of(topics).values()) == {None}
    assert store.requested == ["/topics"]


def test_a_corrupt_record_names_no_old_part() -> None:
    store = CountingStore()
    store.put("/topics/public/default/t", b"{", ABSENT)
    topic = TopicName.parse("t-partition-1")
    assert ScalableTopics(store).of([topic]) == {topic: None}
    assert store.requested[1:] == ["/topics/public/default/t-partition-1", "/topics/public/default/t"]


def test_a_full_name_selects_exactly_that_topic(store: Store) -> None:
    assert names(store, "persistent://public/default/moved") == ["persistent://public/default/moved"]
    assert names(store, "persistent://public/default/both") == ["persistent://public/default/both"]
    assert len(names(store, "persistent://public/default/parted")) == 2
    assert names(store, "public/default/gone") == ["persistent://public/default/gone"]


def test_a_short_name_of_two_topics_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match=r"persistent://public/default/both or topic://public/default/both"):
        names(store, "both")
    assert len(names(store, "topic://public/default/both")) == 2


def test_an_old_part_is_reported_with_its_topic(store: Store) -> None:
    moved = old_part(store, "persistent://public/default/moved")
    assert moved is not None
    assert "topic://public/default/moved, which has 3 more segments" in moved
    for name in ("persistent://public/default/parted", "persistent://public/default/parted-partition-1"):
        assert "topic://public/default/parted" in str(old_part(store, name))
    for name in (
        "persistent://public/default/both",
        "moved",
        "topic://public/default/moved",
        "persistent://a/b/c*",
    ):
        assert old_part(store, name) is None


def test_a_scope_selects_the_segments_and_no_others(store: Store) -> None:
    def paths(*topics: str) -> set[str]:
        return {record.path for record in select(store, Scope(topics=topics), "ledger")}

    parts = {topic.path for topic in named_topics(store, TopicName.parse("topic://public/default/split"))}
    assert paths("public/default/split") == paths("topic://public/default/spl*") == parts
    assert paths("public/default/mov*") == paths("moved")
    assert paths("persistent://public/default/mov*") == paths("persistent://public/default/moved")
    # A name without topics selects nothing, and not everything.
    assert paths("topic://public/default/nix*") == paths("topic://public/default/nix") == set()
    assert len(paths("topic://public/default/both")) == 2
    assert len(paths("topic://public/default/bot*")) == 2
    assert len(paths("public/default/bot*")) == 3


def test_topics_of_a_scan_know_their_scalable_topic(store: Store) -> None:
    owners = {topic.name: topic.scalable_topic for topic in topics_in(store, Scope())}
    assert owners["persistent://public/default/moved"] == "topic://public/default/moved"
    assert owners["segment://public/default/split/0000-7fff-1"] == "topic://public/default/split"
    assert owners["persistent://public/default/both"] is None
    assert len(migrated_parts(store)) == 3


def test_a_corrupt_record_is_reported_or_raised() -> None:
    store = MemoryStore()
    store.put("/topics/public/default/t", b"{", ABSENT)
    store.put("/topics/public/default/t/controller", b"{", ABSENT)
    faults: list[DecodeError] = []
    assert list(scalable_topics(store, faults.append)) == []
    assert [error.source for error in faults] == ["/topics/public/default/t"]
    with pytest.raises(DecodeError):
        names(store, "t")
    assert "cannot find out whether" in str(old_part(store, "persistent://public/default/t"))


Damage = Callable[[ScalableTopic], ScalableTopic]


def trees(store: Store) -> tuple[dict[str, ScalableTopic], dict[TopicName, bool]]:
    managed_ledgers = {
        TopicName.parse(topic.name): topic.terminated is not None for topic in topics_in(store, Scope())
    }
    return {str(tree.name): tree for tree in scalable_topics(store)}, managed_ledgers


def test_only_the_topic_that_5_0_0_M1_broke_has_faults(store: Store) -> None:
    expected_trees, managed_ledgers = trees(store)
    faults = [(fault.fault, fault.topic) for fault in tree_faults(expected_trees.values(), managed_ledgers)]
    assert faults == [
        ("no-managed-ledger", "segment://public/default/lost näme/0000-ffff-0"),
        ("no-segment", "segment://public/default/lost%20n%C3%A4me/0000-ffff-0"),
    ]


def changed(number: int, **fields: Any) -> Damage:
    def damage(tree: ScalableTopic) -> ScalableTopic:
        segments = tuple(
            replace(segment, **fields) if segment.segment_id == number else segment
            for segment in tree.segments
        )
        return replace(tree, segments=segments)

    return damage


def without(number: int) -> Damage:
    def damage(tree: ScalableTopic) -> ScalableTopic:
        return replace(
            tree, segments=tuple(segment for segment in tree.segments if segment.segment_id != number)
        )

    return damage


@pytest.mark.parametrize(
    ("damage", "expected"),
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
def test_damage_to_a_tree_is_found(store: Store, damage: Damage, expected: list[tuple[str, ...]]) -> None:
    by_name, managed_ledgers = trees(store)
    known = set(tree_faults(by_name.values(), managed_ledgers))
    by_name["topic://public/default/split"] = damage(by_name["topic://public/default/split"])
    new_faults = [fault for fault in tree_faults(by_name.values(), managed_ledgers) if fault not in known]
    assert [fault.fault for fault in new_faults] == [item[0] for item in expected]
    for fault, (_, *more) in zip(new_faults, expected, strict=True):
        assert fault.scalable_topic == "topic://public/default/split"
        assert not more or fault.topic == more[0]
        assert len(more) < 2 or str(more[1]) in fault.why


def test_managed_ledgers_are_compared_with_the_segments(store: Store) -> None:
    by_name, managed_ledgers = trees(store)
    sealed = TopicName.parse("segment://public/default/split/0000-ffff-0")
    active = TopicName.parse("segment://public/default/split/0000-7fff-1")
    old = TopicName.parse("persistent://public/default/moved")
    known = set(tree_faults(by_name.values(), managed_ledgers))
    del managed_ledgers[active], managed_ledgers[old]
    managed_ledgers[sealed] = False
    new_faults = {
        (fault.fault, fault.topic): fault.why
        for fault in tree_faults(by_name.values(), managed_ledgers)
        if fault not in known
    }
    assert set(new_faults) == {
        ("still-grows", str(sealed)),
        ("no-managed-ledger", str(active)),
        ("no-managed-ledger", str(old)),
    }
    assert "its messages can't be read" in new_faults["no-managed-ledger", str(old)]
    assert "publishing to it fails" in new_faults["no-managed-ledger", str(active)]

"""Shadow topics: the ledgers that a real broker read, and sources that can't be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.topics.related import SOURCE, ShadowSources
from pulsar_meta.jobs.topics.scope import Scope
from pulsar_meta.jobs.topics.topic import Position, Topic, named, read_topic, topics_in, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store

Truth = dict[str, Any]
DELETED = "persistent://public/default/of-deleted"


def ledgers_with_entries(store: Store, topic: Topic) -> list[tuple[int, int]]:
    known = with_bookkeeper(store, topic.ledgers, print)
    return [(ledger.ledger_id, ledger.entries) for ledger in known if ledger.entries]


def reported_ledgers(store: Store, truth: Truth) -> list[tuple[int, int]]:
    """Return the ledgers that both the broker and BookKeeper have.

    The broker also reports ledgers of an old list that have been deleted.
    """
    rows = truth["internalStats"]["ledgers"]
    records = store.read_many([ledger_path(row["ledgerId"]) for row in rows])
    return [
        (row["ledgerId"], row["entries"])
        for row, record in zip(rows, records, strict=True)
        if row["entries"] and record is not None
    ]


def test_ledgers_equal_those_that_the_broker_read(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4-shadows")
    truth: dict[str, Truth] = orjson.loads((folder / "truth.json").read_bytes())
    faults: list[PulsarMetaError] = []
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        topics = {
            topic.name: topic for topic in topics_in(store, Scope(namespaces=("public/*",)), faults.append)
        }
        compared = [name for name in truth if name != DELETED]
        assert [ledgers_with_entries(store, topics[name]) for name in compared] == [
            reported_ledgers(store, truth[name]) for name in compared
        ]
        assert [read_topic(store, TopicName.parse(name)) for name in compared] == [
            topics[name] for name in compared
        ]
    assert sum(topic.shadow is not None for topic in topics.values()) == 8
    # The broker can't load this one. We use the list in its own record and report why.
    assert isinstance(truth[DELETED]["internalStats"], str)
    assert [(type(fault), fault.source) for fault in faults] == [(NotFoundError, DELETED)]
    assert topics[DELETED].snapshot is not None


class Shadows:
    """A store of topics that are given by the ids of their ledgers."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.faults: list[PulsarMetaError] = []

    def write(self, name: str, *ledgers: int, source: str | None = None, index: str | None = None) -> None:
        info = ManagedLedgerInfo()
        for ledger_id in ledgers:
            info.ledgerInfo.add(ledgerId=ledger_id, entries=1, timestamp=1)
        for key, value in ((SOURCE, source), ("index", index)):
            if value is not None:
                info.properties.add(key=key, value=value)
        self.store.put(TopicName.parse(name).path, info.SerializeToString(), ABSENT)

    def read(self, name: str) -> tuple[list[int], str | None]:
        topic = read_topic(self.store, TopicName.parse(name), self.faults.append)
        return [ledger.ledger_id for ledger in topic.ledgers], topic.snapshot


def test_a_shadow_follows_one_source_and_keeps_its_own_properties() -> None:
    shadows = Shadows()
    shadows.write("source", 1, 2, 3, index="30")
    shadows.write("shadow", 1, source="source", index="10")
    shadows.write("second", source="shadow")
    assert shadows.read("shadow") == ([1, 2, 3], None)
    assert shadows.read("second") == ([1], None)
    topic = read_topic(shadows.store, TopicName.parse("shadow"))
    assert dict(topic.properties) == {SOURCE: "source", "index": "30"}
    assert shadows.faults == []


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        ("gone", NotFoundError, "its source persistent://public/default/gone does not exist"),
        ("shadow", DecodeError, "the topic itself"),
        ("persistent://public/default/shadow", DecodeError, "the topic itself"),
        ("a//b", DecodeError, "invalid name"),
        ("", DecodeError, "invalid name"),
        ("broken", DecodeError, "broken"),
    ],
)
def test_a_shadow_without_its_source_uses_its_own_list_and_reports_it(
    source: str, error: type[PulsarMetaError], says: str
) -> None:
    shadows = Shadows()
    shadows.write("shadow", 1, 2, source=source)
    shadows.store.put(TopicName.parse("broken").path, b"\x0a\xff", ABSENT)
    ledgers, snapshot = shadows.read("shadow")
    assert ledgers == [1, 2]
    assert snapshot is not None
    assert says in snapshot
    assert [type(fault) for fault in shadows.faults] == [error]
    assert [topic.name for topic in named(shadows.store, "shadow", shadows.faults.append)] != []
    assert len(shadows.faults) == 2


def test_two_shadows_of_each_other_do_not_loop() -> None:
    shadows = Shadows()
    shadows.write("one", 1, source="two")
    shadows.write("two", 2, source="one")
    assert (shadows.read("one"), shadows.read("two")) == (([2], None), ([1], None))


class CountingStore(MemoryStore):
    """A store that counts single reads."""

    reads = 0

    def read(self, path: str) -> Versioned:
        self.reads += 1
        return super().read(path)


def test_the_source_of_partitions_is_in_the_partitioned_topics_metadata() -> None:
    shadows, base = Shadows(), TopicName.parse("parted")
    shadows.store = store = CountingStore()
    metadata = json.dumps({"partitions": 3, "properties": {SOURCE: "source"}}).encode()
    store.put(base.partitioned_path, metadata, ABSENT)
    for number in range(3):
        shadows.write(f"source-partition-{number}", number, 10 + number)
        shadows.write(f"parted-partition-{number}", number)
    shadows.write("other-partition-0", 5)
    assert shadows.read("parted-partition-1") == ([1, 11], None)
    assert shadows.read("other-partition-0") == ([5], None)
    store.reads = 0
    ledgers_of = {
        topic.name: [ledger.ledger_id for ledger in topic.ledgers] for topic in topics_in(store, Scope())
    }
    assert ledgers_of[str(base.with_partition(2))] == [2, 12]
    # The records of the sources are read one by one, and those of partitioned topics in one scan.
    assert store.reads == 3
    store.reads = 0
    assert len(list(named(store, "parted", shadows.faults.append))) == 3
    # The partitioned topic is read once for its sources and once for its number, each record with its
    # source's.
    assert store.reads <= 5 + 2 * 3
    one_by_one = ShadowSources(store)
    store.reads = 0
    assert [one_by_one.of(base.with_partition(number), ()) for number in range(3)] == [
        f"source-partition-{number}" for number in range(3)
    ]
    assert store.reads == 1


@pytest.mark.parametrize("properties", [[], {SOURCE: 5}, "text", None])
def test_invalid_sources_of_partitioned_topics_are_ignored(properties: object) -> None:
    shadows, base = Shadows(), TopicName.parse("parted")
    metadata = json.dumps({"partitions": 1, SOURCE: "x", "properties": properties}).encode()
    shadows.store.put(base.partitioned_path, metadata, ABSENT)
    shadows.write("parted-partition-0", 7)
    assert shadows.read("parted-partition-0") == ([7], None)
    shadows.store.put(base.partitioned_path, f'{{"{SOURCE}'.encode(), 0)
    ledgers, snapshot = shadows.read("parted-partition-0")
    assert (ledgers, snapshot is None) == ([7], False)


def test_a_terminated_source_ends_its_shadow() -> None:
    shadows, info = Shadows(), ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=4)
    info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = 4, 6
    shadows.store.put(TopicName.parse("source").path, info.SerializeToString(), ABSENT)
    shadows.write("shadow", 4, source="source")
    topic = read_topic(shadows.store, TopicName.parse("shadow"))
    assert (topic.terminated, topic.ledgers[0].entries) == (Position(4, 6), 7)

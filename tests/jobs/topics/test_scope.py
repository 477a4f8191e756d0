"""The topics that a name selects, also if a record claims a huge number of partitions."""

from __future__ import annotations

import json

import pytest

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.topics.scope import MANY, Scope, chosen_topics, select
from pulsar_meta.jobs.topics.topic import all_named, named
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.memory import MemoryStore

NAME = TopicName.parse("parted")


class CountingStore(MemoryStore):
    """A store that counts its requests."""

    requests = 0

    def read(self, path: str) -> Versioned:
        self.requests += 1
        return super().read(path)

    def children(self, path: str) -> list[str]:
        self.requests += 1
        return super().children(path)


def parted(partitions: object, *numbers: int) -> CountingStore:
    """Build a store with records for these partitions of a topic."""
    store = CountingStore()
    store.put(NAME.partitioned_path, json.dumps({"partitions": partitions}).encode(), ABSENT)
    for number in numbers:
        store.put(NAME.with_partition(number).path, b"", ABSENT)
    store.put(TopicName.parse("other").path, b"", ABSENT)
    return store


@pytest.mark.parametrize("count", [3, MANY + 5, 900_000])
def test_existing_partitions_are_selected_with_few_requests(count: int) -> None:
    store, reported = parted(count, 0, 2), list[PulsarMetaError]()
    store.requests = 0
    expected = [str(NAME.with_partition(number)) for number in (0, 2)]
    assert [topic.name for topic in named(store, "parted", reported.append)] == expected
    assert len(reported) == 1
    paths = [record.path for record in select(store, Scope(topics=("parted",)), "ledger")]
    assert paths == [NAME.with_partition(number).path for number in (0, 2)]
    assert store.requests < 40


@pytest.mark.parametrize("partitions", [100_000_000, 2**70, -1, "3", None, True, 1.5])
def test_an_impossible_number_of_partitions_is_an_error(partitions: object) -> None:
    store, reported = parted(partitions), list[PulsarMetaError]()
    assert list(named(store, "parted", reported.append)) == []
    assert [error.exit_code for error in reported] == [4]
    with pytest.raises(DecodeError):
        list(chosen_topics(store, ["parted"]))


def test_a_topic_in_several_names_is_selected_once() -> None:
    store, reported = parted(2, 0, 1), list[PulsarMetaError]()
    names = [topic.name for topic in all_named(store, ["parted", "public/default", "par*"], reported.append)]
    assert names == [str(NAME.with_partition(0)), str(NAME.with_partition(1)), str(TopicName.parse("other"))]
    assert reported == []
    assert list(named(store, "public/nothing", reported.append)) == []
    assert [error.exit_code for error in reported] == [3]

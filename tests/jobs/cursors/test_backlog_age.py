"""The age of backlogs, compared with the timestamps of all entries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.jobs.cursors.subscriptions import (
    CLASSES,
    ENDS,
    HOUR,
    BacklogAge,
    BacklogAges,
    Subscription,
    SubscriptionReader,
)
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.seek.readings import by_either_clock, read_one
from pulsar_meta.jobs.topics.topic import every_topic
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, pulsar_meta_here

Capture = Callable[[str], Path]
NAMES = ("pulsar-4.2.4-3bookies", "pulsar-2.8.2")
LATE = 2 * 10**12


def ignore(_: object) -> None:
    """Ignore damaged records, which the captures have for other tests."""


class Cluster:
    """The subscriptions of a capture that have a backlog, and the times of its entries."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        store = stack.enter_context(open_store(f"snapshot:{folder}/metadata.ndjson"))
        self.source = stack.enter_context(open_entry_sources([f"bookie-disk:{folder}"], store))
        reader = SubscriptionReader.of(store, self.source, ignore)
        self.subscriptions = [
            subscription
            for topic in every_topic(store, ignore)
            for subscription in reader.all(topic)
            if subscription.backlog is not None and subscription.backlog.runs
        ]

    def times(self, subscription: Subscription) -> list[int | None]:
        """Return the timestamp of each unacknowledged entry."""
        assert subscription.backlog is not None
        return [
            self._time(ledger_id, entry_id)
            for ledger_id, first, last in subscription.backlog.runs
            for entry_id in range(first, last + 1)
        ]

    @cache  # noqa: B019 - the source lives as long as the tests
    def _time(self, ledger_id: int, entry_id: int) -> int | None:
        measured = by_either_clock(read_one(self.source, ledger_id, entry_id))
        return None if measured is None else measured[0]


@pytest.fixture(scope="module")
def clusters(capture: Capture) -> Iterator[list[Cluster]]:
    with ExitStack() as stack:
        yield [Cluster(capture(name), stack) for name in NAMES]


def entry_count(age: BacklogAge) -> int:
    return sum(Counter(age["entries"]).values())


def class_of(age: int) -> str:
    return CLASSES[sum(age > end for end in ENDS)]


def test_classes_agree_with_the_timestamps_of_all_entries(clusters: list[Cluster]) -> None:
    compared = split = 0
    for cluster in clusters:
        for subscription in cluster.subscriptions:
            times = list(filter(None, cluster.times(subscription)))
            assert subscription.backlog is not None
            if len(times) < subscription.backlog.entries or times != sorted(times):
                continue
            for end in ENDS[::3]:
                for at in (0, len(times) // 2):
                    now = times[at] + end
                    age = BacklogAges(cluster.source, now).of(subscription)
                    assert age is not None
                    entries = {name: count for name, count in age["entries"].items() if count}
                    assert entries == Counter(class_of(now - time) for time in times)
                    assert age["since"] == times[0]
                    compared, split = compared + 1, split + (len(entries) > 1)
    assert compared >= 100
    assert split >= 30


def test_without_entries_the_closing_of_the_ledger_is_a_bound(clusters: list[Cluster]) -> None:
    by_ledger = 0
    for cluster in clusters:
        for subscription in cluster.subscriptions:
            exact = BacklogAges(cluster.source, LATE).of(subscription)
            bound = BacklogAges(None, LATE).of(subscription)
            assert exact is not None
            assert bound is not None
            assert bound["oldest"] == exact["oldest"]
            assert entry_count(bound) == entry_count(exact) == subscription.backlog.entries  # type: ignore[union-attr]
            if exact["clock"] == "broker" and bound["since"] is not None:
                assert exact["since"] is not None
                assert exact["since"] <= bound["since"]
                assert bound["clock"] == "ledger"
                by_ledger += 1
    assert by_ledger >= 20


class CountingSource(EntrySource):
    """A source that remembers the entries that were read."""

    url = "counting:"

    def __init__(self, source: EntrySource) -> None:
        self._source = source
        self.entries_read: list[tuple[int, int]] = []

    def ledgers(self) -> list[int]:
        return self._source.ledgers()

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        return self._source.entry_ids(ledger_id, first, last)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        self.entries_read.append((ledger_id, entry_id))
        return self._source.read(ledger_id, entry_id)


def test_few_entries_are_read(clusters: list[Cluster]) -> None:
    [marks, *_] = [
        subscription
        for subscription in clusters[0].subscriptions
        if (subscription.topic.name.rpartition("/")[2], subscription.name) == ("marks", "holes")
    ]
    assert len(marks.topic.ledgers) > 50
    closed = sorted(filter(None, (ledger.closed_at for ledger in marks.topic.ledgers)))
    source = CountingSource(clusters[0].source)
    BacklogAges(source, closed[len(closed) // 2] + HOUR).of(marks)
    # Two entries of each ledger, and six of the ledger that the hour divides.
    assert 0 < len(source.entries_read) <= 2 * len(marks.topic.ledgers) + 12


def test_show_cursor_prints_the_age(capture: Capture) -> None:
    folder = capture(NAMES[0])
    sources = ("--store", f"snapshot:{folder}/metadata.ndjson", "--entries", f"bookie-disk:{folder}")
    done = as_text(pulsar_meta_here("show-cursor", "marks", "holes", *sources, "-o", "json"))
    [document] = json.loads(done.stdout)
    age = document["backlog_age"]
    assert (age["clock"], sum(age["entries"].values())) == ("broker", document["backlog"])
    text = as_text(pulsar_meta_here("show-cursor", "marks", "holes", *sources)).stdout
    assert f"oldest unacknowledged entry: {age['oldest']}, from 20" in text
    assert f"backlog by age: {document['backlog']} " in text
    listed = as_text(pulsar_meta_here("show-cursor", "marks", *sources, "-o", "json")).stdout
    assert age in [line["backlog_age"] for line in json.loads(listed)]
    bound = as_text(pulsar_meta_here("show-cursor", "marks", "holes", *sources[:2])).stdout
    assert f"oldest unacknowledged entry: {age['oldest']}, from before 20" in bound

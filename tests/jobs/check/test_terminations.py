"""A ledger that ends too early in BookKeeper, in a topic that is terminated after that end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.topics.topic import Topic, read_topic
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import check_findings, healthy_store

Capture = Callable[[str], Path]
NAME = TopicName.parse("public/default/terminated")
CODES = ("ledger-end-low", "terminated-after-end")


@pytest.fixture
def store(capture: Capture) -> MemoryStore:
    return healthy_store(capture("pulsar-4.2.4"))


@pytest.fixture
def disks(capture: Capture) -> Iterator[EntrySource]:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4')}"]) as source:
        yield source


def end_early(store: MemoryStore, topic: Topic, by: int) -> None:
    """Let BookKeeper's metadata end the ledger of the termination earlier."""
    assert topic.terminated is not None
    path = ledger_path(topic.terminated.ledger_id)
    decoded = decode_ledger_metadata(store.values[path].value)
    decoded.metadata.lastEntryId -= by
    store.values[path] = store.values[path]._replace(value=encode_ledger_metadata(decoded))


def count(store: MemoryStore, topic: Topic) -> None:
    """Write the entries of the ledger of the termination into the list; a broker leaves them out."""
    assert topic.terminated is not None
    record = store.values[topic.path]
    info = decode_managed_ledger(record.value)
    for ledger in info.ledgerInfo:
        if ledger.ledgerId == topic.terminated.ledger_id:
            ledger.entries = topic.terminated.entry_id + 1
    store.values[topic.path] = record._replace(value=info.SerializeToString())


def terminate_later(store: MemoryStore, topic: Topic, by: int) -> None:
    """Terminate the topic some entries later."""
    record = store.values[topic.path]
    info = decode_managed_ledger(record.value)
    info.terminatedPosition.entryId += by
    store.values[topic.path] = record._replace(value=info.SerializeToString())


def found_in(store: MemoryStore, source: EntrySource | None) -> list[Finding]:
    return [each for each in check_findings(store, source) if each.code in CODES]


def test_a_low_end_that_the_list_contradicts_is_one_finding(store: MemoryStore, disks: EntrySource) -> None:
    topic = read_topic(store, NAME)
    assert topic.terminated is not None
    end_early(store, topic, 2)
    count(store, topic)
    for source, repair in ((None, None), (disks, f"repair count {NAME} {topic.terminated.ledger_id}")):
        [found] = found_in(store, source)
        assert found.code == "ledger-end-low"
        assert f"termination at {topic.terminated.text}" in found.message
        assert found.evidence["terminated"] == list(topic.terminated)
        assert found.repair == (None if repair is None else f"pulsar-meta {repair}")


def test_a_low_end_that_only_disks_contradict_is_one_finding(store: MemoryStore, disks: EntrySource) -> None:
    topic = read_topic(store, NAME)
    end_early(store, topic, 2)
    [found] = found_in(store, disks)
    assert (found.code, "termination at" in found.message) == ("ledger-end-low", True)
    # The termination may be wrong if there are no disks to show the end.
    [found] = found_in(store, None)
    assert (found.code, found.repair) == ("terminated-after-end", None)


def test_a_late_termination_is_moved_back_only_if_disks_show_the_end(
    store: MemoryStore, disks: EntrySource
) -> None:
    topic = read_topic(store, NAME)
    terminate_later(store, topic, 3)
    [found] = found_in(store, None)
    assert (found.code, found.repair) == ("terminated-after-end", None)
    assert "unless BookKeeper's metadata ends the ledger too early (use --entries" in found.message
    [found] = found_in(store, disks)
    assert (found.code, found.repair) == (
        "terminated-after-end",
        f"pulsar-meta repair termination {NAME} --at-end",
    )

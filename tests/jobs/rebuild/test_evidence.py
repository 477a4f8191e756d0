"""What the messages of a ledger on disks reveal."""

from __future__ import annotations

import pytest

from pulsar_meta.jobs.rebuild.evidence import data_clues
from pulsar_meta.stores.memory import MemoryStore
from tests.topic_builder import MemoryEntries, TopicBuilder


@pytest.mark.parametrize(
    ("indexed", "by_broker", "indexes"),
    [
        ((True, True, True), True, (0, 2)),
        ((False, True, True), False, (0, 1)),
        ((False,) * 3, False, (None, None)),
    ],
)
def test_times_are_by_the_broker_only_if_all_entries_have_them(
    indexed: tuple[bool, ...], by_broker: bool, indexes: tuple[int | None, int | None]
) -> None:
    source = MemoryEntries()
    topic = TopicBuilder("t", MemoryStore(), source)
    topic.ledger(7)
    for number, has_index in enumerate(indexed):
        topic.publish(1000 + number, indexed=has_index)
    clues = data_clues(source, 7, "CRC32C")
    assert (clues.messages, clues.times_by_broker, clues.last_time) == (3, by_broker, 1002)
    assert (clues.first_index, clues.last_index) == indexes

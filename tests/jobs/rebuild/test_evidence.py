"""What the messages of a ledger on disks reveal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.rebuild.cursor_ledgers import compacted_clues
from pulsar_meta.jobs.rebuild.evidence import data_clues
from pulsar_meta.jobs.topics.bookkeeper import read_bookkeeper_ledger
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
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


def test_a_compacted_ledger_names_its_data_ledgers_and_its_end(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4")
    path = TopicName.parse("public/default/compacted").cursor_path("__compaction")
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        ledger_id = decode_cursor(store.read(path).value).properties[0].value
        end = read_bookkeeper_ledger(store, ledger_id).compacted_to
    with open_entries([f"bookie-disk:{folder}"]) as source:
        clues = compacted_clues(source, ledger_id, None)
    assert clues.last == end
    assert clues.named == {59, 60}

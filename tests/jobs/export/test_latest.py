"""The latest message of each key equals what a real broker's compaction kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.entries.entry_choice import Bound, Limits, Range, choose
from pulsar_meta.jobs.export.pieces import latest_positions
from pulsar_meta.jobs.messages.reading import MessageOptions, MessageReader
from pulsar_meta.jobs.messages.stream import parts_of, reader_of
from pulsar_meta.jobs.transactions.buffers import compacted_ledgers
from pulsar_meta.stores.registry import open_store
from tests.seek_truth import bookie_urls

TOPIC = TopicName.parse("persistent://public/default/compacted")


def fail(error: PulsarMetaError) -> None:
    raise error


def rows(reader: MessageReader, parts: list[Range]) -> dict[tuple[int, int, int], Document]:
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return {(row["ledger_id"], row["entry_id"], row["batch_index"] or 0): row for row in rows}


def test_the_latest_messages_equal_the_compacted_ledger(capture: Callable[[str], Path]) -> None:
    folder, options = (
        capture("pulsar-4.2.4-killed"),
        MessageOptions(("ledger_id", "entry_id", "batch_index", "key", "payload")),
    )
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries(bookie_urls(folder)) as source,
    ):
        (kept,) = compacted_ledgers(store, source, TOPIC)
        last = source.last_entry(kept.ledger_id)
        theirs = rows(reader_of(store, source, None, options), [Range(kept, 0, last)])
        at = decode_cursor(store.read(TOPIC.cursor_path("__compaction")).value)
        limits = Limits(None, Bound(at.markDeleteEntryId, at.markDeleteLedgerId))
        (choice,) = choose([str(TOPIC)], store, source, fail)
        parts = list(parts_of(choice, limits, source, fail))
        reader = reader_of(store, source, choice.name, options)
        latest = {
            (position[0], position[1], max(position[2], 0)) for position in latest_positions(reader, parts)
        }
        ours = rows(reader, parts)
    assert {place: ours[place] for place in latest} == theirs
    assert len(theirs) == 29

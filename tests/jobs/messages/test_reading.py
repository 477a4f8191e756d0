"""Messages as rows equal those of real clients, however ledgers are split and around lost entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.row_schema import MESSAGE_COLUMNS, checked_names
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.entries.entry_choice import Choice, Limits, Range, choose
from pulsar_meta.jobs.entries.filters import parse_filter
from pulsar_meta.jobs.messages.reading import MessageCounts, MessageOptions
from pulsar_meta.jobs.messages.stream import parts_of, reader_of
from pulsar_meta.jobs.topics.topic import with_bookkeeper
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from tests.message_truth import SAME, compare_rows, compared, source_rows, truth_topics
from tests.seek_truth import bookie_urls, read_truth

CHUNKED = "persistent://public/default/chunked"
ORDERS = "persistent://public/default/orders"
AVRO = "persistent://public/typed/avro"

# The number of messages that clients read in each capture.
TRUTHS = {
    "pulsar-4.2.4-killed": 10_600, "schemas-4.2.4": 97, "transactions-4.2.4": None,
    "pulsar-4.2.4-shadows": None, "pulsar-5.0.0-M1-scalable": None,
}  # fmt: skip


@pytest.mark.parametrize("name", TRUTHS)
def test_rows_equal_the_messages_that_clients_read(capture: Callable[[str], Path], name: str) -> None:
    table = compare_rows(capture(name))
    assert table.wrong == []
    assert table.found[SAME] == (TRUTHS[name] or table.found[SAME]) > 50
    if name == "schemas-4.2.4":
        assert len(table.values) > 15
        assert table.values["AVRO"] == 29


# The number of messages that are not encrypted, in all captures whose truth has messages.
EVERY = {
    "pulsar-2.8.2": 14_623, "pulsar-3.0.7": 14_771, "pulsar-4.0.7": 14_891, "pulsar-5.0.0-M1": 14_891,
    "pulsar-4.2.4": 14_891, "pulsar-4.2.4-3bookies": 14_891, "pulsar-4.2.4-killed": 10_600,
    "pulsar-4.2.4-shadows": 1_160, "schemas-4.2.4": 97,
    "pulsar-5.0.0-M1-scalable": 1_388, "pulsar-5.0.0-M1-scalable-running": 1_408,
    "transactions-4.0.7": 79, "transactions-4.2.4": 79, "transactions-4.2.4-forgotten": 82,
}  # fmt: skip


@pytest.mark.interop
@pytest.mark.parametrize("name", EVERY)
def test_the_data_source_has_every_message_of_every_truth(capture: Callable[[str], Path], name: str) -> None:
    folder = capture(name)
    table = compared(folder, source_rows(folder, truth_topics(read_truth(folder))))
    assert table.wrong == []
    assert table.found[SAME] == EVERY[name]


@pytest.fixture(scope="module")
def folder(capture: Callable[[str], Path]) -> Path:
    return capture("pulsar-4.2.4-killed")


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Store]:
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as opened:
        yield opened


@pytest.fixture(scope="module")
def source(folder: Path) -> Iterator[EntrySource]:
    with open_entries(bookie_urls(folder)) as opened:
        yield opened


class Worn(EntrySource):
    """A source in which some entries are missing and others changed."""

    def __init__(
        self, inner: EntrySource, lost: set[tuple[int, int]], changed: dict[tuple[int, int], bytes]
    ) -> None:
        self.url, self._inner, self._lost, self._changed = "worn:", inner, lost, changed

    def ledgers(self) -> list[int]:
        return self._inner.ledgers()

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        entry_ids = self._inner.entry_ids(ledger_id, first, last)
        return (entry_id for entry_id in entry_ids if (ledger_id, entry_id) not in self._lost)

    def last_entry(self, ledger_id: int) -> int | None:
        return self._inner.last_entry(ledger_id)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        if (ledger_id, entry_id) in self._lost:
            raise NotFoundError("lost")
        entry = self._inner.read(ledger_id, entry_id)
        return replace(entry, data=self._changed.get((ledger_id, entry_id), entry.data))


def fail(error: PulsarMetaError) -> None:
    raise error


def chosen(store: Store, source: EntrySource, topic: str) -> tuple[Choice, list[Range]]:
    (choice,) = choose([topic], store, source, fail)
    complete = replace(choice, ledgers=list(with_bookkeeper(store, choice.ledgers, fail)))
    return complete, list(parts_of(complete, Limits(), source, fail))


def read(
    store: Store | None,
    source: EntrySource,
    choice: Choice,
    parts: list[Range],
    options: MessageOptions | None = None,
) -> tuple[list[Document], MessageCounts]:
    rows, counts = [], MessageCounts()
    for part in parts:
        # Each part has its own reader, as tasks on workers have.
        reader = reader_of(store, source, choice.name, options or MessageOptions(), None, choice.ledgers)
        rows += [row for batch in reader.read(part) for row in batch.to_pylist()]
        counts.merge(reader.counts)
    return rows, counts


def test_a_topic_split_at_any_entry_gives_the_same_rows(store: Store, source: EntrySource) -> None:
    choice, parts = chosen(store, source, CHUNKED)
    expected, counts = read(store, source, choice, parts)
    assert counts.errors == 0
    for size in (1, 2, 3):
        pieces = [
            replace(part, first=at, last=min(at + size - 1, part.last or 0))
            for part in parts
            for at in range(part.first, (part.last or 0) + 1, size)
        ]
        assert read(store, source, choice, pieces)[0] == expected


def test_a_message_with_a_lost_chunk_is_a_row_with_an_error(store: Store, source: EntrySource) -> None:
    choice, parts = chosen(store, source, CHUNKED)
    expected, _ = read(store, source, choice, parts)
    (first, second) = ((row["ledger_id"], row["entry_id"]) for row in expected[:2])
    for lost in range(first[1] + 1, second[1] + 1):
        worn = Worn(source, {(second[0], lost)}, {})
        rows, counts = read(store, worn, choice, parts)
        (error,) = [row for row in rows if row["error"]]
        assert ("the last one" if lost == second[1] else "is not here") in error["error"]
        assert error["payload"] is None
        assert (counts.errors, counts.missing) == (1, 1)
        assert [row for row in rows if not row["error"]] == [expected[0], *expected[2:]]


def test_a_corrupt_entry_is_a_row_with_an_error_and_the_rest_is_read(
    store: Store, source: EntrySource
) -> None:
    choice, parts = chosen(store, source, ORDERS)
    part = parts[0]
    expected, _ = read(store, source, choice, [part])
    data = bytes(source.read(part.ledger.ledger_id, 1).data)
    at = len(data) - len(decode_bookie_entry(data).data)
    ledger_id = part.ledger.ledger_id
    for changed, reason in (
        (data[:20], "expected"),
        (data[:at] + b"\xff" * 20, "no frame"),
        (data[:-1] + bytes([data[-1] ^ 1]), "its digest does not fit"),
    ):
        rows, counts = read(store, Worn(source, set(), {(ledger_id, 1): changed}), choice, [part])
        broken = [row for row in rows if row["error"]]
        assert broken
        assert all(reason in row["error"] and row["entry_id"] == 1 for row in broken)
        assert [row for row in rows if row["entry_id"] != 1] == [
            row for row in expected if row["entry_id"] != 1
        ]
        assert counts.first_errors[0].startswith(f"entry {ledger_id}:1")
        assert not counts.whole


def test_only_wanted_columns_and_matching_messages_are_rows(store: Store, source: EntrySource) -> None:
    choice, parts = chosen(store, source, ORDERS)
    all_rows, _ = read(store, source, choice, parts)
    options = MessageOptions(
        checked_names(["entry_id", "index", "properties"], MESSAGE_COLUMNS, "messages"),
        parse_filter("region=eu"),
        700,
    )
    rows, counts = read(store, source, choice, parts, options)
    expected = [
        {name: row[name] for name in options.columns}
        for row in all_rows
        if row["index"] >= 700 and dict(row["properties"]).get("region") == "eu"
    ]
    assert rows == expected
    assert counts.rows == len(rows) > 100
    assert counts.filtered == len(all_rows) - len(rows)


def test_a_missing_schema_leaves_the_payload_and_an_error(capture: Callable[[str], Path]) -> None:
    folder = capture("schemas-4.2.4")
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries(bookie_urls(folder)) as source,
    ):
        choice, parts = chosen(store, source, AVRO)
        all_rows, _ = read(store, source, choice, parts)
        schemas = {row["schema_version"] for row in all_rows}
        assert schemas == {0, 1, 2}
        listed = {part.ledger.ledger_id for part in parts}
        others = (ledger for ledger in source.ledgers() if ledger not in listed)
        ledger = next(ledger for ledger in others if b"customer" in bytes(source.read(ledger, 0).data))
        rows, counts = read(store, Worn(source, {(ledger, 0)}, {}), choice, parts)
    broken = [row for row in rows if row["error"]]
    assert broken
    assert all(row["payload"] and row["value"] is None for row in broken)
    assert all("schema version" in row["error"] for row in broken)
    assert counts.errors == len(broken) < len(rows)

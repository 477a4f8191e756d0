"""The entries that an export reads, and the size of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.entries.entry_choice import Choice, choice_of
from pulsar_meta.jobs.export.files import NAME, Done, open_manifest
from pulsar_meta.jobs.export.pieces import BYTES_A_FILE, ENTRIES_A_FILE, Piece, Wanted, plan_topic
from pulsar_meta.jobs.topics.topic import Ledger, read_topic
from pulsar_meta.stores.memory import MemoryStore
from tests.topic_builder import MemoryEntries, TopicBuilder

TOPIC = "persistent://public/default/large"


def fail(error: PulsarMetaError) -> None:
    raise error


def planned(ledger: Ledger, folder: Path) -> list[Piece]:
    choice = Choice(TOPIC, [ledger], is_topic=True)
    with open_manifest(folder, {}) as manifest:
        store, source = MemoryStore(), MemoryEntries()
        return list(plan_topic(choice, Wanted(), "parquet", store, source, manifest, fail))


def test_a_ledger_is_split_by_entries_and_by_bytes(tmp_path: Path) -> None:
    large = BYTES_A_FILE // 5
    for number, (entries, entry_size, files) in enumerate(
        [(12, large, [5, 5, 2]), (2, 9 * large, [1, 1]), (ENTRIES_A_FILE + 1, 10, [ENTRIES_A_FILE, 1])]
    ):
        ledger = Ledger(7, entries, "closed", entries * entry_size, topic=TOPIC)
        pieces = planned(ledger, tmp_path / str(number))
        assert [
            part.last + 1 - part.first for piece in pieces for part in piece.parts if part.last is not None
        ] == files
        # Each complete file costs about the same.
        assert abs(pieces[0].cost - ENTRIES_A_FILE) <= ENTRIES_A_FILE // 100


def ranges_of(
    folder: Path, wanted: Wanted, *, open_at: tuple[int, int] | None = None, done: tuple[Done, ...] = ()
) -> list[tuple[int, int, int]]:
    """Plan a topic whose ledgers 1, 2 and 3 have four entries each, one per second from 1000 ms on.

    The entry `open_at` belongs to a transaction that is open. Returns (ledger id, first, last entry).
    """
    store, source = MemoryStore(), MemoryEntries()
    topic = TopicBuilder(TOPIC, store, source)
    for ledger_id in (1, 2, 3):
        topic.ledger(ledger_id)
        for entry_id in range(4):
            time = 1000 * (4 * ledger_id + entry_id - 3)
            topic.publish(time, txn=(ledger_id, entry_id) == open_at)
        topic.close_ledger(time)
    topic.save()
    choice = choice_of(read_topic(store, TopicName.parse(TOPIC)))
    with open_manifest(folder / "export", {}) as manifest:
        for piece in done:
            manifest.add(piece)
        pieces = list(plan_topic(choice, wanted, "parquet", store, source, manifest, fail))
    return [triple for piece in pieces for triple in piece.ranges]


@pytest.mark.parametrize(
    ("open_at", "ranges"),
    [
        (None, [(1, 0, 3), (2, 0, 3), (3, 0, 3)]),
        ((1, 0), []),
        ((1, 1), [(1, 0, 0)]),
        ((2, 0), [(1, 0, 3)]),
        ((2, 1), [(1, 0, 3), (2, 0, 0)]),
        ((3, 3), [(1, 0, 3), (2, 0, 3), (3, 0, 2)]),
    ],
)
def test_readable_messages_end_before_the_first_open_transaction(
    tmp_path: Path, open_at: tuple[int, int] | None, ranges: list[tuple[int, int, int]]
) -> None:
    assert ranges_of(tmp_path, Wanted(readable=True), open_at=open_at) == ranges


@pytest.mark.parametrize(
    ("until", "ranges"),
    [
        (1000, []),
        (4000, [(1, 0, 2)]),
        (4001, [(1, 0, 3)]),
        (5000, [(1, 0, 3)]),
        (6000, [(1, 0, 3), (2, 0, 0)]),
        (9000, [(1, 0, 3), (2, 0, 3)]),
        (12_001, [(1, 0, 3), (2, 0, 3), (3, 0, 3)]),
    ],
)
def test_a_time_at_which_to_end_is_excluded(
    tmp_path: Path, until: int, ranges: list[tuple[int, int, int]]
) -> None:
    assert ranges_of(tmp_path, Wanted(until=until)) == ranges


@pytest.mark.parametrize(("since", "first"), [(1000, (1, 0, 3)), (4000, (1, 3, 3)), (5000, (2, 0, 3))])
def test_a_time_at_which_to_begin_is_included(
    tmp_path: Path, since: int, first: tuple[int, int, int]
) -> None:
    assert ranges_of(tmp_path, Wanted(since=since))[0] == first


def test_the_later_of_an_index_and_a_time_is_where_an_export_begins(tmp_path: Path) -> None:
    assert ranges_of(tmp_path, Wanted(from_index=6, since=2000))[0] == (2, 2, 3)
    assert ranges_of(tmp_path, Wanted(from_index=1, since=7000))[0] == (2, 2, 3)


@pytest.mark.parametrize(
    ("content", "ranges"),
    [
        (b"four", [(1, 0, 0), (1, 3, 3), (2, 0, 3), (3, 0, 3)]),
        (b"five!", [(1, 0, 0), (1, 1, 2), (1, 3, 3), (2, 0, 3), (3, 0, 3)]),
        (None, [(1, 0, 0), (1, 1, 2), (1, 3, 3), (2, 0, 3), (3, 0, 3)]),
    ],
)
def test_a_file_that_is_missing_or_has_another_size_is_exported_again(
    tmp_path: Path, content: bytes | None, ranges: list[tuple[int, int, int]]
) -> None:
    done = Done(TOPIC, ((1, 1, 2),), 2, True, file="f.parquet", size=4)
    with open_manifest(tmp_path / "export", {}):
        if content is not None:
            (tmp_path / "export" / "f.parquet").write_bytes(content)
    assert ranges_of(tmp_path, Wanted(), done=(done,)) == ranges


def test_entries_without_messages_are_exported_once_without_a_file(tmp_path: Path) -> None:
    done = Done(TOPIC, ((2, 0, 3),), 0, True)
    assert ranges_of(tmp_path, Wanted(), done=(done,)) == [(1, 0, 3), (3, 0, 3)]


def test_exported_pieces_are_known_in_the_next_run(tmp_path: Path) -> None:
    first = Done(TOPIC, ((1, 0, 3),), 4, True, scalable_topic="topic://public/default/s")
    second = Done(TOPIC, ((2, 0, 3),), 4, True)
    with open_manifest(tmp_path, {}) as manifest:
        manifest.add(second)
        manifest.add(first)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"topic":"a run was killed here')
    with open_manifest(tmp_path, {}) as manifest:
        assert (manifest.of_topic(TOPIC), manifest.count) == ([first, second], 2)
        manifest.add(Done(TOPIC, ((3, 0, 3),), 4, True))
    with open_manifest(tmp_path, {}) as manifest:
        assert manifest.count == 3

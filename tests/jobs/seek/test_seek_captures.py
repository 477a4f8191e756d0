"""Seek equals the truth of real brokers' captures, and each difference from a broker has a known reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.seek.questions import SeekOptions
from pulsar_meta.jobs.topics.topic import Position
from tests.nightly import mostly_at_night
from tests.seek_truth import (
    BOTH_NOWHERE,
    CAPTURES,
    COMPACTED,
    FIRST_ENTRY,
    NEXT_POSITION,
    NO_CALL,
    NO_METADATA,
    SAME,
    TERMINATED,
    TERMINATED_TIME,
    CaptureSeek,
    bookie_urls,
    compare_capture,
)

Capture = Callable[[str], Path]
Opener = Callable[..., CaptureSeek]
WITH_INDEX_CALL = {"pulsar-4.2.4", "pulsar-4.2.4-killed", "pulsar-4.2.4-3bookies", "pulsar-5.0.0-M1"}
ORDERS = "persistent://public/default/orders"


@pytest.fixture
def opened_capture(capture: Capture) -> Iterator[Opener]:
    """A function that opens a capture for seeking. It is closed at the end."""
    with ExitStack() as stack:
        yield lambda name, *options: stack.enter_context(closing(CaptureSeek(capture(name), *options)))


@pytest.mark.parametrize(
    "name", mostly_at_night(CAPTURES, "pulsar-2.8.2", "pulsar-4.2.4-3bookies", "pulsar-5.0.0-M1")
)
def test_every_index_and_time_equals_the_truth(capture: Capture, name: str) -> None:
    table = compare_capture(capture(name))
    assert table.wrong == []
    few = "-scalable" in name
    assert table.indexes == table.indexes_right > (1300 if few else 10_000)
    assert table.times == table.times_right > (300 if few else 1700)
    if name in WITH_INDEX_CALL:
        assert set(table.by_index) == {SAME, BOTH_NOWHERE, FIRST_ENTRY, NO_METADATA, TERMINATED}
        assert table.by_index[SAME] > 4000
    else:
        assert not table.by_index
    allowed = {SAME, NEXT_POSITION, COMPACTED, TERMINATED_TIME}
    assert set(table.by_time) <= ({NO_CALL} if name == "pulsar-2.8.2" else allowed)


@pytest.mark.parametrize(
    ("topic", "index", "status"),
    [
        ("orders", 4500, "after-last"),
        ("late-index", 700, "after-last"),
        ("plain-old", 0, "no-index"),
        ("empty", 0, "after-last"),
        ("public/zero/trimmed", 0, "before-first"),
        ("public/zero/trimmed", 10**9, "after-last"),
        ("terminated", 120, "after-last"),
        ("nobody-made-this", 0, "no-topic"),
    ],
)
def test_indexes_that_do_not_exist_have_their_status(
    opened_capture: Opener, topic: str, index: int, status: str
) -> None:
    name = topic if "/" in topic else f"public/default/{topic}"
    opened = opened_capture("pulsar-4.2.4")
    answer = opened.ask(f"persistent://{name}", "index", index)
    assert (answer["status"], "ledger_id" in answer) == (status, False)


def test_entries_on_other_disks_are_missing(opened_capture: Opener) -> None:
    opened = opened_capture("pulsar-4.2.4-3bookies")
    opened.source.close()
    # One of three bookies has two of three entries of a striped ledger.
    opened.source = open_entries(bookie_urls(opened.folder)[:1])
    statuses: Counter[str] = Counter()
    for message in opened.truth[ORDERS]["messages"]:
        on_disk = message["e"] in set(opened.source.entry_ids(message["l"], message["e"], message["e"]))
        answer = opened.ask(ORDERS, "index", message["ix"])
        assert answer["status"] == ("found" if on_disk else "missing-ledger")
        assert not on_disk or (answer["ledger_id"], answer["entry_id"]) == (message["l"], message["e"])
        statuses[answer["status"]] += 1
    assert min(statuses["found"], statuses["missing-ledger"]) > 1000


def test_a_cursor_hides_entries_up_to_its_mark_delete_position(opened_capture: Opener) -> None:
    truth = opened_capture("pulsar-4.2.4").truth
    cursor = truth[ORDERS]["internalStats"]["cursors"]["batch-idx"]
    passed = Position(*map(int, cursor["markDeletePosition"].split(":")))
    opened = opened_capture("pulsar-4.2.4", SeekOptions(cursor="batch-idx"))
    for message in opened.truth[ORDERS]["messages"][::13]:
        answer = opened.ask(ORDERS, "index", message["ix"])
        hidden = Position(message["l"], message["e"]) <= passed
        assert answer["status"] == ("before-first" if hidden else "found")


@pytest.mark.parametrize("after", [Position(64, 3), Position(81, 7)])
def test_the_later_one_of_a_cursor_and_a_position_hides_entries(
    opened_capture: Opener, after: Position
) -> None:
    marks = "persistent://public/default/marks"
    opened = opened_capture("pulsar-4.2.4", SeekOptions(cursor="cumulative", after=after))
    cursor = opened.truth[marks]["internalStats"]["cursors"]["cumulative"]
    passed = Position(*map(int, cursor["markDeletePosition"].split(":")))
    assert Position(64, 3) < passed < Position(81, 7)
    for message in opened.truth[marks]["messages"][::31]:
        answer = opened.ask(marks, "index", message["ix"])
        hidden = Position(message["l"], message["e"]) <= max(passed, after)
        assert answer["status"] == ("before-first" if hidden else "found")


def test_a_search_needs_few_reads(opened_capture: Opener) -> None:
    opened = opened_capture("pulsar-4.2.4")
    reads = []
    for message in opened.truth[ORDERS]["messages"][::41]:
        opened.seekers.clear()
        reads.append(opened.ask(ORDERS, "index", message["ix"])["entries_read"])
    # 163 entries in batches of 1 to 314 messages, read one at a time. Pulsar's OpFindNewest needs about 12
    # reads.
    assert sum(reads) / len(reads) < 6
    assert max(reads) <= 14

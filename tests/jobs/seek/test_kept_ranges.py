"""Ranges of ledgers that are kept in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.jobs.seek.questions import INDEX, Question, SeekOptions
from pulsar_meta.jobs.seek.ranges import IndexRange, KeptRanges, Router, read_kept_ranges
from pulsar_meta.jobs.seek.seek import Cluster, seek_clusters
from tests.made_topics import TOPIC, BruteForce, MadeEntries, MadeTopic, Recipe, make_topic

LONG = Recipe(3000, 5, without_index=0.1, gaps=0.2)


def ask(
    topic: MadeTopic, source: MadeEntries, index: int, kept: KeptRanges | None
) -> tuple[str, int | None, int]:
    """Return the status and the ledger of an answer, and how many entries were read."""
    before, question = source.reads, Question(TOPIC, INDEX, index)
    cluster = Cluster(topic.store(), source, ())
    (answer,) = seek_clusters([(cluster, [question])], SeekOptions(), print, kept)
    assert BruteForce(topic).wrong(question, {**answer}) is None
    return answer["status"], answer.get("ledger_id"), source.reads - before


def test_a_second_run_reads_only_the_answer(tmp_path: Path) -> None:
    topic, file = make_topic(LONG, 3), tmp_path / "ranges.parquet"
    source, brute, kept = MadeEntries(topic), BruteForce(topic), KeptRanges()
    present = sorted(brute.holders)[len(brute.holders) // 2]
    absent = next(index for index in range(present, present + 1000) if index not in brute.holders)
    assert ask(topic, source, absent, None)[0] == "unknown"
    assert ask(topic, source, present, kept)[2] > 3000
    with file.open("wb") as out:
        kept.write(out)
    again = read_kept_ranges(file)
    assert again.of(None, TOPIC) == kept.of(None, TOPIC)
    status, _, reads = ask(topic, source, present, again)
    assert (status, reads < 10) == ("found", True)
    status, _, reads = ask(topic, source, absent, again)
    assert (status == "unknown", reads < 20) == (False, True)


def test_the_range_of_a_ledger_that_has_grown_is_read_again() -> None:
    topic, kept = make_topic(Recipe(20, 9), 1), KeptRanges()
    source, last = MadeEntries(topic), max(topic.ledgers)
    ask(topic, source, 0, kept)
    wrong = [
        row._replace(low=10**6, high=10**6, entries=row.entries + 1) for row in kept.of(None, TOPIC).values()
    ]
    kept.keep(None, TOPIC, wrong)
    index = max(BruteForce(topic).holders)
    assert ask(topic, source, index, kept)[:2] == ("found", last)


def test_ranges_that_rest_on_missing_entries_are_not_kept() -> None:
    kept = KeptRanges()
    rows = [
        IndexRange(1, 5, 0, 9),
        IndexRange(2, 5, 10, 19, "missing-ledger"),
        IndexRange(3, 5, 20, 29, None, "unreadable"),
        IndexRange(4, 5, 30, None, is_complete=False),
        IndexRange(5, 5, None, None, "no-index"),
    ]
    kept.keep("east", TOPIC, rows)
    assert list(kept.of("east", TOPIC)) == [1, 5]


def test_another_file_is_no_file_of_ranges(tmp_path: Path) -> None:
    file = tmp_path / "ranges.parquet"
    file.write_text("something")
    with pytest.raises(DecodeError, match="not a file of kept ranges"):
        read_kept_ranges(file)


def test_every_ledger_whose_range_includes_an_index_is_a_candidate() -> None:
    rows = [
        IndexRange(1, 5, 0, 100),
        IndexRange(2, 5, None, None, "no-index"),
        IndexRange(3, 5, 40, 60, None, "no-index"),
        IndexRange(4, 5, 200, 210),
        IndexRange(5, 5, 50, None, is_complete=False),
    ]
    router = Router(rows)
    assert router.candidates(55) == [0, 2, 4]
    assert router.candidates(150) == [4]
    assert Router(rows[:4]).candidates(150) == []
    assert Router(rows[:4]).absent(150) == "no-index"
    assert Router(rows[3:4]).absent(150) == "before-first"
    assert Router(rows[:1]).absent(150) == "after-last"
    assert Router([]).absent(150) == "after-last"

"""Work sent to Spark's workers: the same results as in one process, in the same order."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.index.check import check_indexes
from pulsar_meta.jobs.index.properties import first_index
from pulsar_meta.jobs.spark.commands import check_indexes_with_spark, first_indexes_with_spark
from pulsar_meta.jobs.spark.workers import Pace, Task, divide, map_on_workers
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.jobs.topics.topic import topic_of
from pulsar_meta.stores.registry import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SPARK = SparkSettings()


@pytest.fixture
def sources(capture: Callable[[str], Path]) -> Sources:
    folder = capture("pulsar-4.2.4")
    return Sources(f"snapshot:{folder / 'metadata.ndjson'}", (f"bookie-disk:{folder / 'bookie0'}",))


def test_checks_and_first_indexes_equal_those_of_one_process(session: SparkSession, sources: Sources) -> None:
    assert sources.store is not None
    with open_store(sources.store) as store, open_entries(sources.urls) as source:
        topics = list(map(topic_of, chosen_topics(store, [], everything=True)))
        by_spark = list(check_indexes_with_spark(sources, topics, "first-index", SparkSettings()))
        assert by_spark == list(check_indexes(source, topics, "first-index"))
        ledgers = [ledger.ledger_id for topic in topics for ledger in topic.ledgers]
        assert first_indexes_with_spark(session, sources, ledgers, SparkSettings()) == [
            first_index(source, ledger) for ledger in ledgers
        ]


def newest(opened: Opened, ledger_id: int) -> tuple[int, int | None, bool]:
    return ledger_id, opened.entries.last_entry(ledger_id), opened.store is not None


@pytest.mark.parametrize("streaming", [False, True])
def test_results_have_the_order_of_the_tasks(
    session: SparkSession, sources: Sources, streaming: bool
) -> None:
    with open_entries(sources.urls) as source:
        ledgers = list(source.ledgers())[:50]
        expected = [(ledger, source.last_entry(ledger), True) for ledger in ledgers]
    tasks = [Task(sources, ledger, ledger % 7) for ledger in ledgers]
    assert list(map_on_workers(session, tasks, newest, SPARK, streaming=streaming)) == expected
    nothing: list[Task[int]] = []
    assert list(map_on_workers(session, nothing, newest, SPARK, streaming=streaming)) == []


def test_tasks_of_one_job_may_have_different_sources(session: SparkSession, sources: Sources) -> None:
    without = Sources(None, sources.urls)
    tasks = [Task(task_sources, 21) for task_sources in (sources, without, sources, without)]
    results = list(map_on_workers(session, tasks, newest, SPARK))
    assert [known for _, _, known in results] == [True, False, True, False]


def fail_from(limit: int, opened: Opened, number: int) -> int:
    if number >= limit:
        raise PulsarMetaError(f"number {number}")
    return number


@pytest.mark.parametrize("streaming", [False, True])
def test_results_before_an_error_are_returned(
    session: SparkSession, sources: Sources, streaming: bool
) -> None:
    tasks = [Task(sources, number) for number in range(20)]
    results = []
    with pytest.raises(PulsarMetaError, match="number 13"):
        for result in map_on_workers(session, tasks, partial(fail_from, 13), SPARK, streaming=streaming):
            results.append(result)
    assert results == list(range(13))


def test_a_note_of_many_workers_is_printed_once(
    session: SparkSession, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "bookie"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", folder, ignore=shutil.ignore_patterns("locations"))
    sources = Sources(None, (f"bookie-disk:{folder}",))
    with open_entries(sources.urls) as source:
        expected = list(source.notes)
        ledgers = source.ledgers()[:20]
    assert len(expected) == 1
    notes: list[str] = []
    tasks = [Task(sources, ledger) for ledger in ledgers]
    assert len(list(map_on_workers(session, tasks, newest, SparkSettings(note=notes.append)))) == 20
    assert notes == expected


def test_a_fault_of_many_workers_is_reported_once(
    session: SparkSession, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "bookie"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", folder)
    (folder / "current" / "80000000.log").write_bytes(b"")
    sources = Sources(None, (f"bookie-disk:{folder}?index=scan",))
    with open_entries(sources.urls) as source:
        expected = list(map(str, source.faults))
        tasks = [Task(sources, ledger) for ledger in source.ledgers()[:20]]
    assert len(expected) == 1
    notes: list[str] = []
    faults: list[PulsarMetaError] = []
    spark = SparkSettings(note=notes.append, report=faults.append)
    assert len(list(map_on_workers(session, tasks, newest, spark))) == 20
    assert (notes, list(map(str, faults))) == ([], expected)
    assert {fault.exit_code for fault in faults} == {4}


def test_an_error_of_a_worker_is_raised_here(session: SparkSession, tmp_path: Path) -> None:
    sources = Sources(None, (f"nowhere:{tmp_path}",))
    with pytest.raises(UsageError, match="unknown entry source"):
        first_indexes_with_spark(session, sources, [1, 2], SparkSettings())


def test_partitions_have_similar_costs() -> None:
    nothing = Sources(None, ())
    tasks = [(number, Task(nothing, number, 1000 + number % 100 * 1000)) for number in range(500)]
    partitions = divide(tasks, 8)
    costs = [sum(task.cost for _, task in partition) for partition in partitions]
    assert len(partitions) == 8
    assert max(costs) < 1.05 * min(costs)
    assert sorted(number for partition in partitions for number, _ in partition) == list(range(500))
    assert divide([], 8) == []


def sizes(pace: Pace, seconds: list[float], *, cost: int = 10, cores: int = 2) -> list[int]:
    """Return the number of tasks in each job if the jobs take `seconds`."""
    tasks, counts = enumerate(Task(Sources(None, ()), number, cost) for number in range(1000)), []
    for second in seconds:
        counts.append(len(pace.take(tasks, cores)))
        pace.took(second)
    return counts


def test_jobs_grow_until_they_take_the_intended_time() -> None:
    assert sizes(Pace(60), [1, 1, 1, 40, 60, 120, 60]) == [2, 8, 32, 128, 192, 192, 96]
    assert sizes(Pace(0), [1, 1, 1]) == [2, 2, 2]
    # Each core gets a task even after a slow job, and at the end there are no tasks left.
    assert sizes(Pace(60), [9000, 9000]) == [2, 2]
    assert sizes(Pace(60), [1] * 8)[-3:] == [318, 0, 0]

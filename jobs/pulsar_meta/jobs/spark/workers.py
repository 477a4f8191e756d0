"""Run tasks on Spark's workers. Each worker opens the sources, does its tasks and returns the results.

Tasks and results are plain values such as URLs, ranges and ledger ids. A PulsarMetaError in a worker is also
returned as a value, and raised in the driver.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Several partitions per core, so that one slow partition does not delay the end of the job.
PARTITIONS_PER_CORE: Final = 4
# The cost of opening a ledger, in entries.
LEDGER_COST: Final = 1000
# The largest factor by which a job is larger than the previous one.
GROWTH: Final = 4.0

Input = TypeVar("Input")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Task(Generic[Input]):
    """One piece of work: the sources of its entries, the input, and its cost relative to other tasks."""

    sources: Sources
    input: Input
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of a partition's sources, and the damage that they found. Comes before the results."""

    texts: tuple[str, ...]
    faults: tuple[DecodeError, ...]


Numbered = tuple[int, Task[Input]]


def map_on_workers(
    session: SparkSession,
    tasks: Iterable[Task[Input]],
    work: Callable[[Opened, Input], Result],
    spark: SparkSettings,
    *,
    streaming: bool = False,
    job_seconds: float = 0.0,
) -> Iterator[Result]:
    """Yield the result of `work`, a function of a module, for each task, in the order of the tasks.

    Notes of the sources go to `spark.note`, and damage that they found to `spark.report`, each text once.

    All tasks are one job. With `streaming`, a job has one task per core, so that only these results are in
    memory. With `job_seconds` as well, later jobs have more tasks and take about that long, because cores
    are idle at the end of each job. Raises the PulsarMetaError of a worker.
    """
    context = session.sparkContext
    waiting = enumerate(tasks)
    news, pace = News(spark), Pace(job_seconds)
    while some := pace.take(waiting, context.defaultParallelism) if streaming else list(waiting):
        partitions = divide(some, context.defaultParallelism * PARTITIONS_PER_CORE)
        begun = time.monotonic()
        done = context.parallelize(partitions, len(partitions)).flatMap(partial(_do, work)).collect()
        pace.took(time.monotonic() - begun)
        for _, result in sorted(done, key=lambda one: one[0]):
            if isinstance(result, Notes):
                news.pass_on(result)
            elif isinstance(result, PulsarMetaError):
                raise result
            else:
                yield result


class Pace:
    """Chooses the size of jobs: one task per core at first, later as many as take `seconds`."""

    def __init__(self, seconds: float) -> None:
        """With 0 seconds, every job has one task per core."""
        self._seconds = seconds
        self._cost, self._most = 0, 0.0

    def take(self, tasks: Iterator[Numbered[Input]], cores: int) -> list[Numbered[Input]]:
        """Return the tasks of the next job, an empty list at the end."""
        taken: list[Numbered[Input]] = []
        self._cost = 0
        while len(taken) < cores or self._cost < self._most:
            found = next(tasks, None)
            if found is None:
                break
            taken.append(found)
            self._cost += found[1].cost
        return taken

    def took(self, seconds: float) -> None:
        """Choose the size of the next job by the time of the last one; it grows by at most GROWTH."""
        self._most = self._cost * min(GROWTH, self._seconds / max(seconds, 0.01))


class News:
    """Passes on the notes of sources, each text once, because several workers open the same sources."""

    def __init__(self, spark: SparkSettings) -> None:
        self._spark = spark
        self._known: set[str] = set()

    def pass_on(self, notes: Notes) -> None:
        """Give texts to `spark.note` and damage to `spark.report`, unless they came before."""
        for text in notes.texts:
            if self._is_new(text):
                self._spark.note(text)
        for fault in notes.faults:
            if self._is_new(str(fault)):
                self._spark.report(fault)

    def _is_new(self, text: str) -> bool:
        new = text not in self._known
        self._known.add(text)
        return new


def divide(tasks: Sequence[Numbered[Input]], count: int) -> list[list[Numbered[Input]]]:
    """Return at most `count` partitions of about equal cost, the most expensive tasks placed first."""
    partitions: list[list[Numbered[Input]]] = [[] for _ in range(min(count, len(tasks)))]
    costs = [(0, at) for at in range(len(partitions))]
    for numbered in sorted(tasks, key=lambda one: one[1].cost, reverse=True):
        cost, least = costs[0]
        partitions[least].append(numbered)
        heapq.heapreplace(costs, (cost + numbered[1].cost, least))
    return [sorted(partition, key=lambda one: one[0]) for partition in partitions]


def _do(
    work: Callable[[Opened, Input], Result], partition: Sequence[Numbered[Input]]
) -> Iterator[tuple[int, Result | PulsarMetaError | Notes]]:
    """Yield (number, result) for a partition's tasks. A PulsarMetaError replaces the last result."""
    number = partition[0][0]
    try:
        for sources, numbered in groupby(partition, key=lambda one: one[1].sources):
            with sources.opened() as opened:
                for number, task in numbered:
                    yield number, work(opened, task.input)
                yield -1, Notes(tuple(opened.entries.notes), tuple(opened.entries.faults))
    except PulsarMetaError as error:
        yield number, error

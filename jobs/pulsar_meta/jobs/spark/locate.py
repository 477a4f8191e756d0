"""Locate: answers a DataFrame of questions with a DataFrame, in a Spark session of the user's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.seek.questions import INDEX, TIME, Kind, Question, SeekOptions, expand
from pulsar_meta.jobs.seek.ranges import IndexRange, read_kept_ranges
from pulsar_meta.jobs.seek.seek import Cluster
from pulsar_meta.jobs.spark.locator import Answered, Locator, Numbered, Result, Topics
from pulsar_meta.jobs.spark.seek import kept_numbers, plan_cluster
from pulsar_meta.stores.registry import open_store

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, Row, SparkSession


ANSWER: Final = (
    "asked string, topic string, scalable_topic string, index long, time long, status string, reason string,"
    " ledger_id long, entry_id long, batch_index int, first_index long, last_index long,"
    " broker_timestamp long, clock string, publish_time long, entries_read long"
)
_FIELDS: Final = tuple(column.split()[0] for column in ANSWER.split(", "))[1:]
# A partition of a DataFrame has fewer questions.
_QUESTIONS_PER_PARTITION: Final = 2**40

# The number of each topic that a name means, and the scalable topic of which it is a segment.
Names = Mapping[str, Sequence[tuple[int, str | None]]]


def locate(
    spark: SparkSession,
    questions: DataFrame,
    *,
    store: str,
    entries: str | Sequence[str],
    ranges: str | None = None,
    exhaustive: bool = False,
) -> DataFrame:
    """Find the entry that holds an index, or the first entry at or after a time, for each row of `questions`.

    `questions` has the columns `topic` and `index` or `time` (milliseconds); a row fills one of the two.
    `store` and `entries` are URLs that every worker can open, `ranges` is a file of `seek --save-ranges`. The
    answers have the fields of `seek -o json` as columns, and `asked`, the topic as `questions` has it. A
    partitioned topic, and a scalable one, has an answer for each of its parts. Ranges are read now, the other
    entries when the answers are used. The driver does not hold questions or answers.

    Raises UsageError for wrong columns, names and URLs, and UnreachableError if the store does not answer.
    """
    kinds = [kind for kind in (INDEX, TIME) if kind in questions.columns]
    if "topic" not in questions.columns or not kinds:
        raise UsageError("questions need the columns topic and index or time")
    urls = (entries,) if isinstance(entries, str) else tuple(entries)
    names = [row[0] for row in questions.select("topic").distinct().collect()]
    topics, parts = _topics(names, store, urls, SeekOptions(exhaustive=exhaustive))
    known: Mapping[int, IndexRange] = {}
    if ranges is not None:
        kept = read_kept_ranges(Path(ranges))
        known = kept_numbers(topics, [kept.of(None, plan.topic) for plan in topics.plans])
    by_index = range(len(topics.plans)) if INDEX in kinds else ()
    locator = Locator(spark, topics, SparkSettings(), by_index=by_index, kept=known)
    sent = spark.sparkContext.broadcast(parts)
    asked = questions.select("topic", *kinds).rdd.mapPartitionsWithIndex(partial(_from_rows, sent))
    return spark.createDataFrame(locator.answers(asked).flatMap(_to_row), ANSWER)


def _topics(
    names: Sequence[str], store: str, urls: tuple[str, ...], options: SeekOptions
) -> tuple[Topics, Names]:
    """Read the records of the topics that are named, and of their partitions or segments."""
    note = SparkSettings().note
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(store))
        cluster = Cluster(opened, stack.enter_context(open_entry_sources(urls, opened)), urls)
        asked = {name: list(expand(opened, [Question(name, INDEX, 0)], None, note)) for name in names}
        questions = [question for parts in asked.values() for question in parts]
        plans = plan_cluster(cluster, questions, options, note).plans
    numbers = {topic: number for number, topic in enumerate(plans)}
    parts = {
        name: [(numbers[question.topic], question.scalable_topic) for question in of_name]
        for name, of_name in asked.items()
    }
    return Topics(tuple(plans.values()), (Sources(store, urls),) * len(plans), options), parts


def _from_rows(sent: Broadcast[Names], partition: int, rows: Iterable[Row]) -> Iterator[Numbered]:
    key = partition * _QUESTIONS_PER_PARTITION
    for row in rows:
        fields = row.asDict()
        targets: list[tuple[Kind, int]] = [
            (kind, fields[kind]) for kind in (INDEX, TIME) if fields.get(kind) is not None
        ]
        if len(targets) != 1:
            raise UsageError(f"a question about {row['topic']} needs an index or a time")
        for topic, scalable in sent.value[row["topic"]]:
            yield Numbered(key, topic, Question(row["topic"], *targets[0], scalable_topic=scalable))
            key += 1


def _to_row(result: Result) -> Iterator[tuple[Any, ...]]:
    if isinstance(result, PulsarMetaError):
        raise result
    if isinstance(result, Answered) and result.answer is not None:
        answer: Document = {**result.answer}
        yield (result.numbered.question.topic, *(answer.get(name) for name in _FIELDS))

"""Indexes by Spark: ledgers checked, and the indexes of their first messages read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.index.build import first_index
from pulsar_meta.jobs.index.check import check_topic
from pulsar_meta.jobs.index.scan import LedgerScan, scan_ledger
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import LEDGER_COST, Task, map_on_workers
from pulsar_meta.jobs.topics.topic import Ledger, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_indexes_with_spark(
    sources: Sources, topics: Sequence[Topic], key: str, spark: SparkSettings
) -> Iterator[Document]:
    """Yield what `check_indexes` does, the ledgers scanned by Spark.

    UnreachableError where Spark does not start, PulsarMetaError for a job that fails.
    """
    ledgers = {one.ledger_id: one for topic in topics for one in topic.ledgers}
    tasks = [Task(sources, one, LEDGER_COST + (one.entries or 0)) for one in ledgers.values()]
    with spark_session(spark) as session:
        scans = dict(zip(ledgers, map_on_workers(session, tasks, scan, spark), strict=True))
    for topic in topics:
        yield from check_topic(topic, scans, key)


def first_indexes_with_spark(
    session: SparkSession, sources: Sources, ledger_ids: Sequence[int], spark: SparkSettings
) -> list[int | str]:
    """Return the first index of each ledger, or why there is none, read by Spark."""
    return list(map_on_workers(session, [Task(sources, one) for one in ledger_ids], read_first, spark))


def scan(opened: Opened, ledger: Ledger) -> LedgerScan:
    """Scan a ledger's indexes."""
    return scan_ledger(opened.entries, ledger)


def read_first(opened: Opened, ledger_id: int) -> int | str:
    """Read the index of a ledger's first message."""
    return first_index(opened.entries, ledger_id)

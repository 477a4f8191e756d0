"""Entries filtered by Spark: the same documents, counts and faults as in one process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_choice import Coverage, Limits, choose, ranges
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe_matching
from pulsar_meta.jobs.entries.entry_reading import read_entries
from pulsar_meta.jobs.entries.entry_sources import Sources
from pulsar_meta.jobs.entries.filters import EntryFilter, FilterCounts, parse_filter
from pulsar_meta.jobs.spark.commands import match_with_spark
from pulsar_meta.jobs.topics.topic import with_bookkeeper
from pulsar_meta.stores.registry import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def damaged(capture: Callable[[str], Path], tmp_path: Path) -> Sources:
    """A cluster whose only bookie lost the second half of its largest entry log."""
    folder = tmp_path / "cluster"
    shutil.copytree(capture("pulsar-4.2.4"), folder)
    log = max(folder.glob("bookie0/current/*.log"), key=lambda path: path.stat().st_size)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 2)
    return Sources(f"snapshot:{folder}/metadata.ndjson", (f"bookie-disk:{folder}/bookie0?index=scan",))


def test_missing_and_corrupt_entries_are_reported_by_spark_too(
    session: SparkSession, damaged: Sources
) -> None:
    chosen, look = EntryFilter(parse_filter("a or not a"), "any", frozenset(), 1 << 20), DumpOptions()
    here: list[PulsarMetaError] = []
    there: list[PulsarMetaError] = []
    here_counts, there_counts = FilterCounts(), FilterCounts()
    coverage, sent = Coverage(), Coverage()
    assert damaged.store is not None
    with open_store(damaged.store) as store, open_entries(damaged.urls) as source:
        topics = ["orders", "marks", "plain"]
        choices = list(choose(topics, store, source, here.append))
        places = [(choice, Limits()) for choice in choices]
        entries = read_entries(places, source, store, here.append, coverage)
        local = list(describe_matching(entries, chosen, here_counts, look, None, here.append))
        parts = [part for choice in choices for part in ranges(choice, Limits(), source)]
        ledgers = with_bookkeeper(store, (part.ledger for part in parts), there.append)
        sent_parts = list(zip(parts, ledgers, strict=True))
        by_spark = match_with_spark(
            damaged, sent_parts, chosen, look, there_counts, sent, there.append, SparkSettings()
        )
        assert list(by_spark) == local
    assert there_counts == here_counts
    assert (sent.ledgers, sent.entries) == (coverage.ledgers, coverage.entries)
    assert list(map(str, there)) == list(map(str, here))
    assert any("no source has" in str(fault) for fault in there)

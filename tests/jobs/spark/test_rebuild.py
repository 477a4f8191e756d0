"""Ledgers scanned by Spark's workers: the same results as in one process, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Sources
from pulsar_meta.jobs.rebuild.scan import LedgerScan, WorkFile, local_scanner, work_file_head
from pulsar_meta.jobs.spark.commands import LEDGERS_PER_TASK, scan_with_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_scans_by_spark_equal_those_of_one_process(
    session: SparkSession, capture: Callable[[str], Path]
) -> None:
    urls = (f"bookie-disk:{capture('transactions-4.2.4')}",)
    faults: list[PulsarMetaError] = []
    with open_entries(urls) as source:
        ledgers = source.ledgers()
        here = list(local_scanner(source, faults.append, password=b"", lost=())(ledgers))
    by_spark = scan_with_spark(Sources(None, urls), b"", (), faults.append, SparkSettings())
    # There is more than one task, and the last one is short.
    assert list(by_spark([*ledgers, *ledgers[:9]])) == [*here, *here[:9]]
    assert len(ledgers) + 9 > LEDGERS_PER_TASK
    assert not faults


def test_a_stopped_run_is_resumed_by_spark(
    session: SparkSession, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    urls, password = (f"bookie-disk:{capture('transactions-4.2.4')}",), b""
    head, scanned = work_file_head(urls, (), password, tool="x", taken="now"), list[int]()
    by_spark = scan_with_spark(Sources(None, urls), password, (), print, SparkSettings())

    def counted(ledger_ids: Iterable[int]) -> Iterator[LedgerScan]:
        scanned.extend(wanted := list(ledger_ids))
        return by_spark(wanted)

    with open_entries(urls) as source:
        ledgers = source.ledgers()
        here = list(local_scanner(source, print, password=password, lost=())(ledgers))
    # The first run ends in the middle of a task.
    done = 20
    with WorkFile(tmp_path / "found.work", head, password) as work:
        assert list(islice(work.keeping(counted, print)(ledgers), done)) == here[:done]
    with WorkFile(tmp_path / "found.work", head, password, resume=True) as work:
        assert work.kept == done
        assert list(work.keeping(counted, print)(ledgers)) == here
    assert scanned == [*ledgers, *ledgers[done:]]

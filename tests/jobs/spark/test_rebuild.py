"""Ledgers looked at by Spark's workers: the same as in one process, in the same order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.rebuild.scan import scan_here
from pulsar_meta.jobs.spark.rebuild import LEDGERS_A_TASK, scan_with_spark
from pulsar_meta.jobs.spark.workers import Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_ledgers_by_spark_are_those_of_one_process(
    session: SparkSession, capture: Callable[[str], Path]
) -> None:
    urls = (f"bookie-disk:{capture('transactions-4.2.4')}",)
    faults: list[PulsarMetaError] = []
    with open_entries(urls) as source:
        ledgers = source.ledgers()
        here = list(scan_here(source, faults.append, password=b"", lost=())(ledgers))
    by_spark = scan_with_spark(Sources(None, urls), b"", (), faults.append, SparkSettings())
    # More than one task, and the last of them short.
    assert list(by_spark([*ledgers, *ledgers[:9]])) == [*here, *here[:9]]
    assert len(ledgers) + 9 > LEDGERS_A_TASK
    assert not faults

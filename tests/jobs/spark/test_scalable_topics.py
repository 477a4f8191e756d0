"""Scalable topics by Spark: the same answers, faults and rows as in one process."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.program import environment, pulsar_meta_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "public/default/moved"


@pytest.fixture
def settings(capture: Callable[[str], Path], tmp_path: Path, session: SparkSession) -> dict[str, str]:
    folder = capture("pulsar-5.0.0-M1-scalable")
    return environment(
        tmp_path,
        PULSAR_META_STORE=f"snapshot:{folder / 'metadata.ndjson'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )


def without_cost(output: bytes) -> bytes:
    """Leave out how many entries were read: two tasks may read the same entry."""
    return re.sub(rb'"entries_read": \d+', b"", output)


@pytest.mark.parametrize(
    "command",
    [
        f"seek {NAME} --index 3 --index 70 --time 1795315100000 --time 4000000000000",
        f"dump-entries {NAME} --where region=eu",
    ],
)
def test_spark_gives_the_same_answers(settings: dict[str, str], command: str) -> None:
    words = [*command.split(), "-o", "ndjson"]
    local = pulsar_meta_here(*words, "--engine", "local", env=settings)
    spark = pulsar_meta_here(*words, "--engine", "spark", env=settings)
    assert spark.returncode == local.returncode, spark.stderr.decode()
    assert without_cost(spark.stdout) == without_cost(local.stdout)
    assert b'"scalable_topic": "topic://public/default/moved"' in spark.stdout


def test_a_data_source_reads_the_segments(settings: dict[str, str], session: SparkSession) -> None:
    from pulsar_meta.jobs.spark.datasources import register

    register(session)
    reader = session.read.format("pulsar_ledgers").option("store", settings["PULSAR_META_STORE"])
    rows: list[Any] = reader.option("topics", "topic://public/default/moved").load().collect()
    assert {row.topic for row in rows} == {
        "persistent://public/default/moved",
        "segment://public/default/moved/0000-ffff-1",
        "segment://public/default/moved/0000-7fff-2",
        "segment://public/default/moved/8000-ffff-3",
    }

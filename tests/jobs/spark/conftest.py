"""Fixtures for tests of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.standalone_spark import standalone_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster(session: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Start a Spark master and two workers of two cores that write to `tmp_path`. Returns its URL."""
    with standalone_spark(tmp_path) as master:
        yield master

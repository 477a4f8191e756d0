"""What the tests of Spark share."""

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
    """Return the URL of a master whose two workers, each with two cores, write below `tmp_path`."""
    with standalone_spark(tmp_path) as master:
        yield master

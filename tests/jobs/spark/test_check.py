"""`check` by Spark's workers has the same findings, counts and reasons as in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_meta.codecs.json_text import dumps
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, TopicName, ledger_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.context import ADMIN, CheckOptions
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.spark import check
from pulsar_meta.jobs.spark.check import divide, passes_by_spark
from pulsar_meta.jobs.topics.owners import SCHEMAS
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from tests.damage import healthy_store
from tests.large_store import write_rocksdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lines(store: Store, urls: tuple[str, ...], *, spark: bool) -> list[str]:
    """Return the findings as sorted lines, followed by the summary of the run."""
    with ExitStack() as stack:
        source = stack.enter_context(open_entries(urls)) if urls else None
        passes = (
            stack.enter_context(passes_by_spark(store, urls, SparkSettings(), lambda count: None))
            if spark
            else None
        )
        run = checkup(store, source, (), CheckOptions(min_age=0), urls=urls, passes=passes)
        findings = sorted(dumps(finding.document()) for finding in run.findings())
        return [*findings, dumps({"checked": run.counts, "not_checked": run.not_checked})]


@pytest.mark.spark
def test_a_generated_store_with_damage_has_the_same_findings(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Split each kind of record into a few parts.
    monkeypatch.setattr(check, "PARTS_PER_CORE", 2)
    with open_store(write_rocksdb(tmp_path / "store", topics=240, damaged_every=7)) as store:
        here = lines(store, (), spark=False)
        assert lines(store, (), spark=True) == here
    codes = Counter(line.split('"')[3] for line in here[:-1])
    assert len(codes) >= 6
    assert min(codes.values()) >= 4


@pytest.mark.spark
def test_a_capture_with_entries_has_the_same_findings(
    session: SparkSession, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = capture("pulsar-4.2.4")
    damaged = tmp_path / "damaged.ndjson"
    records = (folder / "metadata.ndjson").read_text(encoding="utf-8").splitlines(keepends=True)
    gone = (f'"{ledger_path(25)}"', f'"{TopicName.parse("public/default/strings").path}"')
    damaged.write_text("".join(line for line in records if not any(path in line for path in gone)))
    with open_store(f"snapshot:{damaged}") as store:
        here = lines(store, (f"bookie-disk:{folder / 'bookie0'}",), spark=False)
        assert lines(store, (f"bookie-disk:{folder / 'bookie0'}",), spark=True) == here
    assert sum("ledger-without-metadata" in line or "topic-record-lost" in line for line in here) == 2


@pytest.mark.parametrize("top", [ADMIN, LEDGERS, SCHEMAS, MANAGED_LEDGERS])
@pytest.mark.parametrize("wanted", [1, 3, 20, 1000])
def test_parts_contain_each_value_once(capture: Callable[[str], Path], top: str, wanted: int) -> None:
    store = healthy_store(capture("pulsar-2.8.2"))
    parts = divide(store, top, wanted)
    records = [record for part in parts for record in check.records_of(store, part)]
    assert sorted(records) == sorted(store.scan(top))
    assert len(parts) <= wanted + 1

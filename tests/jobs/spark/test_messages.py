"""Messages by Spark: the same rows and exports as in one process, and tasks of similar size."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.export.files import NAME
from pulsar_meta.jobs.spark.datasources import PUSHDOWN, register
from pulsar_meta.jobs.spark.message_source import (
    BYTES_A_TASK,
    ENTRIES_A_TASK,
    TASKS,
    FilteredMessageReader,
    Held,
    MessagePartition,
    MessageSourceReader,
    divide,
)
from tests.cli.program import pulsar_meta_here
from tests.message_truth import rows_of
from tests.seek_truth import bookie_urls, read_truth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Capture = Callable[[str], Path]
TYPED = "public/typed"
DEFAULT = "persistent://public/default"


def load(session: SparkSession, folder: Path, **options: str) -> DataFrame:
    every = {"store": f"snapshot:{folder / 'metadata.ndjson'}", "entries": " ".join(bookie_urls(folder))}
    return session.read.format("pulsar_messages").options(**(every | options)).load()


@pytest.fixture
def pushing(session: SparkSession) -> Iterator[SparkSession]:
    """The session with filter pushdown enabled."""
    session.conf.set(PUSHDOWN, "true")
    register(session)
    yield session
    session.conf.set(PUSHDOWN, "false")
    register(session)


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        rows, key=lambda row: (row["topic"], row["ledger_id"], row["entry_id"], row["batch_index"] or 0)
    )


def test_rows_equal_the_local_ones_in_any_number_of_partitions(
    session: SparkSession, capture: Capture
) -> None:
    folder = capture("schemas-4.2.4")
    register(session)
    local = list(rows_of(folder, [TYPED], readable=False)[0].values())
    expected = sorted_rows([{**row, "properties": dict(row["properties"])} for row in local])
    frame = load(session, folder, topics=TYPED, entriesPerPartition="7")
    assert frame.rdd.getNumPartitions() > 5
    rows = [row.asDict() for row in frame.collect()]
    for row in rows:
        for name in ("payload", "key_bytes", "ordering_key"):
            row[name] = None if row[name] is None else bytes(row[name])
    assert sorted_rows(rows) == expected
    assert len(rows) == 97


def test_pushed_filters_change_no_row(pushing: SparkSession, capture: Capture) -> None:
    folder, columns = (
        capture("pulsar-4.2.4-killed"),
        "topic,ledger_id,entry_id,batch_index,index,key,properties",
    )
    query = f"topic = '{DEFAULT}/orders' and key in ('k3', 'k4') and index >= 1000"
    pushed = load(pushing, folder, columns=columns).where(query).collect()
    pushing.conf.set(PUSHDOWN, "false")
    register(pushing)
    plain = load(pushing, folder, columns=columns).where(query).collect()
    assert sorted(map(str, pushed)) == sorted(map(str, plain))
    assert len(pushed) > 50


class Equals:
    def __init__(self, name: str, value: object) -> None:
        self.attribute, self.value = (name,), value


def test_a_filter_on_keys_reaches_the_reader(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-killed")
    options = {"store": f"snapshot:{folder / 'metadata.ndjson'}", "entries": " ".join(bookie_urls(folder))}
    reader = FilteredMessageReader(options, ["topic", "key"])
    filters = [
        type("EqualTo", (Equals,), {})(*fields) for fields in (("topic", f"{DEFAULT}/orders"), ("key", "k3"))
    ]
    assert reader.pushFilters(filters) == filters
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert {(row["topic"], row["key"]) for row in rows} == {(f"{DEFAULT}/orders", "k3")}


def test_only_messages_that_consumers_can_see_are_rows(session: SparkSession, capture: Capture) -> None:
    folder, topic = capture("transactions-4.2.4"), f"{DEFAULT}/money"
    register(session)
    rows = load(
        session, folder, topics=topic, readable="true", columns="ledger_id,entry_id,batch_index"
    ).collect()
    expected = {
        (message["l"], message["e"], message["b"]) for message in read_truth(folder)[topic]["messages"]
    }
    assert {(row[0], row[1], -1 if row[2] is None else row[2]) for row in rows} == expected


def test_a_disk_without_a_store_has_messages_without_topics(session: SparkSession, capture: Capture) -> None:
    folder = capture("schemas-4.2.4")
    register(session)
    urls = " ".join(bookie_urls(folder))
    frame = (
        session.read.format("pulsar_messages")
        .options(entries=urls, columns="topic,payload,value,error")
        .load()
    )
    rows = frame.where("payload is not null").collect()
    assert len(rows) == 97
    assert all(row["topic"] is None and row["value"] is None for row in rows)


@pytest.mark.parametrize(
    "words",
    [
        ["orders", "parted"],
        ["orders", "--where", "region=eu", "--from-index", "1000"],
        ["compacted", "--compacted"],
    ],
    ids=["whole", "some", "compacted"],
)
def test_exports_write_the_same_files(
    session: SparkSession, capture: Capture, tmp_path: Path, words: list[str]
) -> None:
    folder = capture("pulsar-4.2.4-killed")
    where = ["--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    where += [part for url in bookie_urls(folder) for part in ("--entries", url)]
    made = {}
    for engine in ("local", "spark"):
        to = tmp_path / engine
        done = pulsar_meta_here("export", *words, "--to", to, "--engine", engine, *where)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in (to / NAME).read_text().splitlines()[1:]]
        made[engine] = sorted(lines, key=lambda line: str(line["ranges"]))
    assert made["local"] == made["spark"]
    assert sum(line["rows"] for line in made["spark"]) > 25


def equal_ledgers(entries: int, count: int = 1, size: float = 1000.0) -> list[Held]:
    return [Held("t", None, number, 0, entries - 1, size) for number in range(count)]


@pytest.mark.parametrize(
    "ledgers",
    [
        # One topic with 90 % of the entries in one ledger that was never closed; many small ledgers; large
        # messages.
        [*equal_ledgers(50_000, 100), *equal_ledgers(45_000_000, size=0.0)],
        equal_ledgers(50_000, 20_000),
        equal_ledgers(100, 10_000),
        equal_ledgers(40_000, 10, size=1e6),
    ],
)
def test_no_task_is_much_longer_than_the_others(ledgers: list[Held]) -> None:
    tasks = list(divide(ledgers, None))
    assert sum(part.entries for task in tasks for part in task) == sum(ledger.entries for ledger in ledgers)
    entries = [sum(part.entries for part in task) for task in tasks]
    sizes = [sum(part.entries * part.entry_size for part in task) for task in tasks]
    assert max(entries) <= ENTRIES_A_TASK
    assert max(sizes) <= BYTES_A_TASK
    assert len(tasks) >= min(TASKS, sum(entries) // 5_000)
    assert entries[-1] <= max(entries)


def test_invalid_options_are_named(capture: Capture) -> None:
    for options, reason in (
        ({}, "entries"),
        ({"entries": "bookie:"}, "bookie: needs"),
        ({"entries": "bookie-disk:/x", "readable": "true"}, "readable needs"),
        ({"entries": "bookie-disk:/x", "entriesperpartition": "x"}, "entriesPerPartition"),
        ({"entries": "bookie-disk:/x", "where": "("}, "filter"),
        ({"entries": "bookie-disk:/x", "topics": '["a", 1]'}, "topics is no JSON list"),
        ({"entries": "[bookie-disk:/x"}, "entries is no JSON list"),
    ):
        with pytest.raises(UsageError, match=reason):
            MessageSourceReader(options, ["topic"])
    with pytest.raises(UsageError, match="no column 'x'"):
        MessageSourceReader({"entries": "bookie-disk:/x"}, ["x"])
    assert MessagePartition([], {}).ranges == ()

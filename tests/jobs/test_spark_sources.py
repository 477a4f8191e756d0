"""The data sources in a session, and checks and first indexes by Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_meta.codecs.columns.column import decode_row, wrapped
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.index.build import first_index
from pulsar_meta.jobs.index.check import check_indexes
from pulsar_meta.jobs.spark.datasources import PUSHDOWN, register
from pulsar_meta.jobs.spark.entry_source import EntryPartition, FilteredEntryReader
from pulsar_meta.jobs.spark.ledgers import (
    Ledger,
    Sources,
    check_indexes_with_spark,
    first_indexes_with_spark,
    map_ledgers,
    share_out,
)
from pulsar_meta.jobs.spark.pushdown import wanted_by
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.jobs.topics.topic import topic_of
from pulsar_meta.stores.registry import open_store
from tests.seek_truth import read_truth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DOCS = Path(__file__).parent.parent.parent / "docs" / "spark.md"
ORDERS = "persistent://public/default/orders"


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    conf = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    with spark_session(master="local[2]", conf=conf) as session:
        yield session


@pytest.fixture
def pushing(session: SparkSession) -> Iterator[SparkSession]:
    """The session with filter pushdown switched on."""
    session.conf.set(PUSHDOWN, "true")
    register(session)
    yield session
    session.conf.set(PUSHDOWN, "false")
    register(session)


@pytest.fixture
def folder(capture: Callable[[str], Path]) -> Path:
    return capture("pulsar-4.2.4")


def load(session: SparkSession, source: str, folder: Path, **options: str) -> DataFrame:
    register(session)
    every = {
        "store": f"snapshot:{folder / 'metadata.ndjson'}",
        "entries": f"bookie-disk:{folder / 'bookie0'}",
    }
    return session.read.format(source).options(**(every | options)).load()


def test_every_entry_of_a_disk_is_a_row_as_the_codec_reads_it(session: SparkSession, folder: Path) -> None:
    register(session)
    urls = f"bookie-disk:{folder / 'bookie0'}"
    frame = session.read.format("pulsar_entries").options(entries=urls, verify="true").load()
    rows = {(row["ledger_id"], row["entry_id"]): row.asDict() for row in frame.collect()}
    with open_entries([urls]) as source:
        for ledger in source.ledgers():
            for entry in source.read_many(ledger):
                said = decode_row(memoryview(entry.data), verify=True)
                row = rows.pop((ledger, entry.entry_id))
                assert row.pop("topic") is None
                assert row == {k: wrapped(v) if type(v) is int else v for k, v in said.items()}
    assert rows == {}


def test_the_messages_of_every_topic_are_counted(session: SparkSession, folder: Path) -> None:
    frame = load(session, "pulsar_entries", folder, columns="topic,num_messages,last_index")
    assert frame.columns == ["topic", "num_messages", "last_index"]
    counted = {
        row["topic"]: row["n"]
        for row in frame.groupBy("topic").agg({"num_messages": "sum"}).toDF("topic", "n").collect()
    }
    truth = read_truth(folder)
    for name in ("orders", "plain", "codec-lz4", "we ird:näme"):
        topic = f"persistent://public/default/{name}"
        assert counted[topic] == len(truth[topic]["messages"])


def test_partitions_are_cut_and_joined_by_entries(session: SparkSession, folder: Path) -> None:
    few = load(session, "pulsar_entries", folder, columns="ledger_id,entry_id")
    many = load(session, "pulsar_entries", folder, columns="ledger_id,entry_id", entriesPerPartition="700")
    assert few.rdd.getNumPartitions() == 1
    assert many.rdd.getNumPartitions() > 5
    assert sorted(many.collect()) == sorted(few.collect())


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "one ledger": lambda entries: entries.where("ledger_id = 21 and entry_id >= 40"),
    "a few": lambda entries: entries.where("ledger_id in (21, 22, 18) and entry_id < 3"),
    "by topic": lambda entries: entries.where(f"topic = '{ORDERS}' and last_index > 2000"),
    "nothing": lambda entries: entries.where("ledger_id > 21 and ledger_id < 22"),
    "negated": lambda entries: entries.where(
        f"topic = '{ORDERS}' and not ledger_id <=> 21 and entry_id is not null"
    ),
}


@pytest.mark.parametrize("query", QUERIES)
def test_filters_give_the_same_rows_pushed_down_or_not(
    pushing: SparkSession, folder: Path, query: str
) -> None:
    columns = {"columns": "topic,ledger_id,entry_id,index,last_index"}
    with_push = sorted(QUERIES[query](load(pushing, "pulsar_entries", folder, **columns)).collect())
    pushing.conf.set(PUSHDOWN, "false")
    without = sorted(QUERIES[query](load(pushing, "pulsar_entries", folder, **columns)).collect())
    assert with_push == without
    assert bool(with_push) == (query != "nothing")


class EqualTo:
    attribute = ("ledger_id",)
    value = 21


class GreaterThanOrEqual:
    attribute = ("entry_id",)
    value = 40


def test_pushed_filters_spare_reading(folder: Path) -> None:
    options = {
        "store": f"snapshot:{folder / 'metadata.ndjson'}",
        "entries": f"bookie-disk:{folder / 'bookie0'}",
    }
    reader = FilteredEntryReader(options, ["ledger_id"])
    filters: list[Any] = [EqualTo(), GreaterThanOrEqual(), object()]
    assert reader.pushFilters(filters) is filters
    (partition,) = reader.partitions()
    assert isinstance(partition, EntryPartition)
    (part,) = partition.ranges
    assert (part.ledger_id, part.first, part.last) == (21, 40, 49)
    assert not wanted_by([EqualTo(), EqualTo()]).ledgers.holds(22)


def test_ledgers(session: SparkSession, folder: Path) -> None:
    rows = load(session, "pulsar_ledgers", folder, topics="orders").collect()
    truth = read_truth(folder)[ORDERS]["internalStats"]["ledgers"]
    closed = [(row["ledger_id"], row["entries"], row["size"]) for row in rows if row["closed_at"]]
    assert closed == [(one["ledgerId"], one["entries"], one["size"]) for one in truth][: len(closed)]
    assert len(closed) == len(truth) - 1
    assert rows[0]["properties"] == {"first-index": "0"}
    every = load(session, "pulsar_ledgers", folder, topicsPerPartition="7")
    assert every.rdd.getNumPartitions() > 5
    assert every.where("error is not null").count() == 0


def test_cursors(session: SparkSession, folder: Path) -> None:
    truth = read_truth(folder)["persistent://public/default/fanout"]["internalStats"]["cursors"]
    rows = load(session, "pulsar_cursors", folder, topics="fanout").where("cursors_ledger_id = -1").collect()
    found = {row["cursor"]: f"{row['mark_delete_ledger_id']}:{row['mark_delete_entry_id']}" for row in rows}
    assert len(found) > 50
    assert found == {name: truth[name]["markDeletePosition"] for name in found}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "says where they are"),
        ({"entries": "bookie:"}, "needs"),
        ({"entries": "bookie-disk:/nowhere", "columns": "colour"}, "no column 'colour'"),
    ],
)
def test_wrong_options_are_told(session: SparkSession, options: dict[str, str], says: str) -> None:
    register(session)
    with pytest.raises(Exception, match=says):
        session.read.format("pulsar_entries").options(**options).load().count()


def test_checks_and_first_indexes_by_spark_are_those_of_one_process(
    session: SparkSession, folder: Path
) -> None:
    urls = [f"bookie-disk:{folder / 'bookie0'}"]
    sources = Sources(f"snapshot:{folder / 'metadata.ndjson'}", tuple(urls))
    with open_store(sources.store) as store, open_entries(urls) as source:
        topics = list(map(topic_of, chosen_topics(store, [], everything=True)))
        here = list(check_indexes(source, topics, "first-index"))
        assert list(check_indexes_with_spark(sources, topics, "first-index")) == here
        ledgers = [one.ledger_id for topic in topics for one in topic.ledgers]
        assert first_indexes_with_spark(session, sources, ledgers) == [
            first_index(source, one) for one in ledgers
        ]
        assert map_ledgers(session, sources, [], read_nothing) == {}


def read_nothing(source: Any, ledger: Ledger) -> None:
    raise AssertionError


def test_an_error_of_a_worker_is_raised_at_home(session: SparkSession, tmp_path: Path) -> None:
    sources = Sources("", (f"nowhere:{tmp_path}",))
    with pytest.raises(UsageError, match="no entry source"):
        first_indexes_with_spark(session, sources, [1, 2])


def test_shares_weigh_about_the_same() -> None:
    ledgers = [Ledger(number, number % 100 * 1000) for number in range(500)]
    shares = share_out([*ledgers, *ledgers], 8)
    weights = [sum(1000 + (one.entries or 0) for one in share) for share in shares]
    assert len(shares) == 8
    assert max(weights) < 1.05 * min(weights)
    assert sorted(one.ledger_id for share in shares for one in share) == list(range(500))


def test_the_example_of_the_documentation_runs(session: SparkSession, folder: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(examples) >= 2
    names: dict[str, Any] = {"spark": session}
    for example in examples:
        here = example.replace("/data/bookie", f"{folder}/bookie0").replace("/data/", f"{folder}/")
        assert here != example or "register" in example
        exec(here, names)
    assert names["messages"].count() > 30
    assert names["behind"].count() > 0

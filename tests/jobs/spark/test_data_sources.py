"""The Spark data sources in a session."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_meta.codecs.columns.entries import decode_row, wrapped
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.spark.datasources import PUSHDOWN, LedgerReader, register
from pulsar_meta.jobs.spark.entry_source import EntryPartition, EntryReader, FilteredEntryReader, wanted_by
from tests.seek_truth import read_truth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DOCS = Path(__file__).parents[3] / "docs" / "spark.md"
ORDERS = "persistent://public/default/orders"


@pytest.fixture
def pushing(session: SparkSession) -> Iterator[SparkSession]:
    """The session with filter pushdown enabled."""
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


def test_every_entry_of_a_disk_is_a_row_that_equals_the_codecs(session: SparkSession, folder: Path) -> None:
    register(session)
    urls = f"bookie-disk:{folder / 'bookie0'}"
    frame = session.read.format("pulsar_entries").options(entries=urls, verify="true").load()
    rows = {(row["ledger_id"], row["entry_id"]): row.asDict() for row in frame.collect()}
    with open_entries([urls]) as source:
        for ledger in source.ledgers():
            for entry in source.read_many(ledger):
                decoded = decode_row(memoryview(entry.data), verify=True)
                row = rows.pop((ledger, entry.entry_id))
                assert row.pop("topic") is None
                assert row == {k: wrapped(v) if type(v) is int else v for k, v in decoded.items()}
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


def test_partitions_are_split_and_joined_by_entries(session: SparkSession, folder: Path) -> None:
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
def test_filters_give_the_same_rows_with_and_without_pushdown(
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


def test_pushed_filters_save_reads(folder: Path) -> None:
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


def test_ledgers_equal_the_brokers(session: SparkSession, folder: Path) -> None:
    rows = load(session, "pulsar_ledgers", folder, topics="orders").collect()
    truth = read_truth(folder)[ORDERS]["internalStats"]["ledgers"]
    closed = [(row["ledger_id"], row["entries"], row["size"]) for row in rows if row["closed_at"]]
    assert (
        closed == [(ledger["ledgerId"], ledger["entries"], ledger["size"]) for ledger in truth][: len(closed)]
    )
    assert len(closed) == len(truth) - 1
    assert rows[0]["properties"] == {"first-index": "0"}
    every = load(session, "pulsar_ledgers", folder, topicsPerPartition="7")
    assert every.rdd.getNumPartitions() > 5
    assert every.where("error is not null").count() == 0


def test_a_shadow_topic_has_the_ledgers_and_entries_of_its_source(
    session: SparkSession, capture: Callable[[str], Path]
) -> None:
    folder = capture("pulsar-4.2.4-shadows")
    rows = load(session, "pulsar_ledgers", folder, topics="public/default").collect()
    listed = {
        name: [
            (row["ledger_id"], row["entries"]) for row in rows if row["topic"].endswith(f"/default/{name}")
        ]
        for name in ("source", "shadow")
    }
    assert listed["shadow"] == listed["source"]
    assert {row["shadow_of"] for row in rows if row["topic"].endswith("/of-parted-partition-1")} == {
        "persistent://public/default/parted-partition-1"
    }
    assert {row["topic"] for row in rows if row["error"]} == {"persistent://public/default/of-deleted"}
    counts = {
        name: load(session, "pulsar_entries", folder, topics=name).count() for name in ("source", "shadow")
    }
    assert counts == {"source": 105, "shadow": 105}
    with pytest.raises(Exception, match=r"its source .* does not exist"):
        load(session, "pulsar_entries", folder, topics="of-deleted").count()


def test_cursors_equal_the_brokers(session: SparkSession, folder: Path) -> None:
    truth = read_truth(folder)["persistent://public/default/fanout"]["internalStats"]["cursors"]
    rows = load(session, "pulsar_cursors", folder, topics="fanout").where("cursors_ledger_id = -1").collect()
    positions = {
        row["cursor"]: f"{row['mark_delete_ledger_id']}:{row['mark_delete_entry_id']}" for row in rows
    }
    assert len(positions) > 50
    assert positions == {name: truth[name]["markDeletePosition"] for name in positions}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, 'needs the option "entries"'),
        ({"entries": "bookie:"}, "needs"),
        ({"entries": "bookie-disk:/nowhere", "columns": "colour"}, "no column 'colour'"),
        ({"entries": "frames:/x", "entriesPerPartition": "abc"}, "entriesPerPartition is a whole number"),
        ({"entries": "frames:/x", "verify": "yes"}, "verify is true or false, not 'yes'"),
    ],
)
def test_wrong_options_are_refused(session: SparkSession, options: dict[str, str], reason: str) -> None:
    register(session)
    with pytest.raises(Exception, match=reason):
        session.read.format("pulsar_entries").options(**options).load().count()


@pytest.mark.parametrize("text", ["abc", "-5", "1e3", "", " 7", "9" * 30])
def test_an_invalid_size_is_reported_with_its_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"^entriesPerPartition is a whole number, not '"):
        EntryReader({"entries": "frames:/x", "entriesperpartition": text}, ())
    with pytest.raises(UsageError, match=r"^topicsPerPartition is a whole number, not '"):
        LedgerReader({"store": "dir:/x", "topicsperpartition": text}, ())


def test_the_examples_of_the_documentation_run(session: SparkSession, folder: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(examples) >= 2
    names: dict[str, Any] = {"spark": session}
    for example in examples:
        here = example.replace("/data/bookie", f"{folder}/bookie0").replace("/data/", f"{folder}/")
        assert here != example or "register" in example
        exec(here, names)
    assert names["messages"].count() > 30
    assert names["behind"].count() > 0
    assert names["last_seen"].count() > 30
    assert names["latest"].count() > 100

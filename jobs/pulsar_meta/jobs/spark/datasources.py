"""Data sources for the Spark sessions of notebooks and jobs.

    from pulsar_meta.spark import register
    register(spark)
    spark.read.format("pulsar_entries").option("entries", "bookie-disk:/bookie").load()

`pulsar_ledgers` and `pulsar_cursors` read a store, `pulsar_entries` and `pulsar_messages` entries.
docs/spark.md has the options.

The Spark data sources `pulsar_ledgers` and `pulsar_cursors`: a store's records of topics as rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, managed_place
from pulsar_meta.jobs.spark.entry_source import PulsarEntries, PulsarEntriesPushed, several, whole_number
from pulsar_meta.jobs.spark.message_source import PulsarMessages, PulsarMessagesPushed
from pulsar_meta.jobs.topics.cursors import cursor_of
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.jobs.topics.topic import Ledger, Topic, followed, topic_of
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.registry import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TOPICS_A_PARTITION: Final = 2000
# Topics, and cursors, whose records are read in one go.
TOPICS_AT_ONCE: Final = 100
CURSORS_AT_ONCE: Final = 1000


class TopicPartition(InputPartition):
    """The topics that one task reads, as the paths of their records."""

    def __init__(self, paths: Sequence[str]) -> None:
        """`paths` are of ManagedLedgerInfo values."""
        super().__init__(tuple(paths))
        self.paths = tuple(paths)


class TopicReader(DataSourceReader):
    """Lists topics in the driver and reads them in the workers."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        """Raises UsageError without a store."""
        if "store" not in options:
            raise UsageError('the option "store" is missing, for example "zk://zk1:2181"')
        self.store = options["store"]
        self.names = several(options, "topics")
        self.size = whole_number(options, "topicsPerPartition", TOPICS_A_PARTITION)
        self.columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the topics."""
        with open_store(self.store) as store:
            records = chosen_topics(store, self.names, everything=not self.names)
            paths = [record.path for record in records]
        return [TopicPartition(paths[at : at + self.size]) for at in range(0, len(paths), self.size)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition's topics as tuples in the order of the columns."""
        # If there are no partitions, Spark calls this once with None.
        if not isinstance(partition, TopicPartition):
            return
        with open_store(self.store) as store:
            for at in range(0, len(partition.paths), TOPICS_AT_ONCE):
                for row in self.rows(store, partition.paths[at : at + TOPICS_AT_ONCE]):
                    yield tuple(row.get(name) for name in self.columns)

    @abstractmethod
    def rows(self, store: Store, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of some topics."""


class PulsarLedgers(DataSource):
    """The ledgers of topics, one per row."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "pulsar_ledgers"

    def schema(self) -> str:
        """Return the columns; `entries` is null for an open ledger."""
        return (
            "topic string, ledger_id bigint, entries bigint, size bigint, closed_at timestamp,"
            " offloaded boolean, bookkeeper_deleted boolean, properties map<string,string>,"
            " codec string, error string, shadow_of string"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return LedgerReader(dict(self.options), schema.fieldNames())


class PulsarCursors(DataSource):
    """The cursors (subscriptions) of topics, one per row."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "pulsar_cursors"

    def schema(self) -> str:
        """Return the columns. If `cursors_ledger_id` is not -1, the position is only a snapshot."""
        return (
            "topic string, cursor string, cursors_ledger_id bigint, mark_delete_ledger_id bigint,"
            " mark_delete_entry_id bigint, acknowledged_ranges int, properties map<string,string>,"
            " last_active timestamp, codec string, stored_size int, raw_size int, version bigint,"
            " error string"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return CursorReader(dict(self.options), schema.fieldNames())


class LedgerReader(TopicReader):
    """Rows of ledgers. A broken record, and a shadow topic whose source is missing, has an `error`."""

    def rows(self, store: Store, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the ledgers of topics in reading order. Topics that were deleted meanwhile have none."""
        sources = ShadowSources(store)
        for record in filter(None, store.read_many(paths)):
            try:
                topic = followed(topic_of(record), store, sources)
            except DecodeError as error:
                yield _names(record) | {"error": str(error)}
                continue
            for ledger in topic.ledgers:
                yield _topic(topic) | _ledger(ledger)


class CursorReader(TopicReader):
    """Rows of cursors. A broken record is one row with `error`."""

    def rows(self, store: Store, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the cursors of topics in the order of their names."""
        listed = zip(paths, store.children_many(paths), strict=True)
        cursors = [f"{path}/{name}" for path, names in listed for name in names]
        for at in range(0, len(cursors), CURSORS_AT_ONCE):
            for record in filter(None, store.read_many(cursors[at : at + CURSORS_AT_ONCE])):
                try:
                    yield _names(record) | _cursor(record)
                except DecodeError as error:
                    yield _names(record) | {"error": str(error)}


def _names(record: Versioned) -> dict[str, Any]:
    """Return the columns that come from a record's path and from the store."""
    topic, cursor = managed_place(record.path, record.value) or (None, None)
    return {
        "topic": None if topic is None else str(topic),
        "cursor": cursor,
        "stored_size": len(record.value),
        "version": record.version,
    }


def _topic(topic: Topic) -> dict[str, Any]:
    source = None if topic.shadow is None else topic.shadow.source
    return {"topic": topic.name, "codec": topic.codec, "shadow_of": source, "error": topic.snapshot}


def _ledger(ledger: Ledger) -> dict[str, Any]:
    offload = ledger.offload
    return {
        "ledger_id": ledger.ledger_id,
        "entries": ledger.entries,
        "size": ledger.size,
        "closed_at": _time(ledger.closed_at),
        "offloaded": offload is not None and offload.complete,
        "bookkeeper_deleted": offload is not None and offload.bookkeeper_deleted,
        "properties": dict(ledger.properties),
    }


def _cursor(record: Versioned) -> dict[str, Any]:
    cursor = cursor_of(record)
    return {
        "cursors_ledger_id": STATE_IN_RECORD if cursor.state_ledger is None else cursor.state_ledger,
        "mark_delete_ledger_id": cursor.mark_delete_ledger,
        "mark_delete_entry_id": cursor.mark_delete_entry,
        "acknowledged_ranges": cursor.acknowledged_ranges,
        "properties": dict(cursor.properties),
        "last_active": _time(cursor.last_active),
        "codec": cursor.codec,
        "raw_size": cursor.raw_size,
    }


def _time(milliseconds: int | None) -> datetime | None:
    if milliseconds is None or not 0 < milliseconds < 253_402_300_800_000:
        return None
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)


PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the data sources in a session.

    Filters are pushed down if the session has PUSHDOWN enabled at this time. Spark refuses a source that
    takes filters in a session that has it disabled.
    """
    pushed = spark.conf.get(PUSHDOWN, "false") == "true"
    entries = (PulsarEntriesPushed, PulsarMessagesPushed) if pushed else (PulsarEntries, PulsarMessages)
    for source in (PulsarLedgers, PulsarCursors, *entries):
        spark.dataSource.register(source)

"""The Spark data sources `pulsar_ledgers` and `pulsar_cursors`: a store's records of topics as rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.cursor import decode_cursor
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger, ledgers_by_id
from pulsar_meta.codecs.names import split_managed_ledger_path
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.registry import open_store

TOPICS_A_PARTITION: Final = 2000


class TopicPartition(InputPartition):
    """The topics, by the paths of their records, that one task reads."""

    def __init__(self, paths: Sequence[str]) -> None:
        """`paths` are of ManagedLedgerInfo values."""
        super().__init__(tuple(paths))
        self.paths = tuple(paths)


class TopicReader(DataSourceReader):
    """Lists topics in the driver, reads them in the workers."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        """UsageError without a store."""
        if "store" not in options:
            raise UsageError('.option("store", "zk://…") says where the metadata is')
        self.store = options["store"]
        self.names = options.get("topics", "").split()
        self.size = max(1, int(options.get("topicsperpartition", TOPICS_A_PARTITION)))
        self.columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Share the topics out."""
        with open_store(self.store) as store:
            records = chosen_topics(store, self.names, everything=not self.names)
            paths = [record.path for record in records]
        return [TopicPartition(paths[at : at + self.size]) for at in range(0, len(paths), self.size)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition's topics as tuples in the order of the columns."""
        # Where there are no partitions Spark reads once all the same, with None.
        if not isinstance(partition, TopicPartition):
            return
        with open_store(self.store) as store:
            for path in partition.paths:
                for row in self.rows(store, path):
                    yield tuple(row.get(name) for name in self.columns)

    @abstractmethod
    def rows(self, store: Store, path: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of one topic."""


class PulsarLedgers(DataSource):
    """The ledgers of topics, one a row."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "pulsar_ledgers"

    def schema(self) -> str:
        """Return the columns; `entries` is null for an open ledger."""
        return (
            "topic string, ledger_id bigint, entries bigint, size bigint, closed_at timestamp,"
            " offloaded boolean, bookkeeper_deleted boolean, properties map<string,string>,"
            " codec string, error string"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads."""
        return LedgerReader(dict(self.options), schema.fieldNames())


class PulsarCursors(DataSource):
    """The cursors (subscriptions) of topics, one a row."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "pulsar_cursors"

    def schema(self) -> str:
        """Return the columns; with `cursors_ledger_id` not -1 the position is but a snapshot."""
        return (
            "topic string, cursor string, cursors_ledger_id bigint, mark_delete_ledger_id bigint,"
            " mark_delete_entry_id bigint, acknowledged_ranges int, properties map<string,string>,"
            " last_active timestamp, codec string, stored_size int, raw_size int, version bigint,"
            " error string"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads."""
        return CursorReader(dict(self.options), schema.fieldNames())


class LedgerReader(TopicReader):
    """Rows of ledgers. A record that is broken is one row with `error`."""

    def rows(self, store: Store, path: str) -> Iterator[dict[str, Any]]:
        """Yield a topic's ledgers in reading order; nothing for a topic that is gone by now."""
        try:
            seen = store.read(path)
        except NotFoundError:
            return
        head = {"topic": _topic(path)}
        try:
            info = decode_managed_ledger(seen.value)
            head["codec"] = _envelope(seen)["codec"]
        except DecodeError as error:
            yield head | {"error": str(error)}
            return
        for ledger in ledgers_by_id(info):
            offload = ledger.offloadContext
            yield head | {
                "ledger_id": ledger.ledgerId,
                "entries": ledger.entries if ledger.timestamp else None,
                "size": ledger.size if ledger.timestamp else None,
                "closed_at": _time(ledger.timestamp),
                "offloaded": offload.complete,
                "bookkeeper_deleted": offload.bookkeeperDeleted,
                "properties": {item.key: item.value for item in ledger.properties},
            }


class CursorReader(TopicReader):
    """Rows of cursors. A record that is broken is one row with `error`."""

    def rows(self, store: Store, path: str) -> Iterator[dict[str, Any]]:
        """Yield a topic's cursors in the order of their names."""
        for name in store.children(path):
            try:
                yield _cursor(store.read(f"{path}/{name}"))
            except NotFoundError:
                continue


def _cursor(seen: Versioned) -> dict[str, Any]:
    place = split_managed_ledger_path(seen.path)
    row: dict[str, Any] = {
        "topic": str(place[0]) if place else None,
        "cursor": place[1] if place else None,
        "stored_size": len(seen.value),
        "version": seen.version,
    }
    try:
        info = decode_cursor(seen.value)
        row |= _envelope(seen)
    except DecodeError as error:
        return row | {"error": str(error)}
    return row | {
        "cursors_ledger_id": info.cursorsLedgerId,
        "mark_delete_ledger_id": info.markDeleteLedgerId if info.HasField("markDeleteLedgerId") else None,
        "mark_delete_entry_id": info.markDeleteEntryId if info.HasField("markDeleteEntryId") else None,
        "acknowledged_ranges": acks_of(info).range_count,
        "properties": {item.name: item.value for item in info.cursorProperties},
        "last_active": _time(info.lastActive),
    }


def _envelope(seen: Versioned) -> dict[str, Any]:
    envelope = open_envelope(seen.value)
    if envelope is None:
        return {"codec": None, "raw_size": len(seen.value)}
    return {"codec": envelope.codec, "raw_size": envelope.raw_size}


def _topic(path: str) -> str | None:
    place = split_managed_ledger_path(path)
    return str(place[0]) if place else None


def _time(milliseconds: int) -> Any:
    from datetime import UTC, datetime, timedelta

    if not 0 < milliseconds < 253_402_300_800_000:
        return None
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)

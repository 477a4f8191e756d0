"""The Spark data source `pulsar_messages`: messages as rows, read as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.codecs.frames.row_schema import MESSAGE_COLUMNS, checked_names, spark_schema
from pulsar_meta.entries.sources import LIVE
from pulsar_meta.jobs.entries.entry_choice import Choice, Range
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.entries.filters import parse_filter
from pulsar_meta.jobs.messages.reading import MessageOptions
from pulsar_meta.jobs.messages.stream import reader_of, transactions_of
from pulsar_meta.jobs.spark.entry_source import Wanted, several, truth, wanted_by, whole_number
from pulsar_meta.jobs.spark.workers import LEDGER_COST
from pulsar_meta.jobs.topics.related import ShadowSources, migrated_parts
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.jobs.topics.topic import Ledger, SegmentNames, Topic, followed, topic_of, with_bookkeeper
from pulsar_meta.jobs.transactions.outcomes import Transactions
from pulsar_meta.stores.base import Store

# The most that a task reads, and the number of tasks if there is enough to read.
ENTRIES_A_TASK: Final = 200_000
BYTES_A_TASK: Final = 256 << 20
FEWEST_ENTRIES: Final = 5_000
TASKS: Final = 200


@dataclass(frozen=True, slots=True)
class Held:
    """The entries [first, last] of a ledger to read, and its size in bytes if the metadata has it."""

    topic: str | None
    scalable_topic: str | None
    ledger_id: int
    first: int
    last: int
    entry_size: float = 0.0

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self.last - self.first + 1


class MessagePartition(InputPartition):
    """The ranges of ledgers that one task reads, and the outcomes of their topics' transactions."""

    def __init__(self, ranges: Sequence[Held], transactions: Mapping[str, Transactions]) -> None:
        """`ranges` are read in their order."""
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)
        self.transactions = dict(transactions)


class PulsarMessages(DataSource):
    """Messages. docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "pulsar_messages"

    def schema(self) -> str:
        """Return the columns that were asked for."""
        names = _listed(self.options.get("columns", ""))
        return spark_schema(checked_names(names, MESSAGE_COLUMNS, "messages"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return MessageSourceReader(dict(self.options), schema.fieldNames())


class PulsarMessagesPushed(PulsarMessages):
    """The same for sessions with spark.sql.python.filterPushdown.enabled. Other sessions refuse it."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return FilteredMessageReader(dict(self.options), schema.fieldNames())


class MessageSourceReader(DataSourceReader):
    """Plans in the driver from the metadata and reads in the workers. Spark pickles it in between."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        """Does not open the sources. Raises UsageError if options contradict each other."""
        urls = several(options, "entries")
        if not urls:
            raise UsageError('pulsar_messages needs the option "entries", for example "bookie-disk:/path"')
        self.readable = truth(options, "readable")
        needed = "bookie:" if any(url.startswith(f"{LIVE}:") for url in urls) else ""
        needed = needed or ("readable" if self.readable else "")
        if needed and not options.get("store"):
            raise UsageError(f'pulsar_messages: {needed} needs .option("store", "zk://…") too')
        self.sources = Sources(options.get("store"), tuple(urls))
        self.names = several(options, "topics")
        self.size = whole_number(options, "entriesPerPartition", 1) if _is_cut(options) else None
        where = options.get("where")
        self.options = MessageOptions(
            columns=checked_names(columns, MESSAGE_COLUMNS, "messages"),
            where=None if where is None else parse_filter(where),
        )
        self.wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the entries. Small ledgers share a task and large ones are cut, so that tasks are even."""
        with self.sources.opened() as opened:
            held = list(self._held(opened))
            known = self._transactions(opened, held) if self.readable else {}
        parts = divide(held, self.size)
        return [MessagePartition(part, _of_topics(known, part)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition as Arrow batches."""
        # If there are no partitions, Spark calls this once with None.
        if not isinstance(partition, MessagePartition):
            return
        options = replace(self.options, keys=self.wanted.keys, from_index=self.wanted.index.low or None)
        with self.sources.opened() as opened:
            for topic, ranges in groupby(partition.ranges, key=lambda one: one.topic):
                known = partition.transactions.get(topic or "")
                reader = reader_of(opened.store, opened.entries, topic, options, known)
                for part in _ranges(opened.store, ranges):
                    yield from reader.read(part)

    def _held(self, opened: Opened) -> Iterator[Held]:
        """Yield the needed ranges of topics' ledgers, or without a store of all ledgers."""
        wanted, entries = self.wanted, self.wanted.entries
        for topic, scalable, ledger in self._ledgers(opened):
            if not wanted.ledgers.holds(ledger.ledger_id):
                continue
            count = ledger.entries
            last = opened.entries.last_entry(ledger.ledger_id) if count is None else count - 1
            last = -1 if last is None else min(last, entries.high)
            if last >= entries.low:
                yield Held(topic, scalable, ledger.ledger_id, entries.low, last, ledger.entry_size)

    def _ledgers(self, opened: Opened) -> Iterator[tuple[str | None, str | None, Ledger]]:
        if opened.store is None:
            yield from ((None, None, Ledger(one)) for one in opened.entries.ledgers())
            return
        for topic in self._topics(opened.store):
            if self.wanted.topics is None or topic.name in self.wanted.topics:
                yield from ((topic.name, topic.scalable_topic, ledger) for ledger in topic.ledgers)

    def _topics(self, store: Store) -> Iterator[Topic]:
        """Yield the topics. Raises NotFoundError and DecodeError if a shadow topic's source is unreadable."""
        sources, migrated = ShadowSources(store, many=True), migrated_parts(store)
        for record in chosen_topics(store, self.names, everything=not self.names):
            topic = topic_of(record)
            topic = replace(topic, scalable_topic=migrated.get(topic.name, topic.scalable_topic))
            yield followed(topic, store, sources, _fail)

    def _transactions(self, opened: Opened, held: Iterable[Held]) -> dict[str, Transactions]:
        """Return the outcomes of transactions, by topic."""
        found: dict[str, Transactions] = {}
        wanted = {one.topic for one in held if one.topic is not None}
        for topic in self._topics(opened.store) if opened.store is not None else ():
            if topic.name not in wanted:
                continue
            choice = Choice(topic.name, topic.ledgers, is_topic=True)
            known = transactions_of(opened.store, opened.entries, choice, _fail)
            if known is not None and (known.aborted or known.open or known.gaps is not None):
                found[topic.name] = known
        return found


class FilteredMessageReader(MessageSourceReader):
    """Skips messages that the filters on topic, ledger_id, entry_id, key and index reject."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Keep the filters. Spark applies all of them again."""
        self.wanted = wanted_by(filters)
        return filters


def divide(held: Sequence[Held], size: int | None) -> Iterator[list[Held]]:
    """Yield the ranges of each task, in order, with at most `size` entries per task.

    If `size` is None, there are about TASKS tasks if there is enough to read. A task then has at most
    ENTRIES_A_TASK entries and, if sizes are known, BYTES_A_TASK bytes.
    """
    if size is None:
        share = sum(one.entries for one in held) // TASKS
        size = min(ENTRIES_A_TASK, max(FEWEST_ENTRIES, share))
    waiting: list[Held] = []
    cost = 0.0
    for part in (piece for one in held for piece in _cut(one, size)):
        weight = max(part.entries, part.entries * part.entry_size * size / BYTES_A_TASK)
        weight += min(LEDGER_COST, size // 100)
        if waiting and cost + weight > 1.01 * size:
            yield waiting
            waiting, cost = [], 0.0
        waiting.append(part)
        cost += weight
    if waiting:
        yield waiting


def _cut(held: Held, size: int) -> Iterator[Held]:
    most = size if not held.entry_size else max(1, min(size, int(BYTES_A_TASK / held.entry_size)))
    for first in range(held.first, held.last + 1, most):
        yield replace(held, first=first, last=min(first + most - 1, held.last))


def _ranges(store: Store | None, ranges: Iterable[Held]) -> Iterator[Range]:
    """Yield ranges with BookKeeper's metadata of their ledgers. `check` reports broken metadata."""
    asked = list(ranges)
    ledgers = [Ledger(one.ledger_id, state="open", topic=one.topic) for one in asked]
    known = with_bookkeeper(store, ledgers, lambda fault: None)
    for one, ledger in zip(asked, known, strict=True):
        segment: SegmentNames = {} if one.scalable_topic is None else {"scalable_topic": one.scalable_topic}
        yield Range(ledger, one.first, one.last, segment)


def _of_topics(known: Mapping[str, Transactions], part: Sequence[Held]) -> dict[str, Transactions]:
    topics = {one.topic for one in part}
    return {topic: found for topic, found in known.items() if topic in topics}


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _is_cut(options: Mapping[str, str]) -> bool:
    return "entriesperpartition" in options


def _fail(fault: PulsarMetaError) -> None:
    raise fault

"""The Spark data source `pulsar_entries`: the headers of entries as rows, read as Arrow batches.

Options of the Spark data sources, which Spark hands over as text under names in lower case.

Which topics, ledgers and entries a query's filters leave.

The filters stay with Spark, which looks at every row; here they only spare reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.codecs.frames.row_schema import ENTRY_COLUMNS, checked_names, spark_schema
from pulsar_meta.entries.sources import LIVE
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.entry_reader import TOPIC, read_columns, record_batch
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.jobs.topics.topic import Topic, followed, topic_of
from pulsar_meta.stores.base import Store


def whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    """Return the option `name` as a number of at least 1. Raises UsageError."""
    text = options.get(name.lower(), str(default))
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise UsageError(f"{name} is a whole number, not {text[:40]!r}")
    return max(1, int(text))


def several(options: Mapping[str, str], name: str) -> list[str]:
    """Return the option `name` as a list: text separated by spaces, or a JSON list. Raises UsageError.

    Topic names may contain spaces, so a JSON list is needed for them, as for Spark's own option `paths`.
    """
    text = options.get(name.lower(), "").strip()
    if not text.startswith("["):
        return text.split()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise UsageError(f"{name} is no JSON list of texts: {text[:40]!r}")
    return found


def truth(options: Mapping[str, str], name: str) -> bool:
    """Return the option `name`, which is true or false (the default). Raises UsageError."""
    text = options.get(name.lower(), "false")
    if text.lower() not in ("true", "false"):
        raise UsageError(f"{name} is true or false, not {text[:40]!r}")
    return text.lower() == "true"


HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers within [low, high], restricted to `chosen` unless it is None."""

    low: int = 0
    high: int = HIGHEST
    chosen: frozenset[int] | None = None

    def holds(self, number: int) -> bool:
        """True if a number is within the bounds."""
        return self.low <= number <= self.high and (self.chosen is None or number in self.chosen)

    def narrowed(self, kind: str, value: Any) -> Bounds:
        """Return the bounds after one filter, by the name of its class in pyspark.sql.datasource."""
        match kind:
            case "EqualTo" | "EqualNullSafe" if value is not None:
                return self._only({int(value)})
            case "In":
                return self._only({int(one) for one in value if one is not None})
            case "GreaterThan":
                return replace(self, low=max(self.low, int(value) + 1))
            case "GreaterThanOrEqual":
                return replace(self, low=max(self.low, int(value)))
            case "LessThan":
                return replace(self, high=min(self.high, int(value) - 1))
            case "LessThanOrEqual":
                return replace(self, high=min(self.high, int(value)))
        return self

    def _only(self, values: set[int]) -> Bounds:
        chosen = frozenset(values if self.chosen is None else self.chosen & values)
        low, high = min(chosen, default=1), max(chosen, default=0)
        return Bounds(max(self.low, low), min(self.high, high), chosen)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that a query can need. `topics` and `keys` are None if all are needed."""

    ledgers: Bounds = Bounds()
    entries: Bounds = Bounds()
    topics: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    index: Bounds = Bounds()


def wanted_by(filters: Iterable[Any]) -> Wanted:
    """Return the rows that all `filters` (pyspark.sql.datasource.Filter) let through."""
    wanted = Wanted()
    for one in filters:
        name, kind, value = getattr(one, "attribute", ()), type(one).__name__, getattr(one, "value", None)
        if name == ("ledger_id",):
            wanted = replace(wanted, ledgers=wanted.ledgers.narrowed(kind, value))
        elif name == ("entry_id",):
            wanted = replace(wanted, entries=wanted.entries.narrowed(kind, value))
        elif name == ("index",):
            wanted = replace(wanted, index=wanted.index.narrowed(kind, value))
        elif kind in ("EqualTo", "EqualNullSafe", "In") and value is not None:
            named = frozenset(value if kind == "In" else {value})
            if name == ("topic",):
                wanted = replace(wanted, topics=named if wanted.topics is None else wanted.topics & named)
            elif name == ("key",):
                wanted = replace(wanted, keys=named if wanted.keys is None else wanted.keys & named)
    return wanted


ENTRIES_A_PARTITION: Final = 500_000


@dataclass(frozen=True, slots=True)
class EntryRange:
    """The entries [first, last] of a ledger. `last` is None up to its end, `topic` is None if unknown."""

    topic: str | None
    ledger_id: int
    first: int = 0
    last: int | None = None


class EntryPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[EntryRange]) -> None:
        """`ranges` are read in their order."""
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


class PulsarEntries(DataSource):
    """The headers of entries. docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "pulsar_entries"

    def schema(self) -> str:
        """Return the columns that were asked for."""
        return spark_schema(wanted_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return EntryReader(dict(self.options), schema.fieldNames())


class PulsarEntriesPushed(PulsarEntries):
    """The same for sessions with spark.sql.python.filterPushdown.enabled. Other sessions refuse it."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return FilteredEntryReader(dict(self.options), schema.fieldNames())


class EntryReader(DataSourceReader):
    """Plans in the driver and reads in the workers. Spark pickles it in between."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        """Does not open the sources. Raises UsageError if options contradict each other."""
        urls = several(options, "entries")
        if not urls:
            raise UsageError('pulsar_entries needs the option "entries", for example "bookie-disk:/path"')
        if any(url.startswith(f"{LIVE}:") for url in urls) and not options.get("store"):
            raise UsageError('pulsar_entries needs the option "store" to find the bookies of "bookie:"')
        self.sources = Sources(options.get("store"), tuple(urls))
        self.options = dict(options)
        self.size = whole_number(options, "entriesPerPartition", ENTRIES_A_PARTITION)
        self.verify = truth(options, "verify")
        self.columns = tuple(columns)
        self.wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the entries. Small ledgers share a partition, large ones are cut."""
        return [EntryPartition(ranges) for ranges in divide(self._ranges(self.size), self.size)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition as Arrow batches."""
        # If there are no partitions, Spark calls this once with None.
        if not isinstance(partition, EntryPartition):
            return
        columns = [name for name in self.columns if name != TOPIC]
        with self.sources.opened() as opened:
            for part in partition.ranges:
                found = read_columns(
                    opened.entries, part.ledger_id, columns, part.first, part.last, verify=self.verify
                )
                for batch in found:
                    yield record_batch(batch, self.columns, part.topic)

    def _ranges(self, size: int) -> Iterator[tuple[EntryRange, int]]:
        """Yield (range, largest number of entries that it may have) for everything that is needed."""
        entries = self.wanted.entries
        if entries.low > entries.high:
            return
        with self.sources.opened() as opened:
            for topic, ledger_id, count in self._ledgers(opened):
                last = opened.entries.last_entry(ledger_id) if count is None else count - 1
                last = -1 if last is None else min(last, entries.high)
                for first in range(entries.low, last + 1, size):
                    end = min(first + size - 1, last)
                    yield EntryRange(topic, ledger_id, first, end), end - first + 1

    def _ledgers(self, opened: Opened) -> Iterator[tuple[str | None, int, int | None]]:
        """Yield (topic, ledger, entries or None) for topics, or without a store for all ledgers."""
        wanted = self.wanted
        if opened.store is None:
            yield from ((None, one, None) for one in opened.entries.ledgers() if wanted.ledgers.holds(one))
            return
        for topic in self._topics(opened.store):
            if wanted.topics is not None and topic.name not in wanted.topics:
                continue
            for ledger in topic.ledgers:
                if wanted.ledgers.holds(ledger.ledger_id):
                    yield topic.name, ledger.ledger_id, ledger.entries

    def _topics(self, store: Store) -> Iterator[Topic]:
        """Yield the topics. Raises NotFoundError and DecodeError if a shadow topic's source is unreadable."""

        def fail(fault: PulsarMetaError) -> None:
            raise fault

        names, sources = several(self.options, "topics"), ShadowSources(store, many=True)
        for record in chosen_topics(store, names, everything=not names):
            yield followed(topic_of(record), store, sources, fail)


class FilteredEntryReader(EntryReader):
    """Skips entries that the filters on topic, ledger_id and entry_id reject."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Keep the filters. Spark applies all of them again."""
        self.wanted = wanted_by(filters)
        return filters


def wanted_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns in the option `columns`, separated by commas. Default: all. Raises UsageError."""
    names = tuple(name.strip() for name in options.get("columns", "").split(",") if name.strip())
    return checked_names(names, ENTRY_COLUMNS, "entries")


def divide(ranges: Iterator[tuple[EntryRange, int]], size: int) -> Iterator[list[EntryRange]]:
    """Yield lists of ranges with about `size` entries each; a ledger is worth a thousandth at least."""
    held: list[EntryRange] = []
    cost = 0
    for part, count in ranges:
        weight = max(count, size // 1000, 1)
        if held and cost + weight > size:
            yield held
            held, cost = [], 0
        held.append(part)
        cost += weight
    if held:
        yield held

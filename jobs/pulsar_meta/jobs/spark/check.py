"""The passes of `check` over a whole store by Spark's workers, each over a part of the store.

The index of all ledgers is in files, of which each machine with workers gets one copy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.check.context import ADMIN, Context, is_stream
from pulsar_meta.jobs.check.foreign_disks import split_disks
from pulsar_meta.jobs.check.ledger_index import LedgerIndex, index_ledgers, join_indexes
from pulsar_meta.jobs.check.scan import Passes, ScanInput, ValueScan, scans_of
from pulsar_meta.jobs.check.totals import PartitionCounts, ScanTotals
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import Task, map_on_workers
from pulsar_meta.jobs.topics.owners import SCHEMAS
from pulsar_meta.stores.base import Store, Versioned, child_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
PARTS_PER_CORE: Final = 16
# The depth to which each part of the store may be divided, so that a topic stays in one part.
_LEVELS: Final = {ADMIN: 4, LEDGERS: 2, SCHEMAS: 3, MANAGED_LEDGERS: 4}


@dataclass(frozen=True, slots=True)
class StorePart:
    """A part of a store: some values, and everything at and below some roots."""

    values: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()


@dataclass(slots=True)
class PartResult:
    """The findings and totals of one part; `values` counts the values that were scanned."""

    findings: list[Finding] = field(default_factory=list)
    totals: ScanTotals = field(default_factory=ScanTotals)
    partitions: PartitionCounts = field(default_factory=PartitionCounts)
    values: int = 0

    def count(self, values: int) -> None:
        """Count more scanned values."""
        self.values += values


@contextmanager
def passes_by_spark(
    store: Store, urls: Sequence[str], spark: SparkSettings, advance: Callable[[int], None]
) -> Iterator[Passes]:
    """Yield the passes over a store by Spark's workers; `urls` are the entry sources.

    Raises UnreachableError if Spark does not start, PulsarMetaError if a job fails.
    """
    with spark_session(spark) as session:
        yield SparkPasses(session, store, Sources(store.url, tuple(urls)), spark, advance)


@dataclass(frozen=True, slots=True)
class SparkPasses:
    """The passes by Spark's workers. An unsorted snapshot is one stream, so it is one part."""

    session: SparkSession
    store: Store
    sources: Sources
    spark: SparkSettings
    advance: Callable[[int], None]

    def values(self, context: Context, partitions: PartitionCounts, totals: ScanTotals) -> Iterator[Finding]:
        """Yield the findings below /admin, and add partitioned topics to `partitions`."""
        for result in self._map(partial(scan_values, context), ADMIN):
            partitions.merge(result.partitions)
            yield from self._add(result, totals)

    def ledgers(self) -> LedgerIndex:
        """Index all ledgers."""
        parts = []
        for part, count in self._map(index_part, LEDGERS):
            self.advance(count)
            parts.append(part)
        return join_indexes(parts)

    def topics(self, given: ScanInput, totals: ScanTotals) -> Iterator[Finding]:
        """Yield the findings about schemas, topics and cursors."""
        with _shared(self.session, given, with_entries=bool(self.sources.urls)) as shared:
            for result in self._map(partial(scan_topics, shared), SCHEMAS, MANAGED_LEDGERS):
                yield from self._add(result, totals)

    def _map(self, work: Callable[[Opened, StorePart], Result], *tops: str) -> Iterator[Result]:
        wanted = self.session.sparkContext.defaultParallelism * PARTS_PER_CORE
        parts = chain.from_iterable(divide(self.store, top, wanted) for top in tops)
        tasks = [Task(self.sources, part) for part in parts]
        return map_on_workers(self.session, tasks, work, self.spark, streaming=True)

    def _add(self, result: PartResult, totals: ScanTotals) -> Iterator[Finding]:
        self.advance(result.values)
        totals.merge(result.totals)
        yield from result.findings


def divide(store: Store, top: str, wanted: int) -> list[StorePart]:
    """Divide everything at and below a path into about `wanted` parts, with each topic in one part."""
    values: list[str] = []
    roots = [top]
    for _ in range(0 if is_stream(store) else _LEVELS[top]):
        if len(roots) >= wanted:
            break
        listed = list(zip(roots, store.children_many(roots), strict=True))
        values += [root for root, names in listed if names]
        roots = [
            path for root, names in listed for path in ([child_path(root, name) for name in names] or [root])
        ]
    size = -(-len(roots) // wanted)
    parts = [StorePart(roots=tuple(roots[at : at + size])) for at in range(0, len(roots), size)]
    return [StorePart(tuple(values)), *parts] if values else parts


def scan_values(context: Context, opened: Opened, part: StorePart) -> PartResult:
    """Check values below /admin."""
    result, store = PartResult(), _store(opened)
    scan = ValueScan(store, context, result.totals, partitions=result.partitions, advance=result.count)
    result.findings += scan.findings(records_of(store, part))
    return result


def index_part(opened: Opened, part: StorePart) -> tuple[LedgerIndex, int]:
    """Index a part of the ledgers, and return the number of its values, too."""
    result = PartResult()
    return index_ledgers(records_of(_store(opened), part), result.count), result.values


def scan_topics(shared: Shared, opened: Opened, part: StorePart) -> PartResult:
    """Check schemas, or topics and cursors."""
    result, store = PartResult(), _store(opened)
    source = split_disks(store, opened.entries)[0] if shared.with_entries else None
    schemas, topics = scans_of(store, source, shared.given(), result.totals, result.count)
    is_schema = any(path.startswith(SCHEMAS) for path in (*part.values, *part.roots))
    result.findings += (schemas if is_schema else topics).findings(records_of(store, part))
    return result


def records_of(store: Store, part: StorePart) -> Iterator[Versioned]:
    """Yield the records of a part."""
    yield from filter(None, store.read_many(part.values))
    for root in part.roots:
        yield from store.scan(root)


def _store(opened: Opened) -> Store:
    assert opened.store is not None
    return opened.store


@dataclass(frozen=True, slots=True)
class Shared:
    """The input of a scan without its columns of numbers, which are in files with these names."""

    rest: ScanInput
    ledgers: str
    partitions: str
    with_entries: bool

    def given(self) -> ScanInput:
        """Return the input with its columns mapped from the files."""
        index = replace(self.rest.index, columns=_column_file(self.ledgers))
        partitions = PartitionCounts(_column_file(self.partitions), self.rest.partitions.shadows)
        return replace(self.rest, index=index, partitions=partitions)


@contextmanager
def _shared(session: SparkSession, given: ScanInput, *, with_entries: bool) -> Iterator[Shared]:
    """Yield the input of a scan in a form that each worker can open."""
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="pulsar-meta-check-") as folder:

        def file_of(columns: NDArray[np.int64]) -> str:
            path = Path(folder, f"{uuid4().hex}.npy")
            np.save(path, columns)
            session.sparkContext.addFile(str(path))
            return path.name

        ledgers, partitions = file_of(given.index.columns), file_of(given.partitions.ordered())
        index = replace(given.index, columns=np.empty((0, 0), np.int64))
        rest = replace(given, index=index, partitions=PartitionCounts(shadows=given.partitions.shadows))
        yield Shared(rest, ledgers, partitions, with_entries)


@lru_cache(maxsize=4)
def _column_file(name: str) -> NDArray[np.int64]:
    """Map the columns of a file that was sent to this machine."""
    import numpy as np
    from pyspark import SparkFiles

    columns: NDArray[np.int64] = np.load(SparkFiles.get(name), mmap_mode="r")
    return columns

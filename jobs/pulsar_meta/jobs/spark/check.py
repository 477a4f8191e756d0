"""A whole store checked by Spark's workers: the passes of one process, made over pieces of the store.

What a pass over topics has to know of all ledgers lies in files, of which each machine with workers gets one
copy, and is looked up where it lies.
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
from pulsar_meta.jobs.check.known import is_stream
from pulsar_meta.jobs.check.listing import Listing, joined, list_ledgers
from pulsar_meta.jobs.check.passes import Known, Passes, passes_over
from pulsar_meta.jobs.check.seen import Seen
from pulsar_meta.jobs.check.sight import Cluster
from pulsar_meta.jobs.check.value_pass import ADMIN, Partitions, ValuePass
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import Task, map_on_workers
from pulsar_meta.jobs.topics.owners import SCHEMAS
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.base import joined as below

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
PIECES_PER_CORE: Final = 16
# How deep a part of the store may be divided: no topic comes apart.
_LEVELS: Final = {ADMIN: 4, LEDGERS: 2, SCHEMAS: 3, MANAGED_LEDGERS: 4}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a store: some values, and all at and below some paths."""

    values: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()


@dataclass(slots=True)
class Outcome:
    """What came of a piece."""

    findings: list[Finding] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    partitions: Partitions = field(default_factory=Partitions)
    values: int = 0

    def count(self, values: int) -> None:
        """Note that so many more values were looked at."""
        self.values += values


@contextmanager
def passes_by_spark(
    store: Store, urls: Sequence[str], spark: SparkSettings, advance: Callable[[int], None]
) -> Iterator[Passes]:
    """Give the passes over a store that Spark's workers make; `urls` are those of the entries.

    UnreachableError where Spark does not start, PulsarMetaError for a job that fails.
    """
    with spark_session(spark) as session:
        yield OnWorkers(session, store, Sources(store.url, tuple(urls)), spark, advance)


@dataclass(frozen=True, slots=True)
class OnWorkers:
    """The passes, made by Spark's workers. A snapshot is one stream, and so one piece."""

    session: SparkSession
    store: Store
    sources: Sources
    spark: SparkSettings
    advance: Callable[[int], None]

    def values(self, cluster: Cluster, partitions: Partitions, seen: Seen) -> Iterator[Finding]:
        """Yield what is wrong below /admin."""
        for outcome in self._map(partial(values_of, cluster), ADMIN):
            partitions.merge(outcome.partitions)
            yield from self._taken(outcome, seen)

    def ledgers(self) -> Listing:
        """Return all that `/ledgers` has."""
        parts = []
        for part, count in self._map(ledgers_of, LEDGERS):
            self.advance(count)
            parts.append(part)
        return joined(parts)

    def topics(self, known: Known, seen: Seen) -> Iterator[Finding]:
        """Yield what is wrong with schemas, topics and cursors."""
        with _everywhere(self.session, known, with_entries=bool(self.sources.urls)) as shared:
            for outcome in self._map(partial(topics_of, shared), SCHEMAS, MANAGED_LEDGERS):
                yield from self._taken(outcome, seen)

    def _map(self, work: Callable[[Opened, Piece], Result], *tops: str) -> Iterator[Result]:
        wanted = self.session.sparkContext.defaultParallelism * PIECES_PER_CORE
        parts = chain.from_iterable(pieces(self.store, top, wanted) for top in tops)
        tasks = [Task(self.sources, piece) for piece in parts]
        return map_on_workers(self.session, tasks, work, self.spark, streaming=True)

    def _taken(self, outcome: Outcome, seen: Seen) -> Iterator[Finding]:
        self.advance(outcome.values)
        seen.merge(outcome.seen)
        yield from outcome.findings


def pieces(store: Store, top: str, wanted: int) -> list[Piece]:
    """Return about so many parts of what lies at and below a path, no topic in two of them."""
    values: list[str] = []
    roots = [top]
    for _ in range(0 if is_stream(store) else _LEVELS[top]):
        if len(roots) >= wanted:
            break
        listed = list(zip(roots, store.children_many(roots), strict=True))
        values += [root for root, names in listed if names]
        roots = [one for root, names in listed for one in ([below(root, name) for name in names] or [root])]
    size = -(-len(roots) // wanted)
    parts = [Piece(roots=tuple(roots[at : at + size])) for at in range(0, len(roots), size)]
    return [Piece(tuple(values)), *parts] if values else parts


def values_of(cluster: Cluster, opened: Opened, piece: Piece) -> Outcome:
    """Look at values below /admin."""
    outcome, store = Outcome(), _store(opened)
    look = ValuePass(store, cluster, outcome.seen, partitions=outcome.partitions, advance=outcome.count)
    outcome.findings += look.findings(records_of(store, piece))
    return outcome


def ledgers_of(opened: Opened, piece: Piece) -> tuple[Listing, int]:
    """Return a part of the listing, and how many values it was made of."""
    outcome = Outcome()
    return list_ledgers(records_of(_store(opened), piece), outcome.count), outcome.values


def topics_of(shared: Shared, opened: Opened, piece: Piece) -> Outcome:
    """Look at schemas and topics."""
    outcome, store = Outcome(), _store(opened)
    source = opened.entries if shared.with_entries else None
    schemas, topics = passes_over(store, source, shared.known(), outcome.seen, outcome.count)
    is_schema = any(path.startswith(SCHEMAS) for path in (*piece.values, *piece.roots))
    outcome.findings += (schemas if is_schema else topics).findings(records_of(store, piece))
    return outcome


def records_of(store: Store, piece: Piece) -> Iterator[Versioned]:
    """Yield what a piece has."""
    yield from filter(None, store.read_many(piece.values))
    for root in piece.roots:
        yield from store.scan(root)


def _store(opened: Opened) -> Store:
    assert opened.store is not None
    return opened.store


@dataclass(frozen=True, slots=True)
class Shared:
    """What is known, without its columns of numbers: these are in files by name."""

    rest: Known
    ledgers: str
    partitions: str
    with_entries: bool

    def known(self) -> Known:
        """Return what is known, with the columns where they lie."""
        listing = replace(self.rest.listing, columns=_column_file(self.ledgers))
        partitions = Partitions(_column_file(self.partitions), self.rest.partitions.shadows)
        return replace(self.rest, listing=listing, partitions=partitions)


@contextmanager
def _everywhere(session: SparkSession, known: Known, *, with_entries: bool) -> Iterator[Shared]:
    """Give what is known in a form that each worker can look up."""
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="pulsar-meta-check-") as folder:

        def file_of(columns: NDArray[np.int64]) -> str:
            path = Path(folder, f"{uuid4().hex}.npy")
            np.save(path, columns)
            session.sparkContext.addFile(str(path))
            return path.name

        ledgers, partitions = file_of(known.listing.columns), file_of(known.partitions.ordered())
        listing = replace(known.listing, columns=np.empty((0, 0), np.int64))
        rest = replace(known, listing=listing, partitions=Partitions(shadows=known.partitions.shadows))
        yield Shared(rest, ledgers, partitions, with_entries)


@lru_cache(maxsize=4)
def _column_file(name: str) -> NDArray[np.int64]:
    """Return the columns in a file that this machine was given; they stay in it."""
    import numpy as np
    from pyspark import SparkFiles

    found: NDArray[np.int64] = np.load(SparkFiles.get(name), mmap_mode="r")
    return found

"""Work on many ledgers by Spark: they are shared out, each worker opens the entries and works.

Only plain values travel: ledger ids and numbers of entries out, results back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_sources import LIVE, open_entry_sources
from pulsar_meta.jobs.index.build import first_index
from pulsar_meta.jobs.index.check import check_topic
from pulsar_meta.jobs.index.scan import LedgerScan, scan_ledger
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.topics.topic import Topic
from pulsar_meta.stores.registry import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Shares for each core, so that one slow share does not hold up the rest.
SHARES_PER_CORE: Final = 4
# What opening a ledger costs, in entries.
LEDGER_COST: Final = 1000

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger to work on; `entries` is None where nobody knows how many it has."""

    ledger_id: int
    entries: int | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """Where workers find entries; `store` is a URL, opened only where live bookies are found through it."""

    store: str
    urls: tuple[str, ...]

    @contextmanager
    def opened(self) -> Iterator[EntrySource]:
        """Open the entries."""
        with ExitStack() as stack:
            live = any(url.startswith(f"{LIVE}:") for url in self.urls)
            store = stack.enter_context(open_store(self.store)) if live else None
            yield stack.enter_context(open_entry_sources(self.urls, store))


@dataclass(frozen=True, slots=True)
class Share(Generic[Result]):
    """What one task does."""

    sources: Sources
    ledgers: tuple[Ledger, ...]
    work: Callable[[EntrySource, Ledger], Result]


def map_ledgers(
    session: SparkSession,
    sources: Sources,
    ledgers: Iterable[Ledger],
    work: Callable[[EntrySource, Ledger], Result],
) -> dict[int, Result]:
    """Return what `work`, a function of a module, makes of each ledger, by the ledger's id.

    A PulsarMetaError of a worker is raised here.
    """
    context = session.sparkContext
    parts = share_out(ledgers, context.defaultParallelism * SHARES_PER_CORE)
    if not parts:
        return {}
    shares = [Share(sources, part, work) for part in parts]
    found: dict[int, Result] = {}
    for results in context.parallelize(shares, len(shares)).map(do_share).collect():
        if isinstance(results, PulsarMetaError):
            raise results
        found.update(results)
    return found


def do_share(share: Share[Result]) -> dict[int, Result] | PulsarMetaError:
    """Do the work of one task; an error of ours is returned, to be raised at home."""
    try:
        with share.sources.opened() as source:
            return {ledger.ledger_id: share.work(source, ledger) for ledger in share.ledgers}
    except PulsarMetaError as error:
        return error


def share_out(ledgers: Iterable[Ledger], count: int) -> list[tuple[Ledger, ...]]:
    """Return at most `count` shares of about equal work, the longest ledgers dealt first."""
    unique = {ledger.ledger_id: ledger for ledger in ledgers}.values()
    shares: list[list[Ledger]] = [[] for _ in range(max(1, min(count, len(unique))))]
    costs = [0] * len(shares)
    for ledger in sorted(unique, key=_cost, reverse=True):
        least = costs.index(min(costs))
        shares[least].append(ledger)
        costs[least] += _cost(ledger)
    return [tuple(share) for share in shares if share]


def _cost(ledger: Ledger) -> int:
    return LEDGER_COST + (ledger.entries or 0)


def scan(source: EntrySource, ledger: Ledger) -> LedgerScan:
    """Scan a ledger's indexes."""
    return scan_ledger(source, ledger.ledger_id, ledger.entries)


def read_first(source: EntrySource, ledger: Ledger) -> int | str:
    """Read the index of a ledger's first message."""
    return first_index(source, ledger.ledger_id)


def check_indexes_with_spark(
    sources: Sources,
    topics: Sequence[Topic],
    key: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Iterator[Document]:
    """Yield what `check_indexes` does, the ledgers scanned by Spark.

    UnreachableError where Spark does not start, PulsarMetaError for a job that fails.
    """
    ledgers = [Ledger(one.ledger_id, one.entries) for topic in topics for one in topic.ledgers]
    with spark_session(master=master, conf=conf, verbose=verbose) as session:
        scans = map_ledgers(session, sources, ledgers, scan)
    for topic in topics:
        yield from check_topic(topic, scans, key)


def first_indexes_with_spark(
    session: SparkSession, sources: Sources, ledger_ids: Sequence[int]
) -> list[int | str]:
    """Return the first index of each ledger, or why there is none, read by Spark."""
    found = map_ledgers(session, sources, [Ledger(one) for one in ledger_ids], read_first)
    return [found[one] for one in ledger_ids]

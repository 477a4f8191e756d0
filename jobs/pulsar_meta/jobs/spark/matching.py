"""Filters over whole topics by Spark: each task reads one ledger and sends back what matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.entries.entry_choice import Range, Tell
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe_matching, readable_entries
from pulsar_meta.jobs.entries.entry_filter import EntryFilter, FilterCounts
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.stores.registry import open_store


@dataclass(frozen=True, slots=True)
class Lot:
    """What one task does: a ledger's range and its entries' format, the sources, the filter, what to show."""

    urls: tuple[str, ...]
    store: str | None
    part: Range
    form: EntryFormat
    chosen: EntryFilter
    look: DumpOptions


@dataclass(frozen=True, slots=True)
class Found:
    """What one task found, counted and had to tell."""

    documents: list[Document]
    counts: FilterCounts
    told: list[PulsarMetaError]


def match_with_spark(
    lots: Sequence[Lot],
    counts: FilterCounts,
    tell: Tell,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Iterator[Document]:
    """Yield the documents of what matches in the order of the lots, one ledger in memory at a time.

    Raises what opening the entries raises, and UnreachableError where Spark does not start.
    """
    with spark_session(master=master, conf=conf, verbose=verbose) as session:
        work = session.sparkContext.parallelize(lots, max(len(lots), 1)).map(match_lot)
        for found in work.toLocalIterator(prefetchPartitions=True):
            if isinstance(found, PulsarMetaError):
                raise found
            counts.merge(found.counts)
            for error in found.told:
                tell(error)
            yield from found.documents


def match_lot(lot: Lot) -> Found | PulsarMetaError:
    """Filter one ledger where its entries can be opened; an error of ours is returned, raised at home."""
    try:
        with ExitStack() as stack:
            live = any(url.startswith("bookie:") for url in lot.urls)
            store = stack.enter_context(open_store(lot.store)) if live and lot.store else None
            source = stack.enter_context(open_entry_sources(lot.urls, store))
            found = Found([], FilterCounts(), [])
            entries = readable_entries(lot.part, source, lot.form, found.told.append)
            documents = describe_matching(
                entries, lot.chosen, found.counts, lot.look, None, found.told.append
            )
            found.documents.extend(documents)
            return found
    except PulsarMetaError as error:
        return error

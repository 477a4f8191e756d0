"""Batch plans of many topics by Spark: each task plans one topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.batches.batch_plan import BatchPlan, plan_entries
from pulsar_meta.jobs.batches.batching import Batching
from pulsar_meta.jobs.entries.entry_choice import Choice, Limits, Tell
from pulsar_meta.jobs.entries.entry_dump import read_entries
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.stores.registry import open_store


@dataclass(frozen=True, slots=True)
class Lot:
    """What one task does: a topic's ledgers, which entries of them, where they are, and the rule."""

    urls: tuple[str, ...]
    store: str | None
    choice: Choice
    limits: Limits
    count: int | None
    batching: Batching
    rebatch: bool


@dataclass(frozen=True, slots=True)
class Planned:
    """A topic's plan, and what there was to tell."""

    document: Document
    told: list[PulsarMetaError]


def plan_with_spark(
    lots: Sequence[Lot],
    tell: Tell,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Iterator[Document]:
    """Yield the plan of each lot in order; raises what opening raises, UnreachableError without Spark."""
    with spark_session(master=master, conf=conf, verbose=verbose) as session:
        work = session.sparkContext.parallelize(lots, max(len(lots), 1)).map(plan_lot)
        for planned in work.toLocalIterator(prefetchPartitions=True):
            if isinstance(planned, PulsarMetaError):
                raise planned
            for error in planned.told:
                tell(error)
            yield planned.document


def plan_lot(lot: Lot) -> Planned | PulsarMetaError:
    """Plan one topic where its entries can be opened; an error of ours is returned, raised at home."""
    told: list[PulsarMetaError] = []
    try:
        with ExitStack() as stack:
            store = stack.enter_context(open_store(lot.store)) if lot.store else None
            source = stack.enter_context(open_entry_sources(lot.urls, store))
            entries = read_entries(iter([lot.choice]), lot.limits, source, store, told.append)
            plan = BatchPlan(lot.batching, rebatch=lot.rebatch)
            return Planned(plan_entries(plan, entries, lot.count, told.append), told)
    except PulsarMetaError as error:
        return error

"""The check of entries by Spark: each task opens the entries and checks one ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.jobs.entries.entry_check import Checker, LedgerReport, LedgerTask, check_range
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.stores.registry import open_store


@dataclass(frozen=True, slots=True)
class Lot:
    """What one worker does: one ledger, from these sources; `store` where live bookies are found by it."""

    urls: tuple[str, ...]
    store: str | None
    task: LedgerTask
    max_size: int


def check_with_spark(
    urls: Sequence[str],
    store: str | None,
    max_size: int,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Checker:
    """Return the checker that sends ledgers to Spark; it raises what opening the entries raises."""

    def check(tasks: Sequence[LedgerTask]) -> Iterator[LedgerReport]:
        lots = [Lot(tuple(urls), store, task, max_size) for task in tasks]
        with spark_session(master=master, conf=conf, verbose=verbose) as session:
            reports = session.sparkContext.parallelize(lots, max(len(lots), 1)).map(check_lot).collect()
        for report in reports:
            if isinstance(report, PulsarMetaError):
                raise report
            yield report

    return check


def check_lot(lot: Lot) -> LedgerReport | PulsarMetaError:
    """Check a ledger where the entries can be opened; an error of ours is returned, to be raised at home."""
    try:
        with ExitStack() as stack:
            live = any(url.startswith("bookie:") for url in lot.urls)
            store = stack.enter_context(open_store(lot.store)) if live and lot.store else None
            source = stack.enter_context(open_entry_sources(lot.urls, store))
            return check_range(lot.task.part, source, lot.task.form, max_size=lot.max_size)
    except PulsarMetaError as error:
        return error

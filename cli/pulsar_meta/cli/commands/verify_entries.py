"""The command `verify-entries`: every layer of entries, silent when all is well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_meta.cli.entry_options import LimitOptions
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EngineOptions, EntriesUrls, StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.json_text import Document

if TYPE_CHECKING:
    from pulsar_meta.entries.base import EntrySource
    from pulsar_meta.jobs.entries.entry_check import Checker, LedgerReport

SIZE_UNIT = 2**20


def verify_entries(
    shell: Shell,
    bounds: LimitOptions,
    engine: EngineOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC|LEDGER", help="Topics (with --store) or ledgers; else all."),
    ] = None,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    max_size: Annotated[
        int, typer.Option("--max-size", min=1, metavar="MIB", help="Largest payload to decompress.")
    ] = 256,
) -> None:
    """Check every layer of entries: a line for each fault and exit code 1, silence when all is well.

    Layers: missing and broken records, header, digest, length, sizes, metadata, the frame's checksum,
    payload, batch, and whether indexes are continuous from entry to entry and from ledger to ledger. The
    digest's type and password come from the store; without it the type is found by trying.

    Examples:
      pulsar-meta verify-entries orders --store zk://zk1:2181 --entries bookie:
      pulsar-meta verify-entries --entries bookie-disk:/data/bookie --engine spark
    """
    from pulsar_meta.jobs.entries.entry_check import first_checks, plan_checks, run_checks
    from pulsar_meta.jobs.entries.entry_choice import choose
    from pulsar_meta.jobs.entries.entry_sources import open_entry_sources

    faults, faulty, limits = Faults(shell), False, bounds.limits
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store)) if store or shell.settings.store else None
        urls = shell.entries_urls(entries)
        source = stack.enter_context(open_entry_sources(urls, opened))
        planned = plan_checks(choose(names or [], opened, source, faults), limits, source, opened, faults)
        tasks = first_checks(planned, bounds.count, source)
        work = sum(task.part.ledger.entries or 0 for task in tasks)
        spark = engine.chosen(shell, work) == "spark"
        store_url, size = opened.url if opened else None, max_size * SIZE_UNIT
        check = _by_spark(shell, engine, urls, store_url, size) if spark else _here(source, size)
        count = _Count()
        shell.emit(_faults(run_checks(tasks, check), count), _VIEW)
        shell.detail(f"{count.entries} entries in {len(tasks)} ledgers, {count.faults} faults")
        faulty = count.faults > 0
        faults.end(source)
    if faulty:
        raise typer.Exit(Exit.FAULT)


def _here(source: EntrySource, max_size: int) -> Checker:
    from pulsar_meta.jobs.entries.entry_check import check_here

    return check_here(source, max_size)


def _by_spark(shell: Shell, how: EngineOptions, urls: list[str], store: str | None, max_size: int) -> Checker:
    from pulsar_meta.jobs.spark.entries import check_with_spark
    from pulsar_meta.jobs.spark.workers import Sources

    return check_with_spark(Sources(store, tuple(urls)), max_size, how.spark(shell))


class _Count:
    entries = 0
    faults = 0


def _faults(reports: Iterator[LedgerReport], count: _Count) -> Iterator[Document]:
    for report in reports:
        count.entries += report.entries
        for fault in report.faults:
            count.faults += 1
            yield {
                "ledger_id": fault.ledger_id,
                "entry_id": fault.entry_id,
                "layer": fault.layer,
                "fault": fault.fault,
            }


def _row(document: Document) -> list[str]:
    return [f"{document['ledger_id']}:{document['entry_id']}", document["layer"], document["fault"]]


_VIEW = View(("position", "layer", "fault"), _row, fields=("ledger_id", "entry_id", "layer", "fault"))

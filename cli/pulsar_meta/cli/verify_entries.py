"""The command `verify-entries`: every layer of entries, silent when all is well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_meta.cli.dump_entries import Told
from pulsar_meta.cli.engine_options import Engine
from pulsar_meta.cli.output import Document, View
from pulsar_meta.cli.shell import EntriesUrls, Exit, Shell, StoreUrl

if TYPE_CHECKING:
    from pulsar_meta.jobs.entry_check import LedgerReport

SIZE_UNIT = 2**20


def verify_entries(
    shell: Shell,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC|LEDGER", help="Topics (with --store) or ledgers; else all."),
    ] = None,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    max_size: Annotated[
        int, typer.Option("--max-size", min=1, metavar="MIB", help="Largest payload to decompress.")
    ] = 256,
    engine: Annotated[
        Engine, typer.Option("--engine", help="auto: Spark with --master, if Java 17 is here; else local.")
    ] = Engine.AUTO,
    master: Annotated[str | None, typer.Option("--master", help="Spark's; default local[*].")] = None,
) -> None:
    """Check every layer of entries: a line for each fault and exit code 1, silence when all is well.

    Layers: missing and broken records, header, digest, length, sizes, metadata, the frame's checksum,
    payload, batch, and whether indexes go on from entry to entry and from ledger to ledger. The digest's
    type and password come from the store; without it the type is found by trying.

    Examples:
      pulsar-meta verify-entries orders --store zk://zk1:2181 --entries bookie:
      pulsar-meta verify-entries --entries bookie-disk:/data/bookie --engine spark
    """
    from pulsar_meta.jobs.engine import choose_engine
    from pulsar_meta.jobs.entry_checks import check_here, plan_checks, run_checks
    from pulsar_meta.jobs.entry_sources import open_entry_sources

    told, faulty = Told(shell), False
    chosen, note = choose_engine(str(engine), 0, master)
    if note:
        shell.say(note)
    with ExitStack() as stack:
        store_url = store or shell.settings.store
        opened = stack.enter_context(shell.store(store)) if store_url else None
        source = stack.enter_context(open_entry_sources(shell.entries_urls(entries), opened))
        tasks = plan_checks(names or [], opened, source, told)
        check = check_here(source, max_size * SIZE_UNIT)
        if chosen == "spark":
            from pulsar_meta.jobs.spark.verify import check_with_spark

            urls = shell.entries_urls(entries)
            check = check_with_spark(
                urls, store_url, max_size * SIZE_UNIT, master=master, verbose=shell.verbose
            )
        count = _Count()
        shell.emit(_faults(run_checks(tasks, check), count), _VIEW)
        shell.detail(f"{count.entries} entries in {len(tasks)} ledgers, {count.faults} faults")
        faulty = count.faults > 0
        told.end(source)
    if faulty:
        raise typer.Exit(Exit.FAULT)


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


_VIEW = View(("POSITION", "LAYER", "FAULT"), _row)

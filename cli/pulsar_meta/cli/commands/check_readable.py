"""`check-readable`: list records that brokers of a release can't load."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import MANAGED_LEDGERS
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.rewrite.readable import Form, Readability, Readers, Verdict, parse_version
from pulsar_meta.jobs.topics.nearest import missing


def check_readable(
    shell: Shell,
    for_version: Annotated[
        list[str], typer.Option("--for-version", metavar="V", help="A Pulsar release (repeatable).")
    ],
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """List records that a given Pulsar release can't load.

    Use it before a downgrade, or before you enable compression. Exits with 1 if there are any. If we did not
    test that release with such a record, the verdict is unknown; if there is nothing worse, the exit code is
    then 3, as for a store without topics. With --entries, it also checks the states in cursors' ledgers:
    older releases don't know bit sets of acknowledgements there and would redeliver those messages
    (convert-cursor converts them to ranges).

    Examples:
      pulsar-meta check-readable --store rocksdb:data/metadata --for-version 4.2.4
      pulsar-meta check-readable --entries bookie: --for-version 2.11.0 -o ndjson
    """
    for version in for_version:
        parse_version(version)
    reads_bits = Readers(tuple(for_version)).verdict(Form.BIT_SETS)[0] is Verdict.LOADS
    urls = [] if reads_bits else list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        readability = Readability(source)
        progress = stack.enter_context(shell.progress(unit="values"))
        values = progress.counting(opened.scan(MANAGED_LEDGERS))
        shell.emit(readability.documents(values, for_version), FAULTS)
        if not readability.topics and not readability.cursors:
            raise missing(opened, MANAGED_LEDGERS)
    unknown = {}
    if readability.unknown:
        unknown[counted(readability.unknown, "records")] = "unknown if these releases can load them"
    if readability.in_ledgers:
        reason = "add --entries" if source is None else "no source has their last entries"
        unknown[f"the state of {counted(readability.in_ledgers, 'cursors')} in their ledgers"] = reason
    shell.summary({"topics": readability.topics, "cursors": readability.cursors}, unknown)
    if readability.faults:
        raise typer.Exit(Exit.FAULT)
    if readability.unknown or (readability.in_ledgers and source is not None):
        raise typer.Exit(Exit.NOT_FOUND)


def _row(fault: Document) -> list[str]:
    return [fault["topic"], fault.get("cursor", ""), fault["form"], fault["reason"], fault["verdict"]]


FAULTS = View(
    ["topic", "cursor", "form", "reason", "verdict"],
    _row,
    fields=("path", "version", "topic", "cursor", "form", "reason", "verdict"),
)

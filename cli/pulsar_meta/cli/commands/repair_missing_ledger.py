"""`repair missing-ledger`: a lost ledger out of its topic's list, or single lost entries acknowledged."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import Confirm, carry_out
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.repair.missing_ledger import Run, drop_ledger, skip_entries
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.topic import parse_ledger_id


def repair_missing_ledger(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="The topic, or one partition.")],
    ledger: Annotated[str, typer.Argument(help="The number of the ledger.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="N|N-M", help="Acknowledge these entries, and keep the ledger (repeatable)."
        ),
    ] = None,
    only_absent: Annotated[
        bool, typer.Option("--only-absent", help="The same for the entries that no disk of --entries has.")
    ] = False,
    confirm: Confirm = None,
) -> None:
    """DANGEROUS: give up a ledger whose entries are lost, or single entries of it, so that reading goes on.

    The ledger goes out of the topic's list, and subscriptions that stand in it go on at the next one; all its
    entries are given up. Where some are still there, --only or --only-absent gives up just the others: they
    count as acknowledged in every subscription. Try repair ledger-metadata first: what bookies still have is
    not lost. Nothing is deleted from bookies.

    Examples:
      pulsar-meta repair missing-ledger orders 25 --dry-run
      pulsar-meta repair missing-ledger orders 25 --only 3-5 --confirm NAME -y
    """
    name, ledger_id = TopicName.parse(topic), parse_ledger_id(ledger)
    runs = None if not only else [_run(text) for text in only]
    if runs is not None and only_absent:
        raise UsageError(
            "--only says which entries, and --only-absent has the disks say it: give one of them"
        )
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        single = runs is not None or only_absent
        repair = (
            skip_entries(opened, source, name, ledger_id, runs, readers)
            if single
            else drop_ledger(opened, name, ledger_id, readers)
        )
        carry_out(shell, opened, repair, writing, confirm, source)


def _run(text: str) -> Run:
    """Return the first and the last entry of a range."""
    first, separator, last = text.partition("-")
    if not first.isdecimal() or (separator and not last.isdecimal()):
        raise UsageError(f"--only {text}: an entry's number, or two with - between them")
    return int(first), int(last or first)

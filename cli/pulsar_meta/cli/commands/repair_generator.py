"""`repair generator`: the counter of ledger ids above every id that was ever used."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import carry_out, warned
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing
from pulsar_meta.cli.shell import Shell
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.repair import generator


def repair_generator(
    shell: Shell,
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    at_least: Annotated[
        int | None,
        typer.Option("--at-least", min=1, help="The next id is this one or a higher, where more is known."),
    ] = None,
) -> None:
    """Move the generator of ledger ids above every id that was ever used, as far as that is known.

    Known are the counter itself, /ledgers, whatever records name, and with --entries what is on the bookies'
    disks. An id that is given out twice overwrites entries. Stop all brokers first. A counter never goes
    back, nor by undo.

    Examples:
      pulsar-meta repair generator --store zk://zk1:2181 --dry-run
      pulsar-meta repair generator --entries bookie-disk:/bk/data --yes
    """
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        repair = generator.repair_generator(opened, source, warned(shell), at_least)
        carry_out(shell, opened, repair, writing, source=source)

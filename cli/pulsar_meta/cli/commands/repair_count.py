"""`repair count`: how many entries a ledger has, where list and BookKeeper disagree."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import Confirm, carry_out
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.repair import count
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.topic import parse_ledger_id


def repair_count(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="The topic; of a partitioned one all its partitions.")],
    writing: WriteOptions,
    ledgers: Annotated[
        list[str] | None,
        typer.Argument(metavar="LEDGER", help="Ledgers of it. Default: all.", show_default=False),
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    confirm: Confirm = None,
) -> None:
    """Make the topic's list and BookKeeper's metadata agree on where ledgers end.

    With the bookies' disks (--entries bookie-disk:…) both get what is there; if that is less than the list
    counts, entries are given up, and it asks for the topic's name. Without disks a ledger that the list
    counts as empty gets what BookKeeper has (a broker drops it otherwise), and one with two different ends
    becomes OPEN: whoever opens it recovers it, and the bookies say where it ends.

    Examples:
      pulsar-meta repair count orders --dry-run
      pulsar-meta repair count orders 25 --entries bookie-disk:/bk/data --yes
    """
    urls = list(entries or shell.settings.entries)
    chosen = [parse_ledger_id(text) for text in ledgers or ()]
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        repair = count.repair_count(opened, source, TopicName.parse(topic), chosen, readers)
        carry_out(shell, opened, repair, writing, confirm, source)

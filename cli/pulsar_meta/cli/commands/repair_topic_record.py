"""`repair topic-record`: the list of a topic's ledgers, from BookKeeper's metadata."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import carry_out, warned
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.repair import topic_record
from pulsar_meta.jobs.rewrite.readable import Readers


def repair_topic_record(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="The topic; of a partitioned one all its partitions.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    older: Annotated[
        bool,
        typer.Option(
            "--older", help="Also ledgers before the first of the list: after a broker started it empty."
        ),
    ] = False,
) -> None:
    """Make the list of a topic's ledgers again, from the ledgers that say whose they are.

    For a record that is gone, empty, cut or garbage, or that lacks a ledger. Ledgers that a broker made since
    stay in the list. A broker that loads a topic without a record starts it empty and moves every
    subscription to the new end: repair before. --entries says how many entries a ledger has that BookKeeper
    has not closed.

    Examples:
      pulsar-meta repair topic-record orders --store zk://zk1:2181 --dry-run
      pulsar-meta repair topic-record orders --entries bookie: --yes
    """
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        name = TopicName.parse(topic)
        repair = topic_record.repair_topic_record(opened, source, name, warned(shell), readers, older=older)
        carry_out(shell, opened, repair, writing, source=source)

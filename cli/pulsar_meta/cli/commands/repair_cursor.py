"""`repair cursor`: a record for a cursor that brokers cannot load, or whose ledger is gone."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import Confirm, carry_out, open_to_repair
from pulsar_meta.cli.rewriting import WriteOptions
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.repair import cursor as job
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.topic import parse_position


def repair_cursor(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic, of a partitioned one a partition.")],
    cursor: Annotated[str, typer.Argument(help="The subscription.")],
    writing: WriteOptions,
    position: Annotated[
        str | None,
        typer.Option("--position", metavar="LEDGER:ENTRY", help="The last entry that counts as read."),
    ] = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="Before the topic's first entry.")] = False,
    latest: Annotated[
        bool, typer.Option("--latest", help="Behind its last entry: the backlog is skipped.")
    ] = False,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Give a cursor a record that brokers load: its own cannot be read, or its ledger is gone or not its own.

    Brokers do not load a topic with such a record; where only the ledger is gone they go back, and messages
    come again. With --entries the state is read from the cursor's ledger: position, single acknowledgements,
    properties. Else say where it is to stand. How many entries come again or are skipped is said first.

    Examples:
      pulsar-meta repair cursor orders billing --entries bookie: --dry-run
      pulsar-meta repair cursor orders billing --position 7312:41
    """
    chosen = _target(position, earliest=earliest, latest=latest)
    with open_to_repair(shell, store, entries, writing) as (opened, source):
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        repair = job.repair_cursor(opened, source, TopicName.parse(topic), cursor, chosen, readers)
        carry_out(shell, opened, repair, writing, confirm, source)


def _target(position: str | None, *, earliest: bool, latest: bool) -> job.Target | None:
    if (position is not None) + earliest + latest > 1:
        raise UsageError("one of --position, --earliest and --latest")
    if position is not None:
        return parse_position(position)
    if earliest:
        return "earliest"
    return "latest" if latest else None

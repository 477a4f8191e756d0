"""`repair ledger-metadata`: BookKeeper's metadata of ledgers that is gone."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import carry_out, open_to_repair, warned
from pulsar_meta.cli.rewriting import WriteOptions
from pulsar_meta.cli.shell import Shell
from pulsar_meta.jobs.repair.ledger_metadata import repair_ledger_metadata as repair


def repair_ledger_metadata(
    shell: Shell,
    names: Annotated[
        list[str],
        typer.Argument(metavar="LEDGER|TOPIC", help="Numbers of ledgers, or topics: all of theirs."),
    ],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also where there is metadata that can be decoded: made anew.")
    ] = False,
) -> None:
    """Write BookKeeper's metadata of ledgers again that is gone or garbage, before a broker loads the topic.

    From the topic's list and, with --entries, from the bookies' disks: last entry, length, digest type,
    bookies. The last ledger of a topic becomes OPEN: the broker recovers it. Loading a topic drops a last
    ledger without metadata, with what it holds; and bookies delete entries of ledgers without metadata at
    their next garbage collection, so stop them first.

    Examples:
      pulsar-meta repair ledger-metadata orders --store zk://zk1:2181 --dry-run
      pulsar-meta repair ledger-metadata 25 26 --entries bookie-disk:/bk/data
    """
    with open_to_repair(shell, store, entries, writing) as (opened, source):
        found = repair(opened, source, names, warned(shell), again=again)
        carry_out(shell, opened, found, writing, source=source)

"""`repair offload`: ledgers that are said to be in tiered storage, read from BookKeeper again."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import carry_out, open_to_repair
from pulsar_meta.cli.rewriting import WriteOptions
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.repair import offload
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.topic import parse_ledger_id


def repair_offload(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic, of a partitioned one a partition.")],
    writing: WriteOptions,
    ledgers: Annotated[
        list[str] | None,
        typer.Argument(metavar="LEDGER", help="Default: all that need it.", show_default=False),
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Have brokers read offloaded ledgers from BookKeeper again: their object is gone, or never was whole.

    Only where BookKeeper still has its copy. Objects are looked for with --entries offload:URL; a ledger that
    is named goes back in any case. An offload that did not end is forgotten, so that the next one begins
    anew: brokers do that by themselves, and clean up before, where the storage is still the same.

    Examples:
      pulsar-meta repair offload orders --entries offload:/mnt/tiered --dry-run
      pulsar-meta repair offload orders 7312 7313 --yes
    """
    chosen = [parse_ledger_id(text) for text in ledgers or ()]
    with open_to_repair(shell, store, entries, writing) as (opened, source):
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        repair = offload.repair_offload(opened, source, TopicName.parse(topic), chosen, readers)
        carry_out(shell, opened, repair, writing, source=source)

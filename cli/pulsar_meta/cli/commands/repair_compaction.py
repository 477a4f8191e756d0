"""`repair compaction`: the pointer to a topic's compacted data."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import Confirm, carry_out, open_to_repair
from pulsar_meta.cli.rewriting import WriteOptions
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.repair import compaction
from pulsar_meta.jobs.rewrite.readable import Readers


def repair_compaction(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic, of a partitioned one a partition.")],
    writing: WriteOptions,
    ledger: Annotated[
        int | None,
        typer.Option("--ledger", min=0, help="The ledger to point to. Default: the one that goes farthest."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Point to none.")] = False,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Point a topic to its compacted data again, which brokers lost sight of; or take the pointer away.

    What was trimmed after a compaction is only in the compacted ledger, and the cursor __compaction has the
    only pointer to it. Its ledger is found by what brokers write into its metadata; with --entries it is read
    through first. Where the cursor's state lies in a ledger --entries are needed: all of it moves into the
    record. With a pointer to a ledger that is gone compacted reading stalls: --drop, then compact again.

    Examples:
      pulsar-meta repair compaction prices --entries bookie: --dry-run
      pulsar-meta repair compaction prices --drop --yes
    """
    if drop and ledger is not None:
        raise UsageError("--ledger N points to a ledger, --drop to none: one of them")
    with open_to_repair(shell, store, entries, writing) as (opened, source):
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        name = TopicName.parse(topic)
        repair = compaction.repair_compaction(opened, source, name, readers, ledger_id=ledger, drop=drop)
        carry_out(shell, opened, repair, writing, confirm, source)

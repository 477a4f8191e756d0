"""`repair partitions`: the record of a partitioned topic, by the partitions that exist."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.repairing import carry_out
from pulsar_meta.cli.rewriting import WriteOptions, open_for_writing
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.repair import partitions


def repair_partitions(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="The partitioned topic, without -partition-N.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="How many partitions it has. Default: the last one and one."),
    ] = None,
) -> None:
    """Write the record of a partitioned topic again, which is gone, garbage, or says too few.

    Brokers with PIP-414 refuse partitions whose topic has no such record. What the record says beside the
    number stays, and so does a higher number.

    Examples:
      pulsar-meta repair partitions public/default/orders --dry-run
      pulsar-meta repair partitions orders --store zk://zk1:2181 --yes
    """
    with open_for_writing(shell, store, writing) as opened:
        repair = partitions.repair_partitions(opened, TopicName.parse(topic), count)
        carry_out(shell, opened, repair, writing)

"""`repair termination`: a topic that was terminated before its last entry."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import carry_out, open_to_repair
from pulsar_meta.cli.rewriting import WriteOptions
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.repair import termination
from pulsar_meta.jobs.rewrite.readable import Readers


def repair_termination(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic; of a partitioned one every partition.")],
    writing: WriteOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    at_end: Annotated[
        bool, typer.Option("--at-end", help="Keep it terminated, at its last entry instead.")
    ] = False,
) -> None:
    """Have a topic read to its end that was terminated before it.

    The position goes, and the topic takes messages again: terminate it anew with pulsar-admin, or give
    --at-end. What is terminated where it ends stays so.

    Examples:
      pulsar-meta repair termination public/default/orders --dry-run
      pulsar-meta repair termination orders --at-end --yes
    """
    with open_to_repair(shell, store, entries, writing) as (opened, source):
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        name = TopicName.parse(topic)
        repair = termination.repair_termination(opened, source, name, at_end=at_end, readers=readers)
        carry_out(shell, opened, repair, writing, source=source)

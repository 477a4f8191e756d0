"""`repair schema`: versions of a topic's schema whose ledger is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.inputs import read_input
from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.repairing import Confirm, carry_out, open_to_repair
from pulsar_meta.cli.rewriting import WriteOptions
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.repair import schema as job


def repair_schema(
    shell: Shell,
    topic: Annotated[str, typer.Argument(help="A topic, or a partitioned one: partitions share its schema.")],
    writing: WriteOptions,
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="This version. Default: all whose ledger is lost.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema", metavar="FILE", help="What it was: the schema, or the JSON of `pulsar-admin schemas`."
        ),
    ] = None,
    confirm: Confirm = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Take versions whose ledger is lost out of a topic's schema record, before a broker uses it.

    With one version lost brokers delete all of them when the schema is used, and no message can be decoded by
    its schema any more. Schemas lie in ledgers, which only brokers write: with --schema a version is read
    from another ledger of this topic that has the same one, if there is such; of the last version it is said
    how a broker registers it again under its number.

    Examples:
      pulsar-meta repair schema orders --dry-run
      pulsar-meta repair schema orders --version 3 --schema orders-3.avsc
    """
    if schema is not None and version is None:
        raise UsageError("--schema: of which --version?")
    text = None if schema is None else job.schema_of(read_input(schema))
    wanted = None if version is None else job.Wanted(version, text)
    with open_to_repair(shell, store, entries, writing) as (opened, source):
        repair = job.repair_schema(opened, source, TopicName.parse(topic), wanted)
        carry_out(shell, opened, repair, writing, confirm, source)

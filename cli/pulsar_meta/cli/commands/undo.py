"""`undo`: put back what a command overwrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.rewriting import (
    AllowOtherStore,
    BulkOptions,
    Job,
    WriteOptions,
    open_for_writing,
    run_job,
)
from pulsar_meta.cli.shell import Shell


def undo(
    shell: Shell,
    file: Annotated[Path, typer.Argument(help="The undo file that a command named.")],
    writing: WriteOptions,
    bulk: BulkOptions,
    store: StoreUrl = None,
    allow_other_store: AllowOtherStore = False,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Also values with our bytes under a later version.")
    ] = False,
) -> None:
    """Put back, byte for byte, every value that nobody touched since.

    Examples:
      pulsar-meta undo compress-cursors.undo.ndjson --dry-run
      pulsar-meta undo compress-cursors.undo.ndjson --yes
    """
    from pulsar_meta.jobs.rewrite.identity import check_identity, read_identity
    from pulsar_meta.jobs.rewrite.undo import touched, undone
    from pulsar_meta.jobs.rewrite.undo_file import read_header, read_records

    header = read_header(file)
    with open_for_writing(shell, store, writing) as opened:
        check_identity(header["store"], read_identity(opened), source=str(file), allowed=allow_other_store)
        job = Job(
            "undo",
            lambda batches: undone(read_records(file), batches, any_version=any_version),
            touched,
            with_new=True,
        )
        run_job(shell, opened, job, writing, bulk)

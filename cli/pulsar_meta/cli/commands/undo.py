"""`undo`: put back what a command overwrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.options import StoreUrl
from pulsar_meta.cli.render.rewriting import summary_lines
from pulsar_meta.cli.render.tables import Detail
from pulsar_meta.cli.rewriting import AllowOtherStore, BulkOptions, WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Shell
from pulsar_meta.jobs.rewrite.decision import Summary
from pulsar_meta.jobs.rewrite.run_files import store_url
from pulsar_meta.jobs.rewrite.undo import put_back
from pulsar_meta.jobs.rewrite.undo_log import is_unused, read_header


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
    """Put back, byte for byte, every value that has not changed since.

    Without --store and without a store in the settings it opens the store that the undo file names.

    Examples:
      pulsar-meta undo compress-cursors.undo.ndjson --dry-run
      pulsar-meta undo compress-cursors.undo.ndjson --yes
    """
    if is_unused(file):
        shell.say(f"{file} has no record: the run was killed before it wrote anything; nothing to undo")
        shell.emit([Summary().document(None)], Detail(summary_lines), single=True)
        return
    url = store or shell.settings.store or store_url(read_header(file)["store"])
    with open_for_writing(shell, url, writing) as opened:
        rewrite = put_back(opened, file, other_store=allow_other_store, any_version=any_version)
        write(shell, opened, rewrite, writing, bulk)

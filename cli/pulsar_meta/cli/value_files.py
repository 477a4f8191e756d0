"""Loose value files as input of commands that rewrite, and rewritten copies instead of changes in place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from pulsar_meta.cli.outputs import atomic_file
from pulsar_meta.cli.rewriting import SAFETY, WriteOptions, open_for_writing
from pulsar_meta.cli.settings import distribution
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.jobs.values.snapshot import take_snapshot
from pulsar_meta.stores.base import ABSENT, Store, Versioned

# The URL of the store whose paths are those of the file system.
FILES: Final = "files:/"
ValueFiles = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Files of one value each, instead of a store.", show_default=False),
]
CopyTo = Annotated[
    Path | None,
    typer.Option(
        "--copy-to",
        rich_help_panel=SAFETY,
        metavar="DIR|FILE",
        help="Write copies to a directory (of files) or to a new snapshot (of a store); change nothing else.",
    ),
]


def open_values(
    shell: Shell, url: str | None, files: Sequence[str], copy_to: Path | None, writing: WriteOptions
) -> Store:
    """Open the store, or the file system if there are files; read-only if copies are written.

    Raises UsageError if files and a store are given, or if the copies can't be written.
    """
    if files and url is not None:
        raise UsageError("value files and --store can't be combined: remove one of them")
    if copy_to is None:
        return open_for_writing(shell, FILES if files else url, writing)
    if writing.undo_file is not None:
        raise UsageError("--copy-to changes nothing that an undo file could restore: remove --undo-file")
    _check_copies(files, copy_to)
    return shell.other_store(FILES) if files else shell.store(url)


def _check_copies(files: Sequence[str], target: Path) -> None:
    names = [Path(name).name for name in files]
    for path in [target / name for name in names] if files else [target]:
        if path.exists():
            raise UsageError("refusing to replace this file: choose another --copy-to", source=str(path))
    if len(set(names)) < len(names):
        raise UsageError("two of the files have the same name: copy them to separate directories")


def file_values(store: Store, files: Sequence[str]) -> Iterator[Versioned]:
    """Yield the values in files, with version ABSENT for a file that doesn't exist."""
    for path in dict.fromkeys(os.path.realpath(name) for name in files):
        try:
            yield store.read(path)
        except NotFoundError:
            yield Versioned(path, b"", ABSENT)


def write_copies(shell: Shell, store: Store, files: Sequence[str], target: Path) -> None:
    """Copy the files to the directory `target`, or all values of the store to the snapshot `target`."""
    if not files:
        taken = take_snapshot(store, target, tool=f"pulsar-meta {distribution().version}")
        shell.note(f"{taken.sums.values} values in {target}")
        return
    target.mkdir(parents=True, exist_ok=True)
    for name, value in zip(files, file_values(store, files), strict=True):
        if value.version != ABSENT:
            with atomic_file(target / Path(name).name, "wb") as out:
                out.write(value.value)

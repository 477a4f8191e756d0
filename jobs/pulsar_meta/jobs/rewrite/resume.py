"""How a run that was killed is found again, and what it is continued with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.jobs.rewrite.identity import StoreIdentity, check_identity
from pulsar_meta.jobs.rewrite.state_directory import new_undo_path, undo_directory, undo_paths
from pulsar_meta.jobs.rewrite.undo_file import is_finished, read_header


def undo_path(command: str, store: StoreIdentity, *, named: Path | None, resume: bool) -> Path:
    """Return the undo file of a run: as named, else that of the killed run to resume, else a new one.

    UsageError where there is nothing to resume.
    """
    if named is not None:
        return named
    if not resume:
        return new_undo_path(command)
    for path in undo_paths():
        if _continues(path, command, store):
            return path
    raise UsageError(
        f"--resume: no unfinished {command} of this store in {undo_directory()} (--undo-file names one)"
    )


def resume_command(arguments: Sequence[str], undo_file: Path) -> str:
    """Return the command line that continues a run, to be typed into a shell."""
    words = ["pulsar-meta", *(redact(argument) for argument in arguments)]
    if not any(word == "--undo-file" or word.startswith("--undo-file=") for word in words):
        words += ["--undo-file", str(undo_file)]
    if "--resume" not in words:
        words.append("--resume")
    return shlex.join(words)


def _continues(path: Path, command: str, store: StoreIdentity) -> bool:
    try:
        header = read_header(path)
        check_identity(header["store"], store, source=str(path), allowed=False)
    except PulsarMetaError:
        return False
    return header.get("command") == command and not is_finished(path)

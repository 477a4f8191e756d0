"""The paths of undo files, and the one with which a run resumes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.jobs.rewrite.run_files import StoreIdentity, check_identity
from pulsar_meta.jobs.rewrite.undo_log import is_finished, is_unused, read_header


def undo_directory() -> Path:
    """Return the directory of undo files (not made yet). Source: XDG Base Directory Specification 0.8.

    Raises UsageError if the user has no home directory, as in some containers, and none is named.
    """
    named, home = os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~")
    if os.path.isabs(named):
        return Path(named, "pulsar-meta", "undo")
    if not os.path.isabs(home):
        raise UsageError("you have no home directory for undo files: set XDG_STATE_HOME")
    return Path(home, ".local", "state", "pulsar-meta", "undo")


def new_undo_path(command: str) -> Path:
    """Return the name of an undo file that no other run has."""
    now = time.time_ns()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 10**9))
    return undo_directory() / f"{stamp}.{now % 10**9:09d}-{command}-{os.getpid()}.ndjson"


def undo_paths() -> Iterator[Path]:
    """Yield the undo files in the state directory, the newest first."""
    directory = undo_directory()
    if directory.is_dir():
        yield from sorted(directory.glob("*.ndjson"), reverse=True)


def undo_path(command: str, store: StoreIdentity, *, named: Path | None, resume: bool) -> Path:
    """Return the undo file of a run: the named one, that of the killed run to resume, or a new one.

    Raises UsageError if there is nothing to resume.
    """
    if named is not None:
        return named
    if not resume:
        return new_undo_path(command)
    unused = None
    for path in undo_paths():
        if _continues(path, command, store):
            return path
        if unused is None and f"-{command}-" in path.name and is_unused(path):
            unused = path
    if unused is not None:
        return unused
    raise UsageError(
        f"--resume: no unfinished {command} of this store in {undo_directory()} (--undo-file names one)"
    )


def _continues(path: Path, command: str, store: StoreIdentity) -> bool:
    try:
        header = read_header(path)
        check_identity(header["store"], store, source=str(path), allowed=False)
    except PulsarMetaError:
        return False
    return header.get("command") == command and not is_finished(path)

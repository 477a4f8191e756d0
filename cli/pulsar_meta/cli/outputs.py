"""Where data goes: files that appear whole or not at all, and stdout for raw bytes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pulsar_meta.codecs.errors import UsageError


@contextmanager
def whole_file(path: Path, mode: str) -> Iterator[IO[Any]]:
    """Open `path` for writing so that it appears whole or not at all; until then an old file stays."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        encoding, errors = (None, None) if "b" in mode else ("utf-8", "backslashreplace")
        with open(partial, mode, encoding=encoding, errors=errors) as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror or error}", source=str(path)) from error
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def stdout_bytes(*, force: bool) -> IO[bytes]:
    """Return stdout for raw bytes; UsageError on a terminal, which bytes would leave unusable."""
    if sys.stdout.isatty() and not force:
        raise UsageError("raw bytes would garble the terminal: redirect them, use --output FILE, or --force")
    return sys.stdout.buffer

"""Where secrets come from: a file or the environment, never a command line or a URL."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pulsar_meta.access.files import read_any
from pulsar_meta.codecs.errors import DecodeError, UsageError

LARGEST_SECRET: Final = 64 << 10


def read_secret(reference: str, name: str = "auth") -> str:
    """Return the first line of what `file:PATH` or `env:NAME` holds; the text never enters a message.

    UsageError, with `name` in front, for another form and where no secret is.
    """
    return secret_reader(reference, name)()


def secret_reader(reference: str, name: str = "auth") -> Callable[[], str]:
    """Return how to read the secret anew whenever it is sent; raises as `read_secret`."""
    kind, _, where = reference.partition(":")
    if kind not in ("file", "env") or not where:
        raise UsageError(
            f"{name}: a secret comes from file:PATH or env:NAME, never from the command line itself"
        )
    if kind == "env":
        return partial(_from_environment, where, name)
    return partial(_from_file, Path(where.removeprefix("//")), name)


def user_password(secret: str, name: str = "auth") -> tuple[str, str]:
    """Split `user:password`; UsageError where there is no colon."""
    user, colon, password = secret.partition(":")
    if not colon or not user:
        raise UsageError(f"{name}: what it refers to has to read user:password")
    return user, password


def _from_environment(variable: str, name: str) -> str:
    return _first_line(os.environ.get(variable, ""), f"the environment has no secret in {variable}", name)


def _from_file(path: Path, name: str) -> str:
    try:
        text = read_any(path, LARGEST_SECRET).decode()
    except (OSError, UnicodeDecodeError, DecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text of a sensible size"
        raise UsageError(f"{name}: cannot read {path}: {why}") from error
    return _first_line(text, f"{path} is empty", name)


def _first_line(text: str, otherwise: str, name: str) -> str:
    if not text.strip():
        raise UsageError(f"{name}: {otherwise}")
    return text.splitlines()[0]

"""Locks on files, which go with the process that holds them."""

from __future__ import annotations

import fcntl
from typing import IO


def locked_now(file: IO[bytes]) -> bool:
    """Lock an open file (flock) for as long as it is open; False where somebody else holds its lock.

    Some file systems have no locks: there the file counts as locked, as nobody else can be asked.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True

"""What processes that share some work need to know, and how an error gets from one to the other."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subprocess import Popen


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def start_module(name: str, *words: str, **files: Any) -> Popen[bytes]:
    """Start a module of this package in a process of its own; OSError where the machine has none to give.

    `files`: what Popen takes for its standard streams and open files.
    """
    from subprocess import Popen

    # -P: a module that lies in the current directory is none of ours. A session of its own: Ctrl-C is for the
    # process that asks.
    command = [sys.executable, "-P", "-m", name, *words]
    return Popen(command, start_new_session=True, **files)


def portable(error: Exception) -> Exception:
    """Return the error, or where it cannot be pickled one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever an exception's own pickling raises
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

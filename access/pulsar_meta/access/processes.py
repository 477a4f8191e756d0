"""What processes that share some work need to know, and how an error gets from one to the other."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from subprocess import Popen

    Talk = Connection[object, object]

# What a connection takes before its other end reads, as far as the system allows it: who sends more waits.
HELD_BYTES: Final = 1 << 20


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def start_module(name: str, *numbers: int) -> tuple[Popen[bytes], Talk]:
    """Start a module of this package in a process of its own; return it, and a connection to it.

    Its arguments are the number of its end of the connection, and those of more open files. It has neither
    input nor output, and is to end with the connection. OSError where the machine has none to give.
    """
    import socket
    from multiprocessing.connection import Connection
    from subprocess import DEVNULL, Popen

    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, HELD_BYTES)
    with ours, theirs:
        files = [theirs.fileno(), *numbers]
        # -P: a module that lies in the current directory is none of ours. A session of its own: Ctrl-C is for
        # the process that asks.
        command = [sys.executable, "-P", "-m", name, *map(str, files)]
        process = Popen(command, start_new_session=True, stdin=DEVNULL, stdout=DEVNULL, pass_fds=files)
        return process, Connection(ours.detach())


def portable(error: Exception) -> Exception:
    """Return the error, or where it cannot be pickled one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever an exception's own pickling raises
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

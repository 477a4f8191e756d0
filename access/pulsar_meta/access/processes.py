"""Worker processes: the number of cores, starting a worker, and errors that can be sent between processes."""

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

# The buffer size of a connection, if the system allows it. A sender blocks while it is full.
BUFFER_BYTES: Final = 1 << 20


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def start_module(name: str, *numbers: int) -> tuple[Popen[bytes], Talk]:
    """Start a module of this package as a new process, and return the process and a connection to it.

    The arguments of the module are the descriptor of its end of the connection and `numbers`, the descriptors
    of more open files. It has neither stdin nor stdout, and should end when the connection closes. Raises
    OSError if the process can't be started.
    """
    import socket
    from multiprocessing.connection import Connection
    from subprocess import DEVNULL, Popen

    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    with ours, theirs:
        files = [theirs.fileno(), *numbers]
        # -P keeps modules in the current directory out. In a new session, Ctrl-C only reaches the parent.
        command = [sys.executable, "-P", "-m", name, *map(str, files)]
        process = Popen(command, start_new_session=True, stdin=DEVNULL, stdout=DEVNULL, pass_fds=files)
        return process, Connection(ours.detach())


def portable(error: Exception) -> Exception:
    """Return the error, or a RuntimeError with the same message if it can't be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - pickling an exception can raise anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

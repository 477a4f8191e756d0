"""A process that works on parts that it is given: `python -m pulsar_meta.jobs.processes.worker SOCKET [OUT]`

Both are numbers of open files: the socket to whoever started it, with which it ends, and where output goes.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

from pulsar_meta.access.processes import portable
from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.jobs.entries.entry_sources import Opened
from pulsar_meta.jobs.processes.messages import Done, End, Failure, Met, Part, Ready, Start, Work

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    Talk = Connection[object, object]

# So much output waits for its turn; then the work does.
HELD_BYTES: Final = 32 << 20
BUFFER_BYTES: Final = 1 << 20


class Outlet:
    """Where the output of a part goes: it is held until it is this part's turn, then written."""

    def __init__(self, talk: Talk, out: IO[bytes]) -> None:
        self._talk, self._out = talk, out
        self._has_turn = False
        self._held: list[Buffer] = []
        self._size = 0

    def write(self, data: Buffer) -> None:
        """Take some bytes, which nobody changes any more. OSError where they cannot be written."""
        if not self._has_turn and self._talk.poll():
            self._wait()
        if self._has_turn:
            self._out.write(data)
            return
        self._held.append(data)
        self._size += memoryview(data).nbytes
        if self._size >= HELD_BYTES:
            self._wait()

    def end(self) -> None:
        """Return when all is written."""
        if self._held and not self._has_turn:
            self._wait()
        self._out.flush()

    def _wait(self) -> None:
        self._talk.recv()
        self._has_turn = True
        for data in self._held:
            self._out.write(data)
        self._held.clear()


def _serve(talk: Talk, out: IO[bytes]) -> None:
    start = talk.recv()
    assert isinstance(start, Start)
    try:
        with start.sources.opened() as opened:
            talk.send(Ready())
            while not isinstance(message := talk.recv(), End):
                # A part without output is done before its turn comes.
                if isinstance(message, Part):
                    result = _result(start.work, opened, message, Outlet(talk, out))
                    talk.send(Done(result))
            # From here on it ends by itself, and takes along what it has in the temporary directory.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            talk.send(_met(opened))
    except (EOFError, ConnectionError):
        raise
    except Exception as error:  # noqa: BLE001 - raised again by who asked
        talk.send(_failure(error))


def _result(work: Work[Any, Any], opened: Opened, part: Part, outlet: Outlet) -> object:
    """Return what comes of a part when its output is written, also where it is an error."""
    try:
        result = work(opened, part.input, outlet.write)
    except Exception as error:  # noqa: BLE001 - raised again by who asked
        result = _failure(error)
    try:
        outlet.end()
    except OSError as error:
        result = _failure(error)
    return result


def _failure(error: Exception) -> Failure:
    """Return an error for the way; one that is a fault of ours takes along where it comes from."""
    if not isinstance(error, PulsarMetaError | OSError):
        error.add_note(traceback.format_exc())
    return Failure(portable(error))


def _met(opened: Opened) -> Met:
    parts = opened.entries.parts
    return Met(tuple(tuple(part.notes) for part in parts), tuple(tuple(part.faults) for part in parts))


def _leave(number: int, frame: object) -> None:
    """End the work where it is; what Python says of that is for nobody."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit()


def main() -> None:
    """Work until there is no more to do, or nobody to do it for."""
    from multiprocessing.connection import Connection

    # Ctrl-C is for the process that started this one, which ends it: what is half written goes first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    gc.freeze()
    numbers = list(map(int, sys.argv[1:]))
    out = open(numbers[1] if numbers[1:] else os.devnull, "wb", BUFFER_BYTES)  # noqa: SIM115
    try:
        # Without a word where this package is not to be had: then whoever started this works alone.
        with suppress(EOFError, ConnectionError, ImportError):
            _serve(Connection(numbers[0]), out)
    finally:
        # What is left to be written was refused, or nobody wants it.
        os._exit(0)


if __name__ == "__main__":
    main()

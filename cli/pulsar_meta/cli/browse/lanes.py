"""Calls that take their time, each lane in a thread of its own, so that the screen waits for none of them.

The threads of textual's own workers are waited for when the program ends, however long a server takes; these
are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Final, TypeVar

from pulsar_meta.cli.errors import os_failure
from pulsar_meta.codecs.errors import PulsarMetaError

T = TypeVar("T")
# Seconds between two words about how far a job is.
PACE: Final = 0.1


class Lane:
    """Makes calls one after the other."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any] | None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def ask(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, or raise what it raises; what nobody waits for any more is not begun.

        An OSError is raised as the error that the commands make of it.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((call, future))
        return await future

    def leave(self, call: Callable[[], object]) -> None:
        """Make a last call, whose answer nobody waits for."""
        self._calls.put((call, None))

    def end(self) -> None:
        """Let the thread end once it has made its calls."""
        self._calls.put(None)

    def wait(self, seconds: float) -> bool:
        """Return whether it ended within so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, future = asked
            if future is None:
                with suppress(PulsarMetaError):
                    call()
            elif not future.cancelled():
                _answer(call, future)


def _answer(call: Callable[[], Any], future: asyncio.Future[Any]) -> None:
    result: Any = None
    fault: Exception | None = None
    try:
        result = call()
    except OSError as error:
        fault = os_failure(error)
    except Exception as error:  # noqa: BLE001
        fault = error
    except BaseException as error:  # noqa: BLE001
        # As RocksDB's binding panics; the thread goes on.
        fault = RuntimeError(f"{type(error).__name__}: {error}")
    # Who asked may have left, and the loop with it.
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_settle, future, result, fault)


def _settle(future: asyncio.Future[Any], result: Any, fault: Exception | None) -> None:
    if future.done():
        return
    if fault is not None:
        future.set_exception(fault)
    else:
        future.set_result(result)


class StoppedError(Exception):
    """Nobody wants the answer of a job any more."""


class Job:
    """What goes over much of a store: it says how far it is, and can be stopped."""

    def __init__(self, what: str, say: Callable[[str], object]) -> None:
        """`say` is called from the thread of the job, with a line about it."""
        self.what, self.count, self.stopped = what, 0, False
        self._say, self._next = say, 0.0

    def advance(self, count: int) -> None:
        """Count what was passed; StoppedError once the job is to end."""
        if self.stopped:
            raise StoppedError
        self.count += count
        now = monotonic()
        if now >= self._next:
            self._next = now + PACE
            self._say(f"{self.what}: {self.count} values")

"""What is decided about many values, while the answers of a server are under way and others are being sent.

A thread reads ahead. Parsing, packing and checking hold the interpreter's lock for longer than all the rest
of a run, so that beyond some values a process of its own decides: a value's bytes and its decision travel
through its standard input and output. It ends with its input, so also when this process is killed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from queue import Empty, Queue
from threading import Event, Thread
from typing import IO, Final, TypeVar

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, Rule
from pulsar_meta.stores.base import Versioned

T = TypeVar("T")

CHUNK: Final = 64
# How many chunks the reading runs ahead.
DEPTH: Final = 16
# A process of its own takes a quarter of a second to start: as long as deciding about so many values.
ALONE: Final = 16 * CHUNK


def decided(values: Iterable[Versioned], rule: Rule, *, ahead: bool) -> Iterator[Decided]:
    """Yield each value with its decision, in order; `ahead`: read and decided ahead of the taker.

    `rule` is pickled. UnreachableError where the process that decides was ended by somebody else.
    """
    if not ahead:
        yield from ((seen, rule(seen)) for seen in values)
        return
    with Decider(rule) as decider, closing(read_ahead(decider.offered(chunks(values, CHUNK)))) as offered:
        try:
            for chunk, apart in offered:
                decisions = decider.answer() if apart else map(rule, chunk)
                yield from zip(chunk, decisions, strict=True)
        finally:
            # The reading may wait for a process that waits for us.
            decider.end()


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def read_ahead(items: Iterable[T]) -> Generator[T]:
    """Yield what `items` does, read by a thread that is some items ahead; its errors are raised here."""
    ahead: Queue[tuple[T] | BaseException | None] = Queue(DEPTH)
    left = Event()

    def read() -> None:
        try:
            for item in items:
                ahead.put((item,))
                if left.is_set():
                    return
            ahead.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again by the reader of the queue
            ahead.put(error)

    reader = Thread(target=read, name="read ahead", daemon=True)
    reader.start()
    try:
        while (item := ahead.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        left.set()
        # Room for the one item that the thread may be waiting to put.
        while reader.is_alive():
            with suppress(Empty):
                ahead.get(timeout=0.01)


class Decider:
    """A process that decides, started when there are enough values for it. Use as a context manager."""

    def __init__(self, rule: Rule) -> None:
        """Nothing is started yet."""
        self.rule = rule
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                # What it was still to be given is for nobody.
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]  # both are pipes

    def end(self) -> None:
        """End the process, whatever it is at. Safe to call twice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def offered(self, parts: Iterable[list[Versioned]]) -> Iterator[tuple[list[Versioned], bool]]:
        """Yield the parts, and whether the process has been given them; waits while it is busy."""
        count = 0
        for part in parts:
            apart = count >= ALONE and (os.cpu_count() or 1) > 1
            if apart:
                self._give(part)
            yield part, apart
            count += len(part)

    def answer(self) -> list[Decision]:
        """Return the decisions about the oldest part that has no answer yet."""
        try:
            answer: list[Decision] = pickle.load(self._started().stdout)  # type: ignore[arg-type]  # a pipe
        except (EOFError, pickle.UnpicklingError):
            raise self._ended() from None
        return answer

    def _give(self, part: list[Versioned]) -> None:
        try:
            _send(part, self._started().stdin)
        except (OSError, ValueError):
            raise self._ended() from None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # -P: a module that lies in the current directory is none of ours. A session of its own: Ctrl-C
            # is for the process that writes.
            command = [sys.executable, "-P", "-m", "pulsar_meta.jobs.rewrite.deciding"]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
            _send(self.rule, self._process.stdin)
        return self._process

    def _ended(self) -> UnreachableError:
        code = None if self._process is None else self._process.wait()
        return UnreachableError(f"the process that decides about the values ended (exit code {code})")


def _send(something: object, pipe: IO[bytes] | None) -> None:
    assert pipe is not None
    pickle.dump(something, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def _decide_until_the_end(given: IO[bytes], told: IO[bytes]) -> None:
    """Answer each list of values with a list of decisions, until there is no more of either."""
    with suppress(EOFError, BrokenPipeError):
        rule: Rule = pickle.load(given)
        while True:
            part: list[Versioned] = pickle.load(given)
            _send(list(map(rule, part)), told)


if __name__ == "__main__":
    _decide_until_the_end(sys.stdin.buffer, sys.stdout.buffer)

"""Parts of some work done by processes of their own, the results taken in the order of the parts.

Each process opens the sources for itself: one that was forked would share connections and locks with threads
that it does not have. What a part writes goes from its process straight into the file that is written to,
when it is its turn. A process has one part at a time and holds little output, so that one that is faster
than the others waits, and memory is bounded. All processes end with this one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import IO, Any, Final, Generic

from pulsar_meta.access.processes import start_module
from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.entries.base import Closing, EntrySource
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.jobs.entries.entry_sources import Sources
from pulsar_meta.jobs.processes.messages import (
    Done,
    End,
    Failure,
    Input,
    Met,
    Part,
    Ready,
    Result,
    Start,
    Turn,
    Work,
    Write,
)

DISK: Final = "bookie-disk:"
PROGRAM: Final = "pulsar_meta.jobs.processes.worker"
# Reading less than this takes no longer than to start a process that helps.
WORTH_BYTES: Final = 512 << 20
# Nor does reading fewer entries than these.
WORTH_ENTRIES: Final = 32_768
# So many results for each process may wait for that of a part before them.
WAITING: Final = 8
END_SECONDS: Final = 1.0


def is_worth_processes(sources: Sources, source: EntrySource) -> bool:
    """Return whether `source`, which is `sources`, reads disks with WORTH_BYTES of entry logs or more.

    Other sources wait for servers more than they work.
    """
    if not all(url.startswith(DISK) for url in sources.urls):
        return False
    logs = [part.entry_logs for part in source.parts if part.entry_logs is not None]
    return sum(_size(files) for files in logs) >= WORTH_BYTES


def _size(files: DataFiles) -> int:
    size = 0
    for path in files.paths.values():
        with suppress(OSError):
            size += path.stat().st_size
    return size


@dataclass(frozen=True, slots=True)
class Shared(Generic[Input, Result]):
    """Work to be shared: by how many processes, over which sources, and what is done of each part.

    `here` does the same in this process, where `source` is open; `entries` says how many entries a part has.
    With `at_once` the first parts are done here until another process is ready, and parts are asked for
    when they are needed; without it all of them are at hand.
    """

    jobs: int
    sources: Sources
    source: EntrySource
    work: Work[Input, Result]
    here: Callable[[Input, Write], Result]
    entries: Callable[[Input], int]
    at_once: bool = False


@dataclass(slots=True)
class _Slot:
    """A part whose result was not taken yet, who has it, and what came of it."""

    part: Part
    worker: _Worker | None = None
    has_turn: bool = False
    done: Done | None = None


class _Worker:
    """A process that works for this one. OSError where there can be none."""

    def __init__(self, start: Start, out: IO[bytes] | None) -> None:
        with _copied(out) as copy:
            self._process, self.talk = start_module(PROGRAM, *copy)
        self.is_ready = False
        self.slot: _Slot | None = None
        self._send(start)

    def give(self, slot: _Slot) -> None:
        """Have it work on a part."""
        slot.worker, self.slot = self, slot
        self._send(slot.part)

    def give_turn(self, slot: _Slot) -> None:
        """Let it write the output of its part."""
        slot.has_turn = True
        self._send(Turn())

    def ask_what_it_met(self) -> Met | None:
        """Return what its sources met, its last answer; None where it does not answer any more."""
        self._send(End())
        with suppress(EOFError, OSError):
            message = self.talk.recv()
            return message if isinstance(message, Met) else None
        return None

    def ended(self) -> UnreachableError:
        """Return the error that it ended before its time."""
        self.end()
        return UnreachableError(f"a process that reads entries ended (exit code {self._process.returncode})")

    def stop(self) -> None:
        """Have it end as soon as what it has begun to write is out of the way."""
        self._process.terminate()

    def end(self) -> None:
        """Return when it has ended, if by force. Safe to call twice."""
        from subprocess import TimeoutExpired

        with suppress(TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._process.kill()
        self._process.wait()
        self.talk.close()

    def take(self, message: object) -> None:
        """Take an answer; raises what it could not be opened for."""
        if isinstance(message, Failure):
            raise message.error
        if isinstance(message, Ready):
            self.is_ready = True
        elif isinstance(message, Done) and self.slot is not None:
            self.slot.done, self.slot = message, None

    def _send(self, message: object) -> None:
        # That it is gone is found out by listening to it.
        with suppress(OSError):
            self.talk.send(message)


@contextmanager
def _copied(out: IO[bytes] | None) -> Iterator[list[int]]:
    """Open the file under one more number, which is none of the three that a process begins with."""
    numbers = [] if out is None else [os.dup(out.fileno())]
    try:
        yield numbers
    finally:
        for number in numbers:
            os.close(number)


class Pool(Closing):
    """The processes of one command, started when there is work for several. Use as a context manager."""

    def __init__(self, out: IO[bytes] | None = None) -> None:
        """`out`: where parts write, an open file of the system."""
        self._out = out
        self._workers: list[_Worker] = []

    def close(self) -> None:
        """End all processes. Safe to call twice."""
        for worker in self._workers:
            worker.stop()
        while self._workers:
            self._workers.pop().end()

    def run(self, inputs: Iterable[Input], shared: Shared[Input, Result]) -> Iterator[tuple[Input, Result]]:
        """Yield each input with what came of it, in order; what a part raises is raised in its place.

        What the sources of other processes noted and found damaged is added to that of `shared.source`.
        UnreachableError where somebody ended a process.
        """
        slots = _slots(inputs)
        few = _first(slots, shared.entries)
        if shared.at_once:
            yield from self._results(few, shared)
        ahead = list(few)
        more = list(islice(slots, shared.jobs))
        count = min(shared.jobs, len(ahead) + len(more)) if more else 0
        if count > 1:
            self._start(Start(shared.sources, shared.work), count)
        yield from self._results(chain(ahead, more, slots), shared)
        self._take_notes(shared.source.parts)

    def _results(
        self, slots: Iterator[_Slot], shared: Shared[Input, Result]
    ) -> Iterator[tuple[Input, Result]]:
        line: deque[_Slot] = deque()
        while True:
            self._hand_out(line, slots)
            if not line:
                return
            head = line[0]
            if head.done is not None:
                yield head.part.input, _result(line.popleft())
            elif head.worker is None and (shared.at_once or not self._workers):
                yield head.part.input, shared.here(line.popleft().part.input, self._write)
                self._hear(0)
            else:
                self._give_turn(head)
                self._hear(None)

    def _hand_out(self, line: deque[_Slot], slots: Iterator[_Slot]) -> None:
        """Put a part, if there is another, first in an empty line, and give one to each who has none."""
        if not line:
            line.extend(islice(slots, 1))
        for worker in self._workers:
            if worker.slot is not None or not worker.is_ready:
                continue
            free = next((slot for slot in line if slot.worker is None and slot.done is None), None)
            if free is None and len(line) < WAITING * len(self._workers):
                free = next(slots, None)
                line.extend([free] if free is not None else [])
            if free is not None and free.done is None:
                worker.give(free)

    def _give_turn(self, head: _Slot) -> None:
        if self._out is not None and head.worker is not None and not head.has_turn:
            self._out.flush()
            head.worker.give_turn(head)

    def _hear(self, seconds: float | None) -> None:
        """Take what the processes answer, within so many seconds (None: there will be an answer)."""
        if not self._workers:
            return
        from multiprocessing.connection import wait

        talking = wait([worker.talk for worker in self._workers], seconds)
        for worker in [worker for worker in self._workers if worker.talk in talking]:
            try:
                message = worker.talk.recv()
            except (EOFError, OSError):
                self._miss(worker)
            else:
                worker.take(message)

    def _miss(self, worker: _Worker) -> None:
        """Go on without a process that never came up; UnreachableError for one that did, and is gone."""
        if worker.is_ready:
            raise worker.ended()
        self._workers.remove(worker)
        worker.end()

    def _start(self, start: Start, count: int) -> None:
        """Start so many processes, fewer where the machine does not give them."""
        with suppress(OSError):
            for _ in range(count):
                self._workers.append(_Worker(start, self._out))

    def _write(self, data: Buffer) -> None:
        assert self._out is not None
        self._out.write(data)

    def _take_notes(self, parts: Sequence[EntrySource]) -> None:
        """Add what other processes noted of parts of the source, and found damaged in them, to these."""
        for worker in self._workers:
            met = worker.ask_what_it_met() if worker.is_ready else None
            if met is None:
                continue
            for part, notes, faults in zip(parts, met.notes, met.faults, strict=False):
                _add(part.notes, notes)
                _add(part.faults, faults)


def _slots(inputs: Iterable[Any]) -> Iterator[_Slot]:
    """Yield a slot for each input; what is raised in place of one has a slot, too."""
    try:
        for one in inputs:
            yield _Slot(Part(one))
    except Exception as error:  # noqa: BLE001 - raised again when it is its turn
        yield _Slot(Part(None), done=Done(Failure(error)))


def _first(slots: Iterator[_Slot], entries: Callable[[Any], int]) -> Iterator[_Slot]:
    """Yield slots until they have WORTH_ENTRIES together."""
    left = WORTH_ENTRIES
    for slot in slots:
        yield slot
        left -= 0 if slot.done else entries(slot.part.input)
        if left <= 0:
            return


def _result(slot: _Slot) -> Any:
    assert slot.done is not None
    if isinstance(slot.done.result, Failure):
        raise slot.done.result.error
    return slot.done.result


def _add(known: Sequence[Any], more: Sequence[Any]) -> None:
    """Add texts, and errors by their text, that are not known; a source that meets nothing has no list."""
    if isinstance(known, list):
        texts = set(map(str, known))
        known += [one for one in more if str(one) not in texts]

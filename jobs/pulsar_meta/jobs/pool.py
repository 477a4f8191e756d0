"""Share the reading of one command among processes. Results come in the order of the work.

Each process opens the entry sources again, because connections and locks can't be shared. The number of
waiting results is limited, so memory is bounded. All processes end with the one that started them, even if it
is killed.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from threading import Thread
from typing import Any, Final, Generic, TypeVar

from pulsar_meta.access.processes import portable
from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError, UnreachableError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_layout import DISK
from pulsar_meta.entries.data_files import DataFiles

# Reading less than this takes no longer than starting a process.
WORTH_BYTES: Final = 512 << 20
# Neither does reading fewer entries than these.
WORTH_ENTRIES: Final = 32_768
# The number of parts per process that are being read or are waiting.
IN_FLIGHT: Final = 2
END_SECONDS: Final = 1.0

Input = TypeVar("Input")
Result = TypeVar("Result")


# Opens the sources. It must be picklable, and so must `Work`.
Open = Callable[[], AbstractContextManager[Any]]
# Does one part of the work with the opened sources.
Work = Callable[[Any, Input], Result]


def is_worth_processes(urls: Sequence[str], source: EntrySource) -> bool:
    """True if a source reads at least WORTH_BYTES of entry logs from disks.

    Other sources mostly wait for servers.
    """
    if not all(url.startswith(DISK) for url in urls):
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
class SharedWork(Generic[Input, Result]):
    """Work that several processes share.

    `work` does a part in another process, after `open`. `here` does the same in this process, in which
    `source` is open. `entries` returns the number of entries of a part. With `at_once`, parts are done here
    until another process is ready; otherwise only if there is too little work for several processes.
    """

    jobs: int
    open: Open
    source: EntrySource
    work: Work[Input, Result]
    here: Callable[[Input], Result]
    entries: Callable[[Input], int]
    at_once: bool = False

    def run(self, inputs: Iterable[Input]) -> Iterator[tuple[Input, Result]]:
        """Yield each input with its result, in order. The error of a part is raised in its place.

        Notes and faults of the other processes' sources are added to those of `source`. Raises
        UnreachableError if another program ended a process.
        """
        parts = _parts(inputs)
        few = _worth(parts, self.entries)
        if self.at_once:
            yield from map(self._here, few)
        ahead = list(few)
        more = list(islice(parts, self.jobs))
        count = min(self.jobs, len(ahead) + len(more)) if more else 1
        left = chain(ahead, more, parts)
        if count == 1:
            yield from map(self._here, left)
            return
        with _processes(self, count) as workers:
            yield from workers.results(left)

    def _here(self, part: Input | _Failed) -> tuple[Input, Result]:
        if isinstance(part, _Failed):
            raise part.error
        return part, self.here(part)


@dataclass(frozen=True, slots=True)
class _Failed:
    """The error that ended the input. It is raised after the results of the parts before it."""

    error: Exception


def _parts(inputs: Iterable[Input]) -> Iterator[Input | _Failed]:
    try:
        yield from inputs
    except Exception as error:  # noqa: BLE001 - raised again in its turn
        yield _Failed(error)


def _worth(parts: Iterator[Input | _Failed], entries: Callable[[Input], int]) -> Iterator[Input | _Failed]:
    """Yield parts until they have WORTH_ENTRIES together."""
    left = WORTH_ENTRIES
    while left > 0 and (part := next(parts, None)) is not None:
        yield part
        left -= 0 if isinstance(part, _Failed) else entries(part)


@dataclass(slots=True)
class _Workers(Generic[Input, Result]):
    """The processes, and the work that they share. `ready` is empty if no process can be started."""

    shared: SharedWork[Input, Result]
    executor: ProcessPoolExecutor | None
    most: int
    ready: list[Future[None]] = field(default_factory=list)

    def results(self, parts: Iterator[Input | _Failed]) -> Iterator[tuple[Input, Result]]:
        """Yield each part with its result, in order."""
        pending: deque[tuple[Input | _Failed, Future[_Answer[Result]] | None]] = deque()
        while True:
            while len(pending) < self.most and self._is_ready():
                if (part := next(parts, None)) is None:
                    break
                pending.append((part, None if isinstance(part, _Failed) else self._give(part)))
            if not pending:
                if (part := next(parts, None)) is None:
                    return
                yield self.shared._here(part)
                continue
            part, future = pending.popleft()
            if isinstance(part, _Failed):
                raise part.error
            assert future is not None
            yield part, self._result(future)

    def _is_ready(self) -> bool:
        """True if a process accepts parts. Unless `at_once`, this waits for the first process."""
        if not self.ready or (self.shared.at_once and not self.ready[0].done()):
            return False
        if isinstance(self.ready[0].exception(), BrokenProcessPool):
            # The process could not start, so this process does all the work.
            self.ready.clear()
        return bool(self.ready)

    def _give(self, part: Input) -> Future[_Answer[Result]]:
        assert self.executor is not None
        try:
            return self.executor.submit(_do, part)
        except BrokenProcessPool as error:
            broken: Future[_Answer[Result]] = Future()
            broken.set_exception(error)
            return broken

    def _result(self, future: Future[_Answer[Result]]) -> Result:
        try:
            answer = future.result()
        except BrokenProcessPool as error:
            raise UnreachableError("a process that reads entries ended unexpectedly") from error
        for part, notes, faults in zip(self.shared.source.parts, answer.notes, answer.faults, strict=False):
            _add(part.notes, notes)
            _add(part.faults, faults)
        return answer.result


@contextmanager
def _processes(shared: SharedWork[Input, Result], count: int) -> Iterator[_Workers[Input, Result]]:
    """Start the processes, and end them."""
    context = get_context("spawn")
    # If this process is killed, its end of the pipe is closed, and the other processes end.
    ending, held_open = context.Pipe(duplex=False)
    workers, others = _Workers(shared, None, IN_FLIGHT * count), set(active_children())
    # Only this process handles Ctrl-C, and then ends the others, which inherit that the signal is blocked.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        # Its semaphores need a process, too, and the first process may be over before the second one starts.
        with suppress(OSError, BrokenProcessPool):
            workers.executor = ProcessPoolExecutor(count, context, _begin, (ending, shared.open, shared.work))
            workers.ready += [workers.executor.submit(_get_ready) for _ in range(count)]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    started = set(active_children()) - others
    try:
        yield workers
    finally:
        # No result is needed any more.
        for process in started:
            process.terminate()
        if workers.executor is not None:
            workers.executor.shutdown(cancel_futures=True)
        held_open.close()
        ending.close()


def _add(known: Sequence[Any], more: Sequence[Any]) -> None:
    """Add new texts, and errors whose texts are new. Sources without notes have no list."""
    if isinstance(known, list):
        texts = set(map(str, known))
        known += [item for item in more if str(item) not in texts]


# --- in the other processes ---


@dataclass(frozen=True, slots=True)
class _Answer(Generic[Result]):
    """The result of a part, with the notes and faults of the sources so far."""

    result: Result
    notes: tuple[tuple[str, ...], ...]
    faults: tuple[tuple[DecodeError, ...], ...]


class _Process:
    """The state of a worker process."""

    def __init__(self, opening: Open, work: Work[Any, Any]) -> None:
        self.opening, self.work = opening, work
        self.stack = ExitStack()
        self.opened: Any = None

    def access(self) -> Any:
        """Open the sources at the first call."""
        if self.opened is None:
            self.opened = self.stack.enter_context(self.opening())
        return self.opened


_process: _Process


def _begin(ending: Connection[Any, Any], opening: Open, work: Work[Any, Any]) -> None:
    """Prepare this process. It ends when the other end of `ending` is closed."""
    global _process
    _process = _Process(opening, work)
    signal.signal(signal.SIGTERM, _leave)
    # Closing the sources removes their files in the temporary directory.
    Finalize(None, _process.stack.close, exitpriority=10)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    gc.freeze()
    Thread(target=_end_with, args=(ending,), daemon=True).start()


def _leave(number: int, frame: object) -> None:
    """Stop the work immediately. Errors in finalizers are not printed.

    While the executor sends a result, it catches SystemExit and sends that, which may block for ever.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    Thread(target=_end_by_force, daemon=True).start()
    sys.exit()


def _end_by_force() -> None:
    """End this process if it has not ended in time."""
    time.sleep(END_SECONDS)
    with suppress(Exception):
        _process.stack.close()
    os._exit(1)


def _end_with(ending: Connection[Any, Any]) -> None:
    """End this process together with the one that started it, by force if it does not end in time."""
    with suppress(EOFError, OSError):
        ending.recv()
    os.kill(os.getpid(), signal.SIGTERM)
    _end_by_force()


def _get_ready() -> None:
    """Open the sources before the first part arrives."""
    with suppress(Exception):
        _process.access()


def _do(part: Any) -> _Answer[Any]:
    """Do one part. Unexpected errors carry their traceback."""
    try:
        opened = _process.access()
        result = _process.work(opened, part)
    except SystemExit:
        # The executor would treat this as the result of the part.
        _process.stack.close()
        os._exit(0)
    except Exception as error:  # noqa: BLE001 - raised again by the main process
        if not isinstance(error, PulsarMetaError | OSError):
            error.add_note(traceback.format_exc())
        raise portable(error) from None
    sources = opened.entries.parts
    notes = tuple(tuple(source.notes) for source in sources)
    return _Answer(result, notes, tuple(tuple(source.faults) for source in sources))

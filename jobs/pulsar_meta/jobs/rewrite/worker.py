"""Decide about many values while a server's answers are awaited and other values are sent.

A thread reads ahead. Parsing, compressing and checking hold the interpreter's lock for longer than the rest
of a run, so for many values a separate process decides. Lists of values and decisions are sent through a
connection, and the process ends with the connection, even if this process is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from pickle import UnpicklingError
from queue import Empty, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pulsar_meta.access.processes import cores, portable
from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, Rule
from pulsar_meta.stores.base import Versioned

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from subprocess import Popen

    Talk = Connection[object, object]

T = TypeVar("T")

PART_VALUES: Final = 64
PART_BYTES: Final = 1 << 20
# How many parts the reading runs ahead.
DEPTH: Final = 16
# A process of its own takes a quarter of a second to start: as long as deciding about so many values.
ALONE: Final = 1024
END_SECONDS: Final = 1.0
# The buffer size of a connection, if the system allows it. A sender blocks while it is full.
BUFFER_BYTES: Final = 1 << 20


def decide_ahead(values: Iterable[Versioned], rule: Rule, *, ahead: bool) -> Generator[Decided]:
    """Yield each value with its decision, in order; with `ahead`, reading and deciding run in parallel.

    `rule` is pickled. Raises UnreachableError if the deciding process was killed. Close the generator if you
    don't exhaust it.
    """
    if not ahead:
        yield from ((seen, rule(seen)) for seen in values)
        return
    with Decider(rule) as decider, closing(read_ahead(decider.offered(parts(values)))) as offered:
        try:
            for part, apart in offered:
                decisions = decider.answer() if apart else map(rule, part)
                yield from zip(part, decisions, strict=True)
        finally:
            # The reading may wait for a process that waits for us.
            decider.end()


def parts(values: Iterable[Versioned]) -> Iterator[list[Versioned]]:
    """Yield the values in lists, of few values where these are large."""
    part: list[Versioned] = []
    size = 0
    for seen in values:
        part.append(seen)
        size += len(seen.value)
        if len(part) == PART_VALUES or size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


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
        self._started: tuple[Popen[bytes], Talk] | None = None
        self._ready = False

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        if self._started is not None:
            self._started[1].close()

    def end(self) -> None:
        """End the process, whatever it is at. Safe to call twice."""
        # The reading thread may be giving it up.
        started = self._started
        if started is not None:
            started[0].kill()
            started[0].wait()

    def offered(self, parts: Iterable[list[Versioned]]) -> Iterator[tuple[list[Versioned], bool]]:
        """Yield the parts, and whether the process has been given them; waits while it is busy."""
        count, helps = 0, cores() > 1
        for part in parts:
            if helps and count >= ALONE and not self._ready:
                helps = self._get_ready()
            if self._ready:
                self._give(part)
            yield part, self._ready
            count += len(part)

    def answer(self) -> list[Decision]:
        """Return the decisions about the oldest part that has no answer yet; raises what the rule raised."""
        answer: list[Decision] | Exception = self._answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _get_ready(self) -> bool:
        """Start the process, or see whether it has loaded the rule by now; False where there can be none.

        Nobody waits for it: until then everything is decided here. The machine may have no process to give,
        or its Python not this package (a zipped program).
        """
        try:
            if self._started is None:
                self._started = start_process()
                self._give(self.rule)
            elif self._started[1].poll():
                self.answer()
                self._ready = True
        except OSError:
            return False
        except (UnreachableError, ImportError):
            self.__exit__()
            self._started = None
            return False
        return True

    def _give(self, something: Rule | list[Versioned]) -> None:
        try:
            self._talk.send(something)
        except OSError:
            raise self._ended() from None

    def _answer(self) -> Any:
        try:
            return self._talk.recv()
        except (EOFError, OSError, UnpicklingError):
            raise self._ended() from None

    @property
    def _talk(self) -> Talk:
        assert self._started is not None
        return self._started[1]

    def _ended(self) -> UnreachableError:
        from subprocess import TimeoutExpired

        assert self._started is not None
        process, _ = self._started
        try:
            code = process.wait(END_SECONDS)
        except TimeoutExpired:
            # It answered with something else, and lives.
            self.end()
            return UnreachableError("the process that decides about the values does not answer as it should")
        return UnreachableError(f"the process that decides about the values ended (exit code {code})")


def start_process() -> tuple[Popen[bytes], Talk]:
    """Start this module as a new process, and return the process and a connection to it.

    The process has neither stdin nor stdout, and ends when the connection closes. Raises OSError if it can't
    be started.
    """
    import socket
    from multiprocessing.connection import Connection
    from subprocess import DEVNULL, Popen

    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    with ours, theirs:
        end_of_process = theirs.fileno()
        # -P keeps modules in the current directory out. In a new session, Ctrl-C only reaches the parent.
        command = [sys.executable, "-P", "-m", "pulsar_meta.jobs.rewrite.worker", str(end_of_process)]
        process = Popen(
            command, start_new_session=True, stdin=DEVNULL, stdout=DEVNULL, pass_fds=[end_of_process]
        )
        return process, Connection(ours.detach())


def _decide_until_the_end(talk: Talk) -> None:
    """Answer each list of values with a list of decisions, until there is no more of either."""
    try:
        rule: Any = talk.recv()
    except ImportError as error:
        talk.send(portable(error))
        return
    talk.send([])
    while True:
        part: Any = talk.recv()
        try:
            talk.send(list(map(rule, part)))
        except Exception as error:  # noqa: BLE001 - raised again by who asked
            talk.send(portable(error))


if __name__ == "__main__":
    from multiprocessing.connection import Connection

    # Whoever was killed in the middle of a part leaves it cut, which is an OSError of no kind.
    with suppress(EOFError, OSError):
        _decide_until_the_end(Connection(int(sys.argv[1])))

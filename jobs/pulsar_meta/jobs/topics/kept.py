"""Topics that are read once and gone through several times, however many a store has."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Final

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.jobs.topics.topic import Topic

# Topics and ledgers that are in memory at a time.
BLOCK: Final = 2000


class KeptTopics:
    """Topics in the order in which they came, as often as they are asked for.

    `ledgers` counts their ledgers, `entries` the entries of these, as far as their number is written down.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """`file` is empty, and the caller's to close; full blocks go to it."""
        self.ledgers = self.entries = 0
        self._file, self._blocks = file, 0
        self._last: list[Topic] = []
        self._size = 0

    def add(self, topic: Topic) -> None:
        """Take one more topic; OSError where it cannot be written."""
        self.ledgers += len(topic.ledgers)
        self.entries += sum(ledger.entries or 0 for ledger in topic.ledgers)
        self._last.append(topic)
        self._size += 1 + len(topic.ledgers)
        if self._size >= BLOCK:
            pickle.dump(self._last, self._file, pickle.HIGHEST_PROTOCOL)
            self._last, self._size, self._blocks = [], 0, self._blocks + 1

    def __iter__(self) -> Iterator[Topic]:
        """Yield the topics; iterators do not disturb one another."""
        at = 0
        for _ in range(self._blocks):
            self._file.seek(at)
            block: list[Topic] = pickle.load(self._file)
            at = self._file.tell()
            yield from block
        yield from self._last


@contextmanager
def kept_topics(topics: Iterable[Topic]) -> Iterator[KeptTopics]:
    """Read all topics and give them to be gone through; what is more than a BLOCK lies in a temporary file.

    UnreachableError where the directory of temporary files (TMPDIR) does not take them.
    """
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115 closed below
    except OSError as error:
        raise _no_room(error) from error
    with file:
        kept = KeptTopics(file)
        for topic in topics:
            try:
                kept.add(topic)
            except OSError as error:
                raise _no_room(error) from error
        yield kept


def _no_room(error: OSError) -> UnreachableError:
    problem = f"topics cannot be kept in temporary files: {error.strerror}"
    return UnreachableError(problem, source=tempfile.gettempdir())

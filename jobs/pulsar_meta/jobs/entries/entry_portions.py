"""Places cut into portions that can be read apart, and what came of each put together again, in order.

A portion is some ranges of ledgers, of as many ids as are read at once, or a piece of one range. What is
found out of ledgers as wholes is found out here: whether anything is there of one, and what is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Coverage, Place, Range
from pulsar_meta.jobs.entries.entry_reading import Presence, parts_of
from pulsar_meta.jobs.topics.placement import placement
from pulsar_meta.jobs.topics.topic import Ledger, Report
from pulsar_meta.stores.base import Store

# About so many entries are a piece of a ledger.
ROWS_AT_ONCE: Final = 32768
# So many ranges of a portion, of many small ledgers; the first portions have fewer, to begin at once.
MOST_RANGES: Final = 64
# Ids may be far apart, above all wrong ones: of a ledger there are at most so many pieces, longer ones then.
MOST_PIECES: Final = 256

# Ranges to be read one after the other, each with its ledger as BookKeeper knows it.
Portion = tuple[tuple[Range, Ledger], ...]


@dataclass(slots=True)
class ReadRange:
    """What came of reading a range: how many entries are here, of these how many should be, what is wrong.

    `entry_ids` are those that were written, where they were to be noted. `error` ended the reading.
    """

    held: int = 0
    expected: int = 0
    faults: list[PulsarMetaError] = field(default_factory=list)
    entry_ids: list[int] = field(default_factory=list)
    error: Exception | None = None


def presence_in(part: Range, ledger: Ledger, source: EntrySource, report: Report) -> Presence:
    """Return what takes note of the entries of a range that is read by itself."""
    return Presence(part, ledger, source, report, Coverage(), placed=placement(ledger, source))


@dataclass(frozen=True, slots=True)
class _Reading:
    """A range of the portion: what came of it is for this presence."""

    presence: Presence


@dataclass(frozen=True, slots=True)
class _Read:
    """The ledger of this presence was read to its end."""

    presence: Presence


_Event = PulsarMetaError | _Reading | _Read


class Portions:
    """The portions of places, to be iterated once; what came of each is given to `account`, in order."""

    def __init__(
        self,
        places: Iterable[Place],
        source: EntrySource,
        store: Store | None,
        report: Report,
        coverage: Coverage,
    ) -> None:
        self._places, self._source, self._store = places, source, store
        self._report, self._coverage = report, coverage
        self._open: deque[list[_Event]] = deque()
        self._events: list[_Event] = []
        self._ranges: list[tuple[Range, Ledger]] = []

    def __iter__(self) -> Iterator[Portion]:
        """Yield the portions; what is raised between them comes after what was found before it."""
        try:
            yield from self._cut()
        except Exception:
            yield self._portion()
            raise
        yield self._portion()

    def account(self, found: Sequence[ReadRange]) -> None:
        """Report and count what came of the ranges of the oldest portion; raises what ended its reading."""
        left = iter(found)
        for event in self._open.popleft():
            if isinstance(event, PulsarMetaError):
                self._report(event)
            elif isinstance(event, _Read):
                event.presence.end()
            else:
                self._count(event.presence, next(left))

    def _count(self, presence: Presence, found: ReadRange) -> None:
        for fault in found.faults:
            self._report(fault)
        presence.count(found.held, found.expected)
        if found.error is not None:
            raise found.error

    def _cut(self) -> Iterator[Portion]:
        ids, most = 0, 1
        for part, ledger in parts_of(self._places, self._source, self._store, self._note, self._coverage):
            presence = Presence(part, ledger, self._source, self._note, self._coverage)
            if not presence.begin():
                continue
            presence.report = self._report
            for piece in pieces(part, presence.newest):
                self._events.append(_Reading(presence))
                self._ranges.append((piece, ledger))
                ids += (piece.last or 0) - piece.first + 1
                if ids >= ROWS_AT_ONCE // 2 or len(self._ranges) >= most:
                    yield self._portion()
                    ids, most = 0, min(2 * most, MOST_RANGES)
            self._events.append(_Read(presence))

    def _note(self, error: PulsarMetaError) -> None:
        """Keep what is reported when it is its turn."""
        self._events.append(error)

    def _portion(self) -> Portion:
        self._open.append(self._events)
        portion = tuple(self._ranges)
        self._events, self._ranges = [], []
        return portion


def entries_of(portion: Portion) -> int:
    """Return how many entries a portion has at most."""
    return sum((part.last or 0) - part.first + 1 for part, _ in portion)


def pieces(part: Range, newest: int | None) -> Iterator[Range]:
    """Yield a range up to the entry `newest` in pieces of about the same length; None for no entry."""
    end = -1 if newest is None else newest if part.last is None else min(newest, part.last)
    span = end - part.first + 1
    count = min(MOST_PIECES, -(-span // ROWS_AT_ONCE))
    for number in range(count):
        first, stop = (part.first + span * at // count for at in (number, number + 1))
        yield replace(part, first=first, last=stop - 1)

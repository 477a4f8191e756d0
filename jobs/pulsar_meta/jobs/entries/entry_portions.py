"""Cut places into portions for several processes, and combine the results in order.

A portion is a few ranges of ledgers, or a piece of one range. Facts about complete ledgers are determined
here: whether a ledger has any entry, and how many are missing.
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

# The approximate number of entries in a piece of a ledger.
ROWS_AT_ONCE: Final = 32768
# The maximum number of ranges of small ledgers in a portion. The first portions have fewer, to start early.
MOST_RANGES: Final = 64
# The maximum number of pieces of a ledger, because corrupt ids can be far apart. Pieces are longer then.
MOST_PIECES: Final = 256

# Ranges to read in order, each with its ledger, which has BookKeeper's metadata.
Portion = tuple[tuple[Range, Ledger], ...]


@dataclass(slots=True)
class ReadRange:
    """The result of reading a range: the number of present entries, how many were expected, and faults.

    `entry_ids` are the written entries, if requested. `error` ended the reading.
    """

    held: int = 0
    expected: int = 0
    faults: list[PulsarMetaError] = field(default_factory=list)
    entry_ids: list[int] = field(default_factory=list)
    error: Exception | None = None


def presence_in(part: Range, ledger: Ledger, source: EntrySource, report: Report) -> Presence:
    """Make the presence that counts the entries of one range in another process."""
    return Presence(part, ledger, source, report, Coverage(), placed=placement(ledger, source))


@dataclass(frozen=True, slots=True)
class _Reading:
    """A range of the portion whose result belongs to this presence."""

    presence: Presence


@dataclass(frozen=True, slots=True)
class _Read:
    """The end of the ledger of this presence."""

    presence: Presence


_Event = PulsarMetaError | _Reading | _Read


class Portions:
    """The portions of places, which can be iterated once. `account` takes their results in order."""

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
        """Yield the portions. An error in planning is raised after the portions before it."""
        try:
            yield from self._cut()
        except Exception:
            yield self._portion()
            raise
        yield self._portion()

    def account(self, found: Sequence[ReadRange]) -> None:
        """Report and count the results of the oldest portion. Raises the error that ended its reading."""
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
        """Keep a fault until the results of its portion arrive."""
        self._events.append(error)

    def _portion(self) -> Portion:
        self._open.append(self._events)
        portion = tuple(self._ranges)
        self._events, self._ranges = [], []
        return portion


def entries_of(portion: Portion) -> int:
    """The maximum number of entries of a portion."""
    return sum((part.last or 0) - part.first + 1 for part, _ in portion)


def pieces(part: Range, newest: int | None) -> Iterator[Range]:
    """Cut a range into pieces of about the same length.

    `newest` is the ledger's last entry, None if it is empty.
    """
    end = -1 if newest is None else newest if part.last is None else min(newest, part.last)
    span = end - part.first + 1
    count = min(MOST_PIECES, -(-span // ROWS_AT_ONCE))
    for number in range(count):
        first, stop = (part.first + span * at // count for at in (number, number + 1))
        yield replace(part, first=first, last=stop - 1)

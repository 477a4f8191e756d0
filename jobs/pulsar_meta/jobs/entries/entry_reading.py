"""Read the entries of places, without BookKeeper's header, and report unreadable ones.

Several processes read portions: a few ranges of ledgers, or a piece of one range. The first process
determines facts about complete ledgers: whether a ledger has any entry, and how many are missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypedDict

from pulsar_meta.codecs.backends import Verdict
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import Frame, decode_frame, decode_raw_message
from pulsar_meta.codecs.metadata.envelope import decode_position_info
from pulsar_meta.codecs.transactions.log_entries import possible_readings
from pulsar_meta.entries.base import EntrySource, Outcome, RawEntry, entry_of, read_each
from pulsar_meta.jobs.entries.entry_choice import Coverage, Place, Range, ranges
from pulsar_meta.jobs.topics.bookkeeper import LOGS, EntryFormat
from pulsar_meta.jobs.topics.placement import Placement, placement
from pulsar_meta.jobs.topics.topic import Ledger, Report, SegmentNames, with_bookkeeper
from pulsar_meta.stores.base import Store


@dataclass(frozen=True, slots=True)
class DataEntry:
    """The data of an entry, without BookKeeper's header and digest, and the verdict on the digest.

    `segment` names the segment of a scalable topic that contains it; empty for other topics.
    """

    ledger_id: int
    entry_id: int
    data: memoryview
    digest: Verdict
    segment: SegmentNames = field(default_factory=SegmentNames)


Readable = tuple[DataEntry, EntryFormat]


class EntryPlace(TypedDict):
    """The position of an entry before compaction."""

    ledger_id: int
    entry_id: int


def read_entries(
    places: Iterable[Place],
    source: EntrySource,
    store: Store | None,
    report: Report,
    coverage: Coverage | None = None,
) -> Iterator[Readable]:
    """Yield the entries of places in reading order. Missing and corrupt ones are reported."""
    coverage = coverage or Coverage()
    for part, ledger in parts_of(places, source, store, report, coverage):
        yield from present_entries(part, ledger, source, report, coverage)


def parts_of(
    places: Iterable[Place], source: EntrySource, store: Store | None, report: Report, coverage: Coverage
) -> Iterator[tuple[Range, Ledger]]:
    """Yield the ranges of places in reading order, each with its ledger, which has BookKeeper's metadata."""
    for choice, limits in places:
        coverage.add(choice)
        parts = list(ranges(choice, limits, source))
        ledgers = with_bookkeeper(store, (part.ledger for part in parts), report)
        yield from zip(parts, ledgers, strict=True)


def data_entry(raw: RawEntry, form: EntryFormat) -> DataEntry:
    """Extract the data of an entry, and verify its digest."""
    if not raw.bookie:
        return DataEntry(raw.ledger_id, raw.entry_id, memoryview(raw.data), "absent")
    entry = decode_bookie_entry(raw.data, form.digest_type, password=form.password)
    return DataEntry(raw.ledger_id, raw.entry_id, entry.data, entry.digest)


def whole_copy(entry: DataEntry, source: EntrySource, form: EntryFormat, report: Report) -> DataEntry:
    """Find an intact copy of a corrupt entry on another disk, and report that; otherwise return the entry."""
    for raw in source.copies(entry.ledger_id, entry.entry_id):
        copy = data_entry(raw, form)
        if copy.digest == "ok":
            where = f"entry {entry.ledger_id}:{entry.entry_id}"
            report(
                DecodeError(
                    "a copy of it is corrupt: its digest does not fit; another is shown", source=where
                )
            )
            return copy
    return entry


def _corrupt(entry: DataEntry) -> DecodeError:
    where = f"entry {entry.ledger_id}:{entry.entry_id}"
    return DecodeError("the digest does not fit: the entry is not what its writer wrote", source=where)


def find_frame(data: memoryview, form: EntryFormat) -> tuple[Frame | None, EntryPlace | None, str | None]:
    """Find the frame in an entry's data, and its position before compaction; otherwise the reason."""
    if form.content is not None:
        return None, None, form.content
    try:
        return decode_frame(data), None, None
    except DecodeError as error:
        not_a_frame = error
    try:
        raw = decode_raw_message(data)
        frame = decode_frame(raw.frame)
    except DecodeError:
        return None, None, str(not_a_frame) if form.frames else guess_content(data) or str(not_a_frame)
    place: EntryPlace = {"ledger_id": raw.message_id.ledgerId, "entry_id": raw.message_id.entryId}
    return frame, place, None


def guess_content(data: memoryview) -> str | None:
    """Guess the content of data that is not a frame and has no known owner; None if nothing fits."""
    logs = " or ".join(LOGS[reading.kind] for reading in possible_readings(data))
    if logs:
        return f"whose ledger it is, is not known; by its content {logs}"
    try:
        position = decode_position_info(data)
    except DecodeError:
        return None
    return f"by its content the state of a cursor at {position.ledgerId}:{position.entryId}"


def present_entries(
    part: Range, ledger: Ledger, source: EntrySource, report: Report, coverage: Coverage
) -> Iterator[Readable]:
    """Yield the readable entries of a range. Reports unreadable ones, and the number of missing ones.

    `ledger` is the range's ledger with BookKeeper's metadata.
    """
    presence = Presence(part, ledger, source, report, coverage)
    if presence.begin():
        for entry_id, outcome in read_each(source, ledger.ledger_id, part.first, part.last):
            entry = presence.entry(entry_id, outcome)
            if entry is not None:
                yield entry
        presence.end()


@dataclass(slots=True)
class Presence:
    """Counts the entries of a range of a ledger that are present, and reports those that are missing."""

    part: Range
    ledger: Ledger
    source: EntrySource
    report: Report
    coverage: Coverage
    newest: int | None = None
    placed: Placement = field(default_factory=Placement)
    held: int = 0
    expected: int = 0
    form: EntryFormat = field(init=False)

    def __post_init__(self) -> None:
        self.form = self.ledger.format

    def begin(self) -> bool:
        """True if there is an entry to read; otherwise that is reported."""
        self.coverage.ledgers += 1
        ledger_id = self.ledger.ledger_id
        try:
            self.newest = self.source.last_entry(ledger_id)
        except DecodeError as error:
            self.report(error)
            return False
        if self.newest is None and self._named and self.ledger.entries is None:
            self.report(NotFoundError(f"ledger {ledger_id}: no source has an entry of it"))
            return False
        self.placed = placement(self.ledger, self.source)
        return True

    def entry(self, entry_id: int, outcome: Outcome) -> Readable | None:
        """Count an entry, and return it with its format. If it can't be read, that is reported."""
        if isinstance(outcome, NotFoundError):
            return None
        self.count(1, self.placed.count(entry_id, entry_id))
        try:
            entry = data_entry(entry_of(outcome), self.form)
            if entry.digest == "bad":
                entry = whole_copy(entry, self.source, self.form, self.report)
            if entry.digest == "bad":
                self.report(_corrupt(entry))
        except DecodeError as error:
            self.report(error.within(what=f"entry {self.ledger.ledger_id}:{entry_id}"))
            return None
        segment = self.part.segment
        return (replace(entry, segment=segment) if segment else entry), self.form

    def count(self, held: int, expected: int) -> None:
        """Count present entries, and how many of them were expected."""
        self.held += held
        self.expected += expected
        self.coverage.entries += held

    def end(self) -> None:
        """Report the number of missing entries."""
        part, ledger_id, newest, placed = self.part, self.ledger.ledger_id, self.newest, self.placed
        end = max(-1 if newest is None else newest, (self.ledger.entries or 0) - 1)
        last = end if part.last is None else min(end, part.last)
        missing = placed.count(part.first, last) - self.expected
        elsewhere = placed.elsewhere(part.first, last) - (self.held - self.expected)
        self.coverage.elsewhere += max(0, elsewhere)
        # A file of frames can contain only some of a ledger's frames.
        whole = not self._named or self.source.whole_ledgers or newest is None
        if missing > 0 and whole and not self._is_explained(last):
            what = "an entry" if newest is None else f"{missing} of its entries {part.first} to {last}"
            text = "of it" if newest is None else ""
            self.report(NotFoundError(f"ledger {ledger_id}: no source has {what} {text}".rstrip()))

    def _is_explained(self, last: int) -> bool:
        """Return True, and record it as not read, if the ledger was deleted or written meanwhile."""
        changes = self.coverage.changes
        why = changes and changes.why_missing(self.ledger, self.part.first, last, self.source)
        if why:
            self.coverage.not_checked[f"the rest of ledger {self.ledger.ledger_id}"] = why
        return bool(why)

    @property
    def _named(self) -> bool:
        return self.part.ledger.state == "unknown"


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

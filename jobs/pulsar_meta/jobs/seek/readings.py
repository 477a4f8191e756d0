"""Readings: what the headers of a topic's entries contain, and the order in which the entries are numbered.

Every entry of a topic has a number, its ordinal, which begins with 0 at the first entry of the first ledger.
The order comes from the topic's record (ManagedLedgerInfo), so it costs no read of an entry. The status of a
question follows from the readings, within the limits of a search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.transactions.log_entries import TxnId, txn_of_message
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.jobs.topics.topic import Position

TO_THE_END: Final = 2**63
# About 50 MB of readings. Forgetting them costs reads and never changes an answer.
REMEMBERED_READINGS: Final = 200_000


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """The entries [first_entry, first_entry + entries) of a ledger, and the claims of its metadata.

    `first_index` is the index of the first message of entry 0 (a property, PIP-404). `closed_at` is the close
    time in milliseconds (LedgerInfo.timestamp); None if it is absent or 0, as in an open ledger.
    """

    ledger_id: int
    entries: int
    first_entry: int = 0
    first_index: int | None = None
    closed_at: int | None = None


class ReadingOrder:
    """The ledgers of a topic in reading order. Converts between ordinals and positions."""

    __slots__ = ("last_index", "spans", "starts", "total")

    def __init__(self, spans: Iterable[LedgerRange], last_index: int | None = None) -> None:
        """`last_index` is the topic's property "index": the last index that a broker assigned."""
        self.spans: Sequence[LedgerRange] = [span for span in spans if span.entries > 0]
        self.last_index = last_index
        self.starts: list[int] = []
        self.total = 0
        for span in self.spans:
            self.starts.append(self.total)
            self.total += span.entries

    def position(self, ordinal: int) -> Position:
        """Return the position of the entry with this ordinal."""
        at = bisect_right(self.starts, ordinal) - 1
        span = self.spans[at]
        return Position(span.ledger_id, span.first_entry + ordinal - self.starts[at])

    def ordinal(self, position: Position) -> int:
        """Return the ordinal of the first entry at or after `position`, or `total` if there is none."""
        at = bisect_right(self.spans, position.ledger_id, key=lambda span: span.ledger_id) - 1
        if at < 0:
            return 0
        span = self.spans[at]
        if span.ledger_id < position.ledger_id:
            return self.starts[at] + span.entries
        return self.starts[at] + min(max(position.entry_id - span.first_entry, 0), span.entries)

    def ledger_bounds(self, ordinal: int) -> tuple[int, int]:
        """Return the ordinals [start, stop) of the ledger that has this ordinal."""
        at = bisect_right(self.starts, ordinal) - 1
        return self.starts[at], self.starts[at] + self.spans[at].entries

    def between(self, start: int, stop: int) -> ReadingOrder:
        """Return the order of the entries with the ordinals [start, stop)."""
        clipped = []
        for span, begin in zip(self.spans, self.starts, strict=True):
            left, right = max(begin, start), min(begin + span.entries, stop)
            if left < right:
                first = span.first_entry + left - begin
                clipped.append(replace(span, first_entry=first, entries=right - left))
        return ReadingOrder(clipped, self.last_index if stop >= self.total else None)


class State(Enum):
    """The result of reading an entry."""

    READ = "read"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request for the entries [first, last] of a ledger, in one round trip."""

    ledger_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The header of an entry, as far as a search needs it.

    The indexes are those of its first and last message, None without broker metadata. Times are in
    milliseconds. `batched`: its messages have batch indexes. `span`: so many entries, from this one on, are
    in the same state, so that a missing ledger is one reading. `txn` is the transaction of its messages.
    `marker`: the entry is a transaction marker, which has no messages.
    """

    ledger_id: int
    entry_id: int
    state: State = State.READ
    first_index: int | None = None
    last_index: int | None = None
    broker_timestamp: int | None = None
    publish_time: int | None = None
    batched: bool = False
    span: int = 1
    txn: TxnId | None = None
    marker: bool = False


# Returns an entry's first and last value, None if it has none.
Measure = Callable[[Reading], tuple[int, int] | None]


def by_index(reading: Reading) -> tuple[int, int] | None:
    """Return the indexes of the entry's first and last message."""
    if reading.first_index is None or reading.last_index is None:
        return None
    return reading.first_index, reading.last_index


def by_broker_clock(reading: Reading) -> tuple[int, int] | None:
    """Return the broker's timestamp, twice."""
    time = reading.broker_timestamp
    return None if time is None else (time, time)


def by_publish_clock(reading: Reading) -> tuple[int, int] | None:
    """Return the producer's publish time, twice."""
    time = reading.publish_time
    return None if time is None else (time, time)


def by_either_clock(reading: Reading) -> tuple[int, int] | None:
    """Return the broker's timestamp, or else the publish time (Pulsar: Entry.getEntryTimestamp)."""
    return by_broker_clock(reading) or by_publish_clock(reading)


CLOCKS: Final[dict[str, Measure]] = {
    "auto": by_either_clock,
    "broker": by_broker_clock,
    "publish": by_publish_clock,
}


def value_of(reading: Reading, measure: Measure) -> tuple[int, int] | None:
    """Return an entry's first and last value on a measure, None if it was not read or has none."""
    return measure(reading) if reading.state is State.READ else None


class EntryReader:
    """Reads entries from a source and remembers them, so that a later question does not read them again.

    `entries_read` counts the entries that the source returned, `round_trips` the requests to it.
    """

    def __init__(self, source: EntrySource) -> None:
        self.source = source
        self.entries_per_read = source.entries_per_read
        self.entries_read = 0
        self.round_trips = 0
        self._remembered: dict[ReadRequest, list[Reading]] = {}
        self._count = 0
        self._loaded: dict[int, tuple[int, list[Reading]]] = {}

    def read(self, request: ReadRequest) -> list[Reading]:
        """Return a reading for every entry of the request. Raises UnreachableError."""
        if request.ledger_id in self._loaded:
            first, loaded = self._loaded[request.ledger_id]
            return loaded[request.first - first : request.last - first + 1]
        readings = self._remembered.get(request)
        if readings is not None:
            return readings
        readings = read_headers(self.source, request)
        self.round_trips += 1
        self.entries_read += sum(reading.state is not State.MISSING for reading in readings)
        self._count += len(readings)
        if self._count > REMEMBERED_READINGS:
            self._remembered.clear()
            self._count = len(readings)
        self._remembered[request] = readings
        return readings

    def load(self, ledger_id: int, first: int, last: int) -> None:
        """Read the entries [first, last], all that a search needs of this ledger, in one pass."""
        self._loaded[ledger_id] = first, self.read(ReadRequest(ledger_id, first, last))


def read_headers(source: EntrySource, request: ReadRequest) -> list[Reading]:
    """Return a reading for every entry of the request. Raises UnreachableError."""
    if request.first == request.last:
        return [read_one(source, request.ledger_id, request.first)]
    readings: dict[int, Reading] = {}
    try:
        for raw in source.read_many(request.ledger_id, request.first, request.last):
            readings[raw.entry_id] = examine(raw)
    except (DecodeError, NotFoundError):
        # A broken record ends the run, so the entries after it are read one by one.
        pass
    return [
        readings.get(entry_id) or read_one(source, request.ledger_id, entry_id)
        for entry_id in range(request.first, request.last + 1)
    ]


def read_one(source: EntrySource, ledger_id: int, entry_id: int) -> Reading:
    """Return the reading of one entry.

    If the ledger is missing, or ends before the entry, the reading spans everything that is missing.
    """
    try:
        return examine(source.read(ledger_id, entry_id))
    except NotFoundError:
        last = source.last_entry(ledger_id)
    except DecodeError:
        return Reading(ledger_id, entry_id, State.UNREADABLE)
    if last is None:
        return Reading(ledger_id, 0, State.MISSING, span=TO_THE_END)
    if entry_id > last:
        return Reading(ledger_id, last + 1, State.MISSING, span=TO_THE_END)
    return Reading(ledger_id, entry_id, State.MISSING)


def examine(raw: RawEntry) -> Reading:
    """Decode an entry's header. An entry with a wrong digest is unreadable: any of its bytes may be wrong."""
    try:
        data: bytes | memoryview = raw.data
        if raw.bookie:
            entry = decode_bookie_entry(raw.data)
            if entry.digest == "bad":
                return Reading(raw.ledger_id, raw.entry_id, State.UNREADABLE)
            data = entry.data
        frame = decode_frame(data, verify=False)
    except DecodeError:
        return Reading(raw.ledger_id, raw.entry_id, State.UNREADABLE)
    first, last = frame.index_range or (None, None)
    return Reading(
        raw.ledger_id,
        raw.entry_id,
        first_index=first,
        last_index=last,
        broker_timestamp=frame.broker_timestamp,
        publish_time=frame.metadata.publish_time,
        batched=frame.metadata.HasField("num_messages_in_batch"),
        txn=txn_of_message(frame.metadata),
        marker=frame.metadata.HasField("marker_type"),
    )


# The limits of a search that is not exhaustive. In a topic of more ledgers, no index is called absent.
MAX_LEDGERS: Final = 1000
# A question reads at most so many entries that have no value (no broker metadata, missing, unreadable).
PATIENCE: Final = 2000

Status = Literal[
    "found", "before-first", "after-last", "gap", "no-index", "missing-ledger", "unreadable", "no-topic",
    "aborted", "marker", "open", "unknown",
]  # fmt: skip
FOUND: Final = "found"
BEFORE_FIRST: Final = "before-first"
AFTER_LAST: Final = "after-last"
GAP: Final = "gap"
NO_INDEX: Final = "no-index"
MISSING: Final = "missing-ledger"
UNREADABLE: Final = "unreadable"
NO_TOPIC: Final = "no-topic"
ABORTED: Final = "aborted"
MARKER: Final = "marker"
OPEN: Final = "open"
UNKNOWN: Final = "unknown"

_STATUS_OF: Final[dict[State, Status]] = {
    State.MISSING: MISSING,
    State.UNREADABLE: UNREADABLE,
    State.READ: NO_INDEX,
}
# An entry that is missing may hold anything, so it matters more than one that was read.
_WORST_FIRST: Final[tuple[Status, ...]] = (UNKNOWN, MISSING, UNREADABLE, NO_INDEX)


def obstacle_of(states: Iterable[State]) -> Status | None:
    """Return why entries that have no value do not show if the target is there, None without entries."""
    return worst(_STATUS_OF[state] for state in states)


def worst(statuses: Iterable[Status | None]) -> Status | None:
    """Return the status that says least about the target, None if all say that it is not there."""
    present = set(statuses)
    return next((status for status in _WORST_FIRST if status in present), None)


def too_many_ledgers(count: int) -> str:
    """Say why an index that is not where it belongs is not called absent."""
    return (
        f"it is not where it belongs, and there are {count} ledgers that may hold it (limit: {MAX_LEDGERS});"
        " --exhaustive looks into all of them"
    )


def out_of_patience(measure: Measure) -> str:
    """Say that too many entries have no value on the measure."""
    value = "index" if measure is by_index else "broker time"
    return f"{PATIENCE} entries without {value} were read (the limit); --exhaustive reads on"

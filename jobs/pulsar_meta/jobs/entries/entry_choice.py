"""Choose entries: topics and ledgers by name, and limits on them, by position, index or time."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.topic import (
    MAX_ID,
    Ledger,
    Report,
    SegmentNames,
    Topic,
    every_topic,
    named,
    parse_ledger_id,
    parse_position,
)
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    from pulsar_meta.jobs.entries.live_changes import LiveChanges

POSITIONS: Final = "ENTRY, LEDGER:ENTRY or LEDGER:ENTRY:BATCH"
_entry_re = re.compile(r"-?[0-9]{1,30}")
METADATA: Final = "BookKeeper's metadata"
NO_METADATA: Final = "the store has none below /ledgers"
MARKERS_ELSEWHERE: Final = "the markers that end their transactions may be elsewhere"
ELSEWHERE: Final = "only bookies have them whose disks were not given"


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a range: an entry id in every ledger, or a position in the topic if `ledger_id` is given.

    A negative entry id counts from the end of the topic: -1 is its last entry.
    """

    entry_id: int
    ledger_id: int | None = None

    @classmethod
    def parse(cls, text: str) -> Bound:
        """Parse `ENTRY` or a position in the form that `seek` prints. Raises UsageError."""
        if not _entry_re.fullmatch(text):
            place = parse_position(text, POSITIONS)
            if place.entry_id < 0:
                raise UsageError(f"{text!r}: expected {POSITIONS}")
            return cls(place.entry_id, place.ledger_id)
        if abs(int(text)) > MAX_ID:
            raise UsageError(f"an entry id is at most {MAX_ID}, not {text}")
        return cls(int(text))

    def is_behind(self, other: Bound) -> bool:
        """True if this bound is after `other`; False if that depends on the topic."""
        if self.ledger_id is not None and other.ledger_id is not None:
            return (self.ledger_id, self.entry_id) > (other.ledger_id, other.entry_id)
        same_kind = self.ledger_id is None and other.ledger_id is None
        same_end = (self.entry_id < 0) == (other.entry_id < 0)
        return same_kind and same_end and self.entry_id > other.entry_id


@dataclass(frozen=True, slots=True)
class Limits:
    """The first and last entry to read, both included."""

    first: Bound | None = None
    last: Bound | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The ledgers of one topic in reading order, or ledgers that were given by id (then `is_topic` is False).

    `snapshot` is the reason why ledgers may be missing (a shadow topic without its source). `scalable_topic`
    is the topic of which it is a segment, None for other topics.
    """

    name: str
    ledgers: Sequence[Ledger]
    is_topic: bool = False
    snapshot: str | None = None
    scalable_topic: str | None = None

    @property
    def segment(self) -> SegmentNames:
        """The fields that name a segment in documents of its entries; empty for other topics."""
        if self.scalable_topic is None:
            return {}
        return {"topic": self.name, "scalable_topic": self.scalable_topic}


# A choice, and limits on its entries.
Place = tuple[Choice, Limits]


@dataclass(slots=True)
class Coverage:
    """Counts of what was read.

    `copies` counts the copies of entries that were verified on several bookies, `elsewhere` the entries on
    bookies whose disks were not given. `changes` explains missing entries if the cluster may be running.
    """

    topics: int = 0
    ledgers: int = 0
    entries: int = 0
    copies: int = 0
    elsewhere: int = 0
    not_checked: dict[str, str] = field(default_factory=dict)
    changes: LiveChanges | None = None

    def add(self, topic: Choice | Topic) -> None:
        """Count a topic, and record if it may have other ledgers."""
        self.topics += isinstance(topic, Topic) or topic.is_topic
        if topic.snapshot is not None:
            self.not_checked[topic.name] = topic.snapshot

    def merge(self, other: Coverage) -> None:
        """Add the counts of another process; topics are counted in this one."""
        self.ledgers += other.ledgers
        self.entries += other.entries
        self.copies += other.copies
        self.elsewhere += other.elsewhere

    def undecided(self, entries: int) -> None:
        """Record the number of entries whose readability depends on transactions with unknown outcomes."""
        if entries:
            self.not_checked |= {f"whether {entries} entries are readable": MARKERS_ELSEWHERE}

    @property
    def checked(self) -> dict[str, int]:
        """The counts by noun. Topics are included if any were named, copies if there are any."""
        counts = {"topics": self.topics, "ledgers": self.ledgers, "entries": self.entries}
        counts |= {"copies": self.copies} if self.copies else {}
        return counts if self.topics else {name: count for name, count in counts.items() if name != "topics"}

    @property
    def left_out(self) -> dict[str, str]:
        """The parts that were not checked, with the reasons."""
        if not self.elsewhere:
            return self.not_checked
        return self.not_checked | {f"{self.elsewhere} entries": ELSEWHERE}


@dataclass(frozen=True, slots=True)
class Range:
    """Entries [first, last] of one ledger. If `last` is None, the range ends with the ledger."""

    ledger: Ledger
    first: int = 0
    last: int | None = None
    segment: SegmentNames = field(default_factory=SegmentNames)


def choose(
    names: Sequence[str],
    store: Store | None,
    source: EntrySource,
    report: Report,
    *,
    everything: bool = False,
    ledgers: frozenset[int] = frozenset(),
) -> Iterator[Choice]:
    """Yield a choice for each name: a ledger id, or a name that `named` accepts.

    With `everything`, these are all topics of the store; without names, all ledgers of the source, or only
    those in `ledgers` if given. Missing and corrupt topics are reported. Raises UsageError for topics without
    a store, or names together with `everything`.
    """
    choices = _choices(names, store, source, report, everything=everything)
    return _only(ledgers, choices, report) if ledgers else choices


def _choices(
    names: Sequence[str], store: Store | None, source: EntrySource, report: Report, *, everything: bool
) -> Iterator[Choice]:
    if everything and names:
        raise UsageError("name topics, or give --all, not both")
    if everything and store is None:
        raise UsageError("--all is all topics of a store: give --store URL")
    if not names and not everything:
        ids = source.ledgers()
        if not ids:
            report(NotFoundError("the given sources have no ledger", source=redact(source.url)))
        yield Choice("all ledgers", [Ledger(ledger_id) for ledger_id in ids])
    for name in names:
        if name.isascii() and name.isdigit():
            yield Choice(f"ledger {name}", [Ledger(parse_ledger_id(name))])
        elif store is None:
            raise UsageError(f"{name!r} is a topic: its ledgers are in the store, give --store URL")
        else:
            yield from map(choice_of, named(store, name, report))
    if everything and store is not None:
        yield from map(choice_of, every_topic(store, report))


def choice_of(topic: Topic) -> Choice:
    """Choose all entries of a topic."""
    return Choice(topic.name, topic.ledgers, True, topic.snapshot, topic.scalable_topic)


def _only(wanted: frozenset[int], choices: Iterable[Choice], report: Report) -> Iterator[Choice]:
    """Limit the choices to the `wanted` ledgers, and report ledgers that no choice has."""
    absent, names = set(wanted), []
    for choice in choices:
        names.append(choice.name)
        kept = [ledger for ledger in choice.ledgers if ledger.ledger_id in wanted]
        absent.difference_update(ledger.ledger_id for ledger in kept)
        if kept:
            yield replace(choice, ledgers=kept)
    if absent and names:
        numbers = ", ".join(map(str, sorted(absent)))
        one = f"{names[0]} has no ledger {numbers}"
        report(NotFoundError(one if len(names) == 1 else f"none of {len(names)} topics has ledger {numbers}"))


def ranges(choice: Choice, limits: Limits, source: EntrySource) -> Iterator[Range]:
    """Yield the ranges of a choice that are within the limits, in reading order."""
    first, last = limits.first, limits.last
    if first is not None and first.entry_id < 0:
        first = _from_end(choice.ledgers, -first.entry_id, source)
    if last is not None and last.entry_id < 0:
        last = _from_end(choice.ledgers, -last.entry_id, source)
    for ledger in choice.ledgers:
        start, stop = _clip(ledger.ledger_id, first, last)
        if stop is None or stop >= start:
            yield Range(ledger, start, stop, choice.segment)


def first_entries(parts: Iterable[Range], count: int | None, source: EntrySource) -> Iterator[Range]:
    """Yield the ranges of the first `count` entries, cutting the last range; all ranges if it is None."""
    for part in parts:
        if count is None:
            yield part
            continue
        if count == 0:
            return
        ids = list(islice(source.entry_ids(part.ledger.ledger_id, part.first, part.last), count))
        count -= len(ids)
        yield part if count else replace(part, last=ids[-1])


def _from_end(ledgers: Sequence[Ledger], count: int, source: EntrySource) -> Bound:
    """The position of the entry `count` places from the end, or the first entry if there are fewer."""
    for ledger in reversed(ledgers):
        ids = _last_ids(source, ledger.ledger_id, count)
        if len(ids) >= count:
            return Bound(ids[0], ledger.ledger_id)
        count -= len(ids)
    return Bound(0, ledgers[0].ledger_id if ledgers else 0)


def _last_ids(source: EntrySource, ledger_id: int, count: int) -> Sequence[int]:
    """The ids of the last `count` entries of a ledger, without reading all ids."""
    last, wanted = source.last_entry(ledger_id), count
    while last is not None:
        first = max(0, last - wanted + 1)
        ids = deque(source.entry_ids(ledger_id, first), maxlen=min(count, last + 1))
        if len(ids) == count or first == 0:
            return ids
        wanted *= 4
    return ()


def _clip(ledger_id: int, first: Bound | None, last: Bound | None) -> tuple[int, int | None]:
    """The first and last wanted entry of a ledger; (0, -1) if there are none."""
    start, stop = 0, None
    if first is not None and first.ledger_id in (None, ledger_id):
        start = first.entry_id
    elif first is not None and first.ledger_id is not None and ledger_id < first.ledger_id:
        return 0, -1
    if last is not None and last.ledger_id in (None, ledger_id):
        stop = last.entry_id
    elif last is not None and last.ledger_id is not None and ledger_id > last.ledger_id:
        return 0, -1
    return start, stop

"""Which entries are meant: topics and ledgers by name, and limits upon them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.partitions import named_topics
from pulsar_meta.jobs.topics.topic import Ledger, Report, read_topic
from pulsar_meta.stores.base import Store

Tell = Report


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a range: an entry id in each ledger, or a position in the topic where `ledger_id` is given.

    A negative entry id counts from the end of the topic: -1 is its last entry.
    """

    entry_id: int
    ledger_id: int | None = None

    @classmethod
    def parse(cls, text: str) -> Bound:
        """Read `ENTRY` or `LEDGER:ENTRY`; UsageError for anything else."""
        ledger, separator, entry = text.rpartition(":")
        try:
            bound = cls(int(entry), int(ledger) if separator else None)
        except ValueError:
            bound = cls(-1, -1)
        if bound.ledger_id is not None and (bound.ledger_id < 0 or bound.entry_id < 0):
            raise UsageError(f"{text!r}: expected ENTRY or LEDGER:ENTRY")
        return bound

    def is_behind(self, other: Bound) -> bool:
        """Return whether this bound is after `other`; False where that depends on the topic."""
        if self.ledger_id is not None and other.ledger_id is not None:
            return (self.ledger_id, self.entry_id) > (other.ledger_id, other.entry_id)
        same_kind = self.ledger_id is None and other.ledger_id is None
        same_end = (self.entry_id < 0) == (other.entry_id < 0)
        return same_kind and same_end and self.entry_id > other.entry_id


@dataclass(frozen=True, slots=True)
class Limits:
    """Which entries of what was named: these ledgers only, from, to (both included)."""

    ledgers: frozenset[int] = frozenset()
    first: Bound | None = None
    last: Bound | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The ledgers of one topic in reading order, or of what was named by number."""

    name: str
    ledgers: Sequence[Ledger]


@dataclass(frozen=True, slots=True)
class Range:
    """Entries [first, last] of one ledger; `last` is None for up to the end."""

    ledger: Ledger
    first: int = 0
    last: int | None = None


def choose(
    names: Sequence[str], store: Store | None, source: EntrySource, report: Report
) -> Iterator[Choice]:
    """Yield what each name stands for: a ledger by its number, a topic, all its partitions if it has some.

    Without names everything that the source has. What the store does not know is reported.
    """
    if not names:
        yield Choice("all ledgers", [Ledger(ledger_id) for ledger_id in source.ledgers()])
    for name in names:
        if name.isascii() and name.isdigit():
            yield Choice(f"ledger {name}", [Ledger(int(name))])
            continue
        if store is None:
            raise UsageError(f"{name!r} is a topic: its ledgers are in the store, give --store URL")
        for topic in named_topics(store, TopicName.parse(name)):
            try:
                yield Choice(str(topic), read_topic(store, topic).ledgers)
            except (NotFoundError, DecodeError) as error:
                report(error)


def ranges(choice: Choice, limits: Limits, source: EntrySource) -> Iterator[Range]:
    """Yield the ranges of entries that are left of a choice within its limits, in reading order."""
    kept = [ledger for ledger in choice.ledgers if not limits.ledgers or ledger.ledger_id in limits.ledgers]
    if limits.ledgers and not kept:
        raise NotFoundError(f"{choice.name} has no ledger {', '.join(map(str, sorted(limits.ledgers)))}")
    first, last = limits.first, limits.last
    if first is not None and first.entry_id < 0:
        first = _from_end(kept, -first.entry_id, source)
    if last is not None and last.entry_id < 0:
        last = _from_end(kept, -last.entry_id, source)
    for ledger in kept:
        start, stop = _clip(ledger.ledger_id, first, last)
        if stop is None or stop >= start:
            yield Range(ledger, start, stop)


def first_entries(parts: Iterable[Range], count: int | None, source: EntrySource) -> Iterator[Range]:
    """Yield the ranges that hold the first `count` entries of all, the last one cut; all where it is None."""
    for part in parts:
        if count is None:
            yield part
            continue
        if count == 0:
            return
        held = list(islice(source.entry_ids(part.ledger.ledger_id, part.first, part.last), count))
        count -= len(held)
        yield part if count else replace(part, last=held[-1])


def _from_end(ledgers: Sequence[Ledger], count: int, source: EntrySource) -> Bound:
    """Return the position of the entry `count`th from the end, the first one where there are fewer."""
    for ledger in reversed(ledgers):
        held = list(source.entry_ids(ledger.ledger_id))
        if len(held) >= count:
            return Bound(held[-count], ledger.ledger_id)
        count -= len(held)
    return Bound(0, ledgers[0].ledger_id if ledgers else 0)


def _clip(ledger_id: int, first: Bound | None, last: Bound | None) -> tuple[int, int | None]:
    """Return the first and last entry wanted of a ledger; (0, -1) for none at all."""
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

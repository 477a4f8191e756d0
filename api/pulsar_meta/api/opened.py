"""What a cluster has open, and how it is asked: by the same jobs as the commands."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.frames.row_schema import (
    ENTRY_COLUMNS,
    MESSAGE_COLUMNS,
    arrow_schema,
    checked_names,
    types_of,
)
from pulsar_meta.codecs.times import parse_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.subscriptions import SubscriptionReader
from pulsar_meta.jobs.entries.entry_blocks import read_batches
from pulsar_meta.jobs.entries.entry_choice import Bound, Choice, Coverage, Limits
from pulsar_meta.jobs.entries.filters import parse_filter
from pulsar_meta.jobs.messages.counts import MessageCounts
from pulsar_meta.jobs.messages.reading import MessageOptions
from pulsar_meta.jobs.messages.stream import read_messages
from pulsar_meta.jobs.seek.questions import INDEX, TIME, Question, SeekOptions
from pulsar_meta.jobs.seek.seek import seek
from pulsar_meta.jobs.seek.seeker import SeekAnswer
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    import pyarrow as pa


class Incomplete(UserWarning):
    """Something that belongs to an answer is not in it: what, and why."""


def warn(what: object) -> None:
    """Warn of something that an answer had to leave out."""
    warnings.warn(Incomplete(str(what)), stacklevel=3)


def limits_of(first: tuple[int, int] | None, last: tuple[int, int] | None) -> Limits:
    """Return the bounds of entries: from one to another position, both included."""
    low, high = (None if place is None else Bound(place[1], place[0]) for place in (first, last))
    return Limits(low, high)


def milliseconds(time: int | str | datetime) -> int:
    """Return a time in milliseconds; UsageError for a number that is more likely seconds, and for no time."""
    return parse_time(time.isoformat() if isinstance(time, datetime) else str(time))


def question_of(topic: str, index: int | None, time: int | str | datetime | None) -> Question:
    """Return what is looked for in a topic; UsageError where it is not either an index or a time."""
    if (index is None) == (time is None):
        raise UsageError("seek an index or a time")
    if index is not None:
        return Question(topic, INDEX, index)
    assert time is not None
    return Question(topic, TIME, milliseconds(time))


@dataclass(frozen=True, slots=True)
class Opened:
    """A store and entries, either of which may not have been given."""

    given_store: Store | None
    given_entries: EntrySource | None

    @property
    def store(self) -> Store:
        """The store; UsageError where none was given."""
        if self.given_store is None:
            raise UsageError("no store was opened: Cluster(store=URL)")
        return self.given_store

    @property
    def entries(self) -> EntrySource:
        """The entries; UsageError where none were given."""
        if self.given_entries is None:
            raise UsageError("no entries were opened: Cluster(store, entries=[URL, …])")
        return self.given_entries

    def subscriptions(self) -> SubscriptionReader:
        """Return a reader of subscriptions, with their ledgers where entries were given."""
        return SubscriptionReader.of(self.store, self.given_entries, warn)

    def seek(self, question: Question, options: SeekOptions) -> list[SeekAnswer]:
        """Return the answers to a question: one, or one for each partition or segment of the topic."""
        return list(seek(self.store, self.entries, [question], options, warn))

    def scan(
        self, choices: Sequence[Choice], columns: Sequence[str], limits: Limits, *, verify: bool
    ) -> pa.RecordBatchReader:
        """Return the headers of entries, which are read as they are asked for."""
        import pyarrow as pa

        names, coverage = checked_names(columns, ENTRY_COLUMNS, "entries"), Coverage()
        places = [(choice, limits) for choice in choices]
        batches = read_batches(places, self.entries, self.given_store, names, warn, coverage, verify=verify)
        schema = arrow_schema(types_of(names))
        return pa.RecordBatchReader.from_batches(schema, _then_warned(batches, coverage))

    def messages(
        self,
        choices: Sequence[Choice],
        columns: Sequence[str],
        limits: Limits,
        where: str | None,
        *,
        readable: bool,
    ) -> pa.RecordBatchReader:
        """Return messages, which are read as they are asked for."""
        import pyarrow as pa

        names = checked_names(columns, MESSAGE_COLUMNS, "messages")
        counts, coverage = MessageCounts(), Coverage()
        options = MessageOptions(names, None if where is None else parse_filter(where))
        store = self.store if readable else self.given_store
        places = [(choice, limits) for choice in choices]
        found = read_messages(places, self.entries, store, options, warn, counts, coverage, readable=readable)
        schema = arrow_schema(types_of(names))
        return pa.RecordBatchReader.from_batches(schema, _then_warned(found, coverage, counts))


def _then_warned(
    found: Iterator[pa.RecordBatch], coverage: Coverage, counts: MessageCounts | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield what is found, then warn of what was left out of it."""
    yield from found
    left_out = coverage.left_out if counts is None else coverage.left_out | counts.left_out
    for what, why in left_out.items():
        warn(f"{what}: {why}")
    if counts is not None and counts.missing:
        warn(f"{counts.missing} entries that no source has")

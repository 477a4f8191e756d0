"""Topics: their ledgers, subscriptions, entries and messages, read by the same jobs as the commands."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.frames.row_schema import (
    ENTRY_COLUMNS,
    MESSAGE_COLUMNS,
    arrow_schema,
    checked_names,
    types_of,
)
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.times import parse_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.documents import (
    MessageCounter,
    SubscriptionDetail,
    SubscriptionLine,
    detail_of,
    line_of,
)
from pulsar_meta.jobs.cursors.subscriptions import Limits as CursorLimits
from pulsar_meta.jobs.cursors.subscriptions import SubscriptionReader
from pulsar_meta.jobs.entries.entry_blocks import read_batches
from pulsar_meta.jobs.entries.entry_choice import Bound, Choice, Coverage, Limits, choice_of
from pulsar_meta.jobs.entries.filters import parse_filter
from pulsar_meta.jobs.messages.counts import MessageCounts
from pulsar_meta.jobs.messages.reading import MessageOptions
from pulsar_meta.jobs.messages.stream import read_messages
from pulsar_meta.jobs.seek.questions import INDEX, TIME, Question, SeekOptions
from pulsar_meta.jobs.seek.seek import SeekAnswer, seek
from pulsar_meta.jobs.topics import topic as model
from pulsar_meta.jobs.transactions.pending_acks import pending_acks
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A ledger of a topic, as the topic's record has it.

    `entries`, `size` (bytes) and `closed_at` (ms) are None where nobody wrote them down: of an open ledger.
    `offloaded`: a whole copy is in tiered storage; `bookkeeper_deleted`: it is the only one.
    """

    ledger_id: int
    state: Literal["open", "closed", "unknown"]
    entries: int | None
    size: int | None
    closed_at: int | None
    offloaded: bool
    bookkeeper_deleted: bool
    properties: Mapping[str, str] = field(default_factory=dict)


class Topic:
    """A topic, a partition, or a segment of a scalable topic; of `Cluster.topic` and `Cluster.topics`."""

    def __init__(self, opened: Opened, found: model.Topic) -> None:
        """Not for callers: what it is made of is not public."""
        self._opened, self._found = opened, found

    def __repr__(self) -> str:
        return f"<Topic {self.name}, {len(self.ledgers)} ledgers>"

    @property
    def name(self) -> str:
        """The full name: `persistent://tenant/namespace/name`, of a segment `segment://…`."""
        return self._found.name

    @property
    def scalable_topic(self) -> str | None:
        """The scalable topic of which it is a segment, None where it is none."""
        return self._found.scalable_topic

    @property
    def shadow_of(self) -> str | None:
        """The topic whose ledgers a shadow topic has (PIP-180), None where it is none."""
        return None if self._found.shadow is None else self._found.shadow.source

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the topic's record."""
        return dict(self._found.properties)

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """The ledgers in reading order."""
        return tuple(_ledger(one) for one in self._found.ledgers)

    def cursors(self) -> list[SubscriptionLine]:
        """Return the subscriptions, each as a line of `pulsar-meta show-cursor TOPIC -o json`.

        Where entries were opened they say where a subscription in use stands, and how many messages it has
        left. A broken record is an `Incomplete` warning. UnreachableError.
        """
        messages = self._message_counter()
        return [line_of(one, messages) for one in self._opened.subscriptions().all(self._found)]

    def cursor(self, name: str) -> SubscriptionDetail:
        """Return everything about a subscription, as `pulsar-meta show-cursor TOPIC CURSOR -o json` does.

        NotFoundError, DecodeError where its record is broken, UnreachableError.
        """
        opened = self._opened
        found = opened.subscriptions().one(self._found, name)
        pending = pending_acks(opened.store, opened.given_entries, TopicName.parse(self.name), name)
        return detail_of(found, self._message_counter(), CursorLimits.of(None), pending)

    def seek(
        self,
        *,
        index: int | None = None,
        time: int | str | datetime | None = None,
        clock: Literal["auto", "broker", "publish"] = "auto",
        readable: bool = False,
    ) -> SeekAnswer:
        """Return where an index is, or the first entry that is not before a time, as `pulsar-meta seek` does.

        A time is in milliseconds, ISO 8601 (UTC without a zone) or a datetime; `clock` says whose. With
        `readable` only what readers of transactions are given. That there is none is an answer, too: see its
        `status`. UsageError where not one of the two is asked for, or a number is more likely seconds;
        UnreachableError.
        """
        question = question_of(self.name, index, time)
        return self._opened.seek(question, SeekOptions(clock=clock, readable=readable))[0]

    def entries(
        self,
        columns: Sequence[str] = (),
        *,
        first: tuple[int, int] | None = None,
        last: tuple[int, int] | None = None,
        verify: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the headers of the topic's entries, as `Cluster.entries` does."""
        limits = limits_of(first, last)
        return self._opened.scan([self._choice()], columns, limits, verify=verify)

    def messages(
        self,
        columns: Sequence[str] = (),
        *,
        first: tuple[int, int] | None = None,
        last: tuple[int, int] | None = None,
        where: str | None = None,
        readable: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the topic's messages, as `Cluster.messages` does."""
        limits = limits_of(first, last)
        return self._opened.messages([self._choice()], columns, limits, where, readable=readable)

    def _message_counter(self) -> MessageCounter | None:
        source = self._opened.given_entries
        return None if source is None else MessageCounter(source)

    def _choice(self) -> Choice:
        return choice_of(self._found)


def _ledger(ledger: model.Ledger) -> Ledger:
    offload = ledger.offload
    return Ledger(
        ledger_id=ledger.ledger_id,
        state=ledger.state,
        entries=ledger.entries,
        size=ledger.size,
        closed_at=ledger.closed_at,
        offloaded=offload is not None and offload.complete,
        bookkeeper_deleted=offload is not None and offload.bookkeeper_deleted,
        properties=dict(ledger.properties),
    )

"""Topics: their ledgers, subscriptions, entries and messages, read by the same jobs as the commands use."""

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
from pulsar_meta.jobs.cursors.subscriptions import BacklogAges, SubscriptionReader
from pulsar_meta.jobs.cursors.subscriptions import Limits as CursorLimits
from pulsar_meta.jobs.entries.entry_blocks import read_batches
from pulsar_meta.jobs.entries.entry_choice import Bound, Choice, Coverage, Limits, choice_of
from pulsar_meta.jobs.entries.filters import parse_filter
from pulsar_meta.jobs.messages.reading import MessageCounts, MessageOptions
from pulsar_meta.jobs.messages.stream import read_messages
from pulsar_meta.jobs.seek.questions import INDEX, TIME, Question, SeekOptions
from pulsar_meta.jobs.seek.seek import SeekAnswer, seek
from pulsar_meta.jobs.topics import topic as model
from pulsar_meta.jobs.transactions.pending_acks import pending_acks
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    import pyarrow as pa


class Incomplete(UserWarning):
    """A part of a result is missing; the text names the part and the reason."""


def warn(missing: object) -> None:
    """Issue an Incomplete warning about a missing part of a result."""
    warnings.warn(Incomplete(str(missing)), stacklevel=3)


def limits_of(first: tuple[int, int] | None, last: tuple[int, int] | None) -> Limits:
    """Convert two positions (ledger, entry), both included, to limits of reading."""
    low, high = (None if place is None else Bound(place[1], place[0]) for place in (first, last))
    return Limits(low, high)


def milliseconds(time: int | str | datetime) -> int:
    """Convert a time to milliseconds. Raises UsageError if it is no time or looks like seconds."""
    return parse_time(time.isoformat() if isinstance(time, datetime) else str(time))


def question_of(topic: str, index: int | None, time: int | str | datetime | None) -> Question:
    """Make a question about a topic. Raises UsageError unless exactly one of `index` and `time` is given."""
    if (index is None) == (time is None):
        raise UsageError("seek needs exactly one of index and time")
    if index is not None:
        return Question(topic, INDEX, index)
    assert time is not None
    return Question(topic, TIME, milliseconds(time))


@dataclass(frozen=True, slots=True)
class Opened:
    """The store and the entries of a cluster, either of which may be missing."""

    given_store: Store | None
    given_entries: EntrySource | None

    @property
    def store(self) -> Store:
        """The store. Raises UsageError if none was opened."""
        if self.given_store is None:
            raise UsageError("this needs a store, but none was opened: use Cluster(store=URL)")
        return self.given_store

    @property
    def entries(self) -> EntrySource:
        """The source of entries. Raises UsageError if none was opened."""
        if self.given_entries is None:
            raise UsageError("this needs entries, but none were opened: use Cluster(store, entries=[URL, …])")
        return self.given_entries

    def subscriptions(self) -> SubscriptionReader:
        """Return a reader of subscriptions, which reads their cursor ledgers if entries were opened."""
        return SubscriptionReader.of(self.store, self.given_entries, warn)

    def seek(self, question: Question, options: SeekOptions) -> list[SeekAnswer]:
        """Return an answer for each partition or segment of the question's topic."""
        return list(seek(self.store, self.entries, [question], options, warn))

    def scan(
        self, choices: Sequence[Choice], columns: Sequence[str], limits: Limits, *, verify: bool
    ) -> pa.RecordBatchReader:
        """Return a lazy reader of the headers of entries."""
        import pyarrow as pa

        names, coverage = checked_names(columns, ENTRY_COLUMNS, "entries"), Coverage()
        places = [(choice, limits) for choice in choices]
        batches = read_batches(places, self.entries, self.given_store, names, warn, coverage, verify=verify)
        schema = arrow_schema(types_of(names))
        return pa.RecordBatchReader.from_batches(schema, _with_warnings(batches, coverage))

    def messages(
        self,
        choices: Sequence[Choice],
        columns: Sequence[str],
        limits: Limits,
        where: str | None,
        *,
        readable: bool,
    ) -> pa.RecordBatchReader:
        """Return a lazy reader of messages."""
        import pyarrow as pa

        names = checked_names(columns, MESSAGE_COLUMNS, "messages")
        counts, coverage = MessageCounts(), Coverage()
        options = MessageOptions(names, None if where is None else parse_filter(where))
        store = self.store if readable else self.given_store
        places = [(choice, limits) for choice in choices]
        batches = read_messages(
            places, self.entries, store, options, warn, counts, coverage, readable=readable
        )
        schema = arrow_schema(types_of(names))
        return pa.RecordBatchReader.from_batches(schema, _with_warnings(batches, coverage, counts))


def _with_warnings(
    batches: Iterator[pa.RecordBatch], coverage: Coverage, counts: MessageCounts | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, then warn about everything that was left out."""
    yield from batches
    left_out = coverage.left_out if counts is None else coverage.left_out | counts.left_out
    for part, reason in left_out.items():
        warn(f"{part}: {reason}")
    if counts is not None and counts.missing:
        warn(f"no source has {counts.missing} of the entries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A ledger of a topic, as the topic's record describes it.

    `entries`, `size` (bytes) and `closed_at` (ms) are None if the record lacks them.
    `offloaded` is True if tiered storage has a complete copy, `bookkeeper_deleted` if that is the only copy.
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
    """A topic, a partition, or a segment of a scalable topic; from `Cluster.topic` or `Cluster.topics`."""

    def __init__(self, opened: Opened, topic: model.Topic) -> None:
        """Not for callers: the argument types are not public."""
        self._opened, self._topic = opened, topic

    def __repr__(self) -> str:
        return f"<Topic {self.name}, {len(self.ledgers)} ledgers>"

    @property
    def name(self) -> str:
        """The full name: `persistent://tenant/namespace/name`, or `segment://…` for a segment."""
        return self._topic.name

    @property
    def scalable_topic(self) -> str | None:
        """The scalable topic that this segment belongs to, or None if it is not a segment."""
        return self._topic.scalable_topic

    @property
    def shadow_of(self) -> str | None:
        """The topic whose ledgers this shadow topic shares (PIP-180), or None if it is not a shadow topic."""
        return None if self._topic.shadow is None else self._topic.shadow.source

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the topic's record."""
        return dict(self._topic.properties)

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """The ledgers in reading order."""
        return tuple(map(_ledger, self._topic.ledgers))

    def cursors(self) -> list[SubscriptionLine]:
        """Return the subscriptions as documents of `pulsar-meta show-cursor TOPIC -o json`.

        If entries were opened, the cursor ledgers give the positions of subscriptions in use and their
        backlogs in messages. A corrupt record causes an `Incomplete` warning. Raises UnreachableError.
        """
        messages, ages = self._message_counter(), BacklogAges.today(self._opened.given_entries)
        return [line_of(cursor, messages, ages) for cursor in self._opened.subscriptions().all(self._topic)]

    def cursor(self, name: str) -> SubscriptionDetail:
        """Return the document of `pulsar-meta show-cursor TOPIC CURSOR -o json` about a subscription.

        Raises NotFoundError, DecodeError if its record is corrupt, and UnreachableError.
        """
        opened = self._opened
        subscription = opened.subscriptions().one(self._topic, name)
        pending = pending_acks(opened.store, opened.given_entries, TopicName.parse(self.name), name)
        ages = BacklogAges.today(opened.given_entries)
        return detail_of(subscription, self._message_counter(), ages, CursorLimits.of(None), pending)

    def seek(
        self,
        *,
        index: int | None = None,
        time: int | str | datetime | None = None,
        clock: Literal["auto", "broker", "publish"] = "auto",
        readable: bool = False,
    ) -> SeekAnswer:
        """Find an index, or the first entry at or after a time, as `pulsar-meta seek` does.

        A time is in milliseconds, ISO 8601 (UTC if it has no zone) or a datetime; `clock` selects the
        broker's time or the producer's. If `readable` is set, only entries that consumers with transactions
        receive count. If there is no such entry, the answer's `status` has the reason.

        Raises UsageError unless exactly one of `index` and `time` is given, or if a number looks like
        seconds, and UnreachableError.
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
        """Read the headers of the topic's entries, as `Cluster.entries` does."""
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
        """Read the topic's messages, as `Cluster.messages` does."""
        limits = limits_of(first, last)
        return self._opened.messages([self._choice()], columns, limits, where, readable=readable)

    def _message_counter(self) -> MessageCounter | None:
        source = self._opened.given_entries
        return None if source is None else MessageCounter(source)

    def _choice(self) -> Choice:
        return choice_of(self._topic)


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

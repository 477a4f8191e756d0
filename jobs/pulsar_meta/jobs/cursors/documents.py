"""Describe subscriptions: a line in a list, all details, the history, and the backlog in messages (PIP-70).

Indexes count as brokers count: a batch in a transaction, a chunk and a marker are one message each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.acks import AckForm, ack_form, acks_of, unacked_indexes
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.metadata.managed_meaning import (
    CursorMeaning,
    PositionMeaning,
    cursor_meaning,
    position_meaning,
)
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.subscriptions import BacklogAge, BacklogAges, Limits, Subscription, UsedLimit
from pulsar_meta.jobs.seek.readings import read_one
from pulsar_meta.jobs.topics.backlog import Run
from pulsar_meta.jobs.topics.cursors import Believed, states_of
from pulsar_meta.jobs.topics.placement import NO_END
from pulsar_meta.jobs.topics.topic import Metadata
from pulsar_meta.jobs.transactions.pending_acks import PendingAckDocument, PendingAcks
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo

Indexes = tuple[int, int]


class MessageCounter:
    """Counts messages between entries. Indexes are cached, because subscriptions share the ends of runs."""

    def __init__(self, source: EntrySource) -> None:
        self._source = source
        self._known: dict[tuple[int, int], Indexes | None] = {}

    def backlog(self, subscription: Subscription) -> int | None:
        """Count the messages in a subscription's backlog; None if unknown.

        A partly acknowledged batch counts with its unacknowledged messages if brokers keep that state.
        """
        left = subscription.backlog
        if left is None or left.open_ledger is not None:
            return None
        counts = [self._messages(run) for run in left.runs]
        if None in counts:
            return None
        acked = list(self._acked_in_batches(subscription, left.runs))
        return None if None in acked else sum(filter(None, counts)) - sum(filter(None, acked))

    def _messages(self, run: Run) -> int | None:
        first, last = self._indexes(run.ledger_id, run.first), self._indexes(run.ledger_id, run.last)
        return None if first is None or last is None else last[1] - first[0] + 1

    def _acked_in_batches(self, subscription: Subscription, runs: Sequence[Run]) -> Iterator[int | None]:
        """Yield the number of acknowledged messages of each partly acknowledged batch."""
        state = subscription.cursor_state.state
        if subscription.recovery.believed != "ledger" or not isinstance(state, PositionInfo):
            return
        for batch in state.batchedEntryDeletionIndexInfo:
            ledger_id, entry_id = batch.position.ledgerId, batch.position.entryId
            at = bisect_right(runs, (ledger_id, entry_id, NO_END)) - 1
            if at < 0 or runs[at].ledger_id != ledger_id or entry_id > runs[at].last:
                continue
            indexes = self._indexes(ledger_id, entry_id)
            unacked = sum(last - first + 1 for first, last in unacked_indexes(batch))
            yield None if indexes is None else max(0, indexes[1] - indexes[0] + 1 - unacked)

    def _indexes(self, ledger_id: int, entry_id: int) -> Indexes | None:
        """The indexes of an entry's first and last message; None if it has no index."""
        place = ledger_id, entry_id
        if place not in self._known:
            reading = read_one(self._source, ledger_id, entry_id)
            first, last = reading.first_index, reading.last_index
            self._known[place] = None if first is None or last is None else (first, last)
        return self._known[place]


class SubscriptionLine(TypedDict):
    """A subscription in a list, as a broker that loads the topic would have it; null means unknown."""

    topic: str
    scalable_topic: NotRequired[str]
    cursor: str
    position: str | None
    state: Believed
    state_ledger: int | None
    state_entry: int | None
    backlog: int | None
    backlog_at_least: int | None
    backlog_messages: int | None
    acked_ranges: int | None
    acked_entries: int | None
    partial_batches: int | None
    backlog_age: BacklogAge | None
    last_active: int | None
    why: str


class CursorRecord(CursorMeaning):
    """The record of a subscription in the store."""

    path: str
    version: int
    size: int
    codec: str | None


class LastState(PositionMeaning):
    """The last entry of a cursor's ledger. `position` is the position of the entry."""

    position: str
    form: AckForm


class CursorLedger(TypedDict):
    """BookKeeper's metadata of a cursor's ledger."""

    ledger_id: int
    metadata: Metadata
    state: str | None
    last_entry: int | None


class InLedger(TypedDict, total=False):
    """The contents of the cursor's ledger, if there is one."""

    ledger_state: LastState
    cursor_ledger: CursorLedger
    note: str


class SubscriptionDetail(SubscriptionLine, InLedger):
    """All details of a subscription: the line, its record, the last entry of its ledger, its limits."""

    record: CursorRecord
    pending_acks: list[PendingAckDocument]
    pending_acks_unknown: NotRequired[str]
    limits: list[UsedLimit]


class SubscriptionState(TypedDict):
    """One entry of a cursor's ledger, for `show-cursor --history`."""

    topic: str
    cursor: str
    ledger_id: int
    entry_id: int
    position: str
    form: AckForm
    acked_ranges: int
    acked_entries: int
    partial_batches: int
    properties: dict[str, int]


def line_of(
    subscription: Subscription, messages: MessageCounter | None, ages: BacklogAges
) -> SubscriptionLine:
    """Describe a subscription in a list; null means unknown."""
    left, cursor_state = subscription.backlog, subscription.cursor_state
    exact = left is not None and left.open_ledger is None
    position, state = subscription.recovery.mark_delete, cursor_state.state
    return {
        **subscription.topic.names,
        "cursor": subscription.name,
        "position": None if position is None else "{}:{}".format(*position),
        "state": subscription.recovery.believed,
        "state_ledger": cursor_state.ledger_id,
        "state_entry": cursor_state.entry_id,
        "backlog": left.entries if left is not None and exact else None,
        "backlog_at_least": None if left is None else left.entries,
        "backlog_messages": None if messages is None else messages.backlog(subscription),
        "acked_ranges": None if left is None else len(left.acked),
        "acked_entries": None if left is None else left.acked_entries,
        "partial_batches": None if state is None else len(state.batchedEntryDeletionIndexInfo),
        "backlog_age": ages.of(subscription),
        "last_active": subscription.record.lastActive or None,
        "why": subscription.recovery.why,
    }


def left_by_ledger(subscription: Subscription) -> dict[int, tuple[int, int]]:
    """Return the unacknowledged entries and all entries of each ledger that has entries."""
    left: Counter[int] = Counter()
    for run in subscription.backlog.runs if subscription.backlog is not None else ():
        left[run.ledger_id] += run.last - run.first + 1
    entries = {
        ledger.ledger_id: ledger.entries or left[ledger.ledger_id] for ledger in subscription.topic.ledgers
    }
    return {ledger_id: (left[ledger_id], count) for ledger_id, count in entries.items() if count}


def detail_of(
    subscription: Subscription,
    messages: MessageCounter | None,
    ages: BacklogAges,
    limits: Limits,
    pending: PendingAcks,
) -> SubscriptionDetail:
    """Describe all details of a subscription: the line, its record, the last entry of its ledger, the limits.

    `pending` are its acknowledgments in transactions that have not ended.
    """
    stored = subscription.stored
    envelope = open_envelope(stored.value)
    document: SubscriptionDetail = {
        **line_of(subscription, messages, ages),
        "record": {
            "path": stored.path,
            "version": stored.version,
            "size": len(stored.value),
            "codec": None if envelope is None else envelope.codec,
            **cursor_meaning(subscription.cursor_state.record),
        },
        **_in_ledger(subscription),
        "pending_acks": [ack.document() for ack in pending.acks],
        "limits": limits.of_subscription(subscription),
    }
    if pending.unknown is not None:
        document["pending_acks_unknown"] = pending.unknown
    return document


def _in_ledger(subscription: Subscription) -> InLedger:
    cursor_state, document = subscription.cursor_state, InLedger()
    if isinstance(cursor_state.state, PositionInfo):
        document["ledger_state"] = {
            "position": f"{cursor_state.ledger_id}:{cursor_state.entry_id}",
            "form": ack_form(cursor_state.state),
            **position_meaning(cursor_state.state),
        }
    if subscription.ledger is not None:
        bookkeeper = subscription.ledger.bookkeeper
        document["cursor_ledger"] = {
            "ledger_id": subscription.ledger.ledger_id,
            "metadata": subscription.ledger.metadata,
            "state": None if bookkeeper is None else bookkeeper.state,
            "last_entry": None if bookkeeper is None else bookkeeper.last_entry,
        }
    if cursor_state.record.batchedEntryDeletionIndexInfo and subscription.recovery.believed == "record":
        why = "no release reads partly acknowledged batches from a record"
        document["note"] = f"{why}, so they are redelivered completely"
    return document


def history_of(subscription: Subscription, source: EntrySource) -> Iterator[SubscriptionState | DecodeError]:
    """Yield the states in the cursor's ledger, the oldest first, or the error for each unreadable entry.

    There are none if the state is in the record, because brokers delete the ledger when they move the state
    there.
    """
    if subscription.ledger is None:
        return
    ledger_id = subscription.ledger.ledger_id
    for entry_id, state in states_of(source, ledger_id):
        if isinstance(state, DecodeError):
            yield state.within(what=f"entry {ledger_id}:{entry_id}")
            continue
        acks = acks_of(state)
        yield {
            "topic": subscription.topic.name,
            "cursor": subscription.name,
            "ledger_id": ledger_id,
            "entry_id": entry_id,
            "position": f"{state.ledgerId}:{state.entryId}",
            "form": ack_form(state),
            "acked_ranges": acks.range_count,
            "acked_entries": acks.entry_count,
            "partial_batches": len(state.batchedEntryDeletionIndexInfo),
            "properties": {item.name: item.value for item in state.properties},
        }

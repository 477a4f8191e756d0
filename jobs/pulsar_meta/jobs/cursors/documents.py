"""Subscriptions as documents: one line each, one with everything, and the history of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.acks import AckForm, ack_form, acks_of
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.metadata.managed_meaning import (
    CursorMeaning,
    PositionMeaning,
    cursor_meaning,
    position_meaning,
)
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.limits import Limits, UsedLimit
from pulsar_meta.jobs.cursors.messages import MessageCounter
from pulsar_meta.jobs.cursors.subscriptions import Subscription
from pulsar_meta.jobs.topics.cursors import states_of
from pulsar_meta.jobs.topics.recovery import Believed
from pulsar_meta.jobs.topics.topic import Metadata
from pulsar_meta.jobs.transactions.pending_acks import PendingAckDocument, PendingAcks
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo


class SubscriptionLine(TypedDict):
    """A subscription in a list, as a broker that loads the topic would have it; null is what is not known."""

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
    last_active: int | None
    why: str


class CursorRecord(CursorMeaning):
    """The record of a subscription in the store."""

    path: str
    version: int
    size: int
    codec: str | None


class LastState(PositionMeaning):
    """The last entry of a cursor's ledger; `position` is that of the entry."""

    position: str
    form: AckForm


class CursorLedger(TypedDict):
    """What BookKeeper knows of a cursor's ledger."""

    ledger_id: int
    metadata: Metadata
    state: str | None
    last_entry: int | None


class InLedger(TypedDict, total=False):
    """What lies in the cursor's ledger, where it has one."""

    ledger_state: LastState
    cursor_ledger: CursorLedger
    note: str


class SubscriptionDetail(SubscriptionLine, InLedger):
    """Everything about a subscription: the line, its record beside its ledger's last entry, its limits."""

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


def line_of(subscription: Subscription, messages: MessageCounter | None) -> SubscriptionLine:
    """Return what is shown of a subscription in a list; null is what is not known."""
    left, found = subscription.backlog, subscription.found
    exact = left is not None and left.open_ledger is None
    position = subscription.recovery.mark_delete
    return {
        **subscription.topic.names,
        "cursor": subscription.name,
        "position": None if position is None else "{}:{}".format(*position),
        "state": subscription.recovery.believed,
        "state_ledger": found.ledger_id,
        "state_entry": found.entry_id,
        "backlog": left.entries if left is not None and exact else None,
        "backlog_at_least": None if left is None else left.entries,
        "backlog_messages": None if messages is None else messages.backlog(subscription),
        "acked_ranges": None if left is None else len(left.acked),
        "acked_entries": None if left is None else left.acked_entries,
        "partial_batches": None if found.state is None else len(found.state.batchedEntryDeletionIndexInfo),
        "last_active": subscription.record.lastActive or None,
        "why": subscription.recovery.why,
    }


def detail_of(
    subscription: Subscription, messages: MessageCounter | None, limits: Limits, pending: PendingAcks
) -> SubscriptionDetail:
    """Return everything: the line, the record beside the last entry of the cursor's ledger, the limits.

    `pending` is what it has acknowledged in transactions that have not ended.
    """
    stored = subscription.stored
    envelope = open_envelope(stored.value)
    document: SubscriptionDetail = {
        **line_of(subscription, messages),
        "record": {
            "path": stored.path,
            "version": stored.version,
            "size": len(stored.value),
            "codec": None if envelope is None else envelope.codec,
            **cursor_meaning(subscription.found.record),
        },
        **_in_ledger(subscription),
        "pending_acks": [ack.document() for ack in pending.acks],
        "limits": limits.of_subscription(subscription),
    }
    if pending.unknown is not None:
        document["pending_acks_unknown"] = pending.unknown
    return document


def _in_ledger(subscription: Subscription) -> InLedger:
    found, document = subscription.found, InLedger()
    if isinstance(found.state, PositionInfo):
        document["ledger_state"] = {
            "position": f"{found.ledger_id}:{found.entry_id}",
            "form": ack_form(found.state),
            **position_meaning(found.state),
        }
    if subscription.ledger is not None:
        known = subscription.ledger.bookkeeper
        document["cursor_ledger"] = {
            "ledger_id": subscription.ledger.ledger_id,
            "metadata": subscription.ledger.metadata,
            "state": None if known is None else known.state,
            "last_entry": None if known is None else known.last_entry,
        }
    if found.record.batchedEntryDeletionIndexInfo and subscription.recovery.believed == "record":
        document["note"] = "no release reads partly acknowledged batches from a record: they come again whole"
    return document


def history_of(subscription: Subscription, source: EntrySource) -> Iterator[SubscriptionState | DecodeError]:
    """Yield what each entry of the cursor's ledger says, the oldest first, and what says nothing.

    There is none where the state is in the record: the ledger was deleted when it went there.
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

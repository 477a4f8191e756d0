"""Topics: their ledgers, subscriptions, entries and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pulsar_meta.api.opened import Opened, limits_of, question_of
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.cursors.documents import SubscriptionDetail, SubscriptionLine, detail_of, line_of
from pulsar_meta.jobs.cursors.limits import Limits
from pulsar_meta.jobs.cursors.messages import MessageCounter
from pulsar_meta.jobs.entries.entry_choice import Choice, choice_of
from pulsar_meta.jobs.seek.questions import SeekOptions
from pulsar_meta.jobs.seek.seeker import SeekAnswer
from pulsar_meta.jobs.topics import topic as model
from pulsar_meta.jobs.transactions.pending_acks import pending_acks

if TYPE_CHECKING:
    import pyarrow as pa


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
        return detail_of(found, self._message_counter(), Limits.of(None), pending)

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

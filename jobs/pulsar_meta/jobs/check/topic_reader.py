"""Reads a topic completely, as it is at this moment, to confirm or refute a suspicion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger, managed_place
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.context import Context
from pulsar_meta.jobs.check.coordinators import counted_as
from pulsar_meta.jobs.check.ledger_facts import (
    NO_LEDGERS,
    UNREAD,
    FactsOf,
    Ledgers,
    OwnedLedgers,
    owner_hash,
    read_facts,
)
from pulsar_meta.jobs.check.topic_view import TopicView, view_cursor, view_topic
from pulsar_meta.jobs.topics.owners import named_by
from pulsar_meta.jobs.topics.scope import partition_count
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.registry import current_store

# A record, and the name of its cursor, None for the topic's own record.
_Record = tuple[Versioned, str | None]


@dataclass(slots=True)
class TopicReader:
    """Reads complete views of topics from a store."""

    store: Store
    context: Context
    ledgers: Ledgers

    def whole(self, name: TopicName) -> TopicView:
        """Return a topic with all its cursors and ledgers.

        Reads the ledgers' metadata first and the records after it, because a broker updates a record before
        it deletes a ledger, and creates a ledger before it updates the record.
        """
        before = self._records(name)
        listed = any(cursor is None and _has_list(record) for record, cursor in before)
        owned = self.ledgers.owned_by(name, listed)
        ids = set(self._referred_to(before)).union(*(owned or NO_LEDGERS))
        ids |= self._acknowledged_in(before)
        facts = self._current_facts(ids)
        if owned is None:
            owned = _owned_among(ids, name, facts)
        records = self._records(name)
        source = self.context.source
        cursors = [view_cursor(record, cursor, source) for record, cursor in records if cursor is not None]
        own = next((record for record, cursor in records if cursor is None), None)
        partitions = self.partitions(counted_as(name))
        view = view_topic(
            name, own, self.context, lambda ids: facts, lambda listed: owned, cursors, partitions
        )
        return replace(view, whole=True, lists=self.lists)

    def still_owned(self, view: TopicView) -> bool:
        """Return True if BookKeeper still has all of the topic's own ledgers that it had before."""
        facts = self._current_facts(set(view.owned))
        had = [ledger_id for ledger_id in view.owned if view.facts(ledger_id).metadata != "absent"]
        return all(facts(ledger_id).metadata != "absent" for ledger_id in had)

    def lists(self, name: str, ledger_id: int) -> bool:
        """Return True if a topic's record lists a ledger now."""
        with suppress(NotFoundError, DecodeError, UsageError):
            topic = read_topic(self.store, TopicName.parse(name))
            return any(ledger.ledger_id == ledger_id for ledger in topic.ledgers)
        return False

    def has_grown_to(self, view: TopicView, ledger_id: int) -> bool:
        """Return True if the topic's record has listed a ledger up to `ledger_id` since it was read."""
        last = view.ledgers[-1].ledger_id if view.ledgers else -1
        with suppress(NotFoundError, DecodeError, UsageError), current_store(self.store) as store:
            ledgers = read_topic(store, view.name).ledgers
            return last <= ledger_id and any(max(last + 1, ledger_id) <= each.ledger_id for each in ledgers)
        return False

    def partitions(self, name: TopicName) -> int | None:
        """Return the number of partitions of the topic that `name` is a partition of.

        Returns None if it has no record, 0 if the record can't be read.
        """
        base = name.partitioned
        if base is None:
            return None
        with suppress(DecodeError):
            return max(0, partition_count(self.store, base)) or None
        return 0

    def _current_facts(self, ledger_ids: set[int]) -> FactsOf:
        if not self.context.bookkeeper:
            return lambda ledger_id: UNREAD
        facts = read_facts(self.store, ledger_ids)
        return lambda ledger_id: facts.get(ledger_id, UNREAD)

    def _records(self, name: TopicName) -> list[_Record]:
        """Return the records of a topic and its cursors; the cursors are read before the topic."""
        paths = [f"{name.path}/{child}" for child in self.store.children(name.path)]
        records = []
        for record in self.store.read_many([*paths, name.path]):
            place = None if record is None else managed_place(record.path, record.value)
            if record is not None and place is not None and place[0] == name:
                records.append((record, place[1]))
        return records

    def _referred_to(self, records: Iterable[_Record]) -> Iterator[int]:
        for record, _ in records:
            with suppress(DecodeError):
                for owner in named_by(record, self.context.source, lambda path, why: None):
                    yield owner.ledger_id

    def _acknowledged_in(self, records: Iterable[_Record]) -> set[int]:
        """Return the ledgers in which cursors have acknowledged entries."""
        ids = set[int]()
        for record, name in records:
            cursor = None if name is None else view_cursor(record, name, self.context.source)
            if cursor is not None and cursor.state is not None and cursor.state.state is not None:
                ids |= {cursor.state.mark_delete.ledger_id, *acks_of(cursor.state.state).entries}
        return ids


def _has_list(record: Versioned) -> bool:
    """Return True if a topic's record lists ledgers, or can't be read."""
    try:
        return bool(record.value) and bool(decode_managed_ledger(record.value).ledgerInfo)
    except DecodeError:
        return True


def _owned_among(ledger_ids: Iterable[int], name: TopicName, facts: FactsOf) -> OwnedLedgers:
    """Return the ledgers among these whose custom metadata names the topic; others were not looked for."""
    own = owner_hash("data", str(name))
    return OwnedLedgers(sorted(each for each in ledger_ids if facts(each).owner_hash == own))

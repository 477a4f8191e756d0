"""Tell missing entries from those that a running cluster deleted or wrote while a command read them.

A broker updates a topic's record before it deletes trimmed ledgers. If it deletes the topic, it deletes the
schema first, then the ledgers, and the record last. Disks of running bookies are read as they were when they
were opened, so the metadata, which is read later, may count entries that these disks don't have yet.

Sources: apache/pulsar ManagedLedgerImpl (internalTrimLedgers, asyncDelete), PersistentTopic (delete).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import sleep
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.topics.placement import placement
from pulsar_meta.jobs.topics.topic import Ledger, contradictions, read_topic
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import current_store

DELETED: Final = "deleted while it was read"
WRITTEN: Final = "written while it was read"
# Seconds between two looks. A busy broker needs some seconds to delete a topic.
PAUSES: Final = (0.5, 1.0, 2.0, 4.0)
# The longest time that a run waits, in seconds, and the most times that it opens sources again. A damaged
# cluster may have many topics that list lost ledgers.
MOST_SECONDS: Final = 30.0
MOST_OPENINGS: Final = 20


@dataclass(slots=True)
class LiveChanges:
    """Explains missing entries by another look at the store and at the entry sources of `urls`."""

    store: Store | None
    urls: Sequence[str] = ()
    _waited: float = 0.0
    _openings: int = 0
    _deleted: dict[int, bool] = field(default_factory=dict)

    def why_missing(self, ledger: Ledger, first: int, last: int, source: EntrySource) -> str | None:
        """Return DELETED or WRITTEN, or None if some of the entries [first, last] are missing now as well."""
        if self.is_deleted(ledger):
            return DELETED
        return WRITTEN if source.is_stale and self._are_there_now(ledger, first, last) else None

    def without_deleted(self, ledgers: Sequence[Ledger], not_checked: dict[str, str]) -> Sequence[Ledger]:
        """Return a topic's ledgers without those that were deleted since its record was read.

        Adds these to `not_checked`. The ledgers have BookKeeper's metadata.
        """
        suspects = [each for each in ledgers if each.metadata == "absent" and any(contradictions(each))]
        deleted = {each.ledger_id for each in suspects if self.is_deleted(each)}
        not_checked |= {f"ledger {ledger_id}": DELETED for ledger_id in sorted(deleted)}
        return [each for each in ledgers if each.ledger_id not in deleted]

    def is_deleted(self, ledger: Ledger) -> bool:
        """Return True if a ledger was there, and neither BookKeeper nor its topic has it any more."""
        if self.store is None or (ledger.topic is None and ledger.metadata != "known"):
            return False
        if ledger.ledger_id not in self._deleted:
            self._deleted[ledger.ledger_id] = any(self._looks(self.store, ledger))
        return self._deleted[ledger.ledger_id]

    def is_topic_deleted(self, topic: str, ledger_ids: Collection[int]) -> bool:
        """Return True if a topic without its schema has no record now, or none of the ledgers that it had.

        A broker deletes the record some time after the schema, so this looks several times.
        """
        if self.store is None:
            return False
        for now in self._later(self.store):
            if not any(_lists(now, topic, ledger_id) for ledger_id in ledger_ids):
                return True
        return False

    def _later(self, store: Store) -> Iterator[Store]:
        """Yield a store as it is now, and after each pause as long as it can change."""
        for pause in (0.0, *PAUSES):
            if pause:
                if not store.may_be_live or self._waited + pause > MOST_SECONDS:
                    return
                self._waited += pause
                sleep(pause)
            with current_store(store) as now:
                yield now

    def _looks(self, store: Store, ledger: Ledger) -> Iterator[bool]:
        """Yield at each look if the ledger is gone. Ends if it is there, or if nothing can change."""
        for now in self._later(store):
            listed = ledger.topic is not None and _lists(now, ledger.topic, ledger.ledger_id)
            known = now.find(ledger_path(ledger.ledger_id)) is not None
            yield not listed and (ledger.topic is not None or not known)
            if known:
                return

    def _are_there_now(self, ledger: Ledger, first: int, last: int) -> bool:
        """Return True if the sources, opened again, have all the entries that they should have."""
        if self._openings >= MOST_OPENINGS:
            return False
        self._openings += 1
        with (
            suppress(DecodeError, NotFoundError, UnreachableError),
            open_entry_sources(self.urls, self.store) as now,
        ):
            return has_all(now, ledger, first, last)
        return False


def has_all(source: EntrySource, ledger: Ledger, first: int, last: int) -> bool:
    """Return True if a source has all the entries in [first, last] that it should have.

    Running bookies are asked for each entry, because the metadata with the ids may be older than a deletion.
    """
    placed, ledger_id = placement(ledger, source), ledger.ledger_id
    if source.sees_open_ledgers:
        present: Iterator[int] = (entry.entry_id for entry in source.read_many(ledger_id, first, last))
    else:
        present = iter(source.entry_ids(ledger_id, first, last))
    return sum(placed.count(entry_id, entry_id) for entry_id in present) == placed.count(first, last)


def _lists(store: Store, topic: str, ledger_id: int) -> bool:
    """Return True if a topic's record lists a ledger, or can't be read."""
    try:
        ledgers = read_topic(store, TopicName.parse(topic)).ledgers
    except NotFoundError:
        return False
    except (DecodeError, UsageError):
        return True
    return any(ledger.ledger_id == ledger_id for ledger in ledgers)

"""Findings of a snapshot that come from the time at which it was taken.

A snapshot of a running cluster has some topics in the middle of their creation or deletion. A broker that
deletes a topic deletes in this order: the schema's ledgers, the schema's record, the cursors, the topic's
ledgers, the topic's record. Snapshots of ZooKeeper and Oxia are also read over some time: ledgers first, then
topics and cursors, then schemas. So such a snapshot can have the ledgers of a topic that was deleted a moment
later, and records that refer to ledgers that were created after the ledgers were read.

A schema without its ledger stays an error: `snapshot` itself waits a moment and reads such a record again,
and a lost ledger of a schema is common.

Sources: apache/pulsar PersistentTopic (delete), ManagedLedgerImpl (asyncDelete), BookkeeperSchemaStorage
(deleteSchema).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_of_path
from pulsar_meta.jobs.check.cluster import GENERATOR
from pulsar_meta.jobs.check.codes import Finding, code
from pulsar_meta.stores.base import Store


@dataclass
class SnapshotTiming:
    """Explains findings by the time at which the snapshot `store` was taken. Other copies explain nothing."""

    store: Store

    def explains(self, each: Finding) -> str | None:
        """Return what the broker may have been doing, None if that does not explain the finding."""
        if not self._is_snapshot:
            return None
        if self._may_be_deletion(each):
            return "deleting the topic"
        if not code(each.code).one_record and any(map(self._is_newer, _ledgers_of(each))):
            return "creating the ledger"
        return None

    @cached_property
    def _is_snapshot(self) -> bool:
        return "taken" in self.store.origin and "store" in self.store.origin

    def _may_be_deletion(self, each: Finding) -> bool:
        match each.code:
            case "topic-record-lost":
                return not each.evidence.get("cursors")
            case "ledger-without-metadata":
                return each.topic is not None and not self.store.children(TopicName.parse(each.topic).path)
        return False

    def _is_newer(self, ledger_id: int) -> bool:
        """Return True if a ledger was created after the snapshot's ledgers were read."""
        return self._next_ledger is not None and ledger_id >= max(self._next_ledger, self._last_ledger + 1)

    @cached_property
    def _next_ledger(self) -> int | None:
        """The id that the next ledger would have had when the snapshot began."""
        return self.store.next_sequence(GENERATOR)

    @cached_property
    def _last_ledger(self) -> int:
        paths = (record.path for record in self.store.scan(LEDGERS))
        return max((ledger for path in paths if (ledger := ledger_of_path(path)) is not None), default=-1)


def _ledgers_of(each: Finding) -> list[int]:
    """Return the ledger of a finding, and that of the position it is about."""
    position = each.evidence.get("mark_delete") or ()
    return [ledger for ledger in (each.ledger_id, *position[:1]) if isinstance(ledger, int)]

"""`check` on snapshots that were taken while a broker created or deleted a topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.topics.owners import named_by
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.jobs.values.snapshot import take_snapshot
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.damage import healthy_store

TOPIC, WITH_SCHEMA = TopicName.parse("marks"), TopicName.parse("strings")
NEXT = 10_000
Change = Callable[[MemoryStore], None]


class NumberedStore(MemoryStore):
    """A store whose next ledger gets the id NEXT."""

    def next_sequence(self, parent: str) -> int | None:
        return NEXT


@dataclass(frozen=True)
class Torn:
    """What a snapshot has that was taken during a change, and the finding of it."""

    change: Change
    code: str
    severity: Severity = Severity.WARNING


def without_schema_ledger(store: MemoryStore) -> None:
    """Delete the ledger of the schema, with which the deletion of a topic begins."""
    for owner in named_by(store.read(WITH_SCHEMA.schema_path), None, lambda path, why: None):
        del store.values[ledger_path(owner.ledger_id)]


def without_cursors(store: MemoryStore) -> None:
    for name in store.children(TOPIC.path):
        del store.values[f"{TOPIC.path}/{name}"]


def without_first_ledger(store: MemoryStore) -> None:
    del store.values[ledger_path(read_topic(store, TOPIC).ledgers[0].ledger_id)]


def without_cursors_and_first_ledger(store: MemoryStore) -> None:
    """Delete the cursors and a ledger; the topic's other ledgers and its record follow."""
    without_cursors(store)
    without_first_ledger(store)


def without_cursors_and_record(store: MemoryStore) -> None:
    """Delete all but the topic's ledgers, which were read before they were deleted."""
    without_cursors(store)
    del store.values[TOPIC.path]


def with_ledger(ledger_id: int) -> Change:
    """List a full ledger of which there is no metadata, with a number that the generator issued or not."""

    def change(store: MemoryStore) -> None:
        record = store.values[TOPIC.path]
        info = decode_managed_ledger(record.value)
        info.ledgerInfo.add(ledgerId=ledger_id, entries=10, size=1000, timestamp=1_700_000_000_000)
        store.values[TOPIC.path] = record._replace(value=info.SerializeToString())

    return change


@pytest.mark.parametrize(
    "torn",
    [
        # The schema's record is deleted right after its ledgers.
        Torn(without_schema_ledger, "schema-ledger-missing", Severity.ERROR),
        Torn(without_cursors_and_first_ledger, "ledger-without-metadata"),
        # The cursors are deleted before the ledgers.
        Torn(without_first_ledger, "ledger-without-metadata", Severity.ERROR),
        Torn(without_cursors_and_record, "topic-record-lost"),
        Torn(with_ledger(NEXT), "ledger-without-metadata"),
        # It was there when the snapshot began.
        Torn(with_ledger(NEXT - 1), "ledger-without-metadata", Severity.ERROR),
    ],
)
def test_what_a_broker_may_have_been_doing_is_no_error(
    capture: Callable[[str], Path], tmp_path: Path, torn: Torn
) -> None:
    store = NumberedStore()
    store.values = dict(healthy_store(capture("pulsar-4.2.4")).values)
    torn.change(store)
    take_snapshot(store, tmp_path / "all.ndjson", tool="test")

    def severities(store: Store, *names: str) -> list[Severity]:
        run = checkup(store, None, names, CheckOptions())
        return [each.severity for each in run.findings() if each.code == torn.code]

    assert severities(store) == [Severity.ERROR]
    with open_store(f"snapshot:{tmp_path / 'all.ndjson'}") as snapshot:
        assert severities(snapshot) == [torn.severity]
        assert severities(snapshot, str(TOPIC)) in ([torn.severity], [])

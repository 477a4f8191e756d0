"""`check` on snapshots that were taken while a broker created or deleted a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.topics.owners import named_by
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.jobs.values.snapshot import take_snapshot
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.damage import healthy_store

TOPIC, WITH_SCHEMA = TopicName.parse("marks"), TopicName.parse("strings")
NEXT = 10_000
SLEEP = "pulsar_meta.jobs.values.snapshot.sleep"
Change = Callable[[MemoryStore], None]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is deleted while `take_snapshot` waits."""
    monkeypatch.setattr(SLEEP, lambda seconds: None)


class NumberedStore(MemoryStore):
    """A store whose next ledger gets the id `following`."""

    def __init__(self, following: int = NEXT) -> None:
        super().__init__()
        self.following = following

    def next_sequence(self, parent: str) -> int | None:
        return self.following


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


def test_a_schema_that_is_deleted_right_after_its_ledger_is_not_in_the_snapshot(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = NumberedStore()
    store.values = dict(healthy_store(capture("pulsar-4.2.4")).values)
    without_schema_ledger(store)
    monkeypatch.setattr(SLEEP, lambda seconds: store.values.pop(WITH_SCHEMA.schema_path, None))
    taken = take_snapshot(store, tmp_path / "all.ndjson", tool="test")
    assert taken.changed == 1
    with open_store(f"snapshot:{tmp_path / 'all.ndjson'}") as snapshot:
        assert {record.path for record in snapshot.scan()} == set(store.values)


def test_a_schema_that_is_deleted_between_two_looks_is_not_in_the_snapshot(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    class Deleting(NumberedStore):
        """Loses a schema's ledger after the first look, and its record after the second."""

        looks = 0

        def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
            self.looks += 1
            if self.looks == 2:
                without_schema_ledger(self)
            if self.looks == 3:
                del self.values[WITH_SCHEMA.schema_path]
            return super().scan(prefix, after=after)

    store = Deleting()
    store.values = dict(healthy_store(capture("pulsar-4.2.4")).values)
    take_snapshot(store, tmp_path / "all.ndjson", tool="test")
    assert store.looks == 3
    with open_store(f"snapshot:{tmp_path / 'all.ndjson'}") as snapshot:
        assert {record.path for record in snapshot.scan()} == set(store.values)


Step = Callable[[dict[str, Versioned]], None]


def removed(*paths: str) -> Step:
    def step(values: dict[str, Versioned]) -> None:
        for path in paths:
            del values[path]

    return step


def written(*records: Versioned) -> Step:
    return lambda values: values.update({record.path: record for record in records})


def deletion(store: NumberedStore) -> list[Step]:
    """Return the steps in which a broker deletes TOPIC, which has a schema."""
    ledgers, cursors = ledgers_of(store), [f"{TOPIC.path}/{name}" for name in store.children(TOPIC.path)]
    order = schema_ledgers(store), [TOPIC.schema_path], cursors, ledgers[:1], ledgers[1:], [TOPIC.path]
    return [removed(*paths) for paths in order]


def creation(store: NumberedStore) -> list[Step]:
    """Remove TOPIC; return the steps in which a broker creates it, each ledger before its record."""
    paths = ledgers_of(store), [TOPIC.path], schema_ledgers(store), [TOPIC.schema_path]
    cursors = [f"{TOPIC.path}/{name}" for name in store.children(TOPIC.path)]
    steps = [written(*(store.values.pop(path) for path in group)) for group in (*paths, cursors)]
    store.following = 0
    return steps


def trimming(store: NumberedStore) -> list[Step]:
    """Return the steps in which a broker trims the first ledger of TOPIC, which no subscription needs."""
    without_cursors(store)
    record = store.read(TOPIC.path)
    info = decode_managed_ledger(record.value)
    path = ledger_path(info.ledgerInfo[0].ledgerId)
    del info.ledgerInfo[0]
    return [written(record._replace(value=info.SerializeToString())), removed(path)]


def ledgers_of(store: NumberedStore) -> list[str]:
    return [ledger_path(ledger.ledger_id) for ledger in read_topic(store, TOPIC).ledgers]


def schema_ledgers(store: NumberedStore, name: TopicName = TOPIC) -> list[str]:
    owners = named_by(store.read(name.schema_path), None, lambda path, why: None)
    return [ledger_path(owner.ledger_id) for owner in owners]


def only_topic(store: NumberedStore) -> NumberedStore:
    """Return a store with TOPIC alone, which has the schema of WITH_SCHEMA."""
    kept = [TOPIC.path, *ledgers_of(store), *schema_ledgers(store, WITH_SCHEMA)]
    kept += (f"{TOPIC.path}/{name}" for name in store.children(TOPIC.path))
    small = NumberedStore()
    small.values = {path: store.values[path] for path in kept}
    schema = store.values[WITH_SCHEMA.schema_path]
    small.values[TOPIC.schema_path] = schema._replace(path=TOPIC.schema_path)
    for path in schema_ledgers(small):
        # It names the other topic as its owner.
        decoded = decode_ledger_metadata(small.values[path].value)
        del decoded.metadata.customMetadata[:]
        small.values[path] = small.values[path]._replace(value=encode_ledger_metadata(decoded))
    return small


def torn(store: NumberedStore, steps: list[Step], order: Sequence[str], done: Sequence[int]) -> NumberedStore:
    """Return a copy of which each part in `order` was read after so many steps."""
    copy = NumberedStore(store.following)
    for count, part in zip(done, order, strict=True):
        values = dict(store.values)
        for step in steps[:count]:
            step(values)
        copy.values |= {path: record for path, record in values.items() if path.startswith(part)}
    return copy


# `take_snapshot` waits for the deletion of the record, which these copies don't continue.
KNOWN = ("schema-ledger-missing",)
# Oxia's order depends on the number of slashes.
ORDERS = ("/ledgers", "/managed-ledgers", "/schemas"), ("/ledgers", "/schemas", "/managed-ledgers")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("change", [deletion, creation, trimming])
def test_a_snapshot_that_was_read_during_a_change_has_no_error(
    capture: Callable[[str], Path],
    tmp_path: Path,
    change: Callable[[NumberedStore], list[Step]],
    order: Sequence[str],
) -> None:
    whole = NumberedStore()
    whole.values = dict(healthy_store(capture("pulsar-4.2.4")).values)
    store, alarms = only_topic(whole), list[tuple[tuple[int, ...], Finding]]()
    steps = change(store)
    for done in combinations_with_replacement(range(len(steps) + 1), 3):
        file = tmp_path / f"{done}.ndjson"
        take_snapshot(torn(store, steps, order, done), file, tool="test")
        with open_store(f"snapshot:{file}") as snapshot:
            findings = checkup(snapshot, None, (), CheckOptions()).findings()
            errors = (each for each in findings if each.severity is Severity.ERROR)
            alarms += ((done, each) for each in errors if each.code not in KNOWN)
    assert alarms == []

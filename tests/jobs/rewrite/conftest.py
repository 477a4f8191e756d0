"""Stores to rewrite (a captured cluster in memory, or a few letters), and runs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.jobs.rewrite.apply import Batches, Speed
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, Summary, keep, write
from pulsar_meta.jobs.rewrite.guards import Overrides
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.rewrite.undo import leave_touched, undone
from pulsar_meta.jobs.rewrite.undo_log import UndoLog
from pulsar_meta.stores.base import ABSENT, Store, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.snapshot import SnapshotStore
from tests import rewrite_runs
from tests.rewrite_runs import Run

MakeRun = Callable[..., Run]
Fill = Callable[[str, Store], Store]


@pytest.fixture
def fill(capture: Callable[[str], Path]) -> Fill:
    """A function that copies the metadata of a capture to a store."""

    def put_all(name: str, store: Store) -> Store:
        with SnapshotStore(f"snapshot:{capture(name) / 'metadata.ndjson'}") as snapshot:
            for value in snapshot.scan("/"):
                if not value.ephemeral:
                    store.put(value.path, value.value, ABSENT)
        return store

    return put_all


@pytest.fixture
def captured(fill: Fill) -> MemoryStore:
    """The metadata of a Pulsar 4.2.4 cluster, with three topics that 4.2.4 can't load."""
    store = MemoryStore()
    fill("pulsar-4.2.4", store)
    return store


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    """A function that makes a run on a store. The undo files are closed at the end of the test."""
    made: list[UndoLog] = []

    def make(
        store: Store,
        *,
        name: str = "undo.ndjson",
        overrides: Overrides | None = None,
        readers: Readers | None = None,
        speed: Speed | None = None,
        command: str = "test",
        resume: bool = False,
        strict: bool = False,
    ) -> Run:
        undo = UndoLog(tmp_path / name, command, read_identity(store), resume=resume)
        made.append(undo)
        return rewrite_runs.make_run(store, undo, speed, overrides=overrides, readers=readers, strict=strict)

    yield make
    for undo in made:
        undo.close()


def values_of(store: MemoryStore) -> dict[str, bytes]:
    """Map each path in a store to its value."""
    return {path: record.value for path, record in store.values.items()}


def decide(values: Iterable[Decided]) -> list[Decided]:
    """Collect decisions, so that a run does not read what it wrote."""
    return list(values)


def upper(seen: Versioned) -> Decision:
    new = seen.value.upper()
    return keep(seen, "already") if new == seen.value else write(seen, new)


def letters(count: int = 10) -> MemoryStore:
    store = MemoryStore()
    for number in range(count):
        store.put(f"/v{number:05}", b"old", ABSENT)
    return store


def all_upper(store: MemoryStore) -> list[Decided]:
    return [(seen, upper(seen)) for seen in store.scan("/")]


def undo_all(run: Run, path: Path) -> Summary:
    return run.apply(undone(path, Batches(run.guards.store, 1)), leave_touched)

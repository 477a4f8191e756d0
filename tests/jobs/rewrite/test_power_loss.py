"""A run that a power loss ends at any moment can be undone, and it can be resumed and then undone.

The undo file is on a disk that loses power, and so is a `dir:` store. A server's store keeps what it
confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.jobs.rewrite.apply import Batches, Speed
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, keep, write
from pulsar_meta.jobs.rewrite.run_files import StoreIdentity
from pulsar_meta.jobs.rewrite.undo import leave_touched, undone
from pulsar_meta.jobs.rewrite.undo_log import UndoLog, is_unused
from pulsar_meta.stores.base import ABSENT, Store, Versioned
from pulsar_meta.stores.directory import DirectoryStore
from pulsar_meta.stores.memory import MemoryStore
from tests.power_loss import DiskState, RecordedDisk, write_files
from tests.rewrite_runs import make_run

UNDO = Path("state") / "undo" / "run.ndjson"
STORE = StoreIdentity("one", "zk://zk1:2181", "")
Values = dict[str, bytes]


def decide(seen: Versioned) -> Decision:
    """Replace some values, remove others, and create those that are missing."""
    if seen.path.endswith("gone"):
        return keep(seen, "already") if seen.version == ABSENT else write(seen, None)
    new = b"new value of " + seen.path.encode() * 30
    return keep(seen, "already") if seen.value == new else write(seen, new)


def before(values: int) -> Values:
    return {f"/v/{number}{'gone' * (number % 3 == 2)}": b"old" * number for number in range(1, values + 1)}


def apply(store: Store, undo: Path, paths: list[str]) -> None:
    """Run, or resume if there is an undo file, in groups of two values."""
    with closing(UndoLog(undo, "test", STORE, resume=True)) as log:
        make_run(store, log, Speed(largest=2)).apply(decided(store, paths), decide)


def decided(store: Store, paths: list[str]) -> Iterator[Decided]:
    present = {value.path: value for value in store.scan("/v")}
    for path in [*paths, "/v/made", "/v/made/below"]:
        seen = present.get(path, Versioned(path, b"", ABSENT))
        yield seen, decide(seen)


def undo_run(store: Store, undo: Path, own: Path) -> None:
    """Undo the run of an undo file, if it can have written anything."""
    if undo.exists() and not is_unused(undo):
        with closing(UndoLog(own, "undo", STORE)) as log, Batches(store, 1) as batches:
            make_run(store, log).apply(undone(undo, batches), leave_touched)


def values_in(store: Store) -> Values:
    return {value.path: value.value for value in store.scan("/v")}


class Scene:
    """A run on a store and the disk states that it went through."""

    def __init__(self, root: Path, kind: str, values: int) -> None:
        self.root, self.kind, self.before = root, kind, before(values)
        self.disk = RecordedDisk(root / "disk")
        self.disk.root.mkdir()
        self.memory = MemoryStore()
        store = self.store(self.disk.root)
        for path, value in self.before.items():
            store.put(path, value, ABSENT)
        self.disk.observe = lambda: dict(self.memory.values)
        with self.disk.recording():
            apply(store, self.disk.root / UNDO, [*self.before])
        self.after = values_in(store)
        self.numbers = count()

    def store(self, root: Path) -> Store:
        return self.memory if self.kind == "server" else DirectoryStore(f"dir:{root}/store", read_only=False)

    def check(self, state: DiskState, left: dict[str, bytes | None]) -> None:
        """Undo from what a power loss left; and resume, then undo."""
        for resumed in (False, True):
            place = self.root / f"left-{next(self.numbers)}"
            write_files(place, left)
            self.memory.values = dict(state.noted)
            store = self.store(place)
            if resumed:
                apply(store, place / UNDO, [*self.before])
                assert values_in(store) == self.after, f"resumed after: {state.note}"
            undo_run(store, place / UNDO, place / "undo-of-it")
            assert values_in(store) == self.before, f"undone (resumed: {resumed}) after: {state.note}"


@pytest.fixture(autouse=True)
def _quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Don't wait for the real disk."""
    monkeypatch.setattr("os.fsync", lambda number: None)


def check_every_moment(root: Path, kind: str, values: int, variants: int) -> None:
    scene = Scene(root, kind, values)
    random = Random(values)
    for state in scene.disk.states:
        scene.check(state, state.left())
        scene.check(state, state.left(kept=True))
        for _ in range(variants):
            scene.check(state, state.left(random))


@pytest.mark.parametrize("kind", ["server", "dir"])
def test_a_power_loss_at_any_moment_can_be_undone_or_resumed(tmp_path: Path, kind: str) -> None:
    check_every_moment(tmp_path, kind, values=3, variants=3)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["server", "dir"])
def test_many_power_losses_can_be_undone_or_resumed(tmp_path: Path, kind: str) -> None:
    check_every_moment(tmp_path, kind, values=10, variants=10)

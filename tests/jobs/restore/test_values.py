"""`restore --overwrite` leaves alone what other clients change after its first pass."""

from __future__ import annotations

import pytest

from pulsar_meta.jobs.restore.values import CounterMinimums, UnreadableValues, restore_values
from pulsar_meta.jobs.rewrite.apply import Batches
from pulsar_meta.jobs.rewrite.decision import Decided
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.stores.base import ABSENT, Versioned, current
from pulsar_meta.stores.memory import MemoryStore

NEW = {f"/admin/{name}": b"new" for name in "abcde"}


@pytest.fixture
def target() -> MemoryStore:
    store = MemoryStore()
    for path in ("/admin/a", "/admin/b", "/admin/c"):
        store.put(path, b"old", ABSENT)
    return store


def restoring(*, overwrite: bool) -> Rewrite:
    values = [Versioned(path, value, 0) for path, value in NEW.items()]
    unreadable = UnreadableValues(Readers())
    return restore_values(lambda: values, CounterMinimums(), unreadable, overwrite=overwrite)


def outcome(decided: Decided) -> tuple[str, str | None]:
    return decided[1].action, decided[1].reason


def test_values_that_moved_since_the_first_pass_are_left_and_named(target: MemoryStore) -> None:
    rewrite = restoring(overwrite=True)
    first = list(rewrite.decided(Batches(target, 1)))
    assert [outcome(each) for each in first] == [("rewrite", None)] * 5
    target.put("/admin/b", b"theirs", 0)
    target.delete("/admin/c", 0)
    target.put("/admin/d", b"theirs", ABSENT)
    target.put("/admin/e", b"new", ABSENT)
    second = list(rewrite.decided(Batches(target, 1)))
    moved = ("skip", "moved")
    assert [outcome(each) for each in second] == [("rewrite", None), moved, moved, moved, ("keep", "same")]
    assert [decision.note for _, decision in second[1:4]] == [
        "was written by another client since the run began; left as it is",
        "was removed by another client since the run began; left as it is",
        "was written by another client since the run began; left as it is",
    ]


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_value_that_moves_before_its_write_is_left(target: MemoryStore, overwrite: bool) -> None:
    rewrite = restoring(overwrite=overwrite)
    *_, (_, before) = rewrite.decided(Batches(target, 1))
    target.put("/admin/e", b"theirs", ABSENT)
    again = rewrite.decide(current(target, "/admin/e"), before)
    assert (again.action, again.reason) == ("skip", "moved" if overwrite else "different")

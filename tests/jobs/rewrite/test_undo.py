from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import (
    ConflictError,
)
from pulsar_meta.jobs.rewrite.decision import Change
from pulsar_meta.jobs.rewrite.rules import Recompression, put_rule, remove_rule
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.rewrite.undo_log import UndoLog, undo_line
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.stores.base import ABSENT, current
from pulsar_meta.stores.memory import MemoryStore
from tests.jobs.rewrite.conftest import MakeRun, all_upper, decide, letters, undo_all, upper, values_of

REVERT = Recompression("cursor", "none")


def test_a_run_is_counted_and_can_be_undone(captured: MemoryStore, make_run: MakeRun) -> None:
    before = values_of(captured)
    run = make_run(captured)
    tally = run.apply(decide((v, REVERT(v)) for v in select(captured, Scope(), "cursor")), REVERT)
    assert (tally.seen, tally.rewritten, tally.kept, tally.conflicts) == (83, 37, 46, 0)
    after = values_of(captured)
    changed = {path for path in after if after[path] != before[path]}
    assert len(changed) == 37
    cursors = [
        value
        for path, value in before.items()
        if any(path == v.path for v in select(captured, Scope(), "cursor"))
    ]
    assert tally.bytes_before == sum(map(len, cursors))
    assert tally.bytes_after - tally.bytes_before == sum(map(len, after.values())) - sum(
        map(len, before.values())
    )
    # 4.2.4 can't load three of the old values.
    undoing = undo_all(make_run(captured, name="undo-1"), run.undo.path)
    assert (undoing.rewritten, undoing.skipped_for["unreadable"]) == (34, 3)
    from pulsar_meta.jobs.rewrite.guards import Overrides

    again = undo_all(make_run(captured, name="undo-2", overrides=Overrides(unreadable=True)), run.undo.path)
    assert (again.rewritten, again.kept_for["already"]) == (3, 34)
    assert values_of(captured) == before


def test_a_value_rewritten_since_with_the_same_bytes_is_not_undone(make_run: MakeRun) -> None:
    store = letters(2)
    run = make_run(store)
    run.apply(all_upper(store), upper)
    store.put("/v00001", b"OLD", 1)
    tally = undo_all(make_run(store, name="b"), run.undo.path)
    assert (tally.rewritten, tally.conflicts) == (1, 1)
    assert values_of(store) == {"/v00000": b"old", "/v00001": b"OLD"}


def test_a_recreated_value_with_the_same_version_is_not_overwritten(make_run: MakeRun) -> None:
    store = letters(2)
    run = make_run(store)
    run.apply(all_upper(store), upper)
    store.delete("/v00000", 1)
    store.put("/v00000", b"somebody", ABSENT)
    store.put("/v00000", b"else's", 0)
    assert store.read("/v00000").version == 1
    tally = undo_all(make_run(store, name="b"), run.undo.path)
    assert (tally.rewritten, tally.conflicts) == (1, 1)
    assert store.read("/v00000").value == b"else's"


def test_creations_and_deletions_are_undone_too(make_run: MakeRun) -> None:
    store = letters(2)
    put, remove = put_rule(b"new", ABSENT), remove_rule(0, [])
    run = make_run(store, strict=True)
    run.apply([(s, put(s)) for s in [current(store, "/n")]], put)
    run.apply([(s, remove(s)) for s in [current(store, "/v00000")]], remove)
    assert set(store.values) == {"/n", "/v00001"}
    assert undo_all(make_run(store, name="b"), run.undo.path).rewritten == 2
    assert values_of(store) == {"/v00000": b"old", "/v00001": b"old"}


def test_a_late_write_of_a_killed_run_conflicts(make_run: MakeRun, tmp_path: Path) -> None:
    store = letters(1)
    log = UndoLog(tmp_path / "killed", "test", read_identity(store))
    log.append([undo_line(Change("/v00000", 0, b"old", b"new"))])
    log.close()
    assert undo_all(make_run(store, name="b"), tmp_path / "killed").rewritten == 1
    with pytest.raises(ConflictError):
        store.put("/v00000", b"new", 0)
    assert values_of(store) == {"/v00000": b"old"}


def test_a_change_recorded_by_a_killed_and_a_resumed_run_is_undone_once(
    make_run: MakeRun, tmp_path: Path
) -> None:
    store = letters(3)
    log = UndoLog(tmp_path / "killed", "test", read_identity(store))
    log.append([undo_line(Change(f"/v{number:05}", 0, b"old", b"OLD")) for number in range(3)])
    log.close()
    # Only the last write of the killed run had arrived.
    store.put("/v00002", b"OLD", 0)
    resumed = make_run(store, name="killed", resume=True)
    assert resumed.apply(all_upper(store), upper).rewritten == 2
    tally = undo_all(make_run(store, name="b"), tmp_path / "killed")
    assert (tally.seen, tally.rewritten, tally.conflicts) == (3, 3, 0)
    assert set(values_of(store).values()) == {b"old"}

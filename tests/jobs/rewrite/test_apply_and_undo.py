from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    GuardError,
    NotFoundError,
    UnreachableError,
    UsageError,
)
from pulsar_meta.jobs.rewrite.apply import TRIES, Decided, Run, Speed
from pulsar_meta.jobs.rewrite.batches import Batches, read_ahead
from pulsar_meta.jobs.rewrite.decision import Change, Decision, digest, keep, write
from pulsar_meta.jobs.rewrite.identity import StoreIdentity, read_identity
from pulsar_meta.jobs.rewrite.plan import foreseen, moved, plan_header, plan_line, planned, read_plan
from pulsar_meta.jobs.rewrite.recompress import MinGain, Recompression, remake
from pulsar_meta.jobs.rewrite.resume import resume_command, undo_path
from pulsar_meta.jobs.rewrite.scope import Scope, select
from pulsar_meta.jobs.rewrite.single import current, put_rule, remove_rule
from pulsar_meta.jobs.rewrite.tally import Tally
from pulsar_meta.jobs.rewrite.undo import touched, undone
from pulsar_meta.jobs.rewrite.undo_file import UndoLog, read_header, read_records
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.memory import MemoryStore
from tests.jobs.rewrite.conftest import MakeRun, decide, values_of

STORE = StoreIdentity("id", "dir:/x", "")
REVERT = Recompression("cursor", "none")


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


def undo_all(run: Run, path: Path) -> Tally:
    return run.apply(undone(read_records(path), Batches(run.guards.store, 1)), touched)


def test_a_run_rewrites_counts_and_can_be_undone(captured: MemoryStore, make_run: MakeRun) -> None:
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
    # Three of the old values are what 4.2.4 cannot load.
    undoing = undo_all(make_run(captured, name="undo-1"), run.undo.path)
    assert (undoing.rewritten, undoing.skipped_for["unreadable"]) == (34, 3)
    from pulsar_meta.jobs.rewrite.guards import Overrides

    again = undo_all(make_run(captured, name="undo-2", overrides=Overrides(unreadable=True)), run.undo.path)
    assert (again.rewritten, again.kept_for["already"]) == (3, 34)
    assert values_of(captured) == before


def test_the_undo_record_is_on_disk_before_the_value_is_sent(make_run: MakeRun, tmp_path: Path) -> None:
    class Watching(MemoryStore):
        def put(self, path: str, value: bytes, expected: int) -> int:
            if undo.exists():
                recorded = {record.path: record for record in read_records(undo)}
                assert recorded[path].old == self.read(path).value
                assert recorded[path].new_sha256 == digest(value)
                seen.append(path)
            return super().put(path, value, expected)

    undo, seen = tmp_path / "undo.ndjson", []  # type: ignore[var-annotated]
    store = Watching()
    for number in range(1100):
        store.put(f"/v{number:05}", b"old", ABSENT)
    make_run(store).apply(all_upper(store), upper)
    assert len(seen) == 1100


def test_the_undo_file_is_private_complete_and_never_overwritten(make_run: MakeRun, tmp_path: Path) -> None:
    store = letters()
    run = make_run(store)
    run.apply(all_upper(store), upper)
    run.undo.close()
    path = run.undo.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["store"] == {"instance_id": None, "url": "memory:", "chroot": ""}
    assert lines[-1] == {"end": True}
    records = list(read_records(path))
    assert [record.old for record in records] == [b"old"] * 10
    assert all(record.answered and record.sent == 1 and record.version == 0 for record in records)
    with pytest.raises(UsageError, match="never overwritten"):
        make_run(store)
    with pytest.raises(UsageError, match="is of test, not of other"):
        make_run(store, command="other", resume=True)
    with pytest.raises(GuardError):
        UndoLog(path, "test", STORE, resume=True)


def test_no_file_is_made_where_nothing_is_written(make_run: MakeRun) -> None:
    store = letters()
    run = make_run(store)
    run.apply([(seen, keep(seen, "already")) for seen in store.scan("/")], upper)
    assert not run.undo.written
    assert not run.undo.path.exists()


def test_a_value_that_moved_is_decided_again(make_run: MakeRun) -> None:
    store = letters()
    decided = all_upper(store)
    store.put("/v00003", b"newer", 0)
    store.delete("/v00005", 0)
    run = make_run(store)
    tally = run.apply(decided, lambda seen: keep(seen, "gone") if seen.version == ABSENT else upper(seen))
    assert (tally.rewritten, tally.kept, tally.conflicts) == (9, 1, 0)
    assert store.read("/v00003").value == b"NEWER"
    assert undo_all(make_run(store, name="b"), run.undo.path).rewritten == 9
    assert store.read("/v00003").value == b"newer"
    assert store.read("/v00006").value == b"old"


def test_what_was_written_since_with_the_same_bytes_is_somebody_elses(make_run: MakeRun) -> None:
    store = letters(2)
    run = make_run(store)
    run.apply(all_upper(store), upper)
    store.put("/v00001", b"OLD", 1)
    tally = undo_all(make_run(store, name="b"), run.undo.path)
    assert (tally.rewritten, tally.conflicts) == (1, 1)
    assert values_of(store) == {"/v00000": b"old", "/v00001": b"OLD"}


def test_a_value_that_never_rests_is_left_alone_and_counted(make_run: MakeRun) -> None:
    class Restless(MemoryStore):
        moves = 0

        def put(self, path: str, value: bytes, expected: int) -> int:
            if path == "/v00001" and value.isupper():
                self.moves += 1
                super().put(path, f"old {self.moves}".encode(), self.read(path).version)
            return super().put(path, value, expected)

    store = Restless()
    for number in range(3):
        store.put(f"/v{number:05}", b"old", ABSENT)
    tally = make_run(store).apply(all_upper(store), upper)
    assert (tally.seen, tally.rewritten, tally.conflicts, store.moves) == (3, 2, 1, TRIES)
    assert store.read("/v00001").value == f"old {TRIES}".encode()


def test_a_write_that_arrived_though_its_repetition_failed_is_ours(make_run: MakeRun) -> None:
    class Repeating(MemoryStore):
        def put(self, path: str, value: bytes, expected: int) -> int:
            version = super().put(path, value, expected)
            if value.isupper():
                raise ConflictError("the repetition met the first one")
            return version

    store = Repeating()
    store.put("/v", b"old", ABSENT)
    run = make_run(store)
    assert run.apply(all_upper(store), upper).rewritten == 1
    assert [record.sent for record in read_records(run.undo.path)] == [1]
    plain = MemoryStore()
    plain.values = store.values
    assert undo_all(make_run(plain, name="b"), run.undo.path).rewritten == 1
    assert plain.read("/v").value == b"old"


def test_a_store_that_goes_away_leaves_what_is_needed_to_go_on(make_run: MakeRun, tmp_path: Path) -> None:
    class Dying(MemoryStore):
        left = 1300

        def put(self, path: str, value: bytes, expected: int) -> int:
            self.left -= 1
            if self.left < 0:
                raise UnreachableError("gone")
            return super().put(path, value, expected)

    store = Dying()
    store.values = letters(2000).values
    with pytest.raises(UnreachableError):
        make_run(store).apply(all_upper(store), upper)
    store.left = 10_000
    resumed = make_run(store, resume=True)
    tally = resumed.apply(all_upper(store), upper)
    assert (tally.kept, tally.rewritten) == (1300, 700)
    assert undo_all(make_run(store, name="b"), resumed.undo.path).rewritten == 2000
    assert {held.value for held in store.values.values()} == {b"old"}


def test_a_deleted_and_recreated_value_of_the_same_version_is_not_overwritten(make_run: MakeRun) -> None:
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


def test_a_last_line_cut_short_is_no_record(tmp_path: Path) -> None:
    log = UndoLog(tmp_path / "u", "c", STORE)
    log.append([Change("/a", 0, b"1", b"2")])
    log.answer([1])
    log.close()
    whole = (tmp_path / "u").read_bytes()
    with (tmp_path / "u").open("ab") as file:
        file.write(b'{"path":"/b","version":3,"old_sh')
    assert [record.path for record in read_records(tmp_path / "u")] == ["/a"]
    again = UndoLog(tmp_path / "u", "c", STORE, resume=True)
    again.append([Change("/c", 0, None, b"2")])
    again.close()
    assert (tmp_path / "u").read_bytes().startswith(whole)
    assert [(r.path, r.answered, r.old) for r in read_records(tmp_path / "u")] == [
        ("/a", True, b"1"),
        ("/c", False, None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "no JSON",
        '{"undo": 2, "store": {}}',
        '{"undo": 1}',
        '{"undo": 1, "store": {}}\n{"path": "/a"}\n',
        '{"undo": 1, "store": {}}\n{"path": "/a", "version": 1, "old": "%%", "old_sha256": "x"}\n',
        '{"undo": 1, "store": {}}\n{"path": "/a", "version": 1, "old": "YQ==", "old_sha256": "x"}\n',
        '{"undo": 1, "store": {}}\n{"sent": [1]}\n',
        '{"undo": 1, "store": {}}\n17\n',
        '{"undo": 1, "store": {}}\n{\n',
    ],
)
def test_a_broken_undo_file_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "undo"
    path.write_text(text)
    with pytest.raises(DecodeError):
        read_header(path)
        list(read_records(path))
    with pytest.raises(NotFoundError):
        read_header(tmp_path / "nowhere")


def test_creations_and_deletions_are_undone_too(make_run: MakeRun) -> None:
    store = letters(2)
    put, remove = put_rule(b"new", ABSENT), remove_rule(0, [])
    run = make_run(store, strict=True)
    run.apply([(s, put(s)) for s in [current(store, "/n")]], put)
    run.apply([(s, remove(s)) for s in [current(store, "/v00000")]], remove)
    assert set(store.values) == {"/n", "/v00001"}
    assert undo_all(make_run(store, name="b"), run.undo.path).rewritten == 2
    assert values_of(store) == {"/v00000": b"old", "/v00001": b"old"}


def test_single_values_need_the_version_that_was_read() -> None:
    store = letters(1)
    with pytest.raises(ConflictError, match="version 3 was expected, it is 0"):
        put_rule(b"new", 3)(store.read("/v00000"))
    with pytest.raises(ConflictError, match="exists already"):
        put_rule(b"new", ABSENT)(store.read("/v00000"))
    with pytest.raises(ConflictError, match="there is none"):
        put_rule(b"new", 0)(current(store, "/nothing"))
    assert put_rule(b"old", 0)(store.read("/v00000")).action == "keep"
    with pytest.raises(NotFoundError):
        remove_rule(None, [])(current(store, "/nothing"))
    with pytest.raises(GuardError, match="never recursive"):
        remove_rule(None, ["child"])(store.read("/v00000"))


def write_plan(store: MemoryStore, path: Path, rule: Recompression) -> None:
    lines = [plan_header("compress-cursors", read_identity(store))]
    lines += [plan_line(v, rule(v)) for v in select(store, Scope(), rule.kind)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_plan_is_applied_exactly(captured: MemoryStore, make_run: MakeRun, tmp_path: Path) -> None:
    rule = Recompression("cursor", "zstd", threshold=100, min_gain=MinGain.parse("5%"))
    write_plan(captured, tmp_path / "plan", rule)
    promised = {line["path"]: line for line in read_plan(tmp_path / "plan")[1] if line["action"] == "rewrite"}
    assert promised
    victim, other = sorted(promised)[0], sorted(promised)[-1]
    held = captured.read(victim)
    captured.put(victim, held.value + b"", held.version)
    before = values_of(captured)
    run = make_run(captured)
    decisions = planned(read_plan(tmp_path / "plan")[1], Batches(captured, 1), remake)
    tally = run.apply(decisions, moved)
    # The same bytes under another version are not what was planned.
    assert (tally.rewritten, tally.conflicts) == (len(promised) - 1, 1)
    for path, value in values_of(captured).items():
        if path in promised and path != victim:
            assert digest(value) == promised[path]["new_sha256"]
            assert len(value) == promised[path]["size_after"]
        else:
            assert value == before[path]
    again = make_run(captured, resume=True)
    tally = again.apply(planned(read_plan(tmp_path / "plan")[1], Batches(captured, 1), remake), moved)
    assert (tally.rewritten, tally.kept_for["already"]) == (0, len(promised) - 1)
    assert other in promised


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"plan": 1}',
        '{"plan": 1, "store": {}}\n{}\n',
        '{"plan": 1, "store": {}}\nx\n',
        '{"plan": 1, "store": {}}\n{"action": "rewrite", "path": "/a"}\n',
        '{"plan": 1, "store": {}}\n{"action": "melt", "path": "/a"}\n',
        '{"plan": 1, "store": {}}\n{"action":"rewrite","path":"/a","version":"x","old_sha256":'
        '"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb","new_sha256":"y"}\n',
        '{"plan": 1, "store": {}}\n{"action":"rewrite","path":"/a","version":0,"new":"%","old_sha256":'
        '"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb","new_sha256":"y"}\n',
    ],
)
def test_a_broken_plan_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    store = MemoryStore()
    store.put("/a", b"a", ABSENT)
    (tmp_path / "plan").write_text(text)
    with pytest.raises(DecodeError):
        list(planned(read_plan(tmp_path / "plan")[1], Batches(store, 1), remake))


def test_a_plan_foresees_what_guards_refuse(captured: MemoryStore, make_run: MakeRun) -> None:
    captured.put("/namespace/public/default/0x00000000_0xffffffff", b"{}", ABSENT)
    tally, told = Tally(), []  # type: ignore[var-annotated]
    decisions = [(v, REVERT(v)) for v in select(captured, Scope(), "cursor")]
    lines = list(foreseen(decisions, make_run(captured).guards, tally, told.append))
    assert tally.skipped_for["loaded"] == len(told) == sum(d.reason == "loaded" for _, d in lines) > 30
    assert tally.refused == len(told)


def test_the_rate_is_kept(make_run: MakeRun) -> None:
    import time

    store = letters(60)
    begun = time.monotonic()
    make_run(store, speed=Speed(rate=100)).apply(all_upper(store), upper)
    assert 0.3 < time.monotonic() - begun < 30


def test_a_run_that_is_asked_to_stop_finishes_the_group_and_can_go_on(make_run: MakeRun) -> None:
    store = letters(3000)
    run = make_run(store)

    def decisions() -> Iterator[Decided]:
        for at, one in enumerate(all_upper(store)):
            if at == 1500:
                run.stop.signal = 15
            yield one

    tally = run.apply(decisions(), upper)
    assert tally.rewritten == 1501
    run.undo.close()
    assert not run.undo.path.read_text().endswith('{"end":true}\n')
    resumed = make_run(store, resume=True)
    assert resumed.apply(all_upper(store), upper).rewritten == 1499
    assert undo_all(make_run(store, name="b"), resumed.undo.path).rewritten == 3000
    assert {held.value for held in store.values.values()} == {b"old"}


def test_the_unfinished_run_of_this_store_is_found(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no unfinished"):
        undo_path("c", STORE, named=None, resume=True)
    paths = []
    for finished, identity in ((False, STORE), (True, STORE), (False, StoreIdentity("other", "dir:/y", ""))):
        log = UndoLog(undo_path("c", identity, named=None, resume=False), "c", identity)
        log.append([Change("/a", 0, b"1", b"2")])
        if finished:
            log.finish()
        log.close()
        paths.append(log.path)
    assert len(set(paths)) == 3
    assert undo_path("c", STORE, named=None, resume=True) == paths[0]
    assert os.stat(paths[0].parent).st_mode & 0o077 == 0
    with pytest.raises(UsageError):
        undo_path("d", STORE, named=None, resume=True)


def test_the_command_that_goes_on_holds_no_credential() -> None:
    told = resume_command(["compress-cursors", "--store", "zk://me:secret@h/p q", "--yes"], Path("/u f"))
    assert told == "pulsar-meta compress-cursors --store 'zk://***@h/p q' --yes --undo-file '/u f' --resume"
    assert (
        resume_command(["x", "--undo-file=/a", "--resume"], Path("/a"))
        == "pulsar-meta x --undo-file=/a --resume"
    )


@given(
    st.lists(
        st.tuples(
            st.text(max_size=8), st.integers(-1, 2**63 - 1), st.none() | st.binary(), st.none() | st.binary()
        ),
        max_size=8,
    )
)
def test_what_is_appended_is_read_back(changes: list[tuple[str, int, bytes | None, bytes | None]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        log = UndoLog(Path(name) / "u", "c", STORE)
        log.append([Change(*each) for each in changes])
        log.close()
        read = list(read_records(Path(name) / "u"))
    assert [(r.path, r.version, r.old, r.new_sha256) for r in read] == [
        (path, version, old, digest(new)) for path, version, old, new in changes
    ]


def test_reading_ahead_keeps_the_order_and_ends_with_its_reader() -> None:
    import threading

    assert list(read_ahead(range(5000))) == list(range(5000))
    assert list(read_ahead([])) == []

    def failing() -> Iterator[int]:
        yield from range(100)
        raise UnreachableError("gone")

    seen = []
    with pytest.raises(UnreachableError):
        for number in read_ahead(failing()):
            seen.append(number)
    assert seen == list(range(64))[: len(seen)]
    early = read_ahead(iter(int, 1))
    assert next(early) == 0
    early.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name == "read ahead"]


def test_a_late_write_of_a_killed_run_meets_a_conflict(make_run: MakeRun, tmp_path: Path) -> None:
    store = letters(1)
    log = UndoLog(tmp_path / "killed", "test", read_identity(store))
    log.append([Change("/v00000", 0, b"old", b"new")])
    log.close()
    assert undo_all(make_run(store, name="b"), tmp_path / "killed").rewritten == 1
    with pytest.raises(ConflictError):
        store.put("/v00000", b"new", 0)
    assert values_of(store) == {"/v00000": b"old"}

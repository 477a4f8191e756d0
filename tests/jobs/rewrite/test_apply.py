from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from pulsar_meta.codecs.errors import (
    ConflictError,
    GuardError,
    NotFoundError,
    UnreachableError,
)
from pulsar_meta.jobs.rewrite import apply
from pulsar_meta.jobs.rewrite.apply import GROUP_VALUES, TRIES, Speed
from pulsar_meta.jobs.rewrite.decision import Decided, keep, write
from pulsar_meta.jobs.rewrite.guards import COORDINATOR, owners_path
from pulsar_meta.jobs.rewrite.rules import put_rule, remove_rule
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.rewrite.undo_log import ANSWERED_GROUPS, UndoLog, read_records
from pulsar_meta.jobs.rewrite.worker import read_ahead
from pulsar_meta.stores.base import ABSENT, Versioned, Write, current
from pulsar_meta.stores.memory import MemoryStore
from tests import rewrite_runs
from tests.chaos.actors import cursor
from tests.jobs.rewrite.conftest import MakeRun, all_upper, letters, undo_all, upper


def test_a_changed_value_is_decided_again(make_run: MakeRun) -> None:
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


def test_a_value_that_keeps_changing_is_left_alone_and_counted(make_run: MakeRun) -> None:
    class RestlessStore(MemoryStore):
        moves = 0

        def put(self, path: str, value: bytes, expected: int) -> int:
            if path == "/v00001" and value.isupper():
                self.moves += 1
                super().put(path, f"old {self.moves}".encode(), self.read(path).version)
            return super().put(path, value, expected)

    store = RestlessStore()
    for number in range(3):
        store.put(f"/v{number:05}", b"old", ABSENT)
    tally = make_run(store).apply(all_upper(store), upper)
    assert (tally.seen, tally.rewritten, tally.conflicts, store.moves) == (3, 2, 1, TRIES)
    assert store.read("/v00001").value == f"old {TRIES}".encode()


def test_a_write_whose_retry_conflicts_is_recognised_as_done(make_run: MakeRun) -> None:
    class RetryingStore(MemoryStore):
        def put(self, path: str, value: bytes, expected: int) -> int:
            version = super().put(path, value, expected)
            if value.isupper():
                raise ConflictError("the repetition met the first one")
            return version

    store = RetryingStore()
    store.put("/v", b"old", ABSENT)
    run = make_run(store)
    assert run.apply(all_upper(store), upper).rewritten == 1
    assert [record.sent for record in read_records(run.undo.path)] == [1]
    plain = MemoryStore()
    plain.values = store.values
    assert undo_all(make_run(plain, name="b"), run.undo.path).rewritten == 1
    assert plain.read("/v").value == b"old"


def test_a_run_interrupted_by_the_store_can_be_resumed(make_run: MakeRun, tmp_path: Path) -> None:
    class DyingStore(MemoryStore):
        left = 1300

        def put(self, path: str, value: bytes, expected: int) -> int:
            self.left -= 1
            if self.left < 0:
                raise UnreachableError("gone")
            return super().put(path, value, expected)

    store = DyingStore()
    store.values = letters(2000).values
    dying = make_run(store)
    with pytest.raises(UnreachableError):
        dying.apply(all_upper(store), upper)
    dying.undo.close()
    store.left = 10_000
    resumed = make_run(store, resume=True)
    tally = resumed.apply(all_upper(store), upper)
    assert (tally.kept, tally.rewritten) == (1300, 700)
    assert undo_all(make_run(store, name="b"), resumed.undo.path).rewritten == 2000
    assert {record.value for record in store.values.values()} == {b"old"}


def test_a_change_to_one_value_needs_the_version_that_was_read() -> None:
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


def test_the_rate_is_kept(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    # The run has begun at the real time, which is earlier.
    now, sleeps = time.monotonic() + 1000, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        sleeps.append(seconds)
        now += seconds

    monkeypatch.setattr(apply, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    store = letters(60)
    make_run(store, speed=Speed(rate=100)).apply(all_upper(store), upper)
    # Groups of 25, 25 and 10 values; the run ends without a pause.
    assert sleeps == pytest.approx([0.25, 0.25])


def test_a_stopped_run_finishes_its_group_and_can_be_resumed(make_run: MakeRun) -> None:
    store = letters(3000)
    run = make_run(store)

    def decisions() -> Iterator[Decided]:
        for at, decided in enumerate(all_upper(store)):
            if at == 1500:
                run.stop.signal = 15
            yield decided

    tally = run.apply(decisions(), upper)
    assert tally.rewritten == 1501
    run.undo.close()
    assert not run.undo.path.read_text().endswith('{"end":true}\n')
    resumed = make_run(store, resume=True)
    assert resumed.apply(all_upper(store), upper).rewritten == 1499
    assert undo_all(make_run(store, name="b"), resumed.undo.path).rewritten == 3000
    assert {record.value for record in store.values.values()} == {b"old"}


class WatchedStore(MemoryStore):
    """A store that takes groups and sends each one only when the next one is in the undo file."""

    batches_requests = True

    def __init__(self, undo: Path) -> None:
        super().__init__()
        self.undo = undo
        self.sending, self.sent, self.looked = False, 0, 0

    def children(self, path: str) -> list[str]:
        self.looked += path == COORDINATOR
        return super().children(path)

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        assert not self.sending
        self.sending = True
        if not self.sent:
            self.wait_for_records(2 * GROUP_VALUES)
        made = super().put_many(writes)
        self.sending, self.sent = False, self.sent + 1
        # Each group is checked before it is sent, and the first one also before its undo records are written.
        assert self.looked == self.sent + 1
        return made

    def wait_for_records(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while sum(1 for _ in read_records(self.undo)) < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_next_group_is_recorded_while_one_is_sent(tmp_path: Path) -> None:
    store = WatchedStore(tmp_path / "undo")
    for number in range(10 * GROUP_VALUES):
        MemoryStore.put(store, f"/v{number:05}", b"old", ABSENT)
    log = UndoLog(tmp_path / "undo", "test", read_identity(store))
    tally = rewrite_runs.make_run(store, log).apply(all_upper(store), upper)
    log.close()
    assert (tally.rewritten, store.sent) == (10 * GROUP_VALUES, 10)
    records = list(read_records(tmp_path / "undo"))
    assert [record.path for record in records] == [f"/v{number:05}" for number in range(10 * GROUP_VALUES)]
    assert all(record.answered and record.sent is not None for record in records)
    # A reader keeps the records before an answer in memory.
    answers = [len(json.loads(line)["sent"]) for line in lines_with(tmp_path / "undo", b'{"sent":')]
    assert GROUP_VALUES < max(answers) <= ANSWERED_GROUPS * GROUP_VALUES


class BrieflyLoadedStore(MemoryStore):
    """A broker owns all topics at the second check of the guards, and none after that."""

    looked = 0

    def children(self, path: str) -> list[str]:
        if path != owners_path("t/n"):
            return super().children(path)
        self.looked += 1
        return ["0x00000000_0xffffffff"] if self.looked == 2 else []


def test_nothing_is_created_below_a_topic_that_was_refused_late(tmp_path: Path) -> None:
    """Some stores create missing parents of a value, which would be a topic without ledgers."""
    store = BrieflyLoadedStore()
    topic = "/managed-ledgers/t/n/persistent/topic"
    values = {topic: b"", f"{topic}/cursor": cursor(1, 3)}
    log = UndoLog(tmp_path / "undo", "test", read_identity(store))
    run = rewrite_runs.make_run(store, log)
    seen = {path: Versioned(path, b"", ABSENT) for path in values}
    summary = run.apply([(seen[path], write(seen[path], new)) for path, new in values.items()], upper)
    log.close()
    assert dict(summary.skipped_for) == {"loaded": 1, "parent-refused": 1}
    assert store.values == {}


def lines_with(path: Path, head: bytes) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines() if line.startswith(head)]


def test_creations_and_rewrites_are_never_in_one_group(tmp_path: Path) -> None:
    """They are undone in the order of the file, so values below another one come after it."""
    store = WatchedStore(tmp_path / "undo")
    store.sent, store.looked = 1, 1
    log = UndoLog(tmp_path / "undo", "test", read_identity(store))
    places = [Versioned(f"/v{number:05}", b"", ABSENT) for number in range(3 * GROUP_VALUES)]
    rewrite_runs.make_run(store, log).apply([(seen, write(seen, b"new")) for seen in places], upper)
    log.close()
    answers = [len(json.loads(line)["sent"]) for line in lines_with(tmp_path / "undo", b'{"sent":')]
    assert answers == [GROUP_VALUES] * 3


def test_read_ahead_keeps_the_order_and_ends_with_its_reader() -> None:
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
    assert seen == list(range(100))
    early = read_ahead(iter(int, 1))
    assert next(early) == 0
    early.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "read ahead"]

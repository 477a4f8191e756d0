from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import pytest

from pulsar_meta.codecs.errors import (
    ConflictError,
    GuardError,
    NotFoundError,
    UnreachableError,
)
from pulsar_meta.jobs.rewrite.apply import TRIES, Speed
from pulsar_meta.jobs.rewrite.decision import Decided, keep
from pulsar_meta.jobs.rewrite.guards import COORDINATOR
from pulsar_meta.jobs.rewrite.rules import current, put_rule, remove_rule
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.rewrite.undo_log import UndoLog, read_records
from pulsar_meta.jobs.rewrite.worker import read_ahead
from pulsar_meta.stores.base import ABSENT, Write
from pulsar_meta.stores.memory import MemoryStore
from tests import rewrite_runs
from tests.jobs.rewrite.conftest import MakeRun, all_upper, letters, undo_all, upper


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
    dying = make_run(store)
    with pytest.raises(UnreachableError):
        dying.apply(all_upper(store), upper)
    dying.undo.close()
    store.left = 10_000
    resumed = make_run(store, resume=True)
    tally = resumed.apply(all_upper(store), upper)
    assert (tally.kept, tally.rewritten) == (1300, 700)
    assert undo_all(make_run(store, name="b"), resumed.undo.path).rewritten == 2000
    assert {held.value for held in store.values.values()} == {b"old"}


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


class Watched(MemoryStore):
    """Takes groups, and sends the first of them as soon as the guards have looked at the one behind it."""

    sends_groups = True

    def __init__(self) -> None:
        super().__init__()
        self.sending, self.sent = False, 0
        self.looked, self.behind_looked = 0, Event()

    def children(self, path: str) -> list[str]:
        if path == COORDINATOR:
            self.looked += 1
            # Twice for each group: before its undo records are written, and before it is sent.
            if self.looked == 3:
                self.behind_looked.set()
        return super().children(path)

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        assert not self.sending
        self.sending = True
        assert self.behind_looked.wait(60)
        made = super().put_many(writes)
        self.sending, self.sent = False, self.sent + 1
        return made


def test_the_next_group_is_looked_at_while_one_is_sent_and_never_sent_beside_it(tmp_path: Path) -> None:
    store = Watched()
    for number in range(2000):
        MemoryStore.put(store, f"/v{number:05}", b"old", ABSENT)
    log = UndoLog(tmp_path / "undo", "test", read_identity(store))
    tally = rewrite_runs.make_run(store, log).apply(all_upper(store), upper)
    log.close()
    assert (tally.rewritten, store.sent) == (2000, 8)
    # What a reader of the file relies on: the answer to a group stands right behind its records.
    records = list(read_records(tmp_path / "undo"))
    assert [record.path for record in records] == [f"/v{number:05}" for number in range(2000)]
    assert all(record.answered and record.sent is not None for record in records)


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
    assert seen == list(range(100))
    early = read_ahead(iter(int, 1))
    assert next(early) == 0
    early.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "read ahead"]

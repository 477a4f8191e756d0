"""The contract of every store. Its test classes inherit `StoreContract` and `ServerContract`.

The inheriting class has these fixtures:

- `open_store`: a function `(*, read_only=False, timeout=20) -> Store` that opens the same store each time,
- `root`: a path that no other test uses,
- `server` (only for ServerContract): the real server, which the tests kill and restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

import pytest

from pulsar_meta.codecs.errors import (
    ConflictError,
    GuardError,
    NotFoundError,
    PulsarMetaError,
    UnreachableError,
    UsageError,
)
from pulsar_meta.stores.base import ABSENT, Store
from tests.servers.limits import must_end

MANY = 2_500
NAMES = (
    "plain",
    "we+ird%3An%C3%A4me",
    "odd%2Fname+with+%252F+%26+%C3%BC",
    "star*and.dot-dash_under",
    "näme ohne Kodierung",
    "日本",
    "#pulsar.internal",
)


class Opener(Protocol):
    """Opens the store under test."""

    def __call__(self, *, read_only: bool = False, timeout: float = 20) -> Store: ...


class Killable(Protocol):
    """The real server of a store."""

    def kill(self) -> None: ...

    def restart(self) -> None: ...

    def start(self) -> Any: ...


def put_all(store: Store, paths: list[str], value: Callable[[str], bytes] = str.encode) -> dict[str, int]:
    """Create a value at each path and return the versions."""
    return {path: store.put(path, value(path), ABSENT) for path in paths}


class Fills:
    """Creates values at many paths. A store that is slow at this overrides `fill`."""

    def fill(self, store: Store, paths: list[str]) -> None:
        assert None not in store.put_many([(path, path.encode(), ABSENT) for path in paths])


class StoreContract(Fills):
    """Tests of reading, listing, scanning and compare-and-set."""

    # True if parents are values themselves (ZooKeeper, Oxia), False if their children only imply them.
    real_parents: ClassVar[bool] = False
    # True if a value with children can't be deleted.
    keeps_parents: ClassVar[bool] = False
    # True if the store assigns numbers to sequential nodes.
    counts: ClassVar[bool] = False
    many: ClassVar[int] = MANY

    @pytest.fixture
    def store(self, open_store: Opener) -> Iterator[Store]:
        with open_store() as store:
            yield store

    def test_a_value_is_read_as_it_was_put(self, store: Store, root: str) -> None:
        version = store.put(f"{root}/a", b"\x00\xffvalue", ABSENT)
        record = store.read(f"{root}/a")
        assert (record.path, record.value, record.version) == (f"{root}/a", b"\x00\xffvalue", version)
        assert not record.ephemeral

    def test_times_are_in_milliseconds(self, store: Store, root: str) -> None:
        store.put(f"{root}/a", b"x", ABSENT)
        record = store.read(f"{root}/a")
        for at in (record.created, record.modified):
            assert at is None or abs(at - time.time() * 1000) < 60_000

    def test_a_missing_value_is_not_found(self, store: Store, root: str) -> None:
        with pytest.raises(NotFoundError):
            store.read(f"{root}/nowhere")
        assert store.children(f"{root}/nowhere") == []
        assert list(store.scan(f"{root}/nowhere")) == []

    def test_an_empty_value_is_a_value(self, store: Store, root: str) -> None:
        version = store.put(f"{root}/empty", b"", ABSENT)
        assert store.read(f"{root}/empty").value == b""
        assert store.put(f"{root}/empty", b"x", version) != version
        assert store.read(f"{root}/empty").value == b"x"

    def test_an_update_changes_the_version(self, store: Store, root: str) -> None:
        first = store.put(f"{root}/a", b"1", ABSENT)
        second = store.put(f"{root}/a", b"2", first)
        third = store.put(f"{root}/a", b"3", second)
        assert len({first, second, third}) == 3
        assert store.read(f"{root}/a").version == third
        assert ABSENT not in (first, second, third)

    def test_an_update_of_an_old_version_is_a_conflict(self, store: Store, root: str) -> None:
        first = store.put(f"{root}/a", b"1", ABSENT)
        store.put(f"{root}/a", b"2", first)
        with pytest.raises(ConflictError):
            store.put(f"{root}/a", b"lost", first)
        assert store.read(f"{root}/a").value == b"2"

    def test_creating_an_existing_value_is_a_conflict(self, store: Store, root: str) -> None:
        store.put(f"{root}/a", b"1", ABSENT)
        with pytest.raises(ConflictError):
            store.put(f"{root}/a", b"lost", ABSENT)
        assert store.read(f"{root}/a").value == b"1"

    def test_an_update_of_a_missing_value_is_refused(self, store: Store, root: str) -> None:
        with pytest.raises((ConflictError, NotFoundError)):
            store.put(f"{root}/never", b"x", 7)
        with pytest.raises(NotFoundError):
            store.read(f"{root}/never")

    def test_a_delete_needs_the_current_version(self, store: Store, root: str) -> None:
        first = store.put(f"{root}/a", b"1", ABSENT)
        second = store.put(f"{root}/a", b"2", first)
        with pytest.raises(ConflictError):
            store.delete(f"{root}/a", first)
        assert store.read(f"{root}/a").value == b"2"
        store.delete(f"{root}/a", second)
        with pytest.raises(NotFoundError):
            store.read(f"{root}/a")

    def test_a_delete_of_a_missing_value_is_not_found(self, store: Store, root: str) -> None:
        with pytest.raises(NotFoundError):
            store.delete(f"{root}/nowhere", 0)

    def test_a_deleted_value_can_be_created_again(self, store: Store, root: str) -> None:
        version = store.put(f"{root}/a", b"1", ABSENT)
        store.delete(f"{root}/a", version)
        again = store.put(f"{root}/a", b"2", ABSENT)
        assert store.read(f"{root}/a").version == again

    def test_a_delete_keeps_the_children(self, store: Store, root: str) -> None:
        version = store.put(f"{root}/a", b"parent", ABSENT)
        store.put(f"{root}/a/b", b"child", ABSENT)
        if self.keeps_parents:
            with pytest.raises(GuardError):
                store.delete(f"{root}/a", version)
        else:
            store.delete(f"{root}/a", version)
        assert store.read(f"{root}/a/b").value == b"child"

    def test_parents_are_implied(self, store: Store, root: str) -> None:
        store.put(f"{root}/a/b/c", b"x", ABSENT)
        assert store.children(root) == ["a"]
        assert store.children(f"{root}/a") == ["b"]
        assert store.children(f"{root}/a/b") == ["c"]
        assert store.children(f"{root}/a/b/c") == []
        if self.real_parents:
            assert store.read(f"{root}/a").value == b""
        else:
            with pytest.raises(NotFoundError):
                store.read(f"{root}/a")

    def test_a_parent_can_get_a_value_later(self, store: Store, root: str) -> None:
        store.put(f"{root}/a/b", b"x", ABSENT)
        expected = store.read(f"{root}/a").version if self.real_parents else ABSENT
        store.put(f"{root}/a", b"parent", expected)
        assert store.read(f"{root}/a").value == b"parent"
        assert store.children(f"{root}/a") == ["b"]

    def test_children_are_not_confused_with_siblings_of_the_same_prefix(
        self, store: Store, root: str
    ) -> None:
        # "-", "." and "!" sort before "/", and "0" sorts right after it.
        paths = [
            f"{root}/{name}" for name in ("a", "a!", "a-x", "a.x", "a0", "a/b", "a/b-c", "a/b/c", "a/b0")
        ]
        put_all(store, sorted(paths))
        assert store.children(root) == sorted(["a", "a!", "a-x", "a.x", "a0"])
        assert store.children(f"{root}/a") == ["b", "b-c", "b0"]
        below = [record.path for record in store.scan(f"{root}/a")]
        assert sorted(below) == sorted(path for path in paths if path == f"{root}/a" or "/a/" in path)

    def test_a_scan_has_every_value_once_and_parents_first(self, store: Store, root: str) -> None:
        paths = [f"{root}/{name}" for name in ("b", "b/c", "b/c/d", "a", "a/z", "c/d/e/f", "b/c2")]
        versions = put_all(store, sorted(paths))
        records = list(store.scan(root))
        mine = {record.path: record for record in records if record.path in versions}
        assert len(mine) == len(paths)
        assert len({record.path for record in records}) == len(records)
        assert {path: (record.value, record.version) for path, record in mine.items()} == {
            path: (path.encode(), version) for path, version in versions.items()
        }
        assert all(record.value == b"" for record in records if record.path not in versions)
        order = [record.path for record in records]
        assert order.index(f"{root}/b") < order.index(f"{root}/b/c") < order.index(f"{root}/b/c/d")

    def test_a_scan_of_a_single_value_has_only_that_value(self, store: Store, root: str) -> None:
        store.put(f"{root}/a/b", b"x", ABSENT)
        assert [record.path for record in store.scan(f"{root}/a/b")] == [f"{root}/a/b"]

    def test_the_order_of_a_scan_is_stable(self, store: Store, root: str) -> None:
        put_all(store, [f"{root}/{name}/{at}" for name in "cab" for at in range(3)])
        first = [record.path for record in store.scan(root)]
        assert first == [record.path for record in store.scan(root)]

    def test_a_scan_continues_after_any_path(self, store: Store, root: str) -> None:
        names = ("b", "b/c", "b/c/d", "b-c", "a", "a/z", "c/d/e/f", "b/c2", "a0")
        put_all(store, sorted(f"{root}/{name}" for name in names))
        paths = [record.path for record in store.scan(root)]
        for at, path in enumerate(paths):
            assert [record.path for record in store.scan(root, after=path)] == paths[at + 1 :]

    def test_sequences_only_increase(self, store: Store, root: str) -> None:
        parent = f"{root}/idgen"
        assert store.counts_sequences is self.counts
        if not self.counts:
            assert store.next_sequence(parent) is None
            with pytest.raises(UsageError):
                store.advance_sequence(parent, 10)
            return
        reached = store.advance_sequence(parent, 1037)
        assert reached >= 1037
        assert store.next_sequence(parent) == reached
        assert store.advance_sequence(parent, 5) == reached
        assert store.advance_sequence(parent, reached + 1) == reached + 1
        assert store.children(parent) == []

    def test_any_name_is_kept_unchanged(self, store: Store, root: str) -> None:
        put_all(store, [f"{root}/{name}" for name in NAMES])
        assert store.children(root) == sorted(NAMES)
        for name in NAMES:
            assert store.read(f"{root}/{name}").value == f"{root}/{name}".encode()
        assert {record.path for record in store.scan(root)} >= {f"{root}/{name}" for name in NAMES}

    def test_an_encoded_name_has_children(self, store: Store, root: str) -> None:
        parent = f"{root}/we+ird*%3A(n).[x]"
        put_all(store, [f"{parent}/one+1", f"{parent}/two"])
        assert store.children(parent) == ["one+1", "two"]

    def test_thousands_of_values_are_scanned_in_pages(self, store: Store, root: str) -> None:
        paths = [f"{root}/{at % 10}/{at:05d}" for at in range(self.many)]
        self.fill(store, paths)
        scanned = [record.path for record in store.scan(root) if record.value]
        assert sorted(scanned) == sorted(paths)
        assert len(store.children(f"{root}/3")) == self.many // 10

    def test_a_scan_can_be_abandoned(self, store: Store, root: str) -> None:
        put_all(store, [f"{root}/{at}" for at in range(20)])
        scan = store.scan(root)
        next(scan)
        del scan
        assert len(store.children(root)) == 20

    def test_writes_during_a_scan(self, store: Store, root: str) -> None:
        versions = put_all(store, [f"{root}/{at:03d}" for at in range(300)])
        seen = 0
        for record in store.scan(root):
            if record.path in versions:
                store.put(record.path, b"new", record.version)
                seen += 1
        assert seen == 300
        assert all(record.value == b"new" for record in store.scan(root) if record.path in versions)

    def test_only_one_of_two_clients_wins(self, open_store: Opener, store: Store, root: str) -> None:
        version = store.put(f"{root}/a", b"1", ABSENT)
        with open_store() as other:
            other.put(f"{root}/a", b"other", version)
            with pytest.raises(ConflictError):
                store.put(f"{root}/a", b"mine", version)
            assert store.read(f"{root}/a").value == b"other"

    def test_a_read_only_store_refuses_writes(self, open_store: Opener, root: str) -> None:
        with open_store() as store:
            version = store.put(f"{root}/a", b"1", ABSENT)
        with open_store(read_only=True) as store:
            assert not store.writable
            for write in (
                lambda: store.put(f"{root}/a", b"2", version),
                lambda: store.delete(f"{root}/a", version),
            ):
                with pytest.raises(GuardError) as caught:
                    write()
                assert caught.value.exit_code == 7
            assert store.read(f"{root}/a").value == b"1"

    @pytest.mark.parametrize(
        "path", ["a", "", "//a", "/a/", "/a//b", "/../etc", "/a/../b", "/a/./b", "/a\0b", "/"]
    )
    def test_values_at_invalid_paths_are_refused(self, store: Store, path: str) -> None:
        with pytest.raises(UsageError):
            store.put(path, b"x", ABSENT)
        with pytest.raises(UsageError):
            store.delete(path, 0)

    def test_a_value_over_the_limit_is_refused(self, store: Store, root: str) -> None:
        if store.max_value_size is None:
            # A store without a server has no limit, so values that servers refuse must be accepted.
            store.put(f"{root}/big", bytes(5 << 20), ABSENT)
            assert len(store.read(f"{root}/big").value) == 5 << 20
            return
        version = store.put(f"{root}/big", b"small", ABSENT)
        with pytest.raises(GuardError, match="the server accepts"):
            store.put(f"{root}/big", bytes(store.max_value_size + 1), version)
        assert store.read(f"{root}/big").version == version

    def test_groups_are_read_and_written_like_single_values(self, store: Store, root: str) -> None:
        paths = [f"{root}/{at:02d}" for at in range(40)]
        versions = put_all(store, paths[:30])
        records = store.read_many([*paths[::-1], paths[3]])
        assert [None if record is None else (record.path, record.value) for record in records] == [
            (path, path.encode()) if path in versions else None for path in [*paths[::-1], paths[3]]
        ]
        writes = [(path, b"new", versions.get(path, ABSENT)) for path in paths]
        writes[7] = (paths[7], b"lost", versions[paths[7]] + 12345)
        writes[8] = (paths[8], b"lost", ABSENT)
        done = store.put_many(writes)
        assert [at for at, version in enumerate(done) if version is None] == [7, 8]
        for at, record in enumerate(store.read_many(paths)):
            assert record is not None
            assert record.value == (paths[at].encode() if at in (7, 8) else b"new")
            assert record.version == (versions[paths[at]] if at in (7, 8) else done[at])
        assert store.children_many([root, f"{root}/none"]) == [[path[-2:] for path in paths], []]

    def test_groups_are_deleted_by_version(self, store: Store, root: str) -> None:
        versions = put_all(store, [f"{root}/{at:03}" for at in range(150)])
        versions |= put_all(store, [f"{root}/parent", f"{root}/parent/child"])
        moved = f"{root}/007"
        now = store.put(moved, b"moved", versions[moved])
        paths = [path for path in versions if path != f"{root}/parent/child"]
        requests = [
            *((path, versions[path]) for path in paths),
            (f"{root}/nowhere", 0),
            (f"{root}/none", ABSENT),
        ]
        made = dict(zip((path for path, _ in requests), store.delete_many(requests), strict=True))
        left = {moved, f"{root}/nowhere", f"{root}/none"} | (
            {f"{root}/parent"} if self.keeps_parents else set()
        )
        assert {path for path, gone in made.items() if not gone} == left
        assert store.children(root) == ["007", "parent"]
        assert store.delete_many([(moved, now), (moved, now)]) == [True, False]
        assert store.delete_many([]) == []

    def test_the_properties_of_a_store_are_valid(self, store: Store) -> None:
        # Only a server has an address and a limit.
        assert store.networked == ("://" in store.url)
        assert store.locks_out_brokers == store.url.startswith("rocksdb:")
        assert store.checkpoint is None

    def test_check_write_refuses_invalid_paths(self, store: Store, root: str) -> None:
        store.check_write(f"{root}/a", b"x")
        for path in ("a", "/a/", "/a//b"):
            with pytest.raises(UsageError):
                store.check_write(path)

    def test_a_store_can_be_closed_twice(self, open_store: Opener, root: str) -> None:
        store = open_store()
        store.put(f"{root}/a", b"1", ABSENT)
        store.close()
        store.close()


class ServerContract(Fills):
    """Tests of a store with a real server that is killed and started again."""

    # Seconds that a store waits for a server that is down, and how much longer an answer may take.
    timeout: ClassVar[float] = 1.0

    def test_opening_without_a_server_is_an_error(self, open_store: Opener, server: Killable) -> None:
        server.kill()
        try:
            self.assert_unreachable(lambda: open_store(timeout=self.timeout))
        finally:
            server.start()

    def test_a_killed_and_restarted_server_is_used_again(
        self, open_store: Opener, server: Killable, root: str
    ) -> None:
        with open_store() as store:
            version = store.put(f"{root}/a", b"1", ABSENT)
        with self.eventually(lambda: open_store(timeout=self.timeout)) as store:
            server.kill()
            try:
                self.assert_unreachable(lambda: store.read(f"{root}/a"))
                self.assert_unreachable(lambda: store.put(f"{root}/a", b"never", version))
                self.assert_unreachable(lambda: list(store.scan(root)))
                self.assert_unreachable(lambda: store.delete(f"{root}/a", version))
            finally:
                server.start()
            record = self.eventually(lambda: store.read(f"{root}/a"))
            assert (record.value, record.version) == (b"1", version)
            time.sleep(1)
            record = self.eventually(lambda: store.read(f"{root}/a"))
            assert record.value == b"1", "a write that was reported as failed arrived later"
        with open_store() as store:
            store.put(f"{root}/a", b"2", version)
            assert store.read(f"{root}/a").value == b"2"

    def test_a_scan_survives_or_reports_a_restart(
        self, open_store: Opener, server: Killable, root: str
    ) -> None:
        with open_store() as store:
            paths = [f"{root}/{at:05d}" for at in range(1500)]
            self.fill(store, paths)
            scan = store.scan(root)
            paths_found = [next(scan).path for _ in range(10)]
            server.restart()
            try:
                paths_found += [record.path for record in scan]
            except UnreachableError:
                paths_found = [record.path for record in self.eventually(lambda: list(store.scan(root)))]
            assert sorted(set(paths_found) - {root}) == paths

    def assert_unreachable(self, call: Callable[[], object]) -> None:
        """Check that `call` fails with exit code 6 and does not hang."""
        with pytest.raises(PulsarMetaError) as caught, must_end():
            call()
        assert isinstance(caught.value, UnreachableError), caught.value
        assert caught.value.exit_code == 6

    def eventually(self, call: Callable[[], Any]) -> Any:
        """Return the result of `call` once the server is back."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return call()
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

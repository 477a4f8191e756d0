from __future__ import annotations

import fcntl
import os
import resource
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import ConflictError, GuardError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.stores import directory, registry
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.directory import content_version
from tests.contracts.store import Opener, StoreContract


class TestDirectoryStore(StoreContract):
    many = 500

    @pytest.fixture
    def root(self) -> str:
        return "/r"

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Opener:
        def opened(*, read_only: bool = False, timeout: float = 20) -> Store:
            return registry.open_store(f"dir:{tmp_path / 'tree'}", read_only=read_only)

        return opened


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def test_the_value_of_a_path_is_a_file_named_value(tree: Path) -> None:
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        store.put("/a/b", b"x", ABSENT)
    assert (tree / "a" / "b" / ".value").read_bytes() == b"x"
    assert sorted(path.name for path in tree.rglob("*")) == [".value", "a", "b"]


def test_a_file_written_by_hand_is_a_value(tree: Path) -> None:
    (tree / "x" / "y").mkdir(parents=True)
    (tree / "x" / "y" / ".value").write_bytes(b"by hand")
    with registry.open_store(f"dir:{tree}") as store:
        assert store.read("/x/y").value == b"by hand"
        assert [value.path for value in store.scan()] == ["/x/y"]


def test_a_change_by_hand_is_a_conflict(tree: Path) -> None:
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        version = store.put("/a", b"x", ABSENT)
        (tree / "a" / ".value").write_bytes(b"by hand")
        with pytest.raises(ConflictError):
            store.put("/a", b"y", version)


def test_deleting_prunes_empty_directories(tree: Path) -> None:
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        version = store.put("/a/b/c", b"x", ABSENT)
        store.put("/a/d", b"y", ABSENT)
        store.delete("/a/b/c", version)
    assert sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*")) == ["a", "a/d", "a/d/.value"]


def test_reading_changes_nothing(tree: Path) -> None:
    (tree / "a").mkdir()
    (tree / "a" / ".value").write_bytes(b"x")
    before = [(path, path.stat().st_mtime_ns) for path in sorted(tree.rglob("*"))]
    with registry.open_store(f"dir:{tree}") as store:
        assert store.read("/a").value == b"x"
        assert store.children("/") == ["a"]
        assert len(list(store.scan())) == 1
    assert [(path, path.stat().st_mtime_ns) for path in sorted(tree.rglob("*"))] == before


@pytest.mark.parametrize("path", ["/.value", "/a/.value", "/a/.value.new/b"])
def test_paths_that_use_the_stores_file_names_are_refused(tree: Path, path: str) -> None:
    with registry.open_store(f"dir:{tree}", read_only=False) as store, pytest.raises(UsageError):
        store.put(path, b"x", ABSENT)


@pytest.mark.parametrize("path", ["/../outside", "/a/../../outside", "/.."])
def test_paths_that_leave_the_directory_are_refused(tree: Path, path: str) -> None:
    (tree.parent / "outside").mkdir()
    (tree.parent / "outside" / ".value").write_bytes(b"secret")
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        with pytest.raises(UsageError):
            store.read(path)
        with pytest.raises(UsageError):
            store.put(path, b"x", ABSENT)


def test_symbolic_links_are_not_followed(tree: Path) -> None:
    outside = tree.parent / "outside"
    outside.mkdir()
    (outside / ".value").write_bytes(b"secret")
    (tree / "link").symlink_to(outside)
    (tree / "file").mkdir()
    (tree / "file" / ".value").symlink_to(outside / ".value")
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        assert store.children("/") == ["file"]
        with pytest.raises(GuardError):
            store.read("/link")
        with pytest.raises(UnreachableError):
            store.read("/file")
        with pytest.raises(GuardError):
            store.put("/link/x", b"y", ABSENT)
    assert os.listdir(outside) == [".value"]


def test_a_pipe_does_not_block_reading(tree: Path) -> None:
    (tree / "a").mkdir()
    os.mkfifo(tree / "a" / ".value")
    with registry.open_store(f"dir:{tree}") as store, pytest.raises(UnreachableError):
        store.read("/a")


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        registry.open_store(f"dir:{tmp_path / 'none'}")


def test_only_one_of_many_writers_creates_a_value(tree: Path) -> None:
    def create(at: int) -> bool:
        with registry.open_store(f"dir:{tree}", read_only=False) as store:
            try:
                store.put("/a", str(at).encode(), ABSENT)
            except ConflictError:
                return False
            return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(40)))
    assert won.count(True) == 1
    assert (tree / "a" / ".value").read_text() == str(won.index(True))


def test_a_group_skips_values_that_changed(tree: Path) -> None:
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        versions = store.put_many([(f"/a/{at}", b"x", ABSENT) for at in range(200)])
        (tree / "a" / "100" / ".value").write_bytes(b"by hand")
        done = store.put_many([(f"/a/{at}", b"y", version or 0) for at, version in enumerate(versions)])
        assert [at for at, version in enumerate(done) if version is None] == [100]
        assert [store.read(f"/a/{at}").version for at in range(200) if at != 100] == [
            *done[:100],
            *done[101:],
        ]
        assert store.read("/a/100").value == b"by hand"
        assert store.read("/a/199").value == b"y"
    assert not list(tree.rglob(".value.new"))


def test_a_group_may_contain_a_path_twice(tree: Path) -> None:
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        first = store.put("/a", b"1", ABSENT)
        second = content_version(b"2")
        writes = [("/a", b"2", first), ("/b", b"x", ABSENT), ("/a", b"3", first), ("/a", b"4", second)]
        assert store.put_many(writes) == [second, content_version(b"x"), None, content_version(b"4")]
        assert store.put_many([]) == []


def test_a_full_disk_leaves_every_value_intact(tree: Path) -> None:
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        versions = store.put_many([(f"/{at}", b"old", ABSENT) for at in range(10)])
        # From here on, this process can write no longer file, which simulates a full disk.
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(UnreachableError, match="/5: File too large"):
                store.put_many(
                    [(f"/{at}", bytes(at // 5 * 1001), version or 0) for at, version in enumerate(versions)]
                )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [store.read(f"/{at}").value for at in range(10)] == [b""] * 5 + [b"old"] * 5
    assert not list(tree.rglob(".value.new"))


def test_writing_to_a_deleted_directory_is_an_error(tree: Path) -> None:
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        tree.rmdir()
        with pytest.raises(UnreachableError, match="cannot lock the directory: No such file"):
            store.put_many([("/a", b"x", ABSENT)])


def test_waiting_for_another_writer_times_out(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "LOCK_SECONDS", 0.05)
    other = os.open(tree, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        with pytest.raises(UnreachableError, match="another process has held the lock"):
            store.put("/a", b"x", ABSENT)
        os.close(other)
        assert store.put("/a", b"x", ABSENT) == content_version(b"x")


def test_a_killed_writers_unfinished_file_is_ignored(tree: Path) -> None:
    (tree / "a").mkdir()
    (tree / "a" / ".value.new").write_bytes(b"half")
    with registry.open_store(f"dir:{tree}", read_only=False) as store:
        with pytest.raises(NotFoundError):
            store.read("/a")
        store.put("/a", b"whole", ABSENT)
    assert sorted(os.listdir(tree / "a")) == [".value"]
    assert stat.S_ISREG((tree / "a" / ".value").stat().st_mode)

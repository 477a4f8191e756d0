"""Snapshots whose footer names their order: binary search gives the same answers as an index."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.stores import snapshot, snapshot_writer
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.snapshot import SnapshotStore
from pulsar_meta.stores.snapshot_file import PathIndex
from pulsar_meta.stores.snapshot_writer import SnapshotWriter

NAMES = ("a", "b", "a-b", "a0", "a.b", "\x01", "ä", "\ud800", "\U00010000", 'q", "version": 1')


def some_paths(count: int) -> list[str]:
    """Return sorted paths: siblings whose names are prefixes of each other, some without parents."""
    chance = random.Random(4)
    return sorted({"/" + "/".join(chance.choices(NAMES, k=chance.randint(1, 5))) for _ in range(count)})


def tree_order(path: str) -> list[str]:
    return path.split("/")


def write(file: Path, paths: list[str]) -> Path:
    writer = SnapshotWriter(file, {"tool": "test"})
    for number, path in enumerate(paths):
        # Some values are longer than one read of the file.
        writer.add(Versioned(path, b"x" * (number % 7 * 50 if number % 50 else 5000), number, created=number))
    writer.finish({})
    return file


def footer_of(file: Path) -> dict[str, object]:
    data = file.read_bytes()
    if file.name.endswith(".zst"):
        data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    footer: dict[str, object] = json.loads(data.splitlines()[-1])
    return footer


@pytest.fixture(params=["plain", "plain.zst"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a path for a snapshot, and make frames small."""
    monkeypatch.setattr(snapshot_writer, "FRAME_BYTES", 2000)
    return tmp_path / str(request.param)


@pytest.fixture
def without_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: PathIndex, path: str, start: int) -> None:
        raise AssertionError("an index was made")

    monkeypatch.setattr(PathIndex, "add", refuse)


def answers(store: SnapshotStore, paths: list[str]) -> list[object]:
    parents = sorted({parent for path in paths for parent in (path, path.rpartition("/")[0] or "/")})
    chance = random.Random(5)
    return [
        [store.read(path) for path in chance.sample(paths, len(paths))],
        [store.children(parent) for parent in chance.sample(parents, len(parents))],
        [list(store.scan(parent)) for parent in parents[::5]],
        [value and value.path for value in store.read_many([f"{path}?" for path in paths])],
        [list(store.scan(paths[0], after=paths[0]))],
        list(store.scan("/", after=paths[7])),
    ]


@pytest.mark.parametrize("order", ["code-points", "tree"])
@pytest.mark.usefixtures("without_index")
def test_binary_search_gives_the_answers_of_an_index(
    file: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sorted(some_paths(400), key=tree_order if order == "tree" else None)
    write(file, paths)
    assert footer_of(file)["order"] == order
    with SnapshotStore(f"snapshot:{file}") as store:
        assert store.is_indexed
        searched = answers(store, paths)
        assert searched[0][0].value is not None  # type: ignore[index]
    monkeypatch.undo()
    with SnapshotStore(f"snapshot:{file}") as store:
        monkeypatch.setattr(snapshot, "ordered_lines", lambda file, max_line: None)
        assert not store.is_indexed
        assert answers(store, paths) == searched


def test_many_searches_build_an_index(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = some_paths(400)
    monkeypatch.setattr(snapshot, "FEW_SEARCHES", 3)
    below = max(paths).rpartition("/")[0]
    with SnapshotStore(f"snapshot:{write(file, paths)}") as store:
        part = store.scan(below)
        first = next(part, None)
        assert [store.read(path).path for path in paths[::-1]] == paths[::-1]
        assert type(store._paths) is PathIndex
        # The scan that began before the index was built continues.
        again = list(store.scan(below))
        assert [first, *part] == again
        assert len(again) > 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b'"version": 3,', b'"version": 4,'),
        lambda data: data[:-900] + data[-899:],
        lambda data: data + b"\n",
        lambda data: data[:200] + data[100:],
    ],
)
@pytest.mark.usefixtures("without_index")
def test_a_changed_file_is_not_searched(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = write(tmp_path / "file", some_paths(100))
    file.write_bytes(damage(file.read_bytes()))
    with SnapshotStore(f"snapshot:{file}") as store:
        assert not store.is_indexed
        with pytest.raises((AssertionError, DecodeError)):
            store.children("/")


def test_a_changed_compressed_file_is_not_searched(tmp_path: Path) -> None:
    file = write(tmp_path / "file.zst", some_paths(100))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with SnapshotStore(f"snapshot:{file}") as store:
        assert not store.is_indexed


@pytest.mark.parametrize("order", ["[]", "{}", "1", "null", '"random"'])
def test_an_unknown_order_is_ignored(tmp_path: Path, order: str) -> None:
    file = write(tmp_path / "file", some_paths(100))
    file.write_bytes(file.read_bytes().replace(b'"order": "code-points"', f'"order": {order}'.encode()))
    assert json.dumps(footer_of(file)["order"]) == order
    with SnapshotStore(f"snapshot:{file}") as store:
        assert not store.is_indexed
        assert store.children("/")


def test_a_partial_snapshot_is_not_searched(tmp_path: Path) -> None:
    file = write(tmp_path / "file", some_paths(100))
    with SnapshotStore(f"snapshot:{file}?partial") as store:
        assert not store.is_indexed
        assert store.children("/")


@pytest.mark.parametrize("paths", [["/b", "/a"], ["/a", "/a"], ["/a/b", "/a-b", "/a"]])
def test_unordered_values_are_indexed(file: Path, paths: list[str]) -> None:
    assert "order" not in footer_of(write(file, paths))
    with SnapshotStore(f"snapshot:{file}") as store:
        assert not store.is_indexed


@pytest.mark.usefixtures("without_index")
def test_an_empty_snapshot_is_searched(file: Path) -> None:
    with SnapshotStore(f"snapshot:{write(file, [])}") as store:
        assert store.children("/") == []
        assert list(store.scan("/a")) == []
        with pytest.raises(NotFoundError):
            store.read("/a")


def test_a_line_over_the_limit_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "file", some_paths(100))
    with (
        SnapshotStore(f"snapshot:{file}", max_line=3000) as store,
        pytest.raises(DecodeError, match="more than 3000 b"),
    ):
        store.read("/zzz")

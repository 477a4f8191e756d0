from __future__ import annotations

import json
import os
import time
import tracemalloc
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.snapshot import SnapshotStore
from pulsar_meta.stores.snapshot_writer import SnapshotWriter


def line(path: str, value: bytes, version: object = 0, **more: object) -> str:
    return json.dumps({"path": path, "version": version, "value": b64encode(value).decode(), **more}) + "\n"


@pytest.fixture(params=["plain", "zstd", "two frames"])
def write_and_open(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Store]:
    """Return a function that writes a snapshot, plain or compressed, and opens it."""

    def write(text: str) -> Store:
        data = text.encode()
        if request.param == "zstd":
            data = zstandard.compress(data)
        elif request.param == "two frames":
            half = len(data) // 2
            data = zstandard.compress(data[:half]) + zstandard.compress(data[half:])
        (tmp_path / "snapshot").write_bytes(data)
        return open_store(f"snapshot:{tmp_path / 'snapshot'}")

    return write


def test_a_snapshot_is_read_scanned_and_listed(write_and_open: Callable[[str], Store]) -> None:
    text = (
        line("/b", b"two", 7, created=5, modified=6, ephemeral=True)
        + "\n"
        + line("/a/x", b"")
        + line("/a", b"1")
    )
    with write_and_open(text) as store:
        assert [value.path for value in store.scan()] == ["/b", "/a/x", "/a"]
        assert [value.path for value in store.scan("/a")] == ["/a/x", "/a"]
        assert store.children("/") == ["a", "b"]
        assert store.children("/a") == ["x"]
        value = store.read("/b")
        assert (value.value, value.version, value.created, value.modified, value.ephemeral) == (
            b"two",
            7,
            5,
            6,
            True,
        )
        assert store.read("/a/x").value == b""
        with pytest.raises(NotFoundError):
            store.read("/c")


def test_the_index_is_made_before_the_first_read(write_and_open: Callable[[str], Store]) -> None:
    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with write_and_open(line("/a", b"") + "\n" + line("/b/c", b"")) as store:
        with pytest.raises(KeyboardInterrupt):
            store.prepare(stop)
        counted = list[int]()
        for _ in range(2):
            store.prepare(counted.append)
        assert counted == [1, 1]
        assert store.children("/") == ["a", "b"]


def test_a_snapshot_is_never_written(write_and_open: Callable[[str], Store], tmp_path: Path) -> None:
    with write_and_open(line("/a", b"")) as store:
        for write in (lambda: store.put("/a", b"x", 0), lambda: store.delete("/a", 0)):
            with pytest.raises(GuardError):
                write()
    with pytest.raises(GuardError):
        open_store(f"snapshot:{tmp_path / 'snapshot'}", read_only=False)


@pytest.mark.parametrize(
    "bad",
    [
        "{not json\n",
        "[]\n",
        '"/a"\n',
        '{"path": "/c"}\n',
        '{"path": "/c", "version": 1}\n',
        '{"path": "c", "version": 1, "value": ""}\n',
        '{"path": 3, "version": 1, "value": ""}\n',
        '{"path": "/c", "version": "1", "value": ""}\n',
        '{"path": "/c", "version": true, "value": ""}\n',
        '{"path": "/c", "version": 1, "value": "no base64!"}\n',
        '{"path": "/c", "version": 1, "value": 5}\n',
        '{"path": "/c", "version": 1, "value": "", "modified": "soon"}\n',
        '{"path": "/c", "version": 1, "value": "AA',
        "\udcff\n",
        "[" * 100_000 + "\n",
        '{"path": "/c", "version": 1, "value": ""} {}\n',
    ],
)
def test_a_bad_line_is_named(write_and_open: Callable[[str], Store], bad: str) -> None:
    with write_and_open(line("/a", b"1") + line("/b", b"2") + bad.replace("\udcff", "ÿ\x00")) as store:
        scan = store.scan()
        assert [next(scan).path, next(scan).path] == ["/a", "/b"]
        with pytest.raises(DecodeError, match="line 3"):
            list(scan)


def test_lines_of_other_writers_are_read(write_and_open: Callable[[str], Store]) -> None:
    text = line("/a", b"1").replace("\n", "\r\n") + " " + line("/é", b"2") + line("/c", b"3").rstrip("\n")
    with write_and_open(text) as store:
        assert [(value.path, value.value) for value in store.scan()] == [
            ("/a", b"1"),
            ("/é", b"2"),
            ("/c", b"3"),
        ]


def test_reading_a_path_that_occurs_twice_is_an_error(write_and_open: Callable[[str], Store]) -> None:
    with (
        write_and_open(line("/a", b"1") + line("/a", b"2")) as store,
        pytest.raises(DecodeError, match="line 2: /a"),
    ):
        store.read("/a")


def test_blank_lines_are_counted(write_and_open: Callable[[str], Store]) -> None:
    with write_and_open(line("/a", b"1") + "\n\n" + "{}\n") as store:
        for read in (lambda: store.read("/a"), lambda: list(store.scan())):
            with pytest.raises(DecodeError, match="line 4"):
                read()


def test_an_empty_file_is_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with open_store(f"snapshot:{tmp_path / 'empty'}") as store:
        assert list(store.scan()) == []
        assert store.children("/") == []


def test_truncated_zstd_is_an_error(tmp_path: Path) -> None:
    compressed = zstandard.compress("".join(line(f"/{at}", bytes(at)) for at in range(200)).encode())
    for size in (5, len(compressed) // 2, len(compressed) - 1):
        (tmp_path / "cut").write_bytes(compressed[:size])
        with open_store(f"snapshot:{tmp_path / 'cut'}") as store, pytest.raises(DecodeError):
            list(store.scan())


def test_a_partial_snapshot_is_read_up_to_its_last_complete_line(tmp_path: Path) -> None:
    first, last, file = line("/a", b"x"), line("/b", b"y"), tmp_path / "snapshot"
    for cut in range(len(last)):
        file.write_text(first + last[:cut])
        with open_store(f"snapshot:{file}?partial") as store:
            assert [value.path for value in store.scan("/")] == ["/a"]
            assert store.children("/") == ["a"]


def test_corrupt_zstd_is_an_error(tmp_path: Path) -> None:
    compressed = bytearray(zstandard.compress(line("/a", b"x" * 1000).encode() * 100))
    compressed[len(compressed) // 2] ^= 0xFF
    (tmp_path / "broken").write_bytes(compressed)
    with open_store(f"snapshot:{tmp_path / 'broken'}") as store, pytest.raises(DecodeError):
        list(store.scan())


def test_scanning_streams(write_and_open: Callable[[str], Store]) -> None:
    with write_and_open("".join(line(f"/{at:06d}", bytes(2000)) for at in range(4000))) as store:
        tracemalloc.start()
        try:
            assert sum(1 for _ in store.scan()) == 4000
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 6 << 20


def test_every_line_of_a_capture_is_read(capture: Callable[[str], Path]) -> None:
    file = capture("pulsar-4.2.4") / "metadata.ndjson"
    with open_store(f"snapshot:{file}") as store:
        assert sum(1 for _ in store.scan()) == len(file.read_bytes().splitlines())
        assert "public" in store.children("/managed-ledgers")


def test_garbage_is_a_decode_error(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 10)
    with open_store(f"snapshot:{tmp_path / 'garbage'}") as store, pytest.raises(DecodeError, match="line 1"):
        list(store.scan())


def test_the_cost_of_listing_children_is_linear(tmp_path: Path) -> None:
    """Listing the cursors of each topic must grow with the number of topics, not with its square."""
    file = tmp_path / "store.ndjson"
    topics = [f"/managed-ledgers/p/ns/persistent/t{at}" for at in range(20_000)]
    with file.open("w") as out:
        for topic in topics:
            out.writelines(line(f"{topic}{below}", b"x") for below in ("", "/a/b", "/a", "/a-b/c", "/a/c"))
    with open_store(f"snapshot:{file}") as store:
        begun = time.process_time()
        assert all(store.children(topic) == ["a", "a-b"] for topic in topics)
        assert len(store.children("/managed-ledgers/p/ns/persistent")) == len(topics)
        assert store.children("/") == ["managed-ledgers"]
        assert store.children("/managed-ledgers/p/ns/persistent/t") == []
        assert time.process_time() - begun < 10


def test_a_pipe_is_refused_as_a_snapshot(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        open_store(f"snapshot:{tmp_path / 'pipe'}") as store,
        pytest.raises(DecodeError, match="not an ordinary file"),
    ):
        list(store.scan())


@pytest.mark.parametrize("order", [("/a", "/b"), ("/b", "/a")])
def test_a_full_scan_notices_a_changed_value(order: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "s"
    writer = SnapshotWriter(file, {"tool": "test"})
    for path in order:
        writer.add(Versioned(path, b"0000", 0))
    writer.finish({})
    with SnapshotStore(f"snapshot:{file}") as store:
        assert len(list(store.scan())) == 2
    file.write_bytes(file.read_bytes().replace(b'"MDAwMA=="', b'"MTExMQ=="', 1))
    with SnapshotStore(f"snapshot:{file}") as store, pytest.raises(DecodeError, match="values were changed"):
        list(store.scan())
    with SnapshotStore(f"snapshot:{file}?partial") as store:
        assert len(list(store.scan())) == 2

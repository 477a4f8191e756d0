"""What is on the disk before the next step: the order of writing, syncing, renaming and sending.

The tests record every sync and rename of the program, and fail if one of them is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pulsar_meta.cli.streams import atomic_file
from pulsar_meta.jobs.export.files import Form, open_manifest, write_file
from pulsar_meta.jobs.rewrite.apply import Speed
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.rewrite.undo_log import UndoLog, read_records
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.directory import DirectoryStore
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.rocksdb import RocksdbStore
from pulsar_meta.stores.rocksdb_writer import DatabaseWriter, create_database
from pulsar_meta.stores.snapshot_writer import SnapshotWriter
from tests.jobs.rewrite.conftest import all_upper, upper
from tests.power_loss import RecordedDisk, write_files
from tests.rewrite_runs import make_run


def test_an_undo_record_survives_a_power_loss_before_its_value_is_sent(tmp_path: Path) -> None:
    disk = RecordedDisk(tmp_path / "disk")
    path = disk.root / "state" / "undo" / "run.ndjson"
    sent = list[str]()

    class Remote(MemoryStore):
        def put(self, path: str, value: bytes, expected: int) -> int:
            if disk.states:
                disk.note(f"send {path}")
                sent.append(path)
            return super().put(path, value, expected)

    disk.root.mkdir()
    store = Remote()
    for number in range(10):
        store.put(f"/v{number:05}", b"old", ABSENT)
    with disk.recording(), closing(UndoLog(path, "test", read_identity(store))) as undo:
        make_run(store, undo, Speed(largest=4)).apply(all_upper(store), upper)
    assert len(sent) == 10
    for at, state in enumerate(state for state in disk.states if state.note.startswith("send ")):
        left = tmp_path / f"left-{at}"
        write_files(left, state.left())
        recorded = {record.path for record in read_records(left / "state" / "undo" / "run.ndjson")}
        assert recorded.issuperset(sent[: at + 1])
    assert disk.states[-1].unsynced == []


def test_a_value_of_a_directory_store_is_synced_and_then_renamed(tmp_path: Path) -> None:
    disk = RecordedDisk(tmp_path / "disk")
    disk.root.mkdir()
    with disk.recording():
        store = DirectoryStore(f"dir:{disk.root / 'store'}", read_only=False)
        version = store.put("/a/b", b"1", ABSENT)
        disk.note("put")
        store.put("/a/b", b"2", version)
        disk.note("put")
        store.put("/a", b"3", ABSENT)
        disk.note("put")
        store.delete("/a/b", store.read("/a/b").version)
    assert disk.renamed_unsynced == []
    done = [state for state in disk.states if state.note in ("put", "the end")]
    assert [state.unsynced for state in done] == [[], [], [], []]
    assert [state.left().get("store/a/b/.value") for state in done] == [b"1", b"2", b"2", None]
    assert done[-1].left() == {"store": None, "store/a": None, "store/a/.value": b"3"}


def test_writes_to_rocksdb_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[bool]()

    class Recorded:
        def __init__(self, database: Any) -> None:
            self._database = database

        def __getattr__(self, name: str) -> Any:
            return getattr(self._database, name)

        def write(self, batch: Any, options: Any = None) -> None:
            synced.append(options is not None and options.sync)
            self._database.write(batch, options)

    real = DatabaseWriter._open
    monkeypatch.setattr(DatabaseWriter, "_open", lambda writer: Recorded(real(writer)))
    create_database(tmp_path / "metadata", "rocksdb:")
    with RocksdbStore(f"rocksdb:{tmp_path / 'metadata'}", read_only=False) as store:
        store.put("/a", b"1", ABSENT)
        store.put_many([("/b", b"2", ABSENT), ("/c", b"3", ABSENT)])
        store.delete("/a", 0)
    assert len(synced) >= 3
    assert all(synced)


def write_snapshot(folder: Path) -> None:
    with closing(SnapshotWriter(folder / "all.ndjson", {})) as writer:
        writer.take_its_name()
        writer.add(Versioned("/a", b"1", 0))
        writer.finish({})


def write_output(folder: Path) -> None:
    with atomic_file(folder / "output", "wb") as out:
        out.write(b"bytes")


def export(form: Form) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        target = folder / "export"
        with open_manifest(target, {}):
            batch = pa.record_batch({"number": [1, 2]})
            write_file(target / "namespace=a" / "name=b" / "1.file", form, [batch])

    return write


@pytest.mark.parametrize(
    "write",
    [write_snapshot, write_output, export("ndjson"), export("csv"), export("parquet")],
    ids=["snapshot", "--output", "export-ndjson", "export-csv", "export-parquet"],
)
def test_files_are_synced_and_then_renamed(tmp_path: Path, write: Callable[[Path], None]) -> None:
    disk = RecordedDisk(tmp_path / "disk")
    disk.root.mkdir()
    with disk.recording():
        write(disk.root)
    assert any(state.note.startswith("replace ") for state in disk.states)
    assert disk.renamed_unsynced == []
    assert disk.states[-1].unsynced == []


def test_the_name_of_a_manifest_is_synced(tmp_path: Path) -> None:
    """Without it, the next run would refuse the directory, because it has files but no manifest."""
    disk = RecordedDisk(tmp_path / "disk")
    disk.root.mkdir()
    with disk.recording(), open_manifest(disk.root / "export", {}):
        pass
    assert disk.states[-1].unsynced == []

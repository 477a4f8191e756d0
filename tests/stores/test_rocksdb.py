"""Databases of real standalones: reading changes nothing, and Pulsar's RocksDB can read our writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pulsar_meta.codecs.errors import ConflictError, DecodeError, GuardError, NotFoundError, UnreachableError
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb import MetaValue, RocksdbStore
from pulsar_meta.stores.rocksdb_writer import DatabaseWriter
from tests.stores.conftest import writable_copy

Listing = dict[str, tuple[bytes, int, int]]
CAPTURES = ("pulsar-3.0.7", "pulsar-4.0.7", "pulsar-4.2.4", "pulsar-4.2.4-killed", "pulsar-5.0.0-M1")
CURSOR = "/managed-ledgers/public/default/persistent/orders"


def listing(directory: Path) -> Listing:
    """Return each file's bytes and times, and the directory's times."""
    files = {"": (b"", directory.stat().st_mtime_ns, directory.stat().st_ctime_ns)}
    for file in sorted(directory.iterdir()):
        status = file.stat()
        files[file.name] = (file.read_bytes(), status.st_mtime_ns, status.st_ctime_ns)
    return files


def stored(store: RocksdbStore, path: str) -> MetaValue:
    """Read a value with its header."""
    raw = store._get(path.encode())
    assert raw is not None
    return MetaValue.decode(raw)


def read_everything(database: Path) -> None:
    with open_store(f"rocksdb:{database}") as store:
        values = list(store.scan())
        assert len(values) > 300
        assert store.read(values[0].path) == values[0]
        assert store.children("/managed-ledgers") == ["public", "pulsar"]


@contextmanager
def open_in_another_process(database: Path) -> Iterator[None]:
    """Keep the database open for writing in another process, as a broker would."""
    code = (
        "import sys; from rocksdict import Rdict, Options; own = Options(raw_mode=True);"
        "own.set_disable_auto_compactions(True); db = Rdict(sys.argv[1], own, {'default': own});"
        "db.put(b'/alive', bytes([0, 0, 0, 41, 0, 0, 0, 1])"
        " + bytes(33) + b'yes'); print('ready', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        process.communicate("", timeout=20)


@pytest.fixture
def database(tmp_path: Path, capture: Callable[[str], Path]) -> Path:
    return writable_copy(capture("pulsar-4.2.4") / "rocksdb", tmp_path / "metadata")


@pytest.mark.parametrize("name", CAPTURES)
def test_a_database_equals_the_brokers_own_listing(name: str, capture: Callable[[str], Path]) -> None:
    folder = capture(name)
    snapshot = f"snapshot:{folder / 'metadata.ndjson'}"
    with open_store(f"rocksdb:{folder / 'rocksdb'}") as store, open_store(snapshot) as listed:
        expected = sorted(listed.scan(), key=lambda value: value.path.encode())
        assert list(store.scan()) == expected
        for path in ("/", "/managed-ledgers/public/default/persistent", "/ledgers", "/admin"):
            assert store.children(path) == listed.children(path)


def test_reading_changes_no_file(database: Path) -> None:
    before = listing(database)
    read_everything(database)
    assert listing(database) == before


def test_opening_for_writing_changes_no_file_before_the_first_write(database: Path) -> None:
    before = listing(database)
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        assert sum(1 for _ in store.scan()) > 300
    assert listing(database) == before
    assert os.listdir(database.parent) == [database.name]


def test_no_temporary_directory_stays(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = database.parent / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        store.put("/new", b"x", ABSENT)
        assert os.listdir(scratch)
    assert os.listdir(scratch) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_read_only_directory_is_read_but_not_written(capture: Callable[[str], Path]) -> None:
    # pytest makes its own temporary directory private to its user, so another user could not read there.
    with TemporaryDirectory() as place:
        read_as_another_user(writable_copy(capture("pulsar-4.2.4") / "rocksdb", Path(place) / "metadata"))


def read_as_another_user(database: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path;"
        "from tests.stores.test_rocksdb import read_everything, refuse; where = Path(sys.argv[1]);"
        # First as root: if the library's files are in root's home, only root can load them.
        "read_everything(where); os.setuid(65534); read_everything(where); refuse(where)"
    )
    for parent in [database, *database.parents][:-1]:
        if not parent.stat().st_mode & 0o005:
            parent.chmod(0o755)
    for file in database.iterdir():
        file.chmod(0o444)
    before = listing(database)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(database)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert listing(database) == before


def refuse(database: Path) -> None:
    """Check that a user without write permission cannot open a database for writing."""
    with pytest.raises(UnreachableError):
        open_store(f"rocksdb:{database}", read_only=False)


def test_a_database_that_is_open_elsewhere_can_be_read(database: Path) -> None:
    with open_in_another_process(database):
        before = {name: content for name, (content, _, _) in listing(database).items()}
        read_everything(database)
        with open_store(f"rocksdb:{database}") as store:
            assert store.read("/alive").value == b"yes"
        assert {name: content for name, (content, _, _) in listing(database).items()} == before


def test_reading_a_database_in_use_finds_no_gaps(tmp_path: Path) -> None:
    """The other process numbers its values. Its tables are small, so it flushes and compacts often."""
    code = (
        "import sys, time; from rocksdict import Rdict, Options; own = Options(raw_mode=True);"
        "own.set_write_buffer_size(256 << 10); own.set_level_zero_file_num_compaction_trigger(2)\n"
        "db = Rdict(sys.argv[1], own); print('ready', flush=True); end = time.monotonic() + 4; at = 0\n"
        "while time.monotonic() < end:\n"
        "    db.put(b'/n/%08d' % at, bytes([0, 0, 0, 41, 0, 0, 0, 1]) + bytes(233)); at += 1\n"
        "    time.sleep(0.00005)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "live")]
    sizes = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None:
            with open_store(f"rocksdb:{tmp_path / 'live'}") as store:
                numbers = [int(value.path.rpartition("/")[2]) for value in store.scan("/n")]
            assert numbers == list(range(len(numbers)))
            sizes.append(len(numbers))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 3


def test_a_database_that_is_open_elsewhere_is_not_written(database: Path) -> None:
    with open_in_another_process(database):
        before = listing(database)
        with pytest.raises(GuardError, match="stop the broker") as caught:
            open_store(f"rocksdb:{database}", read_only=False)
        assert caught.value.exit_code == 7
        assert listing(database) == before
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        assert store.put("/new", b"x", ABSENT) == 0


def test_no_broker_can_open_the_database_while_we_write(database: Path) -> None:
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        for _ in range(2):
            with pytest.raises(AssertionError), open_in_another_process(database):
                pass
            # A reader in this process must not release the writer's lock.
            read_everything(database)
            store.put(f"/new{time.monotonic_ns()}", b"x", ABSENT)


def test_a_write_updates_the_header_as_pulsars_client_does(database: Path) -> None:
    with RocksdbStore(f"rocksdb:{database}", read_only=False) as store:
        before = stored(store, CURSOR)
        started = time.time_ns() // 1_000_000
        version = store.put(CURSOR, b"changed", before.version)
        created = store.put("/test/created", b"", ABSENT)
        after = stored(store, CURSOR)
        new = stored(store, "/test/created")
        instance = int.from_bytes(store._get(b"__metadata_instanceId_key") or b"", "big")
    assert (version, created) == (before.version + 1, 0)
    assert after.version == version
    assert after.created == before.created
    assert started <= after.modified <= time.time_ns() // 1_000_000
    assert (after.owner, after.ephemeral, after.data) == (instance, False, b"changed")
    assert (new.version, new.owner, new.ephemeral, new.data) == (0, instance, False, b"")
    assert new.created == new.modified >= started


def test_a_write_keeps_the_databases_counters(database: Path) -> None:
    keys = (b"__metadata_instanceId_key", b"__metadata_sequentialId_key")
    with RocksdbStore(f"rocksdb:{database}") as store:
        before = [store._get(key) for key in keys]
    with RocksdbStore(f"rocksdb:{database}", read_only=False) as store:
        store.put("/new", b"x", ABSENT)
    with RocksdbStore(f"rocksdb:{database}") as store:
        assert [store._get(key) for key in keys] == before
        with pytest.raises(NotFoundError):
            store.read("__metadata_instanceId_key")


def test_ephemeral_values_are_shown_and_never_written(database: Path) -> None:
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        ephemeral = [value for value in store.scan() if value.ephemeral]
        assert ephemeral
        for write in (
            lambda: store.put(ephemeral[0].path, b"x", ephemeral[0].version),
            lambda: store.delete(ephemeral[0].path, ephemeral[0].version),
        ):
            with pytest.raises(GuardError, match="ephemeral"):
                write()


def test_incomplete_checkpoints_of_killed_runs_are_removed(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(file: Path, target: Path) -> None:
        raise KeyboardInterrupt

    def write() -> None:
        with RocksdbStore(f"rocksdb:{database}", read_only=False) as store:
            store.put("/new", b"x", ABSENT)

    beginning = f"{database.name}.checkpoint-"
    monkeypatch.setattr("pulsar_meta.stores.rocksdb_writer._link_or_copy", killed)
    with pytest.raises(KeyboardInterrupt):
        write()
    (incomplete,) = database.parent.glob(f"{beginning}*")
    assert incomplete.name.endswith(".partial")
    # Anything that this program can't have named is kept.
    others = [database.with_name(f"{beginning}{name}") for name in ("mine.partial", "20260101T000000.000000")]
    for other in others:
        other.mkdir()
    monkeypatch.undo()
    write()
    left = set(database.parent.glob(f"{beginning}*"))
    assert incomplete not in left
    assert left > set(others)
    assert len(left) == 3


def test_the_checkpoint_equals_the_database_before_the_first_write(database: Path) -> None:
    before = {
        name: content for name, (content, _, _) in listing(database).items() if name not in ("", "LOCK")
    }
    with RocksdbStore(f"rocksdb:{database}", read_only=False) as store:
        assert store.checkpoint is None
        store.put("/new", b"x", ABSENT)
        checkpoint = store.checkpoint
        assert checkpoint is not None
        store.put("/new", b"y", 0)
        assert store.checkpoint == checkpoint
    assert {file.name: file.read_bytes() for file in checkpoint.iterdir()} == before
    assert checkpoint.stat().st_mode & 0o077 == 0
    with open_store(f"rocksdb:{checkpoint}") as store, pytest.raises(NotFoundError):
        store.read("/new")
    shutil.rmtree(database)
    read_everything(checkpoint)


def test_a_write_adds_only_rocksdbs_own_files(database: Path) -> None:
    before = set(os.listdir(database))
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        store.put("/new", b"x", ABSENT)
    new = set(os.listdir(database)) - before
    assert all(name.endswith((".sst", ".log")) or name.startswith("MANIFEST-") for name in new), new
    assert {name for name in before if name.startswith("OPTIONS-")} <= set(os.listdir(database))
    assert b"7.9.2" in max(database.glob("OPTIONS-*")).read_bytes()


def test_a_write_changes_no_other_value(database: Path) -> None:
    with open_store(f"rocksdb:{database}") as store:
        before = list(store.scan())
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        store.put("/zzz", b"x", ABSENT)
    with open_store(f"rocksdb:{database}") as store:
        assert [value for value in store.scan() if value.path != "/zzz"] == before


def test_acknowledged_writes_survive_a_killed_writer(database: Path) -> None:
    code = (
        "import os, signal, sys; from pulsar_meta.stores.registry import open_store\n"
        "store = open_store('rocksdb:' + sys.argv[1], read_only=False)\n"
        "for at in range(50): store.put(f'/killed/{at}', b'x' * 1000, -1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(database)], check=False)
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        assert len(store.children("/killed")) == 50
        store.put("/after", b"x", ABSENT)
    assert not list(database.glob("rocksdict*"))


def test_a_scan_sees_the_state_at_opening(database: Path) -> None:
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        scan = store.scan("/managed-ledgers")
        first = next(scan)
        store.put(first.path, b"changed", first.version)
        values = [first, *scan]
        assert len(values) == len({value.path for value in values}) > 100


def test_a_write_that_cannot_be_read_back_is_an_error(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates a disk that loses writes, because no real disk does so on demand."""
    store = RocksdbStore(f"rocksdb:{database}", read_only=False)
    store.put("/new", b"x", ABSENT)
    assert store._writer is not None
    monkeypatch.setattr(store._writer, "write", lambda values: None)
    store.put("/lost", b"x", ABSENT)
    with pytest.raises(UnreachableError, match="/lost does not read back"):
        store.close()


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-000026", "000025.log", "000024.sst"])
def test_broken_databases_raise_a_decode_error(database: Path, name: str) -> None:
    damaged = bytearray((database / name).read_bytes())
    damaged[: len(damaged) // 2] = os.urandom(len(damaged) // 2)
    (database / name).write_bytes(damaged)
    before = listing(database)
    try:
        with open_store(f"rocksdb:{database}") as store:
            values_read = sum(1 for _ in store.scan())
    except DecodeError:
        values_read = None
    # Every crashed database has a log that ends early; the values before the break can be read.
    assert values_read is None or (name == "000025.log" and values_read > 0)
    assert listing(database) == before


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\0\0\x29",
        (41).to_bytes(4, "big") + bytes(37),
        (40).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(33),
        (99).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(33),
        (-1).to_bytes(4, "big", signed=True) + (1).to_bytes(4, "big") + bytes(33),
    ],
)
def test_bad_headers_are_decode_errors(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        MetaValue.decode(raw)


def test_a_header_with_known_bytes_is_decoded() -> None:
    raw = bytes.fromhex("0000002900000001" + "00" * 16 + "00000000000003e8" * 2 + "0078")
    value = MetaValue.decode(raw)
    assert value == MetaValue(0, 0, 1000, 1000, False, b"x")
    assert value.encode() == raw


def test_a_longer_header_survives_a_round_trip() -> None:
    raw = bytes.fromhex("0000002b00000001" + "00" * 32 + "01abcd78")
    value = MetaValue.decode(raw)
    assert (value.data, value.extra, value.ephemeral) == (b"x", b"\xab\xcd", True)
    assert value.encode() == raw


def test_conflicts_change_no_file(database: Path) -> None:
    before = listing(database)
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        with pytest.raises(ConflictError):
            store.put(CURSOR, b"x", 4711)
        with pytest.raises(ConflictError):
            store.put(CURSOR, b"x", ABSENT)
        with pytest.raises(NotFoundError):
            store.delete("/nowhere", 0)
    assert listing(database) == before
    assert os.listdir(database.parent) == [database.name]


def test_a_group_is_written_at_once(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = DatabaseWriter.write

    def counted(writer: DatabaseWriter, values: Mapping[bytes, bytes | None]) -> None:
        written.append(len(values))
        write(writer, values)

    monkeypatch.setattr(DatabaseWriter, "write", counted)
    with RocksdbStore(f"rocksdb:{database}", read_only=False) as store:
        assert store.batches_requests
        assert store.put_many([(f"/new/{at}", b"x", ABSENT) for at in range(100)]) == [0] * 100
        twice = [("/new/1", b"1", 0), ("/new/2", b"2", 7), ("/new/1", b"3", 1), ("/new/1", b"4", 1)]
        assert store.put_many(twice) == [1, None, 2, None]
        assert store.put_many([]) == []
        assert written == [100, 1, 1]
        assert store.delete_many([(f"/new/{at}", 0) for at in range(3, 100)]) == [True] * 97
        assert written == [100, 1, 1, 97]
    with RocksdbStore(f"rocksdb:{database}") as store:
        assert [store.read(path).value for path in ("/new/1", "/new/2")] == [b"3", b"x"]

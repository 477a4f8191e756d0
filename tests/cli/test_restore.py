"""`restore` writes values to stores; skipped and refused values; runs that are killed, resumed and undone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import ConflictError
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.restore.values import TopicValues
from pulsar_meta.jobs.rewrite.guards import MIGRATION
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.jobs.values.places import copied
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb_writer import create_database
from tests.cli.program import confirmation
from tests.cli.values import LEDGER, PROGRAM, Run, clear_store
from tests.nightly import mostly_at_night
from tests.servers.etcd import EtcdServer
from tests.servers.oxia import OxiaServer
from tests.servers.zookeeper import ZookeeperServer
from tests.stores.conftest import writable_copy

TOPIC = TopicName.parse("orders").path
FLAG = b'{"phase": "COPYING", "targetUrl": "oxia://x"}'


def values_of(url: str) -> dict[str, bytes]:
    with open_store(url) as store:
        return {value.path: value.value for value in store.scan()}


def fill(url: str, values: dict[str, bytes]) -> str:
    with open_store(url, read_only=False) as store:
        for path, value in values.items():
            store.put(path, value, ABSENT)
    return url


def written(file: Path, values: Iterable[tuple[str, bytes]], header: dict[str, object] | None = None) -> str:
    """Write a snapshot with these values and return its URL."""
    from pulsar_meta.stores.snapshot_writer import SnapshotWriter

    writer = SnapshotWriter(file, header or {})
    for path, value in values:
        writer.add(Versioned(path, value, 0))
    writer.finish({})
    return f"snapshot:{file}"


@pytest.fixture
def database(capture: Callable[[str], Path]) -> str:
    return f"rocksdb:{capture('pulsar-4.2.4') / 'rocksdb'}"


def test_all_values_are_restored_except_those_of_sessions(database: str, run: Run, tmp_path: Path) -> None:
    target = f"dir:{tmp_path / 'target'}"
    ran = run("restore", database, "--store", target, "--yes", "--allow-unreadable", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    with open_store(database) as store:
        expected = {value.path: value.value for value in copied(store)}
    assert values_of(target) == expected
    assert json.loads(ran.stdout)["created"] == len(expected)
    not_checked = json.loads(ran.stderr.splitlines()[0])["not_checked"]
    assert "belong to the session of a broker or bookie" in not_checked.values()
    repeated = run("restore", database, "--store", target, "--yes", "--allow-unreadable", "-o", "json")
    assert json.loads(repeated.stdout)["kept_for"] == {"same": len(expected)}
    assert run("diff", target, database, "--ignore", "brokers").returncode == 0


def test_records_that_brokers_cannot_read_are_restored_with_a_warning(
    database: str, run: Run, tmp_path: Path
) -> None:
    target = f"dir:{tmp_path / 'target'}"
    ran = run("restore", database, "--store", target, "--yes", "--for-version", "4.2.4", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    with open_store(database) as store:
        assert values_of(target) == {value.path: value.value for value in copied(store)}
    assert b"restored as it is, but Pulsar 4.2.4 cannot load it" in ran.stderr


def test_owners_of_bundles_are_left_out_even_without_the_mark_of_a_session(run: Run, tmp_path: Path) -> None:
    """Otherwise the restored owners would make the guards refuse the cursors that follow."""
    owner = "/namespace/public/default/0x00000000_0xffffffff"
    record = b'{"nativeUrl":"pulsar://b1:6650","disabled":false}'
    cursor = ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString()
    values = [(owner, record), (f"{TOPIC}/sub", cursor)]
    source = written(tmp_path / "s", values)
    target = fill(f"dir:{tmp_path / 'target'}", {"/admin/x": b""})
    ran = run("restore", source, "--store", target, "--yes", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    assert f"{TOPIC}/sub" in values_of(target)
    assert owner not in values_of(target)


def test_different_values_are_kept_unless_overwritten(run: Run, tmp_path: Path) -> None:
    source = written(tmp_path / "s", [("/admin/a", b"1"), ("/admin/b", b"2"), ("/admin/c", b"3")])
    target = fill(f"dir:{tmp_path / 'target'}", {"/admin/b": b"theirs", "/admin/c": b"3"})
    ran = run("restore", source, "--store", target, "--yes", "-o", "json")
    assert ran.returncode == 1
    assert b"/admin/b: has another value" in ran.stderr
    answer = json.loads(ran.stdout)
    assert (answer["created"], answer["skipped_for"]) == (1, {"different": 1})
    assert values_of(target) == {"/admin/a": b"1", "/admin/b": b"theirs", "/admin/c": b"3"}
    plan = run("restore", source, "--store", target, "--overwrite", "--dry-run", "-o", "ndjson")
    assert plan.returncode == 0
    assert [json.loads(line).get("action") for line in plan.stdout.splitlines()[1:]] == [
        "keep",
        "rewrite",
        "keep",
    ]
    assert run("restore", source, "--store", target, "--overwrite").returncode == 2
    undo_file = tmp_path / "undo"
    ran = run("restore", source, "--store", target, "--overwrite", "--yes", "--undo-file", undo_file)
    assert ran.returncode == 0
    assert values_of(target)["/admin/b"] == b"2"
    assert run("undo", undo_file, "--store", target, "--yes").returncode == 0
    assert values_of(target)["/admin/b"] == b"theirs"


def with_entries(topic: str, *ledgers: int) -> tuple[str, bytes]:
    info = ManagedLedgerInfo()
    for ledger_id in ledgers:
        info.ledgerInfo.add(ledgerId=ledger_id, entries=5, size=50)
    return TopicName.parse(topic).path, info.SerializeToString()


def test_a_restore_that_makes_data_unreachable_is_confirmed(run: Run, tmp_path: Path) -> None:
    source = written(tmp_path / "s", [with_entries("orders", 3), with_entries("other", 4)])
    store = fill(f"dir:{tmp_path / 'target'}", dict([with_entries("orders", 3, 7), with_entries("other", 4)]))
    before, undo_file, name = values_of(store), tmp_path / "undo", "persistent://public/default/orders"
    words = ("restore", source, "--store", store, "--overwrite", "--undo-file", undo_file, "-o", "json")
    refused = run(*words, "--yes")
    assert refused.returncode == 2
    messages = [json.loads(line) for line in refused.stderr.splitlines()]
    lost = {"level": "warning", "message": f"{name}: 5 entries in 1 ledger become unreachable"}
    assert lost in messages
    assert messages[-1]["error"] == "usage"
    assert messages[-1]["message"].endswith(f"--confirm {name}")
    assert run(*words, "--yes", "--confirm", "orders").returncode == 2
    assert values_of(store) == before
    previewed = run(*words, "--dry-run")
    assert previewed.returncode == 0
    assert lost in [json.loads(line) for line in previewed.stderr.splitlines()]
    ran = run(*words, "--yes", "--confirm", name)
    assert (ran.returncode, json.loads(ran.stdout)["rewritten"]) == (0, 1)
    assert run("undo", undo_file, "--store", store, "--yes").returncode == 0
    assert values_of(store) == before


def test_undoing_a_restore_is_confirmed(run: Run, tmp_path: Path) -> None:
    source = written(tmp_path / "s", [with_entries("orders", 3), with_entries("other", 4)])
    store, undo_file = fill(f"dir:{tmp_path / 'target'}", {"/admin/x": b""}), tmp_path / "undo"
    assert run("restore", source, "--store", store, "--yes", "--undo-file", undo_file).returncode == 0
    refused = run("undo", undo_file, "--store", store, "--yes")
    assert refused.returncode == 2
    assert b"persistent://public/default/other: 5 entries in 1 ledger become unreachable" in refused.stderr
    assert b"--confirm '2 topics'" in refused.stderr
    assert run("undo", undo_file, "--store", store, "--yes", "--confirm", "2 topics").returncode == 0
    assert values_of(store) == {"/admin/x": b""}


def test_damaged_and_redacted_sources_are_refused(database: str, run: Run, tmp_path: Path) -> None:
    """They are refused before the first write."""
    complete, target = tmp_path / "all.ndjson", tmp_path / "target"
    target.mkdir()
    run("snapshot", str(complete), "--store", database)
    text = complete.read_bytes()
    cut, changed, redacted = (tmp_path / name for name in ("cut", "changed", "redacted"))
    cut.write_bytes(text[: text.rindex(b'{"path"')])
    changed.write_bytes(text.replace(b'"value": "eyJ', b'"value": "eyK', 1))
    redacted.write_bytes(text.replace(b'{"snapshot":', b'{"redacted": true, "snapshot":', 1))
    for file, code, words in (
        (cut, 4, b"truncated"),
        (changed, 4, b"values were changed"),
        (redacted, 7, b"secrets"),
    ):
        ran = run("restore", f"snapshot:{file}", "--store", f"dir:{target}", "--yes", "--allow-unreadable")
        assert (ran.returncode, list(target.iterdir())) == (code, []), file
        assert words in ran.stderr
    forced = ["--partial", "--store", f"dir:{target}", "--yes", "--allow-unreadable"]
    assert run("restore", f"snapshot:{cut}", *forced).returncode == 0
    assert run("restore", f"snapshot:{redacted}", *forced).returncode == 7


def test_a_migration_on_either_side_is_refused(run: Run, tmp_path: Path) -> None:
    moved = written(tmp_path / "s", [("/admin/a", b"1"), (MIGRATION, FLAG)])
    target = fill(f"dir:{tmp_path / 'target'}", {"/admin/x": b""})
    ran = run("restore", moved, "--store", target, "--yes")
    assert (ran.returncode, values_of(target)) == (7, {"/admin/x": b""})
    assert run("restore", moved, "--store", target, "--yes", "--allow-migration").returncode == 0
    # The migration flag itself is not restored.
    assert values_of(target) == {"/admin/x": b"", "/admin/a": b"1"}
    fill(target, {MIGRATION: FLAG})
    source = written(tmp_path / "t", [("/admin/b", b"1")])
    assert run("restore", source, "--store", target, "--yes").returncode == 7
    assert "/admin/b" not in values_of(target)


def test_invalid_paths_are_skipped_and_named(run: Run, tmp_path: Path) -> None:
    source = written(tmp_path / "s", [("/admin/a", b"1"), ("/admin//b", b"2")])
    target = fill(f"dir:{tmp_path / 'target'}", {"/admin/x": b""})
    ran = run("restore", source, "--store", target, "--yes")
    assert ran.returncode == 1
    assert b"/admin//b: " in ran.stderr
    assert values_of(target)["/admin/a"] == b"1"


def test_missing_and_wrong_sources_are_refused(run: Run, tmp_path: Path) -> None:
    target = fill(f"dir:{tmp_path / 'target'}", {"/admin/x": b""})
    assert run("restore", f"snapshot:{tmp_path / 'no'}", "--store", target, "--yes").returncode == 3
    assert run("restore", "nothing", "--store", target, "--yes").returncode == 2


def test_counters_are_in_the_plan_and_only_increase(database: str, run: Run, tmp_path: Path) -> None:
    copy = writable_copy(Path(database.partition(":")[2]), tmp_path / "metadata")
    source = written(
        tmp_path / "s", [(ledger_path(1000), b"")], {"counters": {"/ledgers/idgen": 900, "/other": 5}}
    )
    words = ["restore", source, "--store", f"rocksdb:{copy}", "--allow-unreadable"]
    plan = run(*words, "--dry-run", "-o", "ndjson")
    assert json.loads(plan.stdout.splitlines()[0])["counters"] == {"/ledgers/idgen": 1001}
    assert b"/ledgers/idgen: 1001; undo does not move counters back" in plan.stderr
    undo_file = tmp_path / "undo"
    ran = run(*words, "--yes", "--undo-file", undo_file)
    assert ran.returncode == 0, ran.stderr
    assert b"/ledgers/idgen: 1001" in ran.stdout
    undoing = ("undo", undo_file, "--store", f"rocksdb:{copy}", "--yes", "--confirm", "ledger 1000")
    assert run(*undoing).returncode == 0
    with open_store(f"rocksdb:{copy}") as store:
        assert store.next_sequence("/ledgers/idgen") == 1001
        assert ledger_path(1000) not in {value.path for value in store.scan("/ledgers")}


def test_restore_accepts_disks_for_ledger_ids(
    run: Run, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    folder = capture("pulsar-4.2.4")
    copy = writable_copy(folder / "rocksdb", tmp_path / "metadata")
    entries = f"bookie-disk:{folder / 'bookie0'}"
    source = written(tmp_path / "s", [("/admin/a", b"")])
    ran = run(
        "restore", source, "--store", f"rocksdb:{copy}", "--entries", entries, "--dry-run", "-o", "ndjson"
    )
    assert ran.returncode == 0, ran.stderr


SERVERS = [pytest.param(name, marks=pytest.mark.server) for name in ("zookeeper", "etcd", "oxia")]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, root: str, tmp_path: Path) -> str:
    """A server, with a path of its own if possible, or an empty database."""
    if request.param == "rocksdb":
        create_database(tmp_path / "database", "rocksdb:database")
        return f"rocksdb:{tmp_path / 'database'}"
    running: ZookeeperServer | EtcdServer | OxiaServer = request.getfixturevalue(f"{request.param}_server")
    if request.param != "zookeeper":
        return clear_store(f"{request.param}://{running.address}")
    fill(f"zk://{running.address}", {root: b""})
    return f"zk://{running.address}{root}"


def many(tmp_path: Path, root: str, count: int = 1500) -> tuple[str, dict[str, bytes]]:
    """Return a snapshot of topics with cursors, and its values."""
    values = {f"/admin{root}": b"{}"}
    for at in range(count // 3):
        topic = f"{TopicName.parse(f'persistent://t{root[1:]}/n/{at}').path}"
        values |= {topic: LEDGER, f"{topic}/a": b"\x08\x01", f"{topic}/b": b"\x08\x02"}
    return written(tmp_path / "many", values.items(), {"counters": {"/ledgers/idgen": 5000}}), values


@pytest.mark.parametrize(
    "server", mostly_at_night((*SERVERS, "rocksdb"), SERVERS[0], "rocksdb"), indirect=True
)
def test_a_killed_run_is_resumed_and_undone(run: Run, server: str, root: str, tmp_path: Path) -> None:
    source, values = many(tmp_path, root, 900)
    before, undo_file = values_of(server), tmp_path / "undo"
    words = ["restore", source, "--store", server, "--yes", "--undo-file", str(undo_file)]
    process = subprocess.Popen([PROGRAM, *words, "--rate", "1200"], stderr=subprocess.DEVNULL)
    while process.poll() is None and (not undo_file.exists() or undo_file.stat().st_size < 60_000):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < len(values_of(server).keys() & values.keys()) < len(values)
    with open_store(server) as store:
        # The counter is moved before any value is written.
        assert (store.next_sequence("/ledgers/idgen") or 0) >= 5000
    resumed = run(*words, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    now = values_of(server)
    assert {path: now[path] for path in values} == values
    with open_store(server) as store:
        assert (store.next_sequence("/ledgers/idgen") or 0) >= 5000
    ran = run("undo", str(undo_file), "--store", server, "--yes")
    if more := confirmation(ran):
        ran = run("undo", str(undo_file), "--store", server, "--yes", *more)
    assert ran.returncode == 0, ran.stderr
    # Parents that the store created may stay, and so does the counter.
    after = values_of(server)
    remaining = after.keys() - before.keys()
    assert not remaining & values.keys()
    assert not any(after[path] for path in remaining)


# Oxia 0.14 loses its place in its log if two clients write at the same time.
@pytest.mark.parametrize("server", SERVERS[:2], indirect=True)
def test_values_of_a_concurrent_writer_are_kept_and_named(server: str, root: str, tmp_path: Path) -> None:
    """All other values are restored."""
    source, values = many(tmp_path, root)
    other_paths, done = list(values)[-600:], set[str]()
    stop = threading.Event()

    def write_others() -> None:
        with open_store(server, read_only=False) as store:
            for path in reversed(other_paths):
                if stop.is_set():
                    return
                with suppress(ConflictError):
                    store.put(path, b"\x08\x09", ABSENT)
                    done.add(path)

    writer = threading.Thread(target=write_others)
    writer.start()
    words = ["restore", source, "--store", server, "--yes", "-o", "json"]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    ran = subprocess.run([PROGRAM, *words], capture_output=True, env=environment)
    stop.set()
    writer.join()
    now = values_of(server)
    assert done
    assert ran.returncode == 1
    different = {path for path in values if now.get(path) != values[path]}
    # Above the other writer's values, the store created empty parents.
    assert {path for path in different if now[path]} == done
    messages = [json.loads(line)["message"] for line in ran.stderr.splitlines() if b" has another " in line]
    assert {text.split()[0].rstrip(":") for text in messages} == different
    assert json.loads(ran.stdout)["skipped_for"]["different"] == len(different)


def test_a_deleted_topic_is_restored(database: str, run: Run, tmp_path: Path) -> None:
    target = f"dir:{tmp_path / 'target'}"
    words = ["--store", target, "--yes", "--allow-unreadable"]
    run("restore", database, *words)
    before = values_of(target)
    topic = TopicName.parse("compacted")
    with open_store(target, read_only=False) as store:
        deleted = list(TopicValues(store, chosen_topics(store, [str(topic)])).values())
        for value in sorted(deleted, key=lambda value: value.path, reverse=True):
            store.delete(value.path, value.version)
    entries = f"bookie-disk:{Path(database.partition(':')[2]).parent / 'bookie0'}"
    ran = run("restore", database, "--topic", "compacted", "--entries", entries, *words, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["created"] == len(deleted) > 5
    assert values_of(target) == before
    checked = json.loads(ran.stderr.splitlines()[0])["checked"]
    assert (checked["topics"], checked["values"]) == (1, len(deleted))
    assert b"complete; cursors " in ran.stderr


def test_missing_topics_are_refused(database: str, run: Run, tmp_path: Path) -> None:
    words = ["--store", f"dir:{tmp_path / 'target'}", "--yes"]
    (tmp_path / "target").mkdir()
    assert run("restore", database, "--topic", "no-such", *words).returncode == 3
    assert run("restore", database, "--namespace", "no-slash", *words).returncode == 2
    assert run("restore", database, "--with-policies", *words).returncode == 2
    assert run("restore", database, "--topic", "no-such-*", *words).returncode == 3
    listed = run("restore", database, "--stdin", *words, stdin=b"compacted\nno-such\n")
    assert listed.returncode == 3
    assert b"no-such" in listed.stderr
    assert not list((tmp_path / "target").iterdir())


def test_the_topics_are_read_once_per_run(
    database: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run uses the values that were read for its count, so disks and cursor ledgers are not read twice."""
    walks = []
    original = TopicValues.values

    def counted(self: TopicValues) -> Iterator[Versioned]:
        walks.append(self)
        return original(self)

    monkeypatch.setattr(TopicValues, "values", counted)
    target = fill(f"dir:{tmp_path / 'target'}", {"/admin/x": b""})
    words = ["--store", target, "--allow-unreadable", "--stdin", "-o", "ndjson"]
    for more, parts in (["--dry-run"], 1), (["--yes"], 2):
        ran = run("restore", database, *words, *more, stdin=b"compacted\n")
        assert ran.returncode == 0, ran.stderr
        assert len(walks) == parts
    assert TopicName.parse("compacted").path in values_of(target)


def test_a_dry_run_into_a_missing_directory_shows_the_plan(run: Run, tmp_path: Path) -> None:
    source = fill(f"dir:{tmp_path / 'source'}", {"/admin/x": b"1"})
    target = tmp_path / "target"
    done = run("restore", source, "--store", f"dir:{target}", "--dry-run")
    assert (done.returncode, b'"path": "/admin/x"' in done.stdout) == (0, True), done.stderr
    assert b"does not exist, so this is a new directory" in done.stderr
    assert not target.exists()


def test_a_missing_database_is_created(database: str, run: Run, tmp_path: Path) -> None:
    target = tmp_path / "new" / "metadata"
    words = ["restore", database, "--store", f"rocksdb:{target}", "--allow-unreadable"]
    for more, code in ((["--dry-run"], 0), ([], 2)):
        assert run(*words, *more).returncode == code
        assert not target.parent.exists()
    assert run(*words, "--yes").returncode == 0
    assert run("diff", database, f"rocksdb:{target}", "--ignore", "brokers", "--bytes").returncode == 0
    assert not [
        file.name for file in target.iterdir() if file.name.startswith(("OPTIONS", "rocksdict", "LOG."))
    ]
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").touch()
    assert run("restore", database, "--store", f"rocksdb:{full}", "--yes").returncode == 3

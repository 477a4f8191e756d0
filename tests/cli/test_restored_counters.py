"""`restore` moves the ledger id counter before it writes any value that names a ledger."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, TopicName
from pulsar_meta.jobs.restore.survey import ledgers_in, survey_source, survey_target
from pulsar_meta.jobs.restore.values import UnreadableValues, counter_minimums, restore_values
from pulsar_meta.jobs.rewrite.guards import Overrides
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.run import Listener, Terms, run
from pulsar_meta.jobs.values.places import IDGEN
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.snapshot_writer import SnapshotWriter
from tests.cli.program import confirmation
from tests.cli.values import PROGRAM, clear_store
from tests.nightly import mostly_at_night
from tests.servers.etcd import EtcdServer


def topic(name: str, ledger_id: int) -> tuple[str, bytes]:
    """Return the path and the record of a topic with one ledger."""
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=ledger_id, entries=1, size=1, timestamp=1)
    return TopicName.parse(name).path, info.SerializeToString()


def highest_named(store: Store) -> int:
    """Return the highest ledger id that is named in a store, or -1."""
    values = [value for place in (LEDGERS, MANAGED_LEDGERS) for value in store.scan(place)]
    return max((ledger_id for value in values for ledger_id in ledgers_in(value)), default=-1)


def many(file: Path) -> str:
    """Return the URL of a snapshot with 1500 topics, whose ledger ids occur only in their own records."""
    writer = SnapshotWriter(file, {})
    for at in range(1500):
        writer.add(Versioned(*topic(f"persistent://t/n/{at}", 70_000 - at), 0))
    writer.finish({})
    return f"snapshot:{file}"


@pytest.mark.parametrize("written", mostly_at_night((0, 1, 100_000, 200_000), 1, 100_000))
def test_a_killed_restore_never_leaves_the_counter_behind(written: int, tmp_path: Path) -> None:
    """The run is killed before, at, or after its first undo record, and then resumed."""
    target, undo_file = tmp_path / "metadata", tmp_path / "undo"
    words = ["restore", many(tmp_path / "many"), "--store", f"rocksdb:{target}", "--yes"]
    words += ["--undo-file", str(undo_file)]
    process = subprocess.Popen([PROGRAM, *words, "--rate", "3000"], stderr=subprocess.DEVNULL)

    def reached() -> bool:
        if not written:
            return bool(list(tmp_path.glob("metadata.checkpoint-*")))
        return undo_file.exists() and undo_file.stat().st_size >= written

    while process.poll() is None and not reached():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with open_store(f"rocksdb:{target}") as store:
        assert highest_named(store) < (store.next_sequence(IDGEN) or 0) or highest_named(store) == -1
        written_topics = sum(1 for _ in store.scan("/managed-ledgers"))
    assert written_topics < 1500
    resumed = subprocess.run([PROGRAM, *words, *(["--resume"] if written else [])], capture_output=True)
    assert resumed.returncode == 0, resumed.stderr
    with open_store(f"rocksdb:{target}") as store:
        assert highest_named(store) == 70_000 < (store.next_sequence(IDGEN) or 0)


def test_the_counter_is_written_before_the_values(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """etcd numbers its writes. The source gets a new ledger after it was surveyed."""
    first, later = (topic(f"persistent://counters/n/{name}", 0)[0] for name in ("first", "later"))
    url = clear_store(f"etcd://{etcd_server.address}")
    with open_store(url, read_only=False) as target:
        ahead = max(highest_named(target), target.next_sequence(IDGEN) or 0)
        with open_store(f"dir:{tmp_path}", read_only=False) as source:
            source.put(first, topic("x", ahead + 40)[1], ABSENT)
            surveys = [survey_source(source, _fail), survey_target(target, _fail)]
            floors = counter_minimums(source, target, surveys)
            source.put(later, topic("x", ahead + 90)[1], ABSENT)
            rewrite = restore_values(
                lambda: _in_turn(source, first, later), floors, UnreadableValues(Readers()), overwrite=False
            )
            terms = Terms(Overrides(loaded=True), undo_file=tmp_path.with_name("undo"))
            report = run(target, rewrite, terms, Listener())
        counter = target.read(IDGEN).version
        assert target.next_sequence(IDGEN) == report.summary.counters[IDGEN] == ahead + 91
        assert counter < target.read(first).version
        assert counter < target.read(later).version
        assert floors.counters[IDGEN] == ahead + 41


def _in_turn(source: Store, *paths: str) -> Iterator[Versioned]:
    yield from map(source.read, paths)


def _fail(error: Exception) -> None:
    raise error


def test_counters_never_go_back(tmp_path: Path) -> None:
    """A restore and its undo leave a counter alone that is already high enough."""
    target, undo_file = f"rocksdb:{tmp_path / 'metadata'}", tmp_path / "undo"
    words: Iterable[str] = ["--store", target, "--yes"]
    first = ["restore", many(tmp_path / "many"), *words, "--undo-file", str(undo_file)]
    subprocess.run([PROGRAM, *first], check=True, capture_output=True)
    with open_store(target, read_only=False) as store:
        store.advance_sequence(IDGEN, 90_000)
    env = {"XDG_STATE_HOME": str(tmp_path)}
    for arguments in (first[:-2], ["undo", str(undo_file), *words]):
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, env=env)
        more = confirmation(done)
        if more:
            done = subprocess.run([PROGRAM, *arguments, *more], capture_output=True, env=env)
        assert done.returncode == 0, done.stderr
        with open_store(target) as store:
            assert store.next_sequence(IDGEN) == 90_000


def snapshot_with_counter(file: Path, counter: int) -> str:
    writer = SnapshotWriter(file, {"counters": {IDGEN: counter}})
    writer.add(Versioned(*topic("persistent://t/n/a", 7), 0))
    writer.finish({})
    return f"snapshot:{file}"


def restored(source: str, target: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [str(PROGRAM), "restore", source, "--store", f"rocksdb:{target}", "--yes", *more]
    return subprocess.run(words, capture_output=True, text=True)


@pytest.mark.parametrize("counter", [1_000_009, 2**31 - 2])
def test_a_counter_far_above_every_known_id_is_refused(counter: int, tmp_path: Path) -> None:
    source, target = snapshot_with_counter(tmp_path / "s", counter), tmp_path / "metadata"
    done = restored(source, target)
    assert done.returncode == 7
    assert f"{IDGEN} to {counter}" in done.stderr
    with open_store(f"rocksdb:{target}") as store:
        assert not list(store.scan("/managed-ledgers"))
        assert (store.next_sequence(IDGEN) or 0) == 0
    assert restored(source, target, "--trust-counters").returncode == 0
    with open_store(f"rocksdb:{target}") as store:
        assert store.next_sequence(IDGEN) == counter


def test_a_counter_that_no_broker_can_use_is_refused(tmp_path: Path) -> None:
    done = restored(snapshot_with_counter(tmp_path / "s", 2**40), tmp_path / "metadata", "--trust-counters")
    assert done.returncode == 7
    assert "no broker can use" in done.stderr


def test_a_changed_header_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "s"
    source = snapshot_with_counter(file, 50)
    file.write_bytes(file.read_bytes().replace(b'"/ledgers/idgen": 50', b'"/ledgers/idgen": 60'))
    done = restored(source, tmp_path / "metadata")
    assert done.returncode == 4
    assert "header" in done.stderr


def test_raising_a_counter_by_a_million_writes_is_refused(etcd_server: EtcdServer, tmp_path: Path) -> None:
    url, file = f"etcd://{etcd_server.address}", tmp_path / "s"
    with open_store(url) as store:
        current = store.next_sequence(IDGEN) or 0
    writer = SnapshotWriter(file, {})
    writer.add(Versioned(*topic("persistent://t/n/a", current + 1_000_500), 0))
    writer.finish({})
    words = [str(PROGRAM), "restore", f"snapshot:{file}", "--store", url, "--yes"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 7
    assert "minutes" in done.stderr
    with open_store(url) as store:
        assert (store.next_sequence(IDGEN) or 0) == current

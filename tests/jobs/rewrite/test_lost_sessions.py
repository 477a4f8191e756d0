"""A real ZooKeeper ends a run's session or dies: no value is lost, and the run can be resumed."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.jobs.rewrite.apply import GROUP_VALUES, Batches, Speed, chunks
from pulsar_meta.jobs.rewrite.rules import Recompression
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.rewrite.undo import leave_touched, undone
from pulsar_meta.jobs.rewrite.undo_log import UndoLog, is_finished, read_records
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.stores import zookeeper_client
from pulsar_meta.stores.base import Write
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.zookeeper import ZookeeperStore
from pulsar_meta.stores.zookeeper_client import send_transaction
from tests.chaos.actors import TOPIC, cursor
from tests.cli.program import MAIN, environment, pulsar_meta_here
from tests.nightly import mostly_at_night
from tests.rewrite_runs import make_run
from tests.servers import zookeeper
from tests.servers.restartable import skip_or_fail

pytestmark = pytest.mark.server

CURSORS = 1500
SESSION = 3.0
PACK = Recompression("cursor", "zstd", threshold=64)
WORDS = ("compress-cursors", "--compression", "zstd", "--threshold", "64", "--yes", "--rate", "1500")

Values = dict[str, bytes]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper.ZookeeperServer]:
    """A server that ends sessions after at most three seconds."""
    skip_or_fail("zookeeper", zookeeper.why_not())
    settings = f"minSessionTimeout=500\nmaxSessionTimeout={SESSION * 1000:.0f}"
    with zookeeper.ZookeeperServer(tmp_path_factory.mktemp("zookeeper"), settings=settings) as running:
        yield running


@cache
def cursors() -> Values:
    """Map the paths of many cursors to their values."""
    return {f"{TOPIC}/cursor-{number:05}": cursor(number) for number in range(CURSORS)}


@pytest.fixture
def before(server: zookeeper.ZookeeperServer) -> Values:
    """Put uncompressed cursors into the store and return them."""
    values = cursors()
    client = KazooClient(server.address)
    client.start(timeout=10)
    client.delete(TOPIC, recursive=True)
    client.ensure_path(TOPIC)
    for paths in chunks(sorted(values), 250):
        transaction = client.transaction()
        for path in paths:
            transaction.create(path, values[path])
        transaction.commit()
    client.stop()
    client.close()
    return values


def url_of(server: zookeeper.ZookeeperServer, seconds: float = 30) -> str:
    return f"zk://{server.address}?timeout={seconds:g}"


def values_in(server: zookeeper.ZookeeperServer) -> Values:
    with open_store(url_of(server)) as store:
        return {record.path: record.value for record in store.scan(TOPIC) if record.path != TOPIC}


def check_nothing_is_lost(before: Values, now: Values) -> int:
    """Check that each value is the old one or an equivalent new one, and count the new ones."""
    assert set(now) == set(before)
    changed = [path for path in now if now[path] != before[path]]
    assert all(decode_cursor(now[path]) == decode_cursor(before[path]) for path in changed)
    return len(changed)


class Program:
    """compress-cursors on the server, in a separate process."""

    def __init__(self, url: str, state: Path) -> None:
        self.env = environment(state, PULSAR_META_STORE=url)
        self.undo_file = state / "undo.ndjson"

    def start(self) -> subprocess.Popen[bytes]:
        words = [*MAIN, *WORDS, "--undo-file", str(self.undo_file), "-o", "json"]
        return subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for_records(self, count: int) -> None:
        """Return when more than `count` undo records are on disk. The last of them are being sent."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.undo_file.exists() and self.undo_file.read_bytes().count(b"\n") > count:
                return
            time.sleep(0.002)
        raise AssertionError("the run does not begin")

    def run(self, *words: str) -> Any:
        done = pulsar_meta_here(*words, env=self.env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def resume(self, stderr: bytes) -> Any:
        """Run the command that a stopped run printed."""
        messages = [json.loads(line).get("message", "") for line in stderr.decode().splitlines()]
        line = next(message for message in messages if "resume with: " in message)
        words = shlex.split(line.partition("resume with: ")[2])
        assert (words[0], words[-1]) == ("pulsar-meta", "--resume")
        return self.run(*words[1:])


def check_stopped_then_finished_then_undone(
    program: Program, server: zookeeper.ZookeeperServer, before: Values, stderr: bytes
) -> None:
    changed = check_nothing_is_lost(before, values_in(server))
    resumed = program.resume(stderr)
    # Requests in the buffers of a paused server may still have arrived.
    assert 0 < resumed["rewritten"] <= CURSORS - changed
    assert resumed["rewritten"] + resumed["kept"] == CURSORS
    assert check_nothing_is_lost(before, values_in(server)) == CURSORS
    undone = program.run("undo", "--yes", str(program.undo_file), "-o", "json")
    assert (undone["rewritten"], undone["conflicts"]) == (CURSORS, 0)
    assert values_in(server) == before


@pytest.mark.parametrize("records", mostly_at_night((1, 600)))
def test_a_server_that_pauses_longer_than_a_session_stops_the_run(
    server: zookeeper.ZookeeperServer, before: Values, tmp_path: Path, records: int
) -> None:
    program = Program(url_of(server, 3), tmp_path)
    child = program.start()
    program.wait_for_records(records)
    with server.paused():
        longer = time.monotonic() + SESSION + 0.5
        out, stderr = child.communicate(timeout=120)
        time.sleep(max(longer - time.monotonic(), 0))
    assert child.returncode == 6, stderr
    assert out == b""
    assert b"Traceback" not in stderr
    check_stopped_then_finished_then_undone(program, server, before, stderr)


def test_a_killed_server_stops_the_run(
    server: zookeeper.ZookeeperServer, before: Values, tmp_path: Path
) -> None:
    program = Program(url_of(server, 3), tmp_path)
    child = program.start()
    program.wait_for_records(600)
    server.kill()
    out, stderr = child.communicate(timeout=120)
    server.start()
    assert child.returncode == 6, stderr
    assert out == b""
    assert b"Traceback" not in stderr
    check_stopped_then_finished_then_undone(program, server, before, stderr)


class EndedStore(ZookeeperStore):
    """A store whose session another client with the same id ends, as if it had expired."""

    ended: int = 0

    def end(self) -> None:
        other = KazooClient(",".join(self._parsed.endpoints), client_id=self._client.client_id)
        other.start(timeout=10)
        other.stop()
        other.close()
        self.ended += 1


@pytest.mark.parametrize("sent", mostly_at_night((0, 3, 8), 3))
def test_a_session_that_expires_within_a_group_loses_nothing(
    server: zookeeper.ZookeeperServer,
    before: Values,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sent: int,
) -> None:
    """The session ends when `sent` of a group's eight requests are sent (8 means all of them)."""
    path, failures = tmp_path / "undo", 0
    with EndedStore(url_of(server), read_only=False) as store:
        calls = count()

        def send(client: Any, group: Sequence[Write]) -> Any:
            number = next(calls)
            if number == sent:
                store.end()
            return send_transaction(client, group)

        monkeypatch.setattr(zookeeper_client, "send_transaction", send)
        while not path.exists() or not is_finished(path):
            undo = UndoLog(path, "test", read_identity(store), resume=True)
            run = make_run(store, undo, Speed(concurrency=512, largest=512))
            try:
                run.apply(((seen, PACK(seen)) for seen in select(store, Scope(), "cursor")), PACK)
            except UnreachableError:
                failures += 1
            finally:
                undo.close()
            check_nothing_is_lost(before, values_in(server))
        # The connection continued with a new session.
        assert (failures, store.ended) == (1, 1)
    assert check_nothing_is_lost(before, values_in(server)) == CURSORS
    with ZookeeperStore(url_of(server), read_only=False) as plain:
        log = UndoLog(tmp_path / "own", "undo", read_identity(plain))
        run = make_run(plain, log)
        tally = run.apply(undone(path, Batches(plain, 64)), leave_touched)
        log.close()
    assert (tally.rewritten, tally.conflicts) == (CURSORS, 0)
    assert values_in(server) == before


def test_a_broker_that_takes_the_bundle_keeps_the_rest(
    server: zookeeper.ZookeeperServer, before: Values, tmp_path: Path
) -> None:
    """The undo file is synced between the check and the sending, and the broker appears at that time."""
    broker = KazooClient(server.address)
    broker.start(timeout=10)

    class Log(UndoLog):
        def append(self, lines: Sequence[bytes]) -> int:
            number = super().append(lines)
            if any(b'cursor-00600"' in line for line in lines):
                owner = "/namespace/public/default/0x00000000_0xffffffff"
                broker.create(owner, b'{"nativeUrl":"pulsar://b1:6650"}', ephemeral=True, makepath=True)
            return number

    with open_store(url_of(server), read_only=False) as store:
        log, warnings = Log(tmp_path / "undo", "test", read_identity(store)), list[str]()
        run = make_run(store, log, warn=warnings.append)
        tally = run.apply(((seen, PACK(seen)) for seen in select(store, Scope(), "cursor")), PACK)
        log.close()
    broker.stop()
    broker.close()
    # The first group was written before, and the second one if it had been checked before.
    written = tally.rewritten
    assert written in (GROUP_VALUES, 2 * GROUP_VALUES)
    assert (tally.skipped_for["loaded"], tally.conflicts) == (CURSORS - written, 0)
    assert all("pulsar://b1:6650" in line for line in warnings)
    now = values_in(server)
    assert check_nothing_is_lost(before, now) == written
    assert all(now[path] == before[path] for path in sorted(before)[written:])
    assert sum(record.sent is not None for record in read_records(tmp_path / "undo")) == written

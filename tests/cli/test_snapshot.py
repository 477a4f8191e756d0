"""`snapshot` and `diff` on real stores: complete, truncated, changed and resumed copies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.registry import open_store
from tests.cli.values import PROGRAM, Run
from tests.servers.zookeeper import ZookeeperServer

SECRET = b'{"serviceUrl": "http://x", "brokerClientAuthenticationParameters": "token:hunter2"}'


@pytest.fixture
def database(capture: Callable[[str], Path]) -> str:
    return f"rocksdb:{capture('pulsar-4.2.4') / 'rocksdb'}"


def values_of(url: str) -> list[Versioned]:
    with open_store(url) as store:
        return list(store.scan())


def own_part(server: ZookeeperServer, name: str) -> str:
    """Create a path of its own on the server for a test, and return its URL."""
    with open_store(f"zk://{server.address}", read_only=False) as store:
        store.put(f"/snapshot-{name}", b"", ABSENT)
    return f"zk://{server.address}/snapshot-{name}"


@pytest.mark.parametrize("name", ["all.ndjson", "all.ndjson.zst"])
def test_a_snapshot_has_every_value(database: str, run: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    ran = run("snapshot", str(file), "--store", database, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    assert values_of(f"snapshot:{file}") == values_of(database)
    answer = json.loads(ran.stdout)
    assert answer["values"] == len(values_of(database))
    with open_store(f"snapshot:{file}") as store:
        assert store.origin["counters"]["/ledgers/idgen"] > 300
        list(store.scan())
        assert store.origin["sum"] == answer["sum"]
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert file.read_bytes()[:4] == (b"\x28\xb5\x2f\xfd" if name.endswith("zst") else b'{"sn')


@pytest.mark.parametrize("name", ["all.ndjson", "all.ndjson.zst"])
def test_a_truncated_file_is_refused_but_can_be_read_in_part(
    database: str, run: Run, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    run("snapshot", str(file), "--store", database)
    complete = values_of(f"snapshot:{file}")
    data = file.read_bytes()
    # Plain files are cut within a line and at the end of a line, compressed files after the first block.
    cuts = [len(data) - 10] if name.endswith("zst") else [len(data) * 2 // 3, data.rindex(b"\n", 0, -1) + 1]
    for cut in cuts:
        file.write_bytes(data[:cut])
        ran = run("ls", "/", "--store", f"snapshot:{file}")
        assert ran.returncode == 4, ran
        assert len(ran.stderr.splitlines()) == 1
        partial = values_of(f"snapshot:{file}?partial")
        assert partial == complete[: len(partial)]
        assert partial


def test_missing_lines_and_changed_values_are_detected(database: str, run: Run, tmp_path: Path) -> None:
    file, other = tmp_path / "all.ndjson", tmp_path / "other.ndjson"
    run("snapshot", str(file), "--store", database)
    lines = file.read_text().splitlines(keepends=True)
    other.write_text("".join(lines[:50] + lines[51:]))
    ran = run("ls", "/", "--store", f"snapshot:{other}")
    assert ran.returncode == 4
    assert b"the footer counts" in ran.stderr
    other.write_text("".join(lines).replace('"value": "eyJ', '"value": "eyK'))
    ran = run("diff", f"snapshot:{file}", f"snapshot:{other}")
    assert ran.returncode == 4
    assert b"values were changed" in ran.stderr


def test_the_file_of_a_killed_run_is_resumed(database: str, run: Run, tmp_path: Path) -> None:
    file, part = tmp_path / "all.ndjson", tmp_path / "all.ndjson.part"
    run("snapshot", str(file), "--store", database)
    data = file.read_bytes()
    part.write_bytes(data[: len(data) // 2])
    file.unlink()
    ran = run("snapshot", str(file), "--store", database)
    assert (ran.returncode, file.exists()) == (2, False)
    assert b"--resume" in ran.stderr
    ran = run("snapshot", str(file), "--store", database, "--resume", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["kept"] > 100
    assert values_of(f"snapshot:{file}") == values_of(database)
    assert not part.exists()


def test_the_unfinished_snapshot_of_another_store_is_not_resumed(
    database: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "all.ndjson.part").write_text('{"snapshot": 1, "store": {"instance_id": "other"}}\n')
    ran = run("snapshot", str(tmp_path / "all.ndjson"), "--store", database, "--resume")
    assert ran.returncode == 2
    assert b"another store" in ran.stderr


def test_redact_removes_secrets(run: Run, tmp_path: Path) -> None:
    with open_store(f"dir:{tmp_path / 'store'}", read_only=False) as store:
        store.put("/admin/clusters/c", SECRET, ABSENT)
        store.put("/admin/clusters/broken", SECRET[:-3], ABSENT)
        store.put("/admin/clusters/plain", b'{"serviceUrl" :"http://x"}', ABSENT)
    file = tmp_path / "shown.ndjson"
    assert run("snapshot", str(file), "--redact", "--store", f"dir:{tmp_path / 'store'}").returncode == 0
    with open_store(f"snapshot:{file}") as shown:
        values = {value.path.rpartition("/")[2]: value.value for value in shown.scan()}
        assert shown.origin["redacted"] is True
    assert values["plain"] == b'{"serviceUrl" :"http://x"}'
    assert b"hunter2" not in b"".join(values.values())
    assert json.loads(values["c"])["serviceUrl"] == "http://x"


def test_outputs_that_cannot_be_written_are_refused(database: str, run: Run, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "such", Path("/dev/null")):
        ran = run("snapshot", str(place), "--store", database)
        assert ran.returncode == 2, place
        assert len(ran.stderr.splitlines()) == 1


def test_a_snapshot_of_a_changing_store_counts_the_changes(
    zookeeper_server: ZookeeperServer, tmp_path: Path
) -> None:
    """A value that changes during the snapshot is written in its last state."""
    url = own_part(zookeeper_server, "race")
    with open_store(url, read_only=False) as live:
        for at in range(3000):
            live.put(f"/{at % 7}/{at:05d}", b"before" * 20, ABSENT)
        words = ["snapshot", str(tmp_path / "all.ndjson"), "--store", url, "-o", "json"]
        with subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE) as process:
            at = 0
            while process.poll() is None:
                path = f"/{at % 7}/{at:05d}"
                live.put(path, b"after", live.read(path).version)
                live.put(f"/new/{at:05d}", b"new", ABSENT)
                at += 1
            assert process.stdout is not None
            answer = json.loads(process.stdout.read())
    assert process.returncode == 0
    assert answer["changed_meanwhile"] > 0
    assert len(values_of(f"snapshot:{tmp_path / 'all.ndjson'}")) == answer["values"]


def test_a_killed_run_is_resumed(zookeeper_server: ZookeeperServer, tmp_path: Path) -> None:
    url = own_part(zookeeper_server, "killed")
    with open_store(url, read_only=False) as live:
        for at in range(2000):
            live.put(f"/{at % 7}/{at:05d}", os.urandom(2000), ABSENT)
    file = tmp_path / "all.ndjson"
    process = subprocess.Popen([PROGRAM, "snapshot", str(file), "--store", url])
    part = tmp_path / "all.ndjson.part"
    while process.poll() is None and (not part.exists() or part.stat().st_size < 100_000):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not file.exists()
    resumed = subprocess.run(
        [PROGRAM, "snapshot", str(file), "--store", url, "--resume"], capture_output=True
    )
    assert resumed.returncode == 0, resumed.stderr
    assert values_of(f"snapshot:{file}") == values_of(url)


def test_differences_of_two_stores_are_shown(run: Run, capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4")
    left, right = (f"snapshot:{folder / name}.ndjson" for name in ("metadata-after-step-2", "metadata"))
    ran = run("diff", left, right, "-o", "json")
    assert ran.returncode == 1
    rows = json.loads(ran.stdout)
    values = [{value.path: value for value in values_of(url)} for url in (left, right)]
    assert {row["path"] for row in rows if row["change"] == "only-left"} == values[0].keys() - values[
        1
    ].keys()
    assert {row["path"] for row in rows if row["change"] == "only-right"} == values[1].keys() - values[
        0
    ].keys()
    both = values[0].keys() & values[1].keys()
    different = {path for path in both if values[0][path].value != values[1][path].value}
    assert {row["path"] for row in rows if row["change"] == "different"} == different
    assert all(row["differences"] for row in rows if row["change"] == "different")
    checked, sums = map(json.loads, ran.stderr.splitlines())
    assert checked["checked"]["different"] == len(different)
    assert sums["left"]["values"] == len(values[0])


def test_copies_in_different_orders_are_equal(
    run: Run, capture: Callable[[str], Path], database: str
) -> None:
    ran = run("diff", f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}", database)
    assert (ran.returncode, ran.stdout) == (0, b"")
    left, right = ran.stderr.splitlines()[1:]
    assert left.split()[1:] == right.split()[1:]


def test_sessions_and_parents_can_be_ignored(run: Run, tmp_path: Path) -> None:
    line = '{{"path": "{}", "version": 0, "value": "{}", "ephemeral": {}}}\n'
    left, right = tmp_path / "left", tmp_path / "right"
    left.write_text(line.format("/a", "", "false") + line.format("/a/b", "eA==", "false"))
    right.write_text(line.format("/a/b", "eA==", "false") + line.format("/a/e", "eA==", "true"))
    urls = [f"snapshot:{left}", f"snapshot:{right}"]
    assert run("diff", *urls).returncode == 1
    ran = run("diff", *urls, "--ignore", "ephemeral", "--ignore", "parents")
    assert ran.returncode == 0
    assert b"not checked: 2 values (--ignore ephemeral --ignore parents)" in ran.stderr


def test_equal_meanings_in_other_bytes_are_equal(run: Run, tmp_path: Path) -> None:
    for name, value in (("one", b'{"a": 1}'), ("two", b'{"a":1}')):
        with open_store(f"dir:{tmp_path / name}", read_only=False) as store:
            store.put("/admin/x", value, ABSENT)
    urls = [f"dir:{tmp_path / name}" for name in ("one", "two")]
    ran = run("diff", *urls)
    assert ran.returncode == 0
    assert b"1 encoded differently" in ran.stderr
    assert run("diff", *urls, "--bytes").returncode == 1


def test_a_missing_side_is_not_found(run: Run, database: str, tmp_path: Path) -> None:
    ran = run("diff", database, f"snapshot:{tmp_path / 'no'}")
    assert (ran.returncode, ran.stdout) == (3, b"")

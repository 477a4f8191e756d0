"""`snapshot` and `diff`: copies of real stores, cut, changed, gone on with."""

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
    """Return the URL of a part of the server's tree where nobody else writes."""
    with open_store(f"zk://{server.address}", read_only=False) as store:
        store.put(f"/snapshot-{name}", b"", ABSENT)
    return f"zk://{server.address}/snapshot-{name}"


@pytest.mark.parametrize("name", ["all.ndjson", "all.ndjson.zst"])
def test_every_value_as_it_was(database: str, run: Run, tmp_path: Path, name: str) -> None:
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
def test_a_file_that_was_cut(database: str, run: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    run("snapshot", str(file), "--store", database)
    whole = values_of(f"snapshot:{file}")
    data = file.read_bytes()
    # In the middle of a line, and where a line ends; a compressed one behind its first block.
    cuts = [len(data) - 10] if name.endswith("zst") else [len(data) * 2 // 3, data.rindex(b"\n", 0, -1) + 1]
    for cut in cuts:
        file.write_bytes(data[:cut])
        ran = run("ls", "/", "--store", f"snapshot:{file}")
        assert ran.returncode == 4, ran
        assert len(ran.stderr.splitlines()) == 1
        some = values_of(f"snapshot:{file}?partial")
        assert some == whole[: len(some)]
        assert some


def test_lines_that_are_missing_and_values_that_were_changed(database: str, run: Run, tmp_path: Path) -> None:
    file, other = tmp_path / "all.ndjson", tmp_path / "other.ndjson"
    run("snapshot", str(file), "--store", database)
    lines = file.read_text().splitlines(keepends=True)
    other.write_text("".join(lines[:50] + lines[51:]))
    ran = run("ls", "/", "--store", f"snapshot:{other}")
    assert ran.returncode == 4
    assert b"the foot counts" in ran.stderr
    other.write_text("".join(lines).replace('"value": "eyJ', '"value": "eyK'))
    ran = run("diff", f"snapshot:{file}", f"snapshot:{other}")
    assert ran.returncode == 4
    assert b"values were changed" in ran.stderr


def test_what_a_killed_run_left(database: str, run: Run, tmp_path: Path) -> None:
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


def test_what_another_store_left_is_not_gone_on_with(database: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "all.ndjson.part").write_text('{"snapshot": 1, "store": {"instance_id": "other"}}\n')
    ran = run("snapshot", str(tmp_path / "all.ndjson"), "--store", database, "--resume")
    assert ran.returncode == 2
    assert b"another store" in ran.stderr


def test_secrets_are_left_out(run: Run, tmp_path: Path) -> None:
    with open_store(f"dir:{tmp_path / 'store'}", read_only=False) as store:
        store.put("/admin/clusters/c", SECRET, ABSENT)
        store.put("/admin/clusters/broken", SECRET[:-3], ABSENT)
        store.put("/admin/clusters/plain", b'{"serviceUrl" :"http://x"}', ABSENT)
    file = tmp_path / "shown.ndjson"
    assert run("snapshot", str(file), "--redact", "--store", f"dir:{tmp_path / 'store'}").returncode == 0
    with open_store(f"snapshot:{file}") as shown:
        found = {held.path.rpartition("/")[2]: held.value for held in shown.scan()}
        assert shown.origin["redacted"] is True
    assert found["plain"] == b'{"serviceUrl" :"http://x"}'
    assert b"hunter2" not in b"".join(found.values())
    assert json.loads(found["c"])["serviceUrl"] == "http://x"


def test_bad_places(database: str, run: Run, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "such", Path("/dev/null")):
        ran = run("snapshot", str(place), "--store", database)
        assert ran.returncode == 2, place
        assert len(ran.stderr.splitlines()) == 1


def test_a_live_server_written_to_meanwhile(zookeeper_server: ZookeeperServer, tmp_path: Path) -> None:
    """What changes while it is read is in the file as it was last, and counted."""
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


def test_a_run_that_is_killed_is_gone_on_with(zookeeper_server: ZookeeperServer, tmp_path: Path) -> None:
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
    again = subprocess.run([PROGRAM, "snapshot", str(file), "--store", url, "--resume"], capture_output=True)
    assert again.returncode == 0, again.stderr
    assert values_of(f"snapshot:{file}") == values_of(url)


def test_two_stores_that_differ(run: Run, capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4")
    one, two = (f"snapshot:{folder / name}.ndjson" for name in ("metadata-after-step-2", "metadata"))
    ran = run("diff", one, two, "-o", "json")
    assert ran.returncode == 1
    rows = json.loads(ran.stdout)
    values = [{held.path: held for held in values_of(url)} for url in (one, two)]
    assert {row["path"] for row in rows if row["change"] == "only-left"} == values[0].keys() - values[
        1
    ].keys()
    assert {row["path"] for row in rows if row["change"] == "only-right"} == values[1].keys() - values[
        0
    ].keys()
    both = values[0].keys() & values[1].keys()
    unlike = {path for path in both if values[0][path].value != values[1][path].value}
    assert {row["path"] for row in rows if row["change"] == "different"} == unlike
    assert all(row["differences"] for row in rows if row["change"] == "different")
    checked, sums = map(json.loads, ran.stderr.splitlines())
    assert checked["checked"]["different"] == len(unlike)
    assert sums["left"]["values"] == len(values[0])


def test_copies_are_alike_whatever_the_order(run: Run, capture: Callable[[str], Path], database: str) -> None:
    ran = run("diff", f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}", database)
    assert (ran.returncode, ran.stdout) == (0, b"")
    left, right = ran.stderr.splitlines()[1:]
    assert left.split()[1:] == right.split()[1:]


def test_sessions_and_parents_can_be_left_out(run: Run, tmp_path: Path) -> None:
    line = '{{"path": "{}", "version": 0, "value": "{}", "ephemeral": {}}}\n'
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(line.format("/a", "", "false") + line.format("/a/b", "eA==", "false"))
    two.write_text(line.format("/a/b", "eA==", "false") + line.format("/a/e", "eA==", "true"))
    urls = [f"snapshot:{one}", f"snapshot:{two}"]
    assert run("diff", *urls).returncode == 1
    ran = run("diff", *urls, "--ignore", "ephemeral", "--ignore", "parents")
    assert ran.returncode == 0
    assert b"not checked: 2 values (--ignore ephemeral --ignore parents)" in ran.stderr


def test_the_same_in_other_bytes(run: Run, tmp_path: Path) -> None:
    for name, value in (("one", b'{"a": 1}'), ("two", b'{"a":1}')):
        with open_store(f"dir:{tmp_path / name}", read_only=False) as store:
            store.put("/admin/x", value, ABSENT)
    urls = [f"dir:{tmp_path / name}" for name in ("one", "two")]
    ran = run("diff", *urls)
    assert ran.returncode == 0
    assert b"1 encoded differently" in ran.stderr
    assert run("diff", *urls, "--bytes").returncode == 1


def test_a_side_that_is_not_there(run: Run, database: str, tmp_path: Path) -> None:
    ran = run("diff", database, f"snapshot:{tmp_path / 'no'}")
    assert (ran.returncode, ran.stdout) == (3, b"")

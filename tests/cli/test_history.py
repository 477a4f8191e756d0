"""`history`: a cursor's record, write after write, from ZooKeeper's own files and from etcd."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.jobs.topics.topic import topic_of
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.cli.values import Run
from tests.servers import zookeeper
from tests.servers.etcd import EtcdServer
from tests.servers.restartable import skip_or_fail
from tests.servers.zookeeper import ZookeeperServer

CURSOR = "/managed-ledgers/public/default/persistent/orders/batch-idx"


@pytest.fixture
def history(capture: Callable[[str], Path], tmp_path: Path) -> str:
    """The URL of files in which a cursor's record was written as the capture's broker wrote it."""
    missing = zookeeper.why_not()
    if missing is not None:
        skip_or_fail(missing)
    folder = capture("pulsar-4.2.4")
    names = ["metadata-after-step-2", "metadata-after-step-3-killed", "metadata"]
    version = ABSENT
    with ZookeeperServer(tmp_path) as server, open_store(f"zk://{server.address}", read_only=False) as live:
        for name in names:
            with open_store(f"snapshot:{folder / name}.ndjson") as held:
                version = live.put(CURSOR, held.read(CURSOR).value, version)
    return f"zk-files:{tmp_path / 'data'}"


def test_fields_go_from_what_to_what(history: str, run: Run) -> None:
    words = ("history", "cursor", "public/default/orders", "batch-idx", "--store", history)
    ran = run(*words, "-o", "json")
    assert ran.returncode == 0
    changes = json.loads(ran.stdout)
    assert [change["change"] for change in changes] == ["created", "changed", "changed"]
    fields = {one["field"] for one in changes[-1]["differences"]}
    assert "value.cursorsLedgerId" in fields
    lines = run(*words).stdout.decode().splitlines()
    assert len(lines) == 3
    assert "cursorsLedgerId" in lines[-1]


def test_what_never_was_is_not_found(history: str, run: Run) -> None:
    ran = run("history", "/nowhere", "--store", history)
    assert (ran.returncode, ran.stdout) == (3, b"")
    assert b"nothing was ever at /nowhere" in ran.stderr


def test_a_store_without_history_says_so(capture: Callable[[str], Path], run: Run) -> None:
    snapshot = capture("pulsar-4.2.4") / "metadata.ndjson"
    ran = run("history", CURSOR, "--store", f"snapshot:{snapshot}")
    assert ran.returncode == 2
    assert b"keeps no history" in ran.stderr


NAMES = ["metadata-after-step-2", "metadata-after-step-3-killed", "metadata"]


@pytest.fixture
def in_etcd(etcd_server: EtcdServer, root: str, capture: Callable[[str], Path]) -> tuple[str, str]:
    """Return the URL, and the path of the same cursor, written into etcd; its topic is there, too."""
    url, path = f"etcd://{etcd_server.address}", CURSOR.replace("/public/", f"/{root[1:]}/")
    version = ABSENT
    with open_store(url, read_only=False) as live:
        for name in NAMES:
            with open_store(f"snapshot:{capture('pulsar-4.2.4') / name}.ndjson") as held:
                version = live.put(path, held.read(CURSOR).value, version)
                topic = held.read(CURSOR.rpartition("/")[0]).value
        live.put(path.rpartition("/")[0], topic, ABSENT)
    return url, path


def cursor(ledger: int, entry: int, *acked: tuple[int, int]) -> bytes:
    """Return a cursor's record; `acked` are entries (first, last) of the same ledger behind its position."""
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=ledger, markDeleteEntryId=entry)
    for first, last in acked:
        held = info.individualDeletedMessages.add()
        held.lowerEndpoint.ledgerId = held.upperEndpoint.ledgerId = ledger
        held.lowerEndpoint.entryId, held.upperEndpoint.entryId = first - 1, last
    return info.SerializeToString()


def test_etcd_says_the_same_but_for_times(history: str, in_etcd: tuple[str, str], run: Run) -> None:
    url, path = in_etcd
    theirs = json.loads(run("history", CURSOR, "--store", history, "-o", "json").stdout)
    ran = run("history", path, "--store", url, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    ours = json.loads(ran.stdout)
    kept = ("change", "size", "differences")
    assert [[one[name] for name in kept] for one in ours] == [[one[name] for name in kept] for one in theirs]
    assert not any("time" in one or "writer" in one for one in ours)
    assert all(one["transaction"] == one["version"] for one in ours)
    account = json.loads(ran.stderr)
    assert account["checked"]["changes"] == 3
    assert account["not_checked"].keys() >= {"times", "writers"}


def test_what_etcd_compacted_removed_and_made_again(in_etcd: tuple[str, str], run: Run) -> None:
    url, path = in_etcd
    words = ["history", path, "-o", "json", "--store"]

    def changes(more: str = "") -> list[str]:
        return [one["change"] for one in json.loads(run(*words, url + more).stdout)]

    with open_store(url, read_only=False) as live:
        second = json.loads(run(*words, url).stdout)[1]["version"]
        live.delete(path, live.read(path).version)
        assert changes() == ["created", "changed", "changed", "removed"]
        assert changes(f"?revision={second}") == ["created", "changed"]
        live.put(path, b"", ABSENT)
        version = live.put(path, cursor(1, 1), live.read(path).version)
        assert changes()[3:] == ["removed", "created", "changed"]
        compact(url, second)
        assert changes() == ["known", "changed", "removed", "created", "changed"]
        compact(url, version)
        assert changes() == ["known"]
        live.delete(path, version)
        compact(url, live.put(f"{path}-other", b"", ABSENT))
    assert run(*words, url).returncode == 3


def compact(url: str, revision: int) -> None:
    """Have etcd forget what was before a revision."""
    body = json.dumps({"revision": revision, "physical": True}).encode()
    request = urllib.request.Request(f"http://{url.partition('//')[2]}/v3/kv/compaction", body)
    urllib.request.urlopen(request, timeout=60).close()


def test_what_a_change_means(in_etcd: tuple[str, str], run: Run) -> None:
    """Counted by the topic's list of ledgers; single acknowledgements count once."""
    url, path = in_etcd
    path = path.replace("batch-idx", "stood")
    with open_store(url, read_only=False) as live:
        topic = topic_of(live.read(path.rpartition("/")[0]))
        one, two = topic.ledgers[:2]
        assert one.entries is not None
        assert one.entries > 6
        states = [
            cursor(one.ledger_id, -1),
            cursor(one.ledger_id, 2, (4, 5)),
            cursor(two.ledger_id, 0),
            cursor(one.ledger_id, 2, (4, 5)),
            cursor(1 << 40, 2),
        ]
        version = ABSENT
        for state in states:
            version = live.put(path, state, version)
    ran = run("history", path, "--store", url, "-o", "json")
    found = [one["means"] for one in json.loads(ran.stdout)]
    across = one.entries - 3 - 2 + 1
    assert [(means.get("acknowledged"), means.get("again")) for means in found[:4]] == [
        (None, None),
        (3, None),
        (across, None),
        (None, across),
    ]
    assert [means.get("exact") for means in found[1:]] == [True, True, True, False]
    says = f"mark-delete {two.ledger_id}:0 -> {one.ledger_id}:2: {across} entries come again"
    assert found[3]["text"] == says
    assert says in run("history", path, "--store", url).stdout.decode()
    assert ": at least " in found[4]["text"]


def test_steps_in_the_cursors_ledgers(
    in_etcd: tuple[str, str], run: Run, capture: Callable[[str], Path]
) -> None:
    """Each entry of the ledger that the record names, behind the change that named it."""
    url, path = in_etcd
    words = ["history", path, "--store", url, "-o", "json"]
    alone = run(*words)
    assert "the cursor's steps in its ledgers" in json.loads(alone.stderr)["not_checked"]
    entries = f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"
    ran = run(*words, "--entries", entries)
    found = json.loads(ran.stdout)
    steps = [one for one in found if one["change"] == "step"]
    assert steps
    named = [one["means"]["state_ledger"] for one in found if "state_ledger" in one.get("means", {})]
    assert {one["ledger_id"] for one in steps} <= set(named)
    assert [one for one in found if one["change"] != "step"] != []
    assert json.loads(ran.stderr.splitlines()[-1])["checked"]["steps"] == len(steps)

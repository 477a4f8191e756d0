"""`history` shows each write of a cursor's record, from ZooKeeper's files and from etcd."""

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
    """The URL of ZooKeeper files with the writes of a cursor's record that the capture's broker made."""
    skip_or_fail("zookeeper", zookeeper.why_not())
    folder = capture("pulsar-4.2.4")
    names = ["metadata-after-step-2", "metadata-after-step-3-killed", "metadata"]
    version = ABSENT
    with ZookeeperServer(tmp_path) as server, open_store(f"zk://{server.address}", read_only=False) as live:
        for name in names:
            with open_store(f"snapshot:{folder / name}.ndjson") as snapshot:
                version = live.put(CURSOR, snapshot.read(CURSOR).value, version)
    return f"zk-files:{tmp_path / 'data'}"


@pytest.mark.server
def test_changed_fields_have_old_and_new_values(history: str, run: Run) -> None:
    words = ("history", "cursor", "public/default/orders", "batch-idx", "--store", history)
    ran = run(*words, "-o", "json")
    assert ran.returncode == 0
    changes = json.loads(ran.stdout)
    assert [change["change"] for change in changes] == ["created", "changed", "changed"]
    fields = {difference["field"] for difference in changes[-1]["differences"]}
    assert "value.cursorsLedgerId" in fields
    page = run(*words, "-o", "html").stdout.decode()
    assert page.count("<svg") == 3
    lines = run(*words).stdout.decode().splitlines()
    assert len(lines) == 3
    assert "cursorsLedgerId" in lines[-1]


@pytest.mark.server
def test_a_path_without_history_is_not_found(history: str, run: Run) -> None:
    ran = run("history", "/nowhere", "--store", history)
    assert (ran.returncode, ran.stdout) == (3, b"")
    assert b"there was no value at /nowhere" in ran.stderr


def test_a_store_without_history_is_a_usage_error(capture: Callable[[str], Path], run: Run) -> None:
    snapshot = capture("pulsar-4.2.4") / "metadata.ndjson"
    ran = run("history", CURSOR, "--store", f"snapshot:{snapshot}")
    assert ran.returncode == 2
    assert b"keeps no history" in ran.stderr


NAMES = ["metadata-after-step-2", "metadata-after-step-3-killed", "metadata"]


@pytest.fixture
def in_etcd(etcd_server: EtcdServer, root: str, capture: Callable[[str], Path]) -> tuple[str, str]:
    """Write the same cursor and its topic to etcd; return the URL and the cursor's path."""
    url, path = f"etcd://{etcd_server.address}", CURSOR.replace("/public/", f"/{root[1:]}/")
    version = ABSENT
    with open_store(url, read_only=False) as live:
        for name in NAMES:
            with open_store(f"snapshot:{capture('pulsar-4.2.4') / name}.ndjson") as snapshot:
                version = live.put(path, snapshot.read(CURSOR).value, version)
                topic = snapshot.read(CURSOR.rpartition("/")[0]).value
        live.put(path.rpartition("/")[0], topic, ABSENT)
    return url, path


def cursor(ledger: int, entry: int, *acked: tuple[int, int]) -> bytes:
    """Build a cursor's record; `acked` has (first, last) entries of the same ledger after the position."""
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=ledger, markDeleteEntryId=entry)
    for first, last in acked:
        acked_range = info.individualDeletedMessages.add()
        acked_range.lowerEndpoint.ledgerId = acked_range.upperEndpoint.ledgerId = ledger
        acked_range.lowerEndpoint.entryId, acked_range.upperEndpoint.entryId = first - 1, last
    return info.SerializeToString()


def test_etcds_history_equals_zookeepers_except_for_times(
    history: str, in_etcd: tuple[str, str], run: Run
) -> None:
    url, path = in_etcd
    zookeeper_changes = json.loads(run("history", CURSOR, "--store", history, "-o", "json").stdout)
    ran = run("history", path, "--store", url, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    etcd_changes = json.loads(ran.stdout)
    fields = ("change", "size", "differences")
    assert [[change[name] for name in fields] for change in etcd_changes] == [
        [change[name] for name in fields] for change in zookeeper_changes
    ]
    assert not any("time" in change or "writer" in change for change in etcd_changes)
    assert all(change["transaction"] == change["version"] for change in etcd_changes)
    summary = json.loads(ran.stderr)
    assert summary["checked"]["changes"] == 3
    assert summary["not_checked"].keys() >= {"times", "writers"}


def test_etcds_history_shows_compaction_removal_and_recreation(in_etcd: tuple[str, str], run: Run) -> None:
    url, path = in_etcd
    words = ["history", path, "-o", "json", "--store"]

    def changes(more: str = "") -> list[str]:
        return [change["change"] for change in json.loads(run(*words, url + more).stdout)]

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
    """Make etcd forget everything before a revision."""
    body = json.dumps({"revision": revision, "physical": True}).encode()
    request = urllib.request.Request(f"http://{url.partition('//')[2]}/v3/kv/compaction", body)
    urllib.request.urlopen(request, timeout=60).close()


def test_changes_are_explained(in_etcd: tuple[str, str], run: Run) -> None:
    """Entries are counted with the topic's ledgers; individual acknowledgements count once."""
    url, path = in_etcd
    path = path.replace("batch-idx", "explained")
    with open_store(url, read_only=False) as live:
        topic = topic_of(live.read(path.rpartition("/")[0]))
        first, second = topic.ledgers[:2]
        assert first.entries is not None
        assert first.entries > 6
        states = [
            cursor(first.ledger_id, -1),
            cursor(first.ledger_id, 2, (4, 5)),
            cursor(second.ledger_id, 0),
            cursor(first.ledger_id, 2, (4, 5)),
            cursor(1 << 40, 2),
        ]
        version = ABSENT
        for state in states:
            version = live.put(path, state, version)
    ran = run("history", path, "--store", url, "-o", "json")
    meanings = [change["means"] for change in json.loads(ran.stdout)]
    count = first.entries - 3 - 2 + 1
    assert [(means.get("acknowledged"), means.get("again")) for means in meanings[:4]] == [
        (None, None),
        (3, None),
        (count, None),
        (None, count),
    ]
    assert [means.get("exact") for means in meanings[1:]] == [True, True, True, False]
    text = f"mark-delete {second.ledger_id}:0 -> {first.ledger_id}:2: {count} entries redelivered"
    assert meanings[3]["text"] == text
    assert text in run("history", path, "--store", url).stdout.decode()
    assert ": at least " in meanings[4]["text"]


def test_steps_in_the_cursor_ledgers_are_shown(
    in_etcd: tuple[str, str], run: Run, capture: Callable[[str], Path]
) -> None:
    """Each entry of a cursor ledger is a step after the change that named the ledger."""
    url, path = in_etcd
    words = ["history", path, "--store", url, "-o", "json"]
    without_entries = run(*words)
    assert "steps in the cursor's ledgers" in json.loads(without_entries.stderr)["not_checked"]
    entries = f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"
    ran = run(*words, "--entries", entries)
    changes = json.loads(ran.stdout)
    steps = [change for change in changes if change["change"] == "step"]
    assert steps
    named = [
        change["means"]["state_ledger"] for change in changes if "state_ledger" in change.get("means", {})
    ]
    assert {step["ledger_id"] for step in steps} <= set(named)
    assert [change for change in changes if change["change"] != "step"] != []
    assert json.loads(ran.stderr.splitlines()[-1])["checked"]["steps"] == len(steps)

"""`--ledger-store`: BookKeeper's metadata in a store of its own, on real servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.jobs.values.counters import IDGEN
from pulsar_meta.jobs.values.left_out import copied
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb_writer import create_database
from tests.cli.values import Run
from tests.servers import etcd
from tests.servers.restartable import skip_or_fail
from tests.servers.zookeeper import ZookeeperServer


@pytest.fixture(params=["rocksdb", "etcd"])
def ledger_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store without values."""
    if request.param == "rocksdb":
        database = tmp_path / "bookkeeper"
        create_database(database, "rocksdb:")
        yield f"rocksdb:{database}"
        return
    skip_or_fail(etcd.why_not())
    with etcd.EtcdServer(tmp_path / "server") as server:
        yield f"etcd://{server.address}"


@pytest.fixture
def main_store(zookeeper_server: ZookeeperServer, root: str) -> str:
    with open_store(f"zk://{zookeeper_server.address}", read_only=False) as store:
        store.put(root, b"", ABSENT)
    return f"zk://{zookeeper_server.address}{root}"


def test_a_cluster_in_two_stores(
    main_store: str, ledger_store: str, run: Run, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    """Each command says of the two what it says of the one that they were filled from."""
    folder = capture("pulsar-4.2.4")
    one, entries = f"rocksdb:{folder / 'rocksdb'}", ["--entries", f"bookie-disk:{folder / 'bookie0'}"]
    two = ["--store", main_store, "--ledger-store", ledger_store]
    undo_file = tmp_path / "undo"
    ran = run("restore", one, *two, "--allow-unreadable", "--yes", "--undo-file", undo_file, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    with open_store(one) as whole, open_store(main_store) as main, open_store(ledger_store) as ledgers:
        wanted = {held.path: held.value for held in copied(whole)}
        assert not main.children("/ledgers")
        assert {held.path for held in ledgers.scan() if held.value} == {
            path for path, value in wanted.items() if path.startswith("/ledgers/") and value
        }
        assert (ledgers.next_sequence(IDGEN) or 0) >= (whole.next_sequence(IDGEN) or 0)
        ledger = next(path for path in wanted if path.startswith("/ledgers/00/0000/L"))
    routed = f"{main_store}#ledgers={ledger_store}"
    same = ["--ignore", "brokers", "--ignore", "parents", "--bytes"]
    assert run("diff", one, routed, *same).returncode == 0
    file = tmp_path / "both.ndjson"
    assert run("snapshot", file, *two).returncode == 0
    assert run("diff", one, f"snapshot:{file}", *same).returncode == 0
    for words in (
        ["whois", "5", "-o", "json"],
        ["disk", *entries, "-o", "json"],
        ["ledgers", *entries, "-o", "json"],
        ["get", ledger, "-o", "raw"],
        ["dump-entries", "compacted", *entries, "-o", "ndjson"],
        ["seek", "marks", "--index", "3", *entries, "-o", "json"],
        ["check", *entries, "-o", "json"],
    ):
        expected, found = (run(*words, "--store", url) for url in (f"snapshot:{file}", routed))
        assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout), words
        assert run(*words, *two).stdout == found.stdout, words
    # The file knows both.
    undone = run("undo", undo_file, "--yes", "-o", "json")
    assert undone.returncode == 0, undone.stderr
    with open_store(ledger_store) as ledgers:
        assert not [held for held in ledgers.scan() if held.value]


def test_where_it_may_stand(
    run: Run, tmp_path: Path, capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the environment and in a profile, too; never alone, and in no command that has no --store."""
    store = f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}"
    (tmp_path / "none").mkdir()
    hidden = f"dir:{tmp_path / 'none'}"
    assert b"\nledgers\n" in run("ls", "/", "--store", store).stdout
    assert b"\nledgers\n" not in run("ls", "/", "--store", store, "--ledger-store", hidden).stdout
    alone = run("whois", "5", "--ledger-store", hidden)
    assert (alone.returncode, len(alone.stderr.splitlines())) == (2, 1)
    assert run("diff", store, store, "--ledger-store", hidden).returncode == 2
    monkeypatch.setenv("PULSAR_META_STORE", store)
    monkeypatch.setenv("PULSAR_META_LEDGER_STORE", hidden)
    assert b"\nledgers\n" not in run("ls", "/").stdout
    # An option is about another store than the environment.
    assert b"\nledgers\n" in run("ls", "/", "--store", store).stdout
    monkeypatch.delenv("PULSAR_META_STORE")
    monkeypatch.delenv("PULSAR_META_LEDGER_STORE")
    (tmp_path / "config.toml").write_text(f'[profiles.p]\nstore = "{store}"\nledger_store = "{hidden}"\n')
    monkeypatch.setenv("PULSAR_META_CONFIG", str(tmp_path / "config.toml"))
    assert b"\nledgers\n" not in run("ls", "/", "--profile", "p").stdout
    bad = run("ls", "/", "--store", store, "--ledger-store", "nothing", "-o", "json")
    assert bad.returncode == 2
    assert json.loads(bad.stderr)["error"]

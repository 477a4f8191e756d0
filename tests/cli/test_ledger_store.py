"""`--ledger-store` keeps BookKeeper's metadata in a separate store, on real servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.jobs.values.places import IDGEN, copied
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb_writer import create_database
from tests.cli.program import confirmation
from tests.cli.values import Run
from tests.nightly import mostly_at_night
from tests.servers import etcd
from tests.servers.restartable import skip_or_fail
from tests.servers.zookeeper import ZookeeperServer


@pytest.fixture(params=mostly_at_night(("rocksdb", "etcd")))
def ledger_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store."""
    if request.param == "rocksdb":
        database = tmp_path / "bookkeeper"
        create_database(database, "rocksdb:")
        yield f"rocksdb:{database}"
        return
    skip_or_fail("etcd", etcd.why_not())
    with etcd.EtcdServer(tmp_path / "server") as server:
        yield f"etcd://{server.address}"


@pytest.fixture
def main_store(zookeeper_server: ZookeeperServer, root: str) -> str:
    with open_store(f"zk://{zookeeper_server.address}", read_only=False) as store:
        store.put(root, b"", ABSENT)
    return f"zk://{zookeeper_server.address}{root}"


def without_repairs(output: bytes) -> object:
    """Return the output without the repairs of findings, which name the store that was checked."""
    try:
        document = json.loads(output)
    except ValueError:
        return output
    if not isinstance(document, list):
        return document
    return [{key: value for key, value in item.items() if key != "repair"} for item in document]


def test_two_stores_give_the_same_answers_as_one(
    main_store: str, ledger_store: str, run: Run, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    """The two stores are restored from a single one, with which each command's answer is compared."""
    folder = capture("pulsar-4.2.4")
    single, entries = f"rocksdb:{folder / 'rocksdb'}", ["--entries", f"bookie-disk:{folder / 'bookie0'}"]
    both = ["--store", main_store, "--ledger-store", ledger_store]
    undo_file = tmp_path / "undo"
    ran = run("restore", single, *both, "--allow-unreadable", "--yes", "--undo-file", undo_file, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    with open_store(single) as combined, open_store(main_store) as main, open_store(ledger_store) as ledgers:
        expected_values = {value.path: value.value for value in copied(combined)}
        assert not main.children("/ledgers")
        assert {value.path for value in ledgers.scan() if value.value} == {
            path for path, value in expected_values.items() if path.startswith("/ledgers/") and value
        }
        assert (ledgers.next_sequence(IDGEN) or 0) >= (combined.next_sequence(IDGEN) or 0)
        ledger = next(path for path in expected_values if path.startswith("/ledgers/00/0000/L"))
    routed = f"{main_store}#ledgers={ledger_store}"
    same = ["--ignore", "brokers", "--ignore", "parents", "--bytes"]
    assert run("diff", single, routed, *same).returncode == 0
    file = tmp_path / "both.ndjson"
    assert run("snapshot", file, *both).returncode == 0
    assert run("diff", single, f"snapshot:{file}", *same).returncode == 0
    for words in (
        ["whois", "5", "-o", "json"],
        ["disk", *entries, "-o", "json"],
        ["ledgers", *entries, "-o", "json"],
        ["get", ledger, "-o", "raw"],
        ["dump-entries", "compacted", *entries, "-o", "ndjson"],
        ["seek", "marks", "--index", "3", *entries, "-o", "json"],
        ["check", *entries, "-o", "json"],
    ):
        expected, answer = (run(*words, "--store", url) for url in (f"snapshot:{file}", routed))
        assert answer.returncode == expected.returncode, words
        assert without_repairs(answer.stdout) == without_repairs(expected.stdout), words
        assert without_repairs(run(*words, *both).stdout) == without_repairs(answer.stdout), words
    # The undo file names both stores.
    undone = run("undo", undo_file, "--yes", "-o", "json")
    undone = run("undo", undo_file, "--yes", "-o", "json", *confirmation(undone))
    assert undone.returncode == 0, undone.stderr
    with open_store(ledger_store) as ledgers:
        assert not [value for value in ledgers.scan() if value.value]


def test_the_ledger_store_can_be_set_by_option_environment_and_profile(
    run: Run, tmp_path: Path, capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs --store, and is refused by commands that have no --store."""
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
    # The option replaces the ledger store of the environment, with and without --store.
    assert b"\nledgers\n" in run("ls", "/", "--ledger-store", store).stdout
    assert run("ls", "/", "--store", hidden, "--ledger-store", store).stdout == b"ledgers\n"
    assert b"\nledgers\n" not in run("ls", "/", "--store", store, "--ledger-store", hidden).stdout
    # The option --store names another store than the environment, so its ledger store is not used.
    assert b"\nledgers\n" in run("ls", "/", "--store", store).stdout
    monkeypatch.delenv("PULSAR_META_STORE")
    monkeypatch.delenv("PULSAR_META_LEDGER_STORE")
    (tmp_path / "config.toml").write_text(f'[profiles.p]\nstore = "{store}"\nledger_store = "{hidden}"\n')
    monkeypatch.setenv("PULSAR_META_CONFIG", str(tmp_path / "config.toml"))
    assert b"\nledgers\n" not in run("ls", "/", "--profile", "p").stdout
    bad = run("ls", "/", "--store", store, "--ledger-store", "nothing", "-o", "json")
    assert bad.returncode == 2
    assert json.loads(bad.stderr)["error"]

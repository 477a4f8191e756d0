"""Addresses as operators have them are translated to store URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import STORES, open_store, store_url
from pulsar_meta.stores.rocksdb_writer import create_database
from tests.cli.program import pulsar_meta_here
from tests.servers.zookeeper import ZookeeperServer


@pytest.mark.parametrize(
    ("address", "url"),
    [
        # zookeeperServers and configurationStoreServers, in Pulsar up to 2.9.
        ("zk1:2181", "zk://zk1:2181"),
        ("zk1:2181,zk2:2181", "zk://zk1:2181,zk2:2181"),
        ("zk1:2181,zk2:2181/pulsar", "zk://zk1:2181,zk2:2181/pulsar"),
        ("zk1:2181?timeout=3", "zk://zk1:2181?timeout=3"),
        # metadataStoreUrl.
        ("zk:zk1:2181,zk2:2181/pulsar", "zk:zk1:2181,zk2:2181/pulsar"),
        ("zk:zk1", "zk:zk1"),
        ("rocksdb:///pulsar/data/metadata", "rocksdb:///pulsar/data/metadata"),
        ("etcd:http://etcd1:2379", "etcd://etcd1:2379"),
        ("etcd:http://etcd1:2379/,http://etcd2:2379", "etcd://etcd1:2379,etcd2:2379"),
        ("etcd:https://etcd1:2379?ca=/etc/ca.pem", "etcds://etcd1:2379?ca=/etc/ca.pem"),
        ("oxia://oxia:6648/broker", "oxia://oxia:6648/broker"),
        # bookkeeperMetadataServiceUri and metadataServiceUri.
        ("zk+hierarchical://zk1:2181/ledgers", "zk://zk1:2181"),
        ("zk+hierarchical://zk1:2181;zk2:2181/ledgers", "zk://zk1:2181,zk2:2181"),
        ("zk+null://zk1:2181/pulsar/ledgers", "zk://zk1:2181/pulsar"),
        ("zk+longhierarchical://zk1/ledgers/", "zk://zk1"),
        ("metadata-store:zk:zk1:2181;zk2:2181/pulsar", "zk:zk1:2181,zk2:2181/pulsar"),
        ("metadata-store:etcd:http://etcd1:2379", "etcd://etcd1:2379"),
        ("metadata-store:oxia://oxia:6648/bookkeeper", "oxia://oxia:6648/bookkeeper"),
        ("metadata-store:zk1:2181", "zk://zk1:2181"),
        # Two stores.
        ("zk1:2181#ledgers=zk+hierarchical://bk1:2181/ledgers", "zk://zk1:2181#ledgers=zk://bk1:2181"),
        ("etcd:http://a#ledgers=oxia://b", "etcd://a#ledgers=oxia://b"),
    ],
)
def test_an_address_from_a_configuration_is_translated(address: str, url: str) -> None:
    assert store_url(address) == url
    assert store_url(url) == url


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("zk1", "unknown store 'zk1'; choose one of snapshot:, dir:"),
        ("nothing:x", "unknown store 'nothing:x'"),
        ("foo://user:s3cret@host", r"unknown store 'foo://\*\*\*@host'"),
        ("etcd1:2379", "use etcd://etcd1:2379"),
        ("oxia1:6648", "use oxia://oxia1:6648"),
        ("etcd:http://a:1,https://b:1", "mixes http and https"),
        ("zk+hierarchical://zk1:2181/bk", "unsupported ledger root .* ending in /ledgers"),
        ("zk+hierarchical://zk1:2181", "unsupported ledger root"),
        ("", "unknown store ''"),
    ],
)
def test_an_unknown_address_is_explained(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        store_url(address)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("address", ["zk:user:s3cret@zk1:2181", "etcd:http://user:s3cret@etcd1:2379"])
def test_credentials_in_an_address_are_refused_and_not_shown(address: str) -> None:
    with pytest.raises(UsageError, match=r"put credentials in a file") as caught:
        open_store(address)
    assert "s3cret" not in str(caught.value)


def test_a_url_is_not_changed() -> None:
    for scheme in STORES:
        assert store_url(f"{scheme}:/some/where?a=b") == f"{scheme}:/some/where?a=b"


def test_a_path_opens_the_store_at_the_path(tmp_path: Path) -> None:
    database = tmp_path / "metadata"
    create_database(database, "rocksdb:")
    with open_store(str(database), read_only=False) as store:
        store.put("/admin/clusters/c", b"{}", ABSENT)
        assert store.url == f"rocksdb:{database}"
    directory = tmp_path / "copy"
    with open_store(f"dir:{directory}", read_only=False) as store:
        store.put("/admin/clusters/c", b"{}", ABSENT)
    for name in ("plain.ndjson", "packed.zst"):
        written = pulsar_meta_here("snapshot", str(tmp_path / name), "--store", str(database))
        assert written.returncode == 0, written.stderr
    for path in (database, directory, tmp_path / "plain.ndjson", tmp_path / "packed.zst"):
        with open_store(str(path)) as store:
            assert store.read("/admin/clusters/c").value == b"{}", path


def test_a_path_that_is_not_a_store_is_explained(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(UsageError, match="is a file, but not a snapshot"):
        store_url(str(tmp_path / "notes.txt"))
    with pytest.raises(UsageError, match="is not a RocksDB database, ZooKeeper's data or a directory store"):
        store_url(str(tmp_path))
    with pytest.raises(NotFoundError, match="no such file or directory"):
        store_url(str(tmp_path / "missing"))


def test_a_live_server_and_its_data_are_opened_by_every_form_of_address(
    zookeeper_server: ZookeeperServer, root: str
) -> None:
    server = f"127.0.0.1:{zookeeper_server.port}"
    with open_store(f"zk://{server}", read_only=False) as store:
        store.put(f"{root}/a", b"x", ABSENT)
    for address in (
        server,
        f"zk:{server}",
        f"metadata-store:zk:{server}",
        f"zk+hierarchical://{server}/ledgers",
    ):
        with open_store(address) as store:
            assert store.read(f"{root}/a").value == b"x"
            assert store.url == f"zk://{server}"
    shown = pulsar_meta_here("get", f"{root}/a", "--store", server, "-o", "raw")
    assert (shown.returncode, shown.stdout) == (0, b"x")
    data = zookeeper_server.directory / "data"
    for path in (data, data / "version-2"):
        with open_store(str(path)) as store:
            assert store.url == f"zk-files:{path}"
            assert store.read(f"{root}/a").value == b"x"
    with open_store(f"{data}?chroot={root}") as store:
        assert store.children("/") == ["a"]


def test_restore_reads_a_truncated_snapshot_from_its_path(tmp_path: Path) -> None:
    with open_store(f"dir:{tmp_path / 'store'}", read_only=False) as store:
        for name in "abc":
            store.put(f"/admin/clusters/{name}", b"{}", ABSENT)
    whole, truncated = tmp_path / "whole.ndjson", tmp_path / "truncated.ndjson"
    assert pulsar_meta_here("snapshot", str(whole), "--store", str(tmp_path / "store")).returncode == 0
    truncated.write_bytes(whole.read_bytes()[:-100])
    (tmp_path / "target").mkdir()
    target = f"dir:{tmp_path / 'target'}"
    refused = pulsar_meta_here("restore", str(truncated), "--store", target, "--dry-run")
    assert refused.returncode == 4, refused.stderr
    partial = pulsar_meta_here("restore", str(truncated), "--partial", "--store", target, "--dry-run")
    assert partial.returncode == 0, partial.stderr

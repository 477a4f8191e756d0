from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from pulsar_meta.codecs.errors import GuardError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.stores import registry
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.zookeeper import ZookeeperStore
from tests.contracts.store import Fills, Opener, ServerContract, StoreContract, put_all
from tests.servers.certificates import make_certificates
from tests.servers.limits import must_end
from tests.servers.processes import free_port
from tests.servers.zookeeper import ZookeeperServer


class ZookeeperFixtures:
    @pytest.fixture
    def server(self, zookeeper_server: ZookeeperServer) -> ZookeeperServer:
        return zookeeper_server

    @pytest.fixture
    def open_store(self, server: ZookeeperServer) -> Opener:
        def opened(*, read_only: bool = False, timeout: float = 20) -> Store:
            return registry.open_store(f"zk://{server.address}?timeout={timeout}", read_only=read_only)

        return opened


class TestZookeeperStore(ZookeeperFixtures, StoreContract):
    counts = True

    real_parents = True
    keeps_parents = True

    def test_a_group_is_sent_in_one_request(self, store: Store, root: str) -> None:
        assert store.batches_requests
        versions = put_all(store, [f"{root}/{at}" for at in range(600)])
        stale = f"{root}/5"
        store.put(stale, b"moved", versions[stale])
        writes = [(path, b"new", version) for path, version in versions.items()]
        done = store.put_many([*writes, (f"{root}/nowhere", b"x", 3), (f"{root}/made/now", b"x", ABSENT)])
        assert [path for path, version in zip(versions, done, strict=False) if version is None] == [stale]
        assert done[-2:] == [None, 0]
        read = store.read_many([*versions, f"{root}/nowhere"])
        assert read[-1] is None
        assert [value and value.value for value in read[:-1]] == [
            b"moved" if path == stale else b"new" for path in versions
        ]
        assert [value and value.version for value in read[:-1]] == [
            1 if version is None else version for version in done[: len(versions)]
        ]


class TestZookeeperServer(ZookeeperFixtures, ServerContract):
    pass


def end_session(store: Store, server: ZookeeperServer) -> None:
    """Expire a store's session: another client with the same session id closes it."""
    assert isinstance(store, ZookeeperStore)
    other = KazooClient(server.address, client_id=store._client.client_id)
    other.start(timeout=10)
    other.stop()
    other.close()


class TestExpiredSessions(ZookeeperFixtures, Fills):
    """The server ends a session while its client is working."""

    def test_a_scan_survives_an_expired_session(
        self, open_store: Opener, server: ZookeeperServer, root: str
    ) -> None:
        with open_store() as store:
            assert isinstance(store, ZookeeperStore)
            paths = [f"{root}/{at:05d}" for at in range(1500)]
            self.fill(store, paths)
            session = store._client.client_id
            scan = store.scan(root)
            paths_read = [next(scan).path for _ in range(10)]
            end_session(store, server)
            paths_read += [value.path for value in scan]
            assert paths_read == [root, *paths]
            assert store._client.client_id != session

    def test_writes_survive_expired_sessions(
        self, open_store: Opener, server: ZookeeperServer, root: str
    ) -> None:
        with open_store() as store:
            assert isinstance(store, ZookeeperStore)
            session = store._client.client_id
            version = store.put(root, b"0", ABSENT)
            failed = 0
            for number in range(1, 200):
                if number % 40 == 0:
                    end_session(store, server)
                value = str(number).encode()
                try:
                    version = store.put(root, value, version)
                except UnreachableError:
                    # The client cannot tell whether the value was written, but it was written at most once.
                    failed += 1
                    stored = store.read(root)
                    assert (stored.value, stored.version) in {
                        (str(number - 1).encode(), version),
                        (value, version + 1),
                    }
                    version = stored.version if stored.value == value else store.put(root, value, version)
            assert (store.read(root).value, version) == (b"199", 199)
            assert failed <= 4
            assert store._client.client_id != session


class TestZookeepersOwn(ZookeeperFixtures):
    """Behaviour that only ZooKeeper has."""

    @pytest.fixture
    def client(self, server: ZookeeperServer) -> Iterator[Any]:
        client = KazooClient(server.address)
        client.start(timeout=10)
        yield client
        client.stop()
        client.close()

    def test_the_version_is_the_data_version(self, open_store: Opener, client: Any, root: str) -> None:
        client.create(f"{root}/a", b"1", makepath=True)
        client.set(f"{root}/a", b"2")
        with open_store() as store:
            value = store.read(f"{root}/a")
            assert (value.version, value.value) == (1, b"2")
            assert store.put(f"{root}/a", b"3", 1) == 2
        raw, stat = client.get(f"{root}/a")
        assert (raw, stat.version) == (b"3", 2)
        with open_store() as store:
            value = store.read(f"{root}/a")
        assert (value.created, value.modified) == (stat.ctime, stat.mtime)

    @pytest.mark.server
    def test_parents_are_removed_when_they_become_empty(self, tmp_path: Path) -> None:
        """Parents are containers. ZooKeeper removes empty containers and no other nodes."""
        often = ("-Dznode.container.checkIntervalMs=100",)
        with ZookeeperServer(tmp_path / "often", java_options=often) as server:
            store = registry.open_store(f"zk://{server.address}", read_only=False)
            store.put("/kept", b"", ABSENT)
            store.put("/kept/below", b"", ABSENT)
            store.put("/a/b/c", b"x", ABSENT)
            assert store.children("/") == ["a", "kept"]
            store.delete("/a/b/c", 0)
            store.delete("/kept/below", 0)
            deadline = time.monotonic() + 60
            while "a" in store.children("/") and time.monotonic() < deadline:
                time.sleep(0.1)
            assert store.children("/") == ["kept"]
            store.close()

    def test_containers_are_not_ephemeral_but_session_nodes_are(
        self, open_store: Opener, client: Any, root: str
    ) -> None:
        with open_store() as store:
            store.put(f"{root}/a/b", b"x", ABSENT)
            client.create(f"{root}/session", b"y", ephemeral=True)
            ephemeral = {value.path: value.ephemeral for value in store.scan(root)}
        assert ephemeral == {root: False, f"{root}/a": False, f"{root}/a/b": False, f"{root}/session": True}

    def test_a_chroot_is_the_root(self, open_store: Opener, server: ZookeeperServer, root: str) -> None:
        with open_store() as store:
            store.put(f"{root}/chroot/a/b", b"x", ABSENT)
        url = f"zk://{server.address}{root}/chroot"
        with registry.open_store(url, read_only=False) as store:
            assert store.children("/") == ["a"]
            assert store.read("/a/b").value == b"x"
            store.put("/made/here", b"y", ABSENT)
            assert [value.path for value in store.scan()] == ["/a", "/a/b", "/made", "/made/here"]
        with open_store() as store:
            assert store.read(f"{root}/chroot/made/here").value == b"y"
        with pytest.raises(NotFoundError):
            registry.open_store(f"zk://{server.address}{root}/nowhere")

    def test_zookeepers_own_nodes_are_hidden_and_never_written(self, open_store: Opener, root: str) -> None:
        with open_store() as store:
            store.put(f"{root}/a", b"x", ABSENT)
            assert not [value for value in store.scan() if value.path.startswith("/zookeeper")]

            for path in ("/zookeeper", "/zookeeper/mine"):
                with pytest.raises(GuardError):
                    store.put(path, b"", ABSENT)

    def test_invalid_paths_are_usage_errors(self, open_store: Opener) -> None:
        with open_store() as store:
            assert store.batches_requests
            with pytest.raises(UsageError):
                store.read("/a/../b")
            with pytest.raises(UsageError):
                store.read_many(["/a/../b"])

    def test_the_size_limit_is_the_servers(self, open_store: Opener, root: str) -> None:
        with open_store() as store:
            assert store.max_value_size is not None
            room = store.max_value_size - len(f"{root}/a")
            version = store.put(f"{root}/a", bytes(room), ABSENT)
            assert store.put(f"{root}/a", b"\1" * room, version) == 1
            with pytest.raises(GuardError, match=r"jute\.maxbuffer"):
                store.put(f"{root}/a", bytes(room + 1), 1)
            assert store.read(f"{root}/a").version == 1

    @pytest.mark.server
    def test_a_lower_size_limit_can_be_set(self, tmp_path: Path) -> None:
        options = ("-Djute.maxbuffer=20000",)
        with ZookeeperServer(tmp_path / "small", java_options=options) as server:
            url = f"zk://{server.address}?jute_maxbuffer=20000"
            with registry.open_store(url, read_only=False) as store:
                assert store.max_value_size is not None
                store.put("/a", bytes(store.max_value_size - 2), ABSENT)
                with pytest.raises(GuardError):
                    store.put("/b", bytes(20000), ABSENT)
            unaware = registry.open_store(f"zk://{server.address}?timeout=3", read_only=False)
            with unaware, pytest.raises(UnreachableError):
                unaware.put("/b", bytes(30000), ABSENT)

    def test_digest_credentials_are_sent_and_not_shown(
        self, server: ZookeeperServer, client: Any, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client.create(root, b"", acl=[make_digest_acl("operator", "s3cr3t", all=True)])
        monkeypatch.setenv("ZK_AUTH", "operator:s3cr3t")
        with registry.open_store(f"zk://{server.address}?auth=env:ZK_AUTH", read_only=False) as store:
            assert store.put(root, b"mine", 0) == 1
        for auth in ("", "?auth=env:ZK_AUTH"):
            monkeypatch.setenv("ZK_AUTH", "operator:wr0ng")
            with registry.open_store(f"zk://{server.address}{auth}") as store:
                with pytest.raises(UnreachableError, match="NoAuth") as caught:
                    store.read(root)
                assert "wr0ng" not in str(caught.value)

    @pytest.mark.server
    def test_sasl_credentials_are_sent_and_not_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server ends every session that does not authenticate with DIGEST-MD5."""
        jaas = tmp_path / "jaas.conf"
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        jaas.write_text(f'Server {{ {module} required user_operator="s3cr3t"; }};\n')
        settings = (
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            "enforce.auth.enabled=true\nenforce.auth.schemes=sasl\n"
        )
        options = (f"-Djava.security.auth.login.config={jaas}",)
        with ZookeeperServer(tmp_path / "sasl", settings=settings, java_options=options) as server:
            monkeypatch.setenv("ZK_SASL", "operator:s3cr3t")
            url = f"zk://{server.address}?sasl=env:ZK_SASL"
            with registry.open_store(f"{url}&timeout=20", read_only=False) as store:
                store.put("/a/b", b"x", ABSENT)
                store._client.set_acls("/a/b", [make_acl("sasl", "operator", all=True)])  # type: ignore[attr-defined]
                server.restart()
                # A new connection authenticates before it sends any request.
                assert store.read("/a/b").value == b"x"
                assert store.put("/a/b", b"y", 0) == 1
            monkeypatch.setenv("ZK_SASL", "operator:wr0ng")
            with pytest.raises(UnreachableError, match="refused the SASL credentials") as caught:
                registry.open_store(f"{url}&timeout=20")
            assert "wr0ng" not in str(caught.value)
            # Without credentials a session starts, but its first request fails.
            with (
                registry.open_store(f"zk://{server.address}?timeout=2") as store,
                pytest.raises(UnreachableError),
            ):
                store.read("/a/b")

    @pytest.mark.server
    def test_tls_connections_need_a_client_certificate(self, tmp_path: Path) -> None:
        made = make_certificates(tmp_path / "certificates")
        both = tmp_path / "server.pem"
        both.write_bytes(made.server_key.read_bytes() + made.server.read_bytes())
        port = free_port()
        settings = (
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n"
            f"ssl.keyStore.location={both}\nssl.trustStore.location={made.authority}\n"
        )
        with ZookeeperServer(tmp_path / "tls", settings=settings):
            tls = f"tls=true&ca={made.authority}&cert={made.client}&key={made.client_key}"
            with registry.open_store(f"zk://127.0.0.1:{port}?timeout=20&{tls}", read_only=False) as store:
                store.put("/a", b"x", ABSENT)
                assert store.read("/a").value == b"x"
            for options in (f"tls=true&ca={made.authority}", "timeout=1"):
                with pytest.raises(UnreachableError):
                    registry.open_store(f"zk://127.0.0.1:{port}?{options}&timeout=1")

    def test_a_server_that_accepts_and_never_answers_times_out(self) -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as silent,
            pytest.raises(UnreachableError),
            must_end(),
        ):
            registry.open_store(f"zk://127.0.0.1:{silent.getsockname()[1]}?timeout=1")

    def test_nothing_is_logged(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(UnreachableError):
            registry.open_store("zk://127.0.0.1:1?timeout=0.5")
        assert capfd.readouterr() == ("", "")

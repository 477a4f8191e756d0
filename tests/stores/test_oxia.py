from __future__ import annotations

import random
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import ConflictError, GuardError, UnreachableError
from pulsar_meta.stores import registry
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.oxia import OxiaStore, order, subtree_range
from tests.contracts.store import NAMES, Opener, ServerContract, StoreContract, put_all
from tests.servers import oxia
from tests.servers.certificates import make_certificates
from tests.servers.issuer import Issuer
from tests.servers.limits import must_end
from tests.servers.oxia import OxiaCluster, OxiaServer, binary
from tests.servers.restartable import skip_or_fail


class OxiaFixtures:
    @pytest.fixture
    def server(self, oxia_server: OxiaServer) -> OxiaServer:
        return oxia_server

    @pytest.fixture
    def open_store(self, server: OxiaServer) -> Opener:
        def opened(*, read_only: bool = False, timeout: float = 20) -> Store:
            return registry.open_store(f"oxia://{server.address}?timeout={timeout}", read_only=read_only)

        return opened


class TestOxiaStore(OxiaFixtures, StoreContract):
    counts = True

    real_parents = True
    keeps_parents = True

    def test_a_group_is_sent_in_one_request(self, store: Store, root: str) -> None:
        assert store.batches_requests
        versions = put_all(store, [f"{root}/{at}" for at in range(300)])
        stale = f"{root}/5"
        store.put(stale, b"moved", versions[stale])
        writes = [(path, b"new" * 10_000, version) for path, version in versions.items()]
        done = store.put_many([*writes, (f"{root}/nowhere", b"x", 3), (f"{root}/made/now", b"x", ABSENT)])
        assert [path for path, version in zip(versions, done, strict=False) if version is None] == [stale]
        assert done[-2] is None
        paths = [*versions, f"{root}/nowhere", f"{root}/made/now"]
        read = store.read_many(paths)
        assert read[-2] is None
        for path, value, version in zip(paths, read, done, strict=True):
            if path != f"{root}/nowhere":
                assert value == store.read(path)
                assert value.version == version or (path, value.value) == (stale, b"moved")


class TestOxiaServer(OxiaFixtures, ServerContract):
    pass


class TestOxiasOwn(OxiaFixtures):
    """Behaviour that only Oxia has, also checked with its own client program."""

    def client(self, server: OxiaServer, *arguments: str) -> str:
        command = [str(binary()), "client", *arguments, "-a", server.address, "--log-level", "error"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    def test_oxias_client_reads_our_values(self, server: OxiaServer, open_store: Opener, root: str) -> None:
        paths = [f"{root}/{name}" for name in NAMES]
        with open_store() as store:
            put_all(store, paths)
        for path in paths:
            # A key on the wrong shard would not be found.
            assert self.client(server, "get", path).strip() == path

    def test_values_of_oxias_client_are_read(self, server: OxiaServer, open_store: Opener, root: str) -> None:
        paths = [f"{root}-{at}" for at in range(6)]
        for path in paths:
            self.client(server, "put", path, f"value of {path}")
        with open_store() as store:
            for path in paths:
                value = store.read(path)
                assert value.value.decode().strip() == f"value of {path}"
                assert value.modified is not None
                assert abs(value.modified - time.time() * 1000) < 60_000
            version = store.read(paths[0]).version
            self.client(server, "put", paths[0], "moved")
            assert store.read(paths[0]).version > version

    def test_records_with_a_partition_key_are_read_and_never_written(
        self, server: OxiaServer, open_store: Opener, root: str
    ) -> None:
        paths = [f"{root}/{at}" for at in range(8)]
        with open_store() as store:
            store.put(root, b"", ABSENT)
            for path in paths:
                self.client(server, "put", path, "routed", "--partition-key", "elsewhere")
            assert isinstance(store, OxiaStore)
            misplaced = [path for path in paths if store._get(path).status]
            assert misplaced, "every key happens to be on the shard of its own hash"
            scanned = {value.path: value for value in store.scan(root)}
            for path in paths:
                value = store.read(path)
                assert value == scanned[path]
                assert value.value.decode().strip() == "routed"
            for path in misplaced:
                version = store.read(path).version
                for write in (
                    lambda path=path, version=version: store.put(path, b"x", version),
                    lambda path=path: store.put(path, b"x", ABSENT),
                    lambda path=path, version=version: store.delete(path, version),
                ):
                    with pytest.raises(GuardError, match="partition key"):
                        write()
            assert {value.path: value for value in store.scan(root)} == scanned

    def test_every_shard_uses_our_key_order(self, open_store: Opener, root: str) -> None:
        chance = random.Random(7)
        parts = ["a", "b", "a-", "a.b", "A", "0", "ä", "~", "a b", "zz"]
        paths = {f"{root}/" + "/".join(chance.choices(parts, k=chance.randint(1, 5))) for _ in range(300)}
        with open_store() as store:
            assert isinstance(store, OxiaStore)
            for path in sorted(paths):
                # A path may exist already, as a parent of an earlier one.
                with suppress(ConflictError):
                    store.put(path, b"x", ABSENT)
            shards = [shard.shard for shard in store._shards()]
            assert len(shards) > 1
            for shard in shards:
                shard_paths = [value.path for value in store._scan_shard(shard, *subtree_range(root))]
                assert len(shard_paths) > 50
                assert shard_paths == sorted(shard_paths, key=order)
            everything = [value.path for value in store.scan(root)]
            assert everything == sorted(everything, key=order)
            assert set(everything) >= paths

    def test_an_unknown_namespace_is_an_error(self, server: OxiaServer) -> None:
        with pytest.raises(UnreachableError, match="namespace"):
            registry.open_store(f"oxia://{server.address}/nowhere?timeout=2")

    def test_the_default_namespace_may_be_named(self, server: OxiaServer, root: str) -> None:
        with registry.open_store(f"oxia://{server.address}/default", read_only=False) as store:
            store.put(f"{root}/a", b"x", ABSENT)
        with registry.open_store(f"oxia://{server.address}") as store:
            assert store.read(f"{root}/a").value == b"x"

    def test_values_over_grpcs_default_limit_are_read(self, open_store: Opener, root: str) -> None:
        with open_store() as store:
            store.put(f"{root}/a", bytes(6 << 20), ABSENT)
            assert len(store.read(f"{root}/a").value) == 6 << 20
            assert sum(len(value.value) for value in store.scan(root)) == 6 << 20

    def test_a_server_that_accepts_and_never_answers_times_out(self) -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as silent,
            pytest.raises(UnreachableError),
            must_end(),
        ):
            registry.open_store(f"oxia://127.0.0.1:{silent.getsockname()[1]}?timeout=1")

    def test_nothing_is_logged(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(UnreachableError):
            registry.open_store("oxia://127.0.0.1:1?timeout=0.5")
        assert capfd.readouterr() == ("", "")


@pytest.mark.server
def test_a_tls_server_accepts_only_valid_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server uses TLS and accepts the tokens of an OpenID issuer."""
    skip_or_fail("oxia", oxia.why_not())
    made = make_certificates(tmp_path / "certificates")
    with (
        Issuer(tmp_path / "issuer") as issuer,
        OxiaCluster(tmp_path / "oxia", certificates=made, issuer=issuer.url) as server,
    ):
        monkeypatch.setenv("OXIA_TOKEN", issuer.token("operator", audience="oxia"))
        url = f"oxia://{server.address}?tls=true&ca={made.authority}"
        with registry.open_store(f"{url}&auth=env:OXIA_TOKEN&timeout=20", read_only=False) as store:
            version = store.put("/a/b", b"x", ABSENT)
            assert store.read("/a/b").value == b"x"
            assert [value.path for value in store.scan("/a")] == ["/a", "/a/b"]
            store.delete("/a/b", version)
        for rejected in (url, f"oxia://{server.address}?auth=env:OXIA_TOKEN"):
            with pytest.raises(UnreachableError):
                registry.open_store(f"{rejected}&timeout=1")
        monkeypatch.setenv("OXIA_TOKEN", issuer.token("operator", audience="another"))
        with pytest.raises(UnreachableError) as caught:
            registry.open_store(f"{url}&auth=env:OXIA_TOKEN&timeout=1")
        assert issuer.token("operator", audience="another") not in str(caught.value)

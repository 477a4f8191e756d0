from __future__ import annotations

import json
import socket
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.errors import ConflictError, GuardError, UnreachableError
from pulsar_meta.proto.Etcd_pb2 import RangeResponse
from pulsar_meta.stores import etcd as etcd_module
from pulsar_meta.stores import etcd_requests, registry
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.grpc_client import GrpcClient
from tests.contracts.store import Opener, ServerContract, StoreContract, put_all
from tests.servers.certificates import make_certificates
from tests.servers.etcd import EtcdServer, why_not
from tests.servers.limits import must_end
from tests.servers.restartable import skip_or_fail

Gateway = Callable[..., dict[str, Any]]


def gateway(server: EtcdServer, token: str = "") -> Gateway:
    """Return a function that calls the server's other API, JSON over HTTP."""

    def ask(method: str, **body: object) -> dict[str, Any]:
        url, data = f"http://{server.address}/v3/{method}", json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Authorization": token} if token else {})
        with urllib.request.urlopen(request, timeout=60) as answer:
            document = json.load(answer)
        assert isinstance(document, dict)
        return document

    return ask


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


class EtcdFixtures:
    @pytest.fixture
    def server(self, etcd_server: EtcdServer) -> EtcdServer:
        return etcd_server

    @pytest.fixture
    def open_store(self, server: EtcdServer) -> Opener:
        def opened(*, read_only: bool = False, timeout: float = 20) -> Store:
            return registry.open_store(f"etcd://{server.address}?timeout={timeout}", read_only=read_only)

        return opened


class TestEtcdStore(EtcdFixtures, StoreContract):
    counts = True

    def test_a_scan_reads_a_single_revision(self, store: Store, root: str) -> None:
        versions = put_all(store, [f"{root}/{at:03d}" for at in range(100)])
        scan = store.scan(root)
        values = [next(scan)]
        for path, version in versions.items():
            store.put(path, b"later", version)
        store.put(f"{root}/999", b"later", ABSENT)
        values += scan
        assert [value.value for value in values] == [path.encode() for path in versions]

    def test_an_old_revision_can_be_read(self, server: EtcdServer, store: Store, root: str) -> None:
        then = store.put(f"{root}/a", b"then", ABSENT)
        store.put(f"{root}/a", b"now", then)
        store.put(f"{root}/b", b"now", ABSENT)
        with registry.open_store(f"etcd://{server.address}?revision={then}") as past:
            assert past.read(f"{root}/a").value == b"then"
            assert past.children(root) == ["a"]
            assert [value.value for value in past.scan(root)] == [b"then"]
            assert [value and value.value for value in past.read_many([f"{root}/a", f"{root}/b"])] == [
                b"then",
                None,
            ]

    def test_as_of_now_ignores_later_writes(self, store: Store, root: str) -> None:
        then = store.put(f"{root}/a", b"then", ABSENT)
        now = store.as_of_now()
        store.put(f"{root}/a", b"later", then)
        store.put(f"{root}/b", b"later", ABSENT)
        assert [value.value for value in now.scan(root)] == [b"then"]
        assert (now.children(root), now.read_many([f"{root}/b"])) == (["a"], [None])
        assert store.read(f"{root}/a").value == b"later"
        with pytest.raises(GuardError):
            now.put(f"{root}/a", b"later", then)

    def test_a_missing_or_compacted_revision_is_an_error(self, server: EtcdServer, root: str) -> None:
        with pytest.raises(UnreachableError, match="revision"):
            registry.open_store(f"etcd://{server.address}?revision=999999999")
        with pytest.raises(GuardError, match="refusing to write to an earlier revision"):
            registry.open_store(f"etcd://{server.address}?revision=1", read_only=False)


class TestEtcdServer(EtcdFixtures, ServerContract):
    pass


class TestEtcdsOwn(EtcdFixtures):
    """Behaviour that only etcd has."""

    @pytest.fixture
    def ask(self, server: EtcdServer) -> Gateway:
        return gateway(server)

    def raw_value(self, ask: Gateway, key: str) -> dict[str, Any]:
        document = ask("kv/range", key=b64(key))["kvs"][0]
        assert isinstance(document, dict)
        return document

    def test_the_version_is_the_mod_revision(self, open_store: Opener, ask: Gateway, root: str) -> None:
        ask("kv/put", key=b64(f"{root}/a"), value=b64("one"))
        with open_store() as store:
            value = store.read(f"{root}/a")
            assert (value.value, value.version) == (
                b"one",
                int(self.raw_value(ask, f"{root}/a")["mod_revision"]),
            )
            version = store.put(f"{root}/a", b"two", value.version)
        raw = self.raw_value(ask, f"{root}/a")
        assert (b64decode(raw["value"]), int(raw["mod_revision"])) == (b"two", version)
        # Pulsar compares with this number. It is one more than the version of its Stat.
        assert int(raw["version"]) == 2

    def test_a_version_is_never_used_twice(self, open_store: Opener, ask: Gateway, root: str) -> None:
        with open_store() as store:
            version = store.put(f"{root}/a", b"old", ABSENT)
            ask("kv/deleterange", key=b64(f"{root}/a"))
            ask("kv/put", key=b64(f"{root}/a"), value=b64("somebody else's"))
            with pytest.raises(ConflictError):
                store.put(f"{root}/a", b"lost", version)

    def test_a_write_keeps_the_lease(self, open_store: Opener, ask: Gateway, root: str) -> None:
        lease = ask("lease/grant", TTL=600)["ID"]
        ask("kv/put", key=b64(f"{root}/a"), value=b64("x"), lease=lease)
        with open_store() as store:
            value = store.read(f"{root}/a")
            assert value.ephemeral
            store.put(f"{root}/a", b"y", value.version)
            assert store.read(f"{root}/a").ephemeral
        assert self.raw_value(ask, f"{root}/a")["lease"] == lease

    def test_the_size_limit_is_the_servers(self, server: EtcdServer, open_store: Opener, root: str) -> None:
        with open_store() as store:
            assert store.max_value_size is not None
            room = store.max_value_size - 2 * len(f"{root}/a")
            version = store.put(f"{root}/a", bytes(room), ABSENT)
            with pytest.raises(GuardError, match="the server accepts"):
                store.put(f"{root}/a", bytes(room + 1), version)
            assert store.read(f"{root}/a").version == version
        unaware = registry.open_store(
            f"etcd://{server.address}?timeout=20&max_request_bytes=9000000", read_only=False
        )
        with unaware, pytest.raises(UnreachableError, match="too large"):
            unaware.put(f"{root}/b", bytes(1_700_000), ABSENT)

    def test_many_values_need_few_requests(
        self, open_store: Opener, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent: list[int] = []
        write, write_all = GrpcClient.write, GrpcClient.write_all

        def counted(client: GrpcClient, method: str, request: Any, answer: Any) -> Any:
            sent.append(len(request.success))
            return write(client, method, request, answer)

        def all_counted(client: GrpcClient, method: str, requests: Sequence[Any], answer: Any) -> Any:
            sent.extend(len(request.success) for request in requests)
            return write_all(client, method, requests, answer)

        monkeypatch.setattr(GrpcClient, "write", counted)
        monkeypatch.setattr(GrpcClient, "write_all", all_counted)
        paths = [f"{root}/{at:03}" for at in range(130)]
        with open_store() as store:
            made = store.put_many([(path, b"x", ABSENT) for path in [*paths, paths[5]]])
            assert (made[-1], None in made[:-1]) == (None, False)
            assert sent == [63, 63, 5]
            large = store.put_many([(path, bytes(600_000), made[0] or 0) for path in paths[:3]])
            assert (None in large, sent[3:]) == (False, [2, 1])
            versions = [(value.path, value.version) for value in store.read_many(paths) if value]
            assert store.delete_many(versions) == [True] * 130
            assert sent[5:] == [63, 63, 4]

    def test_in_a_group_only_changed_values_are_conflicts(self, open_store: Opener, root: str) -> None:
        """A request succeeds or fails as a whole. If one fails, its values are written one by one."""
        paths = [f"{root}/{at:03}" for at in range(200)]
        with open_store() as store:
            versions = store.put_many([(path, b"old", ABSENT) for path in paths])
            writes = [(path, b"new", version or 0) for path, version in zip(paths, versions, strict=True)]
            for at in (70, 199):
                writes[at] = (paths[at], b"lost", 1)
            made = store.put_many(writes)
            assert [at for at, version in enumerate(made) if version is None] == [70, 199]
            values = store.read_many(paths)
            assert [value and value.version for value in values] == [
                versions[at] if at in (70, 199) else made[at] for at in range(200)
            ]
            assert {value.value for value in values if value} == {b"new", b"old"}
            gone = store.delete_many(
                [(value.path, value.version - (value.path == paths[3])) for value in values if value]
            )
            assert [at for at, done in enumerate(gone) if not done] == [3]

    def test_children_of_many_paths(self, open_store: Opener, root: str) -> None:
        with open_store() as store:
            put_all(store, [f"{root}/{at % 150:03}/{at:04}" for at in range(1200)])
            put_all(store, [f"{root}/007/more-{at:04}/below" for at in range(700)])
            paths = [root, *(f"{root}/{at:03}" for at in range(160))]
            names = store.children_many(paths)
            assert names == [store.children(path) for path in paths]
            assert [len(names[at]) for at in (0, 1, 8, 151)] == [150, 8, 708, 0]

    @pytest.mark.server
    def test_a_server_with_a_low_operation_limit_gets_smaller_groups(self, tmp_path: Path) -> None:
        with EtcdServer(tmp_path / "etcd", options=("--max-txn-ops", "8")) as few:
            url = f"etcd://{few.address}?timeout=20"
            with registry.open_store(url, read_only=False) as store:
                made = store.put_many([(f"/{at}", b"x", ABSENT) for at in range(50)])
                assert None not in made
                assert store.put_many([("/1", b"y", 1), ("/2", b"y", made[2] or 0)])[0] is None
                values = store.read_many([f"/{at}" for at in range(51)])
                assert [value and value.value for value in values] == [b"x", b"x", b"y", *[b"x"] * 47, None]
                assert [len(names) for names in store.children_many(["/"] * 20)] == [50] * 20

    def test_values_beyond_grpcs_own_limit_are_scanned(self, open_store: Opener, root: str) -> None:
        with open_store() as store:
            put_all(store, [f"{root}/{at}" for at in range(8)], lambda path: path.encode() * 100_000)
            assert [len(value.value) for value in store.scan(root)] == [len(f"{root}/0") * 100_000] * 8

    def test_a_scan_in_narrow_ranges(
        self, open_store: Opener, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(etcd_requests, "COUNTED", 40)
        monkeypatch.setattr(etcd_module, "MAX_PAGE", 16)
        paths = sorted(f"{root}/ns-{at // 100}/topic-{at // 10}/c-{at}" for at in range(1000))
        with open_store() as store:
            store.put_many([(path, b"x", ABSENT) for path in paths])
            pages: list[RangeResponse] = []
            read_page = store._page  # type: ignore[attr-defined]

            def noted(*at: object, **how: object) -> RangeResponse:
                pages.append(read_page(*at, **how))
                return pages[-1]

            monkeypatch.setattr(store, "_page", noted)
            assert [value.path for value in store.scan(root)] == paths
            assert [value.path for value in store.scan(root, after=paths[499])] == paths[500:]
        # etcd counts the keys of each requested range, so each request should count a few keys, not all.
        assert max(page.count for page in pages) >= 1000
        assert sum(page.count for page in pages) / len(pages) < 150

    def test_listing_children_skips_their_subtrees(self, open_store: Opener, root: str) -> None:
        with open_store() as store:
            put_all(
                store, [f"{root}/big/{at:04d}" for at in range(1200)] + [f"{root}/{name}" for name in "az"]
            )
            assert store.children(root) == ["a", "big", "z"]
            assert len(store.children(f"{root}/big")) == 1200

    def test_another_server_is_used_if_one_is_dead(self, server: EtcdServer, root: str) -> None:
        url = f"etcd://127.0.0.1:1,{server.address}?timeout=20"
        with registry.open_store(url, read_only=False) as store:
            version = store.put(f"{root}/a", b"x", ABSENT)
            assert store.read(f"{root}/a").version == version

    def test_another_server_is_used_if_one_is_silent(self, server: EtcdServer) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"etcd://127.0.0.1:{silent.getsockname()[1]},{server.address}?timeout=8"
            with registry.open_store(url) as store:
                assert store.children("/nowhere") == []

    def test_a_server_that_accepts_and_never_answers_times_out(self) -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as silent,
            pytest.raises(UnreachableError),
            must_end(),
        ):
            registry.open_store(f"etcd://127.0.0.1:{silent.getsockname()[1]}?timeout=1")

    def test_nothing_is_logged(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(UnreachableError):
            registry.open_store("etcd://127.0.0.1:1?timeout=0.5")
        assert capfd.readouterr() == ("", "")


@pytest.mark.server
def test_tls_connections_need_the_right_certificates(tmp_path: Path) -> None:
    skip_or_fail("etcd", why_not())
    made = make_certificates(tmp_path / "certificates")
    with EtcdServer(tmp_path / "etcd", tls=(made.server, made.server_key)) as server:
        url = f"etcds://{server.address}?timeout=20&ca={made.authority}"
        with registry.open_store(url, read_only=False) as store:
            store.put("/a", b"x", ABSENT)
            assert store.read("/a").value == b"x"
        for refused in (f"etcds://{server.address}?timeout=1", f"etcd://{server.address}?timeout=1"):
            with pytest.raises(UnreachableError):
                registry.open_store(refused)


@pytest.mark.server
class TestPassword:
    @pytest.fixture
    def locked(self, tmp_path: Path) -> Iterator[EtcdServer]:
        """A server that admits only root, with the password s3cr3t."""
        skip_or_fail("etcd", why_not())
        with EtcdServer(tmp_path / "etcd") as server:
            ask = gateway(server)
            ask("auth/user/add", name="root", password="s3cr3t")
            ask("auth/role/add", name="root")
            ask("auth/user/grant", user="root", role="root")
            ask("auth/enable")
            yield server

    def test_a_password_survives_server_restarts(
        self, locked: EtcdServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ETCD_AUTH", "root:s3cr3t")
        url = f"etcd://{locked.address}?timeout=20&auth=env:ETCD_AUTH"
        with registry.open_store(url, read_only=False) as store:
            version = store.put("/a", b"x", ABSENT)
            # A restarted server has forgotten its tokens.
            locked.restart()
            assert store.read("/a").version == version
            locked.restart()
            store.read("/a")
            version = store.put("/a", b"y", version)
            assert store.read("/a").version == version
            locked.restart()
            store.read("/a")
            assert store.advance_sequence("/a", 700) == 700
            assert store.read("/a").value == b"y"

    def test_a_wrong_password_is_refused_and_not_shown(
        self, locked: EtcdServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ETCD_AUTH", "root:wr0ng")
        for auth in ("&auth=env:ETCD_AUTH", ""):
            with pytest.raises(UnreachableError) as caught:
                registry.open_store(f"etcd://{locked.address}?timeout=20{auth}")
            assert "wr0ng" not in str(caught.value)

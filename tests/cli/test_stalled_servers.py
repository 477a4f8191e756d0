"""A command ends soon if a server accepts requests and answers none, and names the option for more time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from itertools import count, product
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.bookie_live import LiveBookies
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.etcd import EtcdStore
from pulsar_meta.stores.oxia import OxiaStore
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.zookeeper import ZookeeperStore
from tests.cli.program import environment, pulsar_meta_here
from tests.nightly import mostly_at_night
from tests.servers import etcd, oxia, zookeeper
from tests.servers.limits import must_end
from tests.servers.restartable import RestartableServer, skip_or_fail
from tests.servers.scripted import STRANGE_SERVERS, tcp_server

Done = subprocess.CompletedProcess[bytes]
Server = Callable[[Path], RestartableServer]
SERVERS: Final[dict[str, tuple[str, Server, Callable[[], str | None], type]]] = {
    "zookeeper": ("zk", zookeeper.ZookeeperServer, zookeeper.why_not, ZookeeperStore),
    "etcd": ("etcd", etcd.EtcdServer, etcd.why_not, EtcdStore),
    "oxia": ("oxia", oxia.OxiaServer, oxia.why_not, OxiaStore),
}
READS: Final = ("read", "children", "read_many", "children_many")
# {store}: the server's URL, {copy}: a snapshot of the same values.
COMMANDS: Final = {
    "check": "check --store {store}",
    "check-readable": "check-readable --for-version 4.0.7 --store {store}",
    "ls": "ls / --store {store}",
    "get": "get topic orders --store {store}",
    "tree": "tree / --store {store}",
    "top": "top --store {store}",
    "whois": "whois 7 --store {store}",
    "show-cursor": "show-cursor orders --store {store}",
    "properties": "properties --all --store {store}",
    "brokers": "brokers --store {store}",
    "snapshot": "snapshot copy --store {store}",
    "bundle": "bundle orders --output bundle --store {store}",
    "diff": "diff {copy} {store}",
    "restore": "restore {copy} --overwrite --dry-run --store {store}",
    "compress-cursors": "compress-cursors --compression lz4 --dry-run --store {store}",
}
# What a command has read of the store when the server stalls: nothing, and parts of all that it asks for.
MOMENTS: Final = {"before it connects": -1.0, "at first": 0.0, "halfway": 0.5, "at last": 1.0}
BY_DAY: Final = (("check", "halfway"), ("tree", "at first"), ("ls", "before it connects"))


class Stalling:
    """A server with the values of a capture, which stalls when a command has asked its store often enough."""

    def __init__(self, server: RestartableServer, kind: type, url: str, copy: str, folder: Path) -> None:
        self.server, self.kind, self.url, self.copy = server, kind, url, copy
        self._folders, self._healthy = (folder / str(number) for number in count()), dict[str, Any]()

    def healthy(self, name: str) -> tuple[Done, int]:
        """Run a command without a fault, once; return its result and how often it asked its store."""
        if name not in self._healthy:
            with self.stalls_at(2**62) as asked:
                self._healthy[name] = self.run(name), len(asked)
        done, often = self._healthy[name]
        return done, often

    def run(self, name: str) -> Done:
        """Run a command that waits two seconds for an answer."""
        folder = next(self._folders)
        folder.mkdir(parents=True)
        places = {"store": f"{self.url}?timeout=2", "copy": self.copy}
        words = [word.format_map(places) for word in COMMANDS[name].split()]
        return pulsar_meta_here(*words, env=environment(folder / "state"), folder=folder)

    @contextmanager
    def stalls_at(self, number: int) -> Iterator[list[str]]:
        """Pause the server before question `number` of the block to the store. Yields the questions."""
        asked: list[str] = []
        with ExitStack() as stack:

            def ask(what: str) -> None:
                asked.append(what)
                if len(asked) == number + 1:
                    stack.enter_context(self.server.paused())

            if number < 0:
                stack.enter_context(self.server.paused())
            for name in READS:
                if name in vars(self.kind):
                    stack.enter_context(patch.object(self.kind, name, _asking(self.kind, name, ask)))
            stack.enter_context(patch.object(self.kind, "scan", _scanning(self.kind, ask)))
            yield asked


def _asking(kind: type, name: str, ask: Callable[[str], None]) -> Callable[..., Any]:
    method = getattr(kind, name)

    @wraps(method)
    def call(*arguments: Any) -> Any:
        ask(name)
        return method(*arguments)

    return call


def _scanning(kind: Any, ask: Callable[[str], None]) -> Callable[..., Iterator[Any]]:
    scan = kind.scan

    def call(*arguments: Any, **options: Any) -> Iterator[Any]:
        for value in scan(*arguments, **options):
            ask("scan")
            yield value

    return call


@pytest.fixture(scope="module", params=SERVERS)
def stalling(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    capture: Callable[[str], Path],
) -> Iterator[Stalling]:
    """A server of each kind with the metadata of a captured cluster."""
    scheme, start, why_not, kind = SERVERS[request.param]
    skip_or_fail(request.param, why_not())
    folder, copy = tmp_path_factory.mktemp("stalling"), capture("pulsar-4.2.4") / "metadata.ndjson"
    with start(folder / "server") as server:
        url = f"{scheme}://{server.address}"
        words = ("restore", copy, "--store", url, "--yes", "--allow-unreadable")
        filled = pulsar_meta_here(*words, env=environment(folder / "state"))
        assert filled.returncode == 0, filled.stderr
        yield Stalling(server, kind, url, f"snapshot:{copy}", folder)


@pytest.mark.server
@pytest.mark.parametrize(("name", "moment"), mostly_at_night(product(COMMANDS, MOMENTS), *BY_DAY))
def test_a_command_ends_with_6_or_as_without_a_fault_if_the_server_stalls(
    stalling: Stalling, name: str, moment: str
) -> None:
    healthy, often = stalling.healthy(name)
    assert healthy.returncode in (0, 1, 3), healthy.stderr
    assert often > 0
    share = MOMENTS[moment]
    number = -1 if share < 0 else int(share * (often - 1))
    with stalling.stalls_at(number) as asked, must_end():
        done = stalling.run(name)
    assert len(asked) > number, "the server did not stall"
    if share >= 0 and done.returncode != 6:
        # The rest of the last answer was enough.
        assert (done.returncode, done.stdout) == (healthy.returncode, healthy.stdout)
        return
    assert_names(done, "no answer within 2 seconds (raise the limit with ?timeout=SECONDS in the URL)")


def assert_names(done: Done, text: str) -> None:
    """Check that a command ended with 6, and that its last message has the text."""
    assert done.returncode == 6, done.stderr
    assert text in done.stderr.decode().splitlines()[-1]
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("talk", ["stalls", "drips"])
@pytest.mark.parametrize("words", ["dump-entries 7", "verify-entries 7"])
def test_a_command_ends_with_6_if_a_bookie_stalls(words: str, talk: str, tmp_path: Path) -> None:
    metadata = LedgerMetadataFormat(quorumSize=1, ensembleSize=1, length=9, state=LedgerMetadataFormat.OPEN)
    metadata.digestType = LedgerMetadataFormat.DUMMY
    url = f"dir:{tmp_path / 'store'}"
    with tcp_server(STRANGE_SERVERS[talk]) as port:
        metadata.segment.add(firstEntryId=0, ensembleMember=[f"127.0.0.1:{port}"])
        (tmp_path / "store").mkdir()
        with open_store(url, read_only=False) as store:
            store.put(ledger_path(7), encode_ledger_metadata(LedgerMetadata(3, metadata)), ABSENT)
        with patch.dict(LiveBookies.__init__.__kwdefaults__, seconds=1.0), must_end():
            words_of_command = (*words.split(), "--store", url, "--entries", "bookie:")
            done = pulsar_meta_here(*words_of_command, env=environment(tmp_path))
    assert done.returncode == 6, done.stderr
    assert f"bookie 127.0.0.1:{port}: no answer within 1 second" in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("scheme", "talk"), [("pulsar", "stalls"), ("pulsar", "drips"), ("pulsar+ssl", "stalls")]
)
def test_a_lookup_ends_with_6_if_a_broker_stalls(scheme: str, talk: str, tmp_path: Path) -> None:
    with tcp_server(STRANGE_SERVERS[talk]) as port, must_end():
        words = ("lookup", "orders", "--service-url", f"{scheme}://127.0.0.1:{port}", "--timeout", "1")
        done = pulsar_meta_here(*words, env=environment(tmp_path))
    assert_names(done, "no answer within 1 second (raise the limit with --timeout)")

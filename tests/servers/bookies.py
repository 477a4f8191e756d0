"""Bookies without Pulsar: a ZooKeeper and one or more bookies, from Pulsar's jars.

    with Bookies(3) as bookies:
        written = bookies.call("tests.servers.ledgers:write", [b"one", b"two"], {"ensemble": 3})
        open_store(bookies.store_url)              # zk://127.0.0.1:…; ledgers are in /ledgers
        bookies.directories[0]                     # a data directory: journal, entry logs, indexes
        bookies.kill(1)                            # SIGKILL to the second; stop(1) shuts it down
        bookies.start(1)                           # on the same data and port

`call` runs a function with BookKeeper's own client (see `tests.servers.jvm`) and passes the metadata
service's URI as the first argument. Everything is removed after the block.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.servers import jars
from tests.servers.jvm import Jvm, java_options
from tests.servers.processes import Process, ServerFailed, Servers, free_port
from tests.servers.zookeeper import ZookeeperServer

START_SECONDS: Final = 60
BOOKIE: Final = "org.apache.bookkeeper.server.Main"

SETTINGS: Final[Mapping[str, str]] = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "httpServerEnabled": "false",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "8",
    "dbStorage_rocksDB_blockCacheSize": "8388608",
    "journalSyncData": "false",
    "journalPreAllocSizeMB": "1",
    "flushInterval": "1000",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
}


class Bookies(Servers):
    """ZooKeeper and `count` bookies on loopback; see the module."""

    def __init__(
        self, count: int = 1, *, version: str = "4.2.4", settings: Mapping[str, str] | None = None
    ) -> None:
        """Create directories and choose ports. Nothing runs before `with`. Raises NoJars."""
        self.version = version
        self.classpath = jars.classpath(version)
        self._scratch = tempfile.TemporaryDirectory(prefix="bookies-")
        self.directory = Path(self._scratch.name)
        self.directories = [self.directory / f"bookie{number}" for number in range(count)]
        self.ports = [free_port() for _ in range(count)]
        # Brokers request sessions of half a minute.
        self.zookeeper = ZookeeperServer(self.directory / "zk", settings="maxSessionTimeout=40000")
        self._settings = {**SETTINGS, **(settings or {})}
        self._bookies: dict[int, Process] = {}
        self._client: Jvm | None = None

    @property
    def store_url(self) -> str:
        """The URL of the metadata store for pulsar-meta."""
        return f"zk://{self.zookeeper.address}"

    @property
    def metadata_service_uri(self) -> str:
        """The URI of the metadata store for BookKeeper."""
        return f"zk+hierarchical://{self.zookeeper.address}/ledgers"

    def addresses(self) -> list[str]:
        """The ids under which the bookies are registered."""
        return [f"127.0.0.1:{port}" for port in self.ports]

    def start(self, number: int) -> None:
        """Start the bookie `number` (from 0) and return when it is registered. Raises ServerFailed."""
        command = ["java", *java_options(self.directory, "512m"), "-cp", self.classpath, BOOKIE, "--conf"]
        command.append(str(self._write_settings(number)))
        bookie = Process(command, log=self.directory / f"bookie{number}.log")
        self._bookies[number] = bookie
        address = self.addresses()[number]
        bookie.wait_until(lambda: self.call("tests.servers.ledgers:registered", address), START_SECONDS)

    def stop(self, number: int) -> None:
        """Shut down the bookie `number`, which flushes its data."""
        self._bookies.pop(number).stop()

    def kill(self, number: int) -> None:
        """Send SIGKILL to the bookie `number`."""
        self._bookies.pop(number).kill()

    def call(self, target: str, *arguments: object) -> Any:
        """Run `module:function` with BookKeeper's client: (metadata service's URI, *arguments)."""
        if self._client is None:
            self._client = Jvm(self.version, heap="512m", log=self.directory / "client.log")
        return self._client.call(target, self.metadata_service_uri, *arguments)

    def close(self) -> None:
        """Stop everything and remove the directories."""
        if self._client is not None:
            self._client.kill()
        for number in list(self._bookies):
            self.kill(number)
        self.zookeeper.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._scratch.cleanup()

    def bring_up(self) -> None:
        self.zookeeper.start()
        if not self.call("tests.servers.ledgers:init_cluster"):
            raise ServerFailed("BookKeeper could not initialise its metadata")
        for number in range(len(self.ports)):
            self.start(number)

    def _write_settings(self, number: int) -> Path:
        data = self.directories[number]
        own = {
            "bookiePort": str(self.ports[number]),
            "journalDirectory": str(data),
            "ledgerDirectories": str(data),
            "metadataServiceUri": self.metadata_service_uri,
        }
        file = self.directory / f"bookie{number}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in {**self._settings, **own}.items()))
        return file

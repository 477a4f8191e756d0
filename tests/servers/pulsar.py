"""A Pulsar standalone of any published version, new or with the data of a capture.

    with PulsarStandalone("4.2.4", data=capture("pulsar-4.2.4"), settings={"…": "…"}) as pulsar:
        pulsar.service_url, pulsar.admin_url          # pulsar://127.0.0.1:…, http://127.0.0.1:…
        pulsar.admin("GET", "persistent/public/default/orders/internalStats")
        pulsar.stop()                                 # or kill(): SIGKILL, as in a crash
        open_store(pulsar.store_url)  # the bookies: pulsar.bookie_dirs
        pulsar.start()                                # on the same data and ports

It works on a copy of `data` (a folder with `rocksdb/` and `bookie0/`…), and everything is removed after the
block. `pulsar.call("tests.servers.inside:…")` reaches the broker's objects. `settings` go into the
configuration of both the broker and the bookies. A cookie binds a bookie to its address, so a standalone
waits until an earlier one on the same capture has released the bookie's port.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.servers import admin, bookie_data, jars
from tests.servers.jvm import Jvm
from tests.servers.processes import Process, ServerFailed, Servers, free_port

START_SECONDS: Final = 120
_INTERCEPTORS: Final = ",".join(
    f"org.apache.pulsar.common.intercept.{name}MetadataInterceptor"
    for name in ("AppendBrokerTimestamp", "AppendIndex")
)

SETTINGS: Final[Mapping[str, str]] = {
    "clusterName": "standalone",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "httpServerEnabled": "false",
    "loadBalancerEnabled": "false",
    # 3.0 fails if it can't read the speed of the network card.
    "loadBalancerOverrideBrokerNicSpeedGbps": "1",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "8",
    "dbStorage_rocksDB_blockCacheSize": "8388608",
    "journalSyncData": "false",
    "journalPreAllocSizeMB": "1",
    "flushInterval": "1000",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
    "nettyMaxFrameSizeBytes": "5253120",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerEntryMetadataInterceptors": _INTERCEPTORS,
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "numIOThreads": "2",
    "numHttpServerThreads": "8",
    "webSocketServiceEnabled": "false",
}


def release(version: str) -> tuple[int, ...]:
    """Return (major, minor) of a version, for comparisons."""
    return tuple(int(part) for part in version.split(".")[:2])


class PulsarStandalone(Servers):
    """A standalone cluster: broker, metadata store and bookies in one process; see the module."""

    def __init__(
        self,
        version: str = "4.2.4",
        *,
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
        bookies: int | None = None,
        heap: str = "1g",
        environment: Mapping[str, str] | None = None,
        functions_worker: Mapping[str, object] | None = None,
    ) -> None:
        """Create the directory. Nothing runs before `start` or `with`. Raises NoJars if there are no jars.

        With settings of a `functions_worker`, the broker runs one.
        """
        self.version = version
        jars.resolve(version)
        self._scratch = tempfile.TemporaryDirectory(prefix="pulsar-standalone-")
        self.directory = Path(self._scratch.name)
        self.metadata_dir = self.directory / "metadata"
        self.log = self.directory / "pulsar.log"
        self.settings = {**SETTINGS, **(settings or {})}
        self.bookies = bookies or (bookie_data.count(data) if data else 1)
        self.broker_port, self.web_port, self.zookeeper_port = free_port(), free_port(), free_port()
        self._bookie_port = free_port()
        self._heap, self._environment = heap, dict(environment or {})
        self._functions_worker = functions_worker
        self._jvm: Jvm | None = None
        self._bound_ports = bookie_data.BoundPorts()
        self._bookkeeper = self.directory / "bookkeeper"
        if data and release(version) >= (5, 0):
            self._bookkeeper = bookie_data.place_for_identity(self.directory, data)
        if data:
            bookie_data.lay_out(data, self)

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self.broker_port}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def process(self) -> Process | None:
        """The process of broker, bookies and store, or None if it is not running."""
        return None if self._jvm is None else self._jvm.process

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def uses_zookeeper(self) -> bool:
        """True if the metadata is in ZooKeeper (always before 2.11) instead of RocksDB."""
        return release(self.version) < (2, 11) or "PULSAR_STANDALONE_USE_ZOOKEEPER" in self._environment

    @property
    def store_url(self) -> str:
        """The URL of the metadata store."""
        if self.uses_zookeeper:
            return f"zk://127.0.0.1:{self.zookeeper_port}"
        return f"rocksdb:{self.metadata_dir}"

    @property
    def bookie_dirs(self) -> list[Path]:
        """The data directories of the bookies in their order."""
        base = self._bookkeeper
        if self.uses_zookeeper:
            return [base.with_name(f"{base.name}{number}") for number in range(self.bookies)]
        return [base if number == 0 else base / str(number) for number in range(self.bookies)]

    def start(self) -> None:
        """Start, and wait for `public/default`. Raises ServerFailed with the end of the log."""
        self._bound_ports.take(self.bookie_dirs)
        arguments = ["--config", str(self._write_settings()), "-nss", *self._functions(), *self._places()]
        self._jvm = Jvm(self.version, heap=self._heap, log=self.log, environment=self._environment)
        try:
            if self.metadata_dir.exists():
                self._jvm.call("tests.servers.inside:forget_bookies", str(self.metadata_dir))
            self._jvm.call("tests.servers.inside:start_standalone", arguments)
            self._jvm.process.wait_until(self._ready, START_SECONDS)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down in order: close topics, so that cursors write their state, then flush the bookies.

        After SIGTERM, the broker and its bookies would end at the same time, and the acknowledgements of the
        last seconds would be lost. Unloading the topics first is not enough, because the broker's own readers
        of system topics reconnect, and then all topics of their bundle are loaded and closed again.
        """
        try:
            if self.running:
                self.call("tests.servers.inside:stop_standalone")
        finally:
            if self._jvm is not None:
                self._jvm.stop()
                self._jvm = None
            self._bound_ports.release()

    def kill(self) -> None:
        """Send SIGKILL, as in a crash."""
        if self._jvm is not None:
            self._jvm.kill()
            self._jvm = None
        self._bound_ports.release()

    def call(self, target: str, *arguments: object) -> Any:
        """Run `module:function` in the broker's JVM, see `tests.servers.jvm`."""
        if self._jvm is None:
            raise ServerFailed("the standalone does not run")
        return self._jvm.call(target, *arguments)

    def admin(self, method: str, path: str, body: object = None, *, seconds: float = 60) -> Any:
        """Send a request to `/admin/v2/PATH`, as `tests.servers.admin.ask` does. Raises AdminError."""
        return admin.ask(self.admin_url, method, path, body, seconds=seconds)

    def bring_up(self) -> None:
        self.start()

    def close(self) -> None:
        """Stop and remove the directory."""
        self.stop()
        self._scratch.cleanup()

    def save_data(self, into: Path) -> None:
        """Copy the data of the stopped standalone to `into` in the layout of a capture."""
        without_logs = shutil.ignore_patterns("LOG*")
        for number, bookie in enumerate(self.bookie_dirs):
            kept = into / f"bookie{number}" / "current"
            shutil.copytree(bookie / "current", kept, ignore=without_logs)
        if not self.uses_zookeeper:
            shutil.copytree(self.metadata_dir, into / "rocksdb", ignore=without_logs)

    def _functions(self) -> list[str]:
        """Return the options of the functions worker. Its settings are YAML, and JSON is YAML."""
        if self._functions_worker is None:
            return ["-nfw"]
        file = self.directory / "functions_worker.yml"
        places = dict.fromkeys(
            ("downloadDirectory", "connectorsDirectory", "functionsDirectory"),
            str(self.directory / "functions"),
        )
        file.write_text(json.dumps({**places, "workerPort": self.web_port, **self._functions_worker}))
        return ["--functions-worker-conf", str(file)]

    def _places(self) -> list[str]:
        places = ["--num-bookies", str(self.bookies)]
        places += ["--bookkeeper-dir", str(self._bookkeeper)]
        if release(self.version) < (5, 0):
            places += ["--bookkeeper-port", str(self._bookie_port)]
        if self.uses_zookeeper:
            return [
                *places,
                *("--zookeeper-dir", str(self.directory / "zookeeper")),
                *("--zookeeper-port", str(self.zookeeper_port)),
            ]
        return [*places, "--metadata-dir", str(self.metadata_dir)]

    def _write_settings(self) -> Path:
        file = self.directory / "standalone.conf"
        ports = {"brokerServicePort": self.broker_port, "webServicePort": self.web_port}
        file.write_text("".join(f"{key}={value}\n" for key, value in {**self.settings, **ports}.items()))
        return file

    def _ready(self) -> bool:
        try:
            return "public/default" in self.admin("GET", "namespaces/public", seconds=5)
        except (OSError, admin.AdminError):
            return False

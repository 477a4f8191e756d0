"""Two or more brokers with one ZooKeeper and one bookie, with lookup properties (PIP-368).

    with Cluster(racks=["A", "B"]) as cluster:
        cluster.brokers[0].service_url, cluster.brokers[0].admin_url, cluster.brokers[0].name
        cluster.store_url                          # zk://127.0.0.1:…
        cluster.brokers[0].admin("GET", "brokers/cluster")
        cluster.stop(1); cluster.start(1)

Each broker is started with `PulsarBrokerStarter` and ExtensibleLoadManagerImpl, and publishes its rack as the
lookup property `lookup.rack`. Everything is removed after the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.servers import admin
from tests.servers.bookies import Bookies
from tests.servers.jvm import Jvm, java_options
from tests.servers.processes import Process, ServerFailed, Servers, free_port

START_SECONDS: Final = 120
STARTER: Final = "org.apache.pulsar.PulsarBrokerStarter"
LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"

SETTINGS: Final[Mapping[str, str]] = {
    "clusterName": "test",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "loadManagerClassName": LOAD_MANAGER,
    "loadBalancerOverrideBrokerNicSpeedGbps": "1",
    "lookupPropertyPrefix": "lookup.",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "defaultNumberOfNamespaceBundles": "4",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "webSocketServiceEnabled": "false",
    "functionsWorkerEnabled": "false",
    "numIOThreads": "2",
    "numHttpServerThreads": "8",
}


@dataclass(frozen=True, slots=True)
class Broker:
    """The addresses and the name of a broker in the cluster."""

    rack: str
    broker_port: int
    web_port: int

    @property
    def name(self) -> str:
        """The broker's id in the metadata store."""
        return f"127.0.0.1:{self.web_port}"

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self.broker_port}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    def admin(self, method: str, path: str, body: object = None, *, seconds: float = 60) -> Any:
        """Send a request to `/admin/v2/PATH` of this broker, as `tests.servers.admin.ask` does."""
        return admin.ask(self.admin_url, method, path, body, seconds=seconds)


class Cluster(Servers):
    """A broker for each of `racks`, with one ZooKeeper and one bookie; see the module."""

    def __init__(
        self,
        *,
        racks: Sequence[str] = ("A", "B"),
        version: str = "4.2.4",
        settings: Mapping[str, str] | None = None,
        inside: str | None = None,
    ) -> None:
        """Choose ports. Nothing runs before `with`. Raises NoJars, see `tests.servers.jars`.

        `inside` is a `module:function` that runs in each broker's JVM before the broker starts there, so that
        `call` can reach the broker. The function returns additional settings.
        """
        self._bookies = Bookies(1, version=version)
        self.brokers = [Broker(rack, free_port(), free_port()) for rack in racks]
        self._settings = {**SETTINGS, **(settings or {})}
        self._inside = inside
        self._processes: dict[int, Process | Jvm] = {}

    @property
    def store_url(self) -> str:
        """The URL of the metadata store for pulsar-meta."""
        return self._bookies.store_url

    @property
    def _store(self) -> str:
        """The URL of the metadata store for brokers."""
        return f"zk:{self._bookies.zookeeper.address}"

    @property
    def metadata_service_uri(self) -> str:
        """The URI of BookKeeper's metadata."""
        return self._bookies.metadata_service_uri

    @property
    def directory(self) -> Path:
        return self._bookies.directory

    @property
    def bookie_dirs(self) -> list[Path]:
        return self._bookies.directories

    def start(self, number: int) -> None:
        """Start the broker `number` (from 0) and return when it is ready. Raises ServerFailed."""
        broker, log = self.brokers[number], self.directory / f"broker{number}.log"
        if self._inside is not None:
            jvm = self._processes[number] = Jvm(self._bookies.version, heap="512m", log=log)
            settings = self._write_settings(number, jvm.call(self._inside))
            jvm.call("tests.servers.inside:start_broker", str(settings))
            process = jvm.process
        else:
            command = ["java", *java_options(self.directory, "512m"), "-cp", self._bookies.classpath, STARTER]
            command += ["--broker-conf", str(self._write_settings(number))]
            process = self._processes[number] = Process(command, log=log)
        process.wait_until(lambda: _ready(broker), START_SECONDS)

    def call(self, number: int, target: str, *arguments: object) -> Any:
        """Run `module:function` in the JVM of broker `number` (only with `inside`); see `jvm`."""
        jvm = self._processes[number]
        if not isinstance(jvm, Jvm):
            raise ServerFailed("the cluster was not started with inside=…")
        return jvm.call(target, *arguments)

    def stop(self, number: int) -> None:
        """Shut down the broker `number`, which unloads its bundles."""
        process = self._processes.pop(number)
        if isinstance(process, Jvm):
            process.call("tests.servers.inside:stop_broker")
        process.stop()

    def kill(self, number: int) -> None:
        """Send SIGKILL to the broker `number`."""
        self._processes.pop(number).kill()

    def store_values(self, parent: str) -> dict[str, bytes]:
        """Return the values of a path's children by name, read with another ZooKeeper client (kazoo)."""
        from kazoo.client import KazooClient

        client = KazooClient(self.store_url.removeprefix("zk://"))
        client.start()
        try:
            return {name: client.get(f"{parent}/{name}")[0] for name in client.get_children(parent)}
        finally:
            client.stop()
            client.close()

    def log_of(self, number: int) -> str:
        """Return the log of broker `number`."""
        return (self.directory / f"broker{number}.log").read_text(errors="replace")

    def close(self) -> None:
        """Stop everything and remove the directories."""
        for number in list(self._processes):
            self.kill(number)
        self._bookies.close()

    def bring_up(self) -> None:
        self._bookies.bring_up()
        self.start_brokers()

    def start_brokers(self) -> None:
        """Write the cluster's metadata and start its brokers."""
        first = self.brokers[0]
        self._bookies.call(
            "tests.servers.inside:init_cluster",
            {
                "--cluster": self._settings["clusterName"],
                "--metadata-store": self._store,
                "--configuration-metadata-store": self._store,
                "--web-service-url": first.admin_url,
                "--broker-service-url": first.service_url,
                "--existing-bk-metadata-service-uri": self.metadata_service_uri,
            },
        )
        for number in range(len(self.brokers)):
            self.start(number)

    def _write_settings(self, number: int, further: Mapping[str, str] | None = None) -> Path:
        broker = self.brokers[number]
        own = {
            "brokerServicePort": str(broker.broker_port),
            "webServicePort": str(broker.web_port),
            "metadataStoreUrl": self._store,
            "configurationMetadataStoreUrl": self._store,
            "bookkeeperMetadataServiceUri": self.metadata_service_uri,
            f"{self._settings['lookupPropertyPrefix']}rack": broker.rack,
        }
        file = self.directory / f"broker{number}.conf"
        settings = {**self._settings, **own, **(further or {})}
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return file


def _ready(broker: Broker) -> bool:
    try:
        return bool(broker.admin("GET", "brokers/health", seconds=20) == "ok")
    except (OSError, admin.AdminError):
        return False

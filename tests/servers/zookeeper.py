"""ZooKeeper's own server, from the jars in pyspark. It needs only Java.

with ZookeeperServer(tmp_path) as server:
    open_store(f"zk://{server.address}")
"""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from pathlib import Path

from tests.servers import java
from tests.servers.processes import free_port
from tests.servers.restartable import RestartableServer, skip_or_fail

_NEEDED = ("commons-io", "jackson", "jul-to", "log4j", "metrics-core", "netty", "slf4j", "snappy", "zoo")
_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
"""


class ZookeeperServer(RestartableServer):
    """A standalone server on a free loopback port, with its data in `directory`.

    `settings` are lines of zoo.cfg. `java_options` are passed to Java before the class.
    """

    name = "ZooKeeper"

    def __init__(self, directory: Path, *, settings: str = "", java_options: tuple[str, ...] = ()) -> None:
        """Skips the test if there is no Java."""
        skip_or_fail("zookeeper", why_not())
        super().__init__(directory, free_port())
        (directory / "data").mkdir()
        (directory / "log4j2.properties").write_text(_LOG4J)
        self._config = directory / "zoo.cfg"
        self._config.write_text(
            f"tickTime=500\nclientPortAddress=127.0.0.1\nclientPort={self.port}\n"
            f"dataDir={directory / 'data'}\nadmin.enableServer=false\n4lw.commands.whitelist=ruok,cons,mntr\n"
            f"maxClientCnxns=0\nforceSync=no\nskipACL=no\n{settings}\n"
        )
        self._java_options = java_options

    def command(self) -> list[str]:
        log = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return [
            java.executable() or "java",
            "-Xmx256m",
            *java.options("zookeeper"),
            log,
            *self._java_options,
            "-cp",
            _classes(),
            main,
            str(self._config),
        ]

    def ready(self) -> bool:
        # The server answers `ruok` before it answers requests.
        return b"zk_server_state" in four_letters(self.port, b"mntr")


def why_not() -> str | None:
    """Return why no server can be started here, or None if one can."""
    return java.why_not()


def four_letters(port: int, word: bytes) -> bytes:
    """Return the server's answer to a four-letter word, or nothing if it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(word)
            return connection.makefile("rb").read()
    except OSError:
        return b""


def _classes() -> str:
    """Return the class path of the jars in pyspark that ZooKeeper needs."""
    jars = (_pyspark() / "jars").glob("*.jar")
    return os.pathsep.join(sorted(str(jar) for jar in jars if jar.name.startswith(_NEEDED)))


def _pyspark() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent

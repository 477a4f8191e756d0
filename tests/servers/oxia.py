"""Oxia, built once from its Go module in the user's cache directory, and run as a standalone."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, Self

from tests.servers.certificates import Certificates
from tests.servers.processes import Process, free_port, port_answers
from tests.servers.restartable import RestartableServer

MODULE: Final = "github.com/oxia-db/oxia"
VERSION: Final = "v0.14.0"
_SHARDS: Final = 2


class OxiaServer(RestartableServer):
    """A standalone with `shards` shards on a free loopback port."""

    name = "Oxia"

    def __init__(self, directory: Path, *, shards: int = _SHARDS) -> None:
        super().__init__(directory, free_port())
        self._metrics_port = free_port()
        self._shards = shards

    def command(self) -> list[str]:
        return [
            str(binary()),
            *(
                "standalone",
                "--public-addr",
                self.address,
                "--metrics-addr",
                f"127.0.0.1:{self._metrics_port}",
            ),
            *("--shards", str(self._shards), "--log-level", "warn", "--wal-sync-data=false"),
            *("--data-dir", str(self.directory / "db"), "--wal-dir", str(self.directory / "wal")),
        ]

    def ready(self) -> bool:
        return port_answers(self.port)


class OxiaCluster(RestartableServer):
    """A server and its coordinator, which in contrast to a standalone support TLS and tokens.

    `issuer` is the URL of the issuer of tokens, whose audience must be "oxia".
    """

    name = "Oxia"

    def __init__(self, directory: Path, *, certificates: Certificates, issuer: str) -> None:
        super().__init__(directory, free_port())
        self._certificates, self._issuer = certificates, issuer
        self._internal, self._coordinator_port = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self._coordinator: Process | None = None

    def command(self) -> list[str]:
        allowed = {"allowedIssueURLs": self._issuer, "allowedAudiences": "oxia"}
        return [
            *(str(binary()), "server", "--public-addr", self.address, "--internal-addr", self._internal),
            *("--metrics-addr", f"127.0.0.1:{free_port()}", "--log-level", "warn"),
            *("--data-dir", str(self.directory / "db"), "--wal-dir", str(self.directory / "wal")),
            *("--tls-cert-file", str(self._certificates.server)),
            *("--tls-key-file", str(self._certificates.server_key)),
            *("--auth-provider-name", "oidc", "--auth-provider-params", json.dumps(allowed)),
        ]

    def ready(self) -> bool:
        return port_answers(self.port)

    def start(self) -> Self:
        super().start()
        namespace = {"name": "default", "initialShardCount": _SHARDS, "replicationFactor": 1}
        servers = [{"public": self.address, "internal": self._internal}]
        config = self.directory / "cluster.yaml"
        # JSON is valid YAML.
        config.write_text(json.dumps({"namespaces": [namespace], "servers": servers}))
        command = [
            *(str(binary()), "coordinator", "--conf", str(config), "--metadata", "memory"),
            *("--internal-addr", self._coordinator_port, "--metrics-addr", f"127.0.0.1:{free_port()}"),
        ]
        log = self.directory / "coordinator.log"
        self._coordinator = Process(command, log=log)
        # Before that, a shard has no leader, and the server refuses requests.
        self._coordinator.wait_until(lambda: log.read_bytes().count(b"Shard is ready") >= _SHARDS, seconds=60)
        return self

    def kill(self) -> None:
        if self._coordinator is not None:
            self._coordinator.kill()
            self._coordinator = None
        super().kill()


def cached_binary() -> Path:
    """Return the path of the server once it is built."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pulsar-meta" / f"oxia-{VERSION}"


def binary() -> Path:
    """Return the server. The first call on a machine builds it in some minutes."""
    target = cached_binary()
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_name(f"{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                _build(target)
    return target


def _build(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        module = f"module build\n\ngo 1.24\n\nrequire {MODULE} {VERSION}\n"
        (Path(scratch) / "go.mod").write_text(module)
        command = ["go", "build", "-mod=mod", "-o", "oxia", f"{MODULE}/cmd"]
        built = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if built.returncode:
            raise OxiaNotBuilt(f"oxia could not be built: {built.stderr.strip()[-500:]}")
        (Path(scratch) / "oxia").replace(target)


class OxiaNotBuilt(Exception):
    """Go is installed, but the module could not be downloaded or built."""


def main() -> int:
    """Build the server if it is missing, and print its path or why it can't be built."""
    print(why_not() or binary())
    return 0


@cache
def why_not() -> str | None:
    """Return why no server can be started here, or None if one can. The first call builds the server."""
    if not cached_binary().exists() and shutil.which("go") is None:
        return "Oxia's server is built with Go, and there is no `go` here"
    try:
        binary()
    except OxiaNotBuilt as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())

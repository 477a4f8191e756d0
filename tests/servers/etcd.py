"""etcd, from Debian's etcd-server: `with EtcdServer(tmp_path) as server: open_store(f"etcd://{server.address}")`."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from pathlib import Path

from tests.servers.processes import free_port, port_answers
from tests.servers.restartable import RestartableServer


class EtcdServer(RestartableServer):
    """One member on a free loopback port. With `tls` = (certificate, key), it accepts only TLS."""

    name = "etcd"

    def __init__(
        self, directory: Path, *, tls: tuple[Path, Path] | None = None, options: tuple[str, ...] = ()
    ) -> None:
        super().__init__(directory, free_port())
        self._peer_port = free_port()
        self._tls, self._options = tls, options

    def command(self) -> list[str]:
        scheme = "https" if self._tls else "http"
        client, peer = f"{scheme}://{self.address}", f"http://127.0.0.1:{self._peer_port}"
        tls = ["--cert-file", str(self._tls[0]), "--key-file", str(self._tls[1])] if self._tls else []
        return [
            "etcd",
            *("--name", "one", "--data-dir", str(self.directory / "data"), "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client, "--unsafe-no-fsync"),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"one={peer}", "--logger", "zap"),
            *tls,
            *self._options,
        ]

    def ready(self) -> bool:
        if self._tls:
            return port_answers(self.port)
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=2) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False


def why_not() -> str | None:
    """Return why no server can be started here, or None if one can."""
    return None if shutil.which("etcd") else "no `etcd` here: apt-get install etcd-server"

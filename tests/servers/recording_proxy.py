"""A TCP proxy that records both directions, byte for byte.

with RecordingProxy("127.0.0.1", broker_port) as proxy:
    ...connect to 127.0.0.1:proxy.port...
proxy.sent, proxy.received  # of each connection, in the order of opening
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field

from tests.servers.processes import Servers


@dataclass(slots=True)
class Connection:
    """The bytes that the client sent and the server answered on one connection."""

    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)


class RecordingProxy(Servers):
    """Listens on `port` of 127.0.0.1 and forwards everything to one server."""

    def __init__(self, host: str, port: int, *, listen: int = 0) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", listen))
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[Connection] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            connection = Connection()
            self.connections.append(connection)
            self._sockets += [client, server]
            for source, target, kept in (
                (client, server, connection.sent),
                (server, client, connection.received),
            ):
                threading.Thread(target=_pump, args=(source, target, kept), daemon=True).start()

    def close(self) -> None:
        for opened in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()


def _pump(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            kept += piece
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)

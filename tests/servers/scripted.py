"""Servers that misbehave on purpose: they send wrong, late, slow or endless data."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.wire.bookie_protocol import LAST_ENTRY

Talk = Callable[[socket.socket], None]
# Maps (ledger, entry) to the code and the data of the answer.
BookieScript = Callable[[int, int], tuple[int, bytes]]


@contextmanager
def tcp_server(talk: Talk) -> Iterator[int]:
    """Run `talk` for every client that connects to a port of 127.0.0.1, and return the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def speak(client: socket.socket) -> None:
        with client, suppress(OSError, struct.error):
            # Longer than any test: a client that ignores its own limit must hang.
            client.settimeout(300)
            talk(client)

    def serve() -> None:
        with suppress(OSError):
            while not done.is_set():
                client, _ = listener.accept()
                threading.Thread(target=speak, args=(client,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        done.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def closed_port() -> int:
    """Return a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return int(closed.getsockname()[1])


def stall(client: socket.socket) -> None:
    """Read requests and never answer."""
    while client.recv(65536):
        pass


def hang_up(client: socket.socket) -> None:
    """Read some bytes and close the connection."""
    client.recv(65536)


def garbage(client: socket.socket) -> None:
    """Answer everything with bytes of another protocol."""
    while client.recv(65536):
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def dripping(data: bytes, pause: float = 0.1) -> Talk:
    """Answer with one byte of `data` every `pause` seconds, followed by zeros."""

    def talk(client: socket.socket) -> None:
        client.recv(65536)
        at = 0
        while True:
            client.sendall(data[at : at + 1] or b"\0")
            at += 1
            time.sleep(pause)

    return talk


STRANGE_SERVERS: dict[str, Talk] = {
    "stalls": stall,
    "hangs up": hang_up,
    "speaks another protocol": garbage,
    "drips": dripping(struct.pack(">i", 200)),
}


def bookie(script: BookieScript) -> Talk:
    """Answer reads of one entry as `script` decides. Hang up at a batch read, as old bookies do."""

    def talk(client: socket.socket) -> None:
        while len(head := client.recv(4, socket.MSG_WAITALL)) == 4:
            body = client.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
            if len(body) != 20:
                return
            ledger_id, entry_id = struct.unpack_from(">qq", body, 4)
            code, data = script(ledger_id, entry_id)
            answer = struct.pack(">Iiqq", 0x02020000, code, ledger_id, entry_id) + data
            client.sendall(struct.pack(">i", len(answer)) + answer)

    return talk


def honest(last: int, confirmed: int | None = None) -> BookieScript:
    """Answer with the entries 0 to `last` of every ledger. The last one has the last confirmed entry."""

    def script(ledger_id: int, entry_id: int) -> tuple[int, bytes]:
        number = last if entry_id == LAST_ENTRY else entry_id
        if not 0 <= number <= last:
            return 2, b""
        known = number - 1 if confirmed is None else confirmed
        return 0, encode_bookie_entry(ledger_id, number, known, number, b"entry %d" % number)

    return script


@contextmanager
def grpc_server(answers: dict[str, Callable[[Any], Any]]) -> Iterator[int]:
    """Answer calls by the last part of their names.

    An answer is a function from the request's bytes to bytes, or to an iterator of bytes for a stream. Other
    calls are refused.
    """
    import grpc

    class Handler(grpc.GenericRpcHandler):
        def service(self, call: Any) -> Any:
            answer = answers.get(call.method.rpartition("/")[2])
            if answer is None:
                return None
            name = call.method.rpartition("/")[2]
            if name in ("Range", "Txn", "Authenticate"):
                return grpc.unary_unary_rpc_method_handler(lambda request, _: answer(request))
            if name == "WriteStream":
                return grpc.stream_stream_rpc_method_handler(lambda requests, _: answer(next(requests)))
            return grpc.unary_stream_rpc_method_handler(lambda request, _: answer(request))

    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, handlers=[Handler()], options=[("grpc.so_reuseport", 0)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(0).wait()


# Maps an operation number and the bytes of its request to the body of the answer, or to None for no answer.
ZookeeperScript = Callable[[int, bytes], bytes | None]


def zookeeper(script: ZookeeperScript) -> Talk:
    """Open a session as ZooKeeper does, then answer each request as `script` decides. Pings are answered."""

    def sized(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    def talk(client: socket.socket) -> None:
        size = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))[0]
        client.recv(size, socket.MSG_WAITALL)
        client.sendall(sized(struct.pack(">iiq", 0, 10_000, 1) + sized(bytes(16)) + b"\0"))
        while len(head := client.recv(4, socket.MSG_WAITALL)) == 4:
            request = client.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
            number, operation = struct.unpack_from(">ii", request)
            answer = b"" if operation == 11 else script(operation, request[8:])
            if answer is not None:
                client.sendall(sized(struct.pack(">iqi", number, 1, 0) + answer))

    return talk

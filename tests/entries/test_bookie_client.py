"""What the client makes of servers that are no bookies, or not ones that it may read."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.wire.bookie_protocol import decode_answer, encode_batch_read, encode_read
from pulsar_meta.entries.bookie_client import BookieClient

Talk = Callable[[socket.socket], None]


@contextmanager
def server(talk: Talk) -> Iterator[int]:
    """A server for one connection that does as `talk` says."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            # A client that leaves while something is on its way resets the connection.
            with connection, suppress(ConnectionResetError):
                talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive()


def answering(answer: bytes, questions: int = 1) -> Talk:
    def talk(connection: socket.socket) -> None:
        for _ in range(questions):
            connection.recv(24, socket.MSG_WAITALL)
        connection.sendall(answer)
        connection.recv(1)

    return talk


def read_answer(ledger: int, entry: int, data: bytes = b"", code: int = 0) -> bytes:
    return struct.pack(">iIiqq", 24 + len(data), 0x02020000, code, ledger, entry) + data


def refusal(answer: bytes, seconds: float = 5) -> str:
    with server(answering(answer)) as port, BookieClient("127.0.0.1", port, seconds=seconds) as client:
        with pytest.raises(UnreachableError) as caught:
            client.read(5, [7])
        return str(caught.value)


def test_answers_in_another_order_find_their_questions() -> None:
    answers = read_answer(5, 2, b"two") + read_answer(5, 1, code=2) + read_answer(5, 0, b"nil")
    with server(answering(answers, 3)) as port, BookieClient("127.0.0.1", port) as client:
        found = client.read(5, [0, 1, 2, 1, 0])
    assert {entry: [bytes(one) for one in answer.entries] for entry, answer in found.items()} == {
        0: [b"nil"], 1: [], 2: [b"two"],
    }  # fmt: skip
    assert found[1].reason == "no such entry"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (read_answer(5, 7, code=102), "TLS or an authentication plugin"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS or an authentication plugin"),
        (read_answer(5, 8, b"x"), "not asked for"),
        (read_answer(6, 7, b"x"), "not asked for"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "announced an answer of"),
        (struct.pack(">i", -1), "announced an answer of -1 bytes"),
        (struct.pack(">i", 2**31 - 1), "announced an answer of 2147483647 bytes"),
        (struct.pack(">i", 4) + b"abcd", "another protocol"),
        (struct.pack(">iIiqq", 24, 0x02010000, 0, 5, 7), "another protocol"),
        (b"", "no answer within 0.3 seconds"),
        (struct.pack(">i", 100) + b"torn", "no answer within 0.3 seconds"),
    ],
)
def test_a_strange_answer_is_one_clear_line(answer: bytes, says: str) -> None:
    stated = refusal(answer, seconds=0.3 if "within" in says else 5)
    assert says in stated
    assert stated.startswith("bookie 127.0.0.1:")


def test_a_server_that_hangs_up() -> None:
    def hang_up(connection: socket.socket) -> None:
        connection.recv(24, socket.MSG_WAITALL)

    closed = pytest.raises(UnreachableError, match="closed the connection")
    with server(hang_up) as port, BookieClient("127.0.0.1", port) as client, closed:
        client.read(5, [7])


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(UnreachableError, match="cannot connect"):
        BookieClient("127.0.0.1", port)


def test_no_request_has_a_flag() -> None:
    assert encode_read(5, 7)[:8] == bytes.fromhex("00000014 02020000")
    assert encode_batch_read(5, 7, 1, 100, 1 << 20)[:8] == bytes.fromhex("00000028 02070000")


@pytest.mark.parametrize("size", [-1, 5, 2**31 - 1, 0x7F000000])
def test_entries_of_a_batch_that_claim_too_much(size: int) -> None:
    head = struct.pack(">Iiqqq", 0x02070000, 0, 5, 0, 1)
    assert [bytes(one) for one in decode_answer(head + struct.pack(">i", 2) + b"ab").entries] == [b"ab"]
    with pytest.raises(DecodeError, match="claims"):
        decode_answer(head + struct.pack(">i", size) + b"ab")

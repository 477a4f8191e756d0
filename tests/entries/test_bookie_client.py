"""The client of bookies against servers that are no bookies, or that refuse to be read."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.wire.bookie_protocol import decode_answer, encode_batch_read, encode_read
from pulsar_meta.entries.bookie_client import BookieClient

Behaviour = Callable[[socket.socket], None]


@contextmanager
def server(behaviour: Behaviour) -> Iterator[int]:
    """Serve one connection with `behaviour`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            # If a client disconnects while data is on its way to it, the connection is reset.
            with connection, suppress(ConnectionResetError):
                behaviour(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive()


def answering(answer: bytes, questions: int = 1) -> Behaviour:
    def answer_questions(connection: socket.socket) -> None:
        for _ in range(questions):
            connection.recv(24, socket.MSG_WAITALL)
        connection.sendall(answer)
        connection.recv(1)

    return answer_questions


def read_answer(ledger: int, entry: int, data: bytes = b"", code: int = 0) -> bytes:
    return struct.pack(">iIiqq", 24 + len(data), 0x02020000, code, ledger, entry) + data


def refusal(answer: bytes, seconds: float = 5) -> str:
    with (
        server(answering(answer)) as port,
        closing(BookieClient("127.0.0.1", port, seconds=seconds)) as client,
    ):
        with pytest.raises(UnreachableError) as caught:
            client.read(5, [7])
        return str(caught.value)


def test_answers_out_of_order_are_matched_to_their_questions() -> None:
    packets = read_answer(5, 2, b"two") + read_answer(5, 1, code=2) + read_answer(5, 0, b"nil")
    with server(answering(packets, 3)) as port, closing(BookieClient("127.0.0.1", port)) as client:
        answers = client.read(5, [0, 1, 2, 1, 0])
    assert {entry: [bytes(data) for data in answer.entries] for entry, answer in answers.items()} == {
        0: [b"nil"], 1: [], 2: [b"two"],
    }  # fmt: skip
    assert answers[1].reason == "no such entry"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (read_answer(5, 7, code=102), "TLS or an authentication plugin"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS or an authentication plugin"),
        (read_answer(5, 8, b"x"), "not requested"),
        (read_answer(6, 7, b"x"), "not requested"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "announced an answer of"),
        (struct.pack(">i", -1), "announced an answer of -1 bytes"),
        (struct.pack(">i", 2**31 - 1), "announced an answer of 2147483647 bytes"),
        (struct.pack(">i", 4) + b"abcd", "another protocol"),
        (struct.pack(">iIiqq", 24, 0x02010000, 0, 5, 7), "another protocol"),
        (b"", "no answer within 0.3 seconds"),
        (struct.pack(">i", 100) + b"torn", "no answer within 0.3 seconds"),
    ],
)
def test_a_strange_answer_is_a_clear_error(answer: bytes, words: str) -> None:
    error = refusal(answer, seconds=0.3 if "within" in words else 5)
    assert words in error
    assert error.startswith("bookie 127.0.0.1:")


def test_a_server_that_hangs_up_is_unreachable() -> None:
    def hang_up(connection: socket.socket) -> None:
        connection.recv(24, socket.MSG_WAITALL)

    closed = pytest.raises(UnreachableError, match="closed the connection")
    with server(hang_up) as port, closing(BookieClient("127.0.0.1", port)) as client, closed:
        client.read(5, [7])


def test_a_closed_port_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(UnreachableError, match="cannot connect"):
        BookieClient("127.0.0.1", port)


def test_no_request_has_a_flag() -> None:
    assert encode_read(5, 7)[:8] == bytes.fromhex("00000014 02020000")
    assert encode_batch_read(5, 7, 1, 100, 1 << 20)[:8] == bytes.fromhex("00000028 02070000")


@pytest.mark.parametrize("size", [-1, 5, 2**31 - 1, 0x7F000000])
def test_a_batch_entry_that_claims_too_many_bytes_is_an_error(size: int) -> None:
    head = struct.pack(">Iiqqq", 0x02070000, 0, 5, 0, 1)
    assert [bytes(entry) for entry in decode_answer(head + struct.pack(">i", 2) + b"ab").entries] == [b"ab"]
    with pytest.raises(DecodeError, match="claims"):
        decode_answer(head + struct.pack(">i", size) + b"ab")

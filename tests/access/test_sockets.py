"""Connections time out even if the server or the resolver never answers."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from pulsar_meta.access.sockets import TimedSocket, connection_problem, reason
from tests.servers.scripted import closed_port, hang_up, stall, tcp_server


def test_a_resolver_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*arguments: Any, **named: Any) -> Any:
        time.sleep(5)
        raise socket.gaierror("late")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        TimedSocket("some.host", 1, seconds=0.3)
    assert connection_problem(["some.host:1", "other.host:2"], 0.4) is not None
    assert time.monotonic() - begun < 3


def test_a_name_with_several_addresses_connects_to_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def several(host: str, port: int, *arguments: Any, **named: Any) -> Any:
        if host != "several":
            return real(host, port, *arguments, **named)
        return [row for address in ("::1", "127.0.0.1") for row in real(address, port, *arguments, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", several)
    with tcp_server(stall) as port:
        TimedSocket("several", port, seconds=5).close()


def test_the_timeout_starts_again_with_each_request() -> None:
    with tcp_server(stall) as port:
        connection = TimedSocket("127.0.0.1", port, seconds=0.3)
        for _ in range(2):
            connection.begin()
            connection.send(b"x")
            begun = time.monotonic()
            with pytest.raises(TimeoutError):
                connection.receive()
            assert 0.2 < time.monotonic() - begun < 2
        connection.close()
        connection.close()


def test_addresses_where_no_server_listens_are_explained() -> None:
    closed = closed_port()
    with tcp_server(hang_up) as port:
        assert connection_problem([f"127.0.0.1:{closed}", f"127.0.0.1:{port}"], 2) is None
    problem = connection_problem([f"127.0.0.1:{closed}", "no-such-host.invalid:1", "[::1]:1", "x:y"], 2)
    assert problem is not None
    for words in ("127.0.0.1:", "Connection refused", "host name not found", "expected HOST:PORT"):
        assert words in problem


def test_network_errors_are_put_into_words() -> None:
    assert reason(TimeoutError(), 10) == "no answer within 10 seconds"
    assert reason(UnicodeError("label too long"), 1) == "host name not found"
    assert reason(OSError("odd"), 1) == "odd"

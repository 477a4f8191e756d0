"""Connections time out even if the server or the resolver never answers."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_meta.access import sockets
from pulsar_meta.access.sockets import TimedSocket, connection_problem, reason
from tests.servers.limits import must_end
from tests.servers.scripted import closed_port, hang_up, stall, tcp_server


def test_a_resolver_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def silent(*arguments: Any, **named: Any) -> Any:
        ended.wait()
        raise socket.gaierror("late")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        with must_end():
            with pytest.raises(TimeoutError):
                TimedSocket("some.host", 1, seconds=0.3)
            assert connection_problem(["some.host:1", "other.host:2"], 0.4) is not None
    finally:
        ended.set()


def test_a_name_with_several_addresses_connects_to_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def several(host: str, port: int, *arguments: Any, **named: Any) -> Any:
        if host != "several":
            return real(host, port, *arguments, **named)
        return [row for address in ("::1", "127.0.0.1") for row in real(address, port, *arguments, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", several)
    with tcp_server(stall) as port:
        TimedSocket("several", port, seconds=5).close()


def test_a_server_that_never_answers_times_out() -> None:
    with tcp_server(stall) as port, must_end():
        connection = TimedSocket("127.0.0.1", port, seconds=0.3)
        with pytest.raises(TimeoutError):
            connection.receive()
        connection.close()
        connection.close()


def test_the_timeout_starts_again_with_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(sockets, "time", SimpleNamespace(monotonic=lambda: now))
    with tcp_server(stall) as port:
        connection = TimedSocket("127.0.0.1", port, seconds=10)
        for _ in range(2):
            now += 9
            connection.begin()
            now += 9
            connection.send(b"x")
            now += 2
            with pytest.raises(TimeoutError):
                connection.receive()
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
    assert reason(TimeoutError(), 1, "--x") == "no answer within 1 second (raise the limit with --x)"
    assert reason(UnicodeError("label too long"), 1) == "host name not found"
    assert reason(OSError("odd"), 1) == "odd"

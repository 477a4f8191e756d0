"""Lookups over real sockets, against servers that misbehave in ways that real brokers rarely do."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pulsar_meta.access.sockets import TlsSettings
from pulsar_meta.brokers.lookup import LookupRequest
from pulsar_meta.brokers.lookup_session import LookupOutcome, LookupSession
from pulsar_meta.codecs.errors import DecodeError, UnreachableError, UsageError
from pulsar_meta.codecs.wire.commands import encode_command, parse_service_url
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, CommandLookupTopicResponse
from tests.servers.limits import must_end
from tests.servers.scripted import STRANGE_SERVERS, dripping, tcp_server

Behaviour = Callable[[socket.socket], None]


@contextmanager
def server(behaviour: Behaviour) -> Iterator[int]:
    """Listen on a port of 127.0.0.1 and call `behaviour` with each connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.settimeout(5)
                    behaviour(client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def lookup(
    port: int, *, scheme: str = "pulsar", tls: TlsSettings | None = None, timeout: float = 0.3
) -> LookupOutcome:
    request = LookupRequest("persistent://public/default/t", {"rack": "A"})
    addresses = parse_service_url(f"{scheme}://127.0.0.1:{port}")
    return LookupSession(addresses, tls or TlsSettings(), timeout).look_up(request)


def ping_endlessly(client: socket.socket) -> None:
    while client.recv(65536):
        client.sendall(encode_command(BaseCommand(type=BaseCommand.PING)))


def drip(client: socket.socket) -> None:
    client.sendall(b"\0\0\0\x50")
    while True:
        time.sleep(0.05)
        client.sendall(b"\0")


def answer_well(client: socket.socket) -> None:
    client.recv(65536)
    hello = BaseCommand(type=BaseCommand.CONNECTED)
    hello.connected.server_version, hello.connected.protocol_version = "Pulsar Server3.0.7", 21
    client.sendall(encode_command(hello))
    client.recv(65536)
    reply = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    reply.lookupTopicResponse.CopyFrom(
        CommandLookupTopicResponse(
            request_id=1,
            brokerServiceUrl="pulsar://o:1",
            brokerServiceUrlTls="pulsar+ssl://o:2",
            response=CommandLookupTopicResponse.Connect,
        )
    )
    for byte in encode_command(reply):
        client.sendall(bytes([byte]))


@pytest.mark.parametrize("behaviour", [lambda client: time.sleep(1), ping_endlessly, drip])
def test_a_lookup_never_hangs(behaviour: Behaviour) -> None:
    with server(behaviour) as port, must_end():
        outcome = lookup(port)
    assert isinstance(outcome.error, UnreachableError)
    assert "no answer within 0.3 seconds (raise the limit with --timeout)" in str(outcome.error)


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        (lambda client: None, UnreachableError, "closed the connection|reset"),
        (
            lambda client: client.sendall(b"HTTP/1.1 400 Bad\r\n\r\n"),
            DecodeError,
            "claims 1213486160",
        ),
        (lambda client: client.sendall(b"\0\0\0\x06\0\0\0\x02\x08\xff"), DecodeError, "broken protobuf"),
    ],
)
def test_servers_that_are_not_brokers_are_named_in_the_error(
    behaviour: Behaviour, kind: type[Exception], words: str
) -> None:
    def listen_first(client: socket.socket) -> None:
        client.recv(65536)
        behaviour(client)

    with server(listen_first) as port:
        outcome = lookup(port)
    assert outcome.error is not None
    with pytest.raises(kind, match=words):
        raise outcome.error
    assert f"127.0.0.1:{port}" in str(outcome.error)


def test_a_slow_answer_of_a_broker_too_old_for_properties_is_read() -> None:
    with server(answer_well) as port:
        document = lookup(port, timeout=5).document()
    assert (document["status"], document["broker"]) == ("found", "pulsar://o:1")
    (hop,) = document["hops"]
    assert hop["knows_properties"] is False
    assert hop["connect_ms"] >= 0
    assert hop["answer_ms"] > 0
    assert any("ignored the properties" in note for note in document["notes"])


def test_the_second_host_answers_if_the_first_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        down = closed.getsockname()[1]
    with server(answer_well) as port:
        addresses = parse_service_url(f"pulsar://127.0.0.1:{down},127.0.0.1:{port}")
        request = LookupRequest("persistent://public/default/t")
        outcome = LookupSession(addresses, TlsSettings(), 5).look_up(request)
    assert [hop["broker"] for hop in outcome.hops] == [f"pulsar://127.0.0.1:{port}"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the certificate and key of a server whose name is localhost, not 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def over_tls(certificate: tuple[Path, Path], behaviour: Behaviour) -> Behaviour:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    def serve(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secured:
            behaviour(secured)

    return serve


def test_tls_checks_certificate_and_host_name(certificate: tuple[Path, Path]) -> None:
    trusting = TlsSettings(trust_certs=certificate[0])
    with server(over_tls(certificate, answer_well)) as port:
        assert "not trusted" in str(lookup(port, scheme="pulsar+ssl", timeout=5).error)
        strict = lookup(port, scheme="pulsar+ssl", tls=trusting, timeout=5)
        assert "IP address mismatch" in str(strict.error)
        for tls in (TlsSettings(certificate[0], check_hostname=False), TlsSettings(insecure=True)):
            outcome = lookup(port, scheme="pulsar+ssl", tls=tls, timeout=5)
            assert outcome.document()["broker"] == "pulsar+ssl://o:2"


def test_tls_to_a_plain_server_is_unreachable() -> None:
    with server(lambda client: client.sendall(b"no TLS here")) as port:
        assert isinstance(lookup(port, scheme="pulsar+ssl", timeout=5).error, UnreachableError)


@pytest.mark.parametrize("name", ["missing.pem", "garbage.pem"])
def test_unreadable_certificates_are_usage_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / "garbage.pem").write_text("nothing")
    with pytest.raises(UsageError, match=name):
        TlsSettings(trust_certs=tmp_path / name).context()


@pytest.mark.parametrize("name", STRANGE_SERVERS)
@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl"])
def test_misbehaving_servers_are_named_in_a_one_line_error(name: str, scheme: str) -> None:
    """Includes servers that send the TLS handshake so slowly that it never completes."""
    with tcp_server(STRANGE_SERVERS[name]) as port, must_end():
        outcome = lookup(port, scheme=scheme, timeout=0.5)
    assert isinstance(outcome.error, UnreachableError | DecodeError)
    assert f"127.0.0.1:{port}" in str(outcome.error)
    assert len(str(outcome.error).splitlines()) == 1


def test_a_handshake_that_drips_bytes_times_out() -> None:
    with tcp_server(dripping(b"\x16\x03\x03\x40\x00\x02", pause=0.1)) as port, must_end():
        outcome = lookup(port, scheme="pulsar+ssl", timeout=0.6)
    assert "no answer within 0.6 seconds" in str(outcome.error)

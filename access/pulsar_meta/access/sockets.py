"""Sockets with a deadline for each request, regardless of how slowly bytes arrive, and TLS settings."""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Final

from pulsar_meta.codecs.errors import UsageError

PIECE: Final = 64 << 10
# How URLs of stores set the time limit.
TIMEOUT_IN_URL: Final = "?timeout=SECONDS in the URL"

_endpoint_re = re.compile(r"\[?(?P<host>.*?)\]?:(?P<port>\d+)")


class TimedSocket:
    """A connection to `host:port`, with TLS if there is a `context`. All methods raise OSError.

    Connecting, with the TLS handshake, may take `seconds`, and so may each request that starts with `begin`.
    After that, methods raise TimeoutError.
    """

    def __init__(
        self, host: str, port: int, *, seconds: float, context: ssl.SSLContext | None = None
    ) -> None:
        self._seconds = seconds
        self.begin()
        self._socket = self._connected(host, port)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._socket = self._secured(context, host)
        except BaseException:
            self._socket.close()
            raise

    def begin(self) -> None:
        """Restart the time limit for a new request."""
        self._deadline = time.monotonic() + self._seconds

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def receive(self, most: int = PIECE) -> bytes:
        """Return up to `most` bytes, or none if the other side has closed the connection."""
        self._socket.settimeout(self._left())
        return self._socket.recv(most)

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        with suppress(OSError):
            self._socket.close()

    def _connected(self, host: str, port: int) -> socket.socket:
        """Connect to the first of the host's addresses that accepts a connection."""
        failure: OSError = TimeoutError()
        for address in _addresses(host, port, self._left()):
            try:
                return socket.create_connection(address, timeout=self._left())
            except OSError as error:
                failure = error
        raise failure

    def _secured(self, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
        secured = context.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
        try:
            secured.settimeout(0)
            while True:
                try:
                    secured.do_handshake()
                except ssl.SSLWantReadError:
                    self._wait(secured, select.POLLIN)
                except ssl.SSLWantWriteError:
                    self._wait(secured, select.POLLOUT)
                else:
                    return secured
        except BaseException:
            secured.close()
            raise

    def _wait(self, waiting: socket.socket, event: int) -> None:
        poll = select.poll()
        poll.register(waiting, event)
        poll.poll(self._left() * 1000)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def no_answer(seconds: float, option: str | None = None) -> str:
    """Return the message for a server that did not answer in time. `option` raises the limit."""
    advice = "" if option is None else f" (raise the limit with {option})"
    return f"no answer within {seconds:g} second{'' if seconds == 1 else 's'}{advice}"


def reason(error: Exception, seconds: float, option: str | None = None) -> str:
    """Return a short reason for a failed connection. `seconds` is the limit, which `option` raises."""
    if isinstance(error, TimeoutError):
        return no_answer(seconds, option)
    if isinstance(error, socket.gaierror | UnicodeError):
        return "host name not found"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _addresses(host: str, port: int, seconds: float) -> list[tuple[str, int]]:
    """Resolve a host. Raises TimeoutError if the resolver does not answer in time."""
    results: list[list[tuple[str, int]] | Exception] = []

    def resolve() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            results.append(list(dict.fromkeys((str(row[4][0]), port) for row in rows)))
        except (OSError, UnicodeError) as error:
            results.append(error)

    # getaddrinfo has no time limit, and waits half a minute for a dead resolver.
    thread = Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(seconds)
    if not results:
        raise TimeoutError
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def connection_problem(endpoints: Sequence[str], seconds: float) -> str | None:
    """Return why no server (`HOST:PORT`) accepts a connection, or None if one does."""
    problems = []
    for at, endpoint in enumerate(endpoints):
        share = seconds / (len(endpoints) - at)
        begun = time.monotonic()
        why = _try_connect(endpoint, max(share, 0.05))
        if why is None:
            return None
        problems.append(f"{endpoint}: {why}")
        seconds -= time.monotonic() - begun
    return f"cannot connect to {', '.join(problems)}"


def _try_connect(endpoint: str, seconds: float) -> str | None:
    match = _endpoint_re.fullmatch(endpoint)
    if match is None:
        return "expected HOST:PORT"
    try:
        TimedSocket(match["host"], int(match["port"]), seconds=seconds).close()
    except (OSError, UnicodeError) as error:
        return reason(error, round(seconds, 1), TIMEOUT_IN_URL)
    return None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Trusted and own certificates. `insecure` accepts any certificate of the server."""

    trust_certs: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the TLS context. Raises UsageError if a file is unreadable or not a certificate."""
        try:
            context = ssl.create_default_context(cafile=self.trust_certs)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            files = ", ".join(str(path) for path in (self.trust_certs, self.certificate, self.key) if path)
            raise UsageError(f"cannot load the certificates: {error}", source=files) from error
        if self.insecure or not self.check_hostname:
            context.check_hostname = False
        if self.insecure:
            context.verify_mode = ssl.CERT_NONE
        return context

"""Sockets with one deadline per request, however slowly bytes arrive, and TLS settings."""

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

_endpoint_re = re.compile(r"\[?(?P<host>.*?)\]?:(?P<port>\d+)")


class TimedSocket:
    """A connection to `host:port`. Its methods raise OSError; TimeoutError once the time is over.

    The time of `seconds` runs for the connecting, with the TLS handshake where there is a `context`, and
    anew from every `begin`.
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
        """Let the time of a new request begin."""
        self._deadline = time.monotonic() + self._seconds

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def receive(self, most: int = PIECE) -> bytes:
        """Return the next bytes, at most `most`; none where the other side closed the connection."""
        self._socket.settimeout(self._left())
        return self._socket.recv(most)

    def close(self) -> None:
        """Let go of the connection. Safe to call twice."""
        with suppress(OSError):
            self._socket.close()

    def _connected(self, host: str, port: int) -> socket.socket:
        """Return a connection to the first of the host's addresses that takes one."""
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


def no_answer(seconds: float) -> str:
    """Return the words for a server that did not answer in time."""
    return f"no answer within {seconds:g} second{'' if seconds == 1 else 's'}"


def reason(error: Exception, seconds: float) -> str:
    """Return in a few words why a connection failed; `seconds` is how long was waited."""
    if isinstance(error, TimeoutError):
        return no_answer(seconds)
    if isinstance(error, socket.gaierror | UnicodeError):
        return "no address is known of this host"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _addresses(host: str, port: int, seconds: float) -> list[tuple[str, int]]:
    """Return the addresses of a host; a resolver that does not answer in time is left alone."""
    found: list[list[tuple[str, int]] | Exception] = []

    def resolve() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.append(list(dict.fromkeys((str(row[4][0]), port) for row in rows)))
        except (OSError, UnicodeError) as error:
            found.append(error)

    # getaddrinfo takes no time limit, and asks a dead resolver for half a minute.
    thread = Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise TimeoutError
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def nobody_listens(endpoints: Sequence[str], seconds: float) -> str | None:
    """Return why none of the servers `HOST:PORT` takes a connection, None where one does."""
    reasons = []
    for at, endpoint in enumerate(endpoints):
        share = seconds / (len(endpoints) - at)
        begun = time.monotonic()
        why = _refused(endpoint, max(share, 0.05))
        if why is None:
            return None
        reasons.append(f"{endpoint} ({why})")
        seconds -= time.monotonic() - begun
    return f"nobody answers at {', '.join(reasons)}"


def _refused(endpoint: str, seconds: float) -> str | None:
    match = _endpoint_re.fullmatch(endpoint)
    if match is None:
        return "not HOST:PORT"
    try:
        TimedSocket(match["host"], int(match["port"]), seconds=seconds).close()
    except (OSError, UnicodeError) as error:
        return reason(error, round(seconds, 1))
    return None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Whom to trust and who we are. `insecure` takes any certificate; `check_hostname` is on by default."""

    trust_certs: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the TLS context; UsageError where a file cannot be read or is no certificate."""
        try:
            context = ssl.create_default_context(cafile=self.trust_certs)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            named = ", ".join(str(path) for path in (self.trust_certs, self.certificate, self.key) if path)
            raise UsageError(f"cannot use it for TLS: {error}", source=named) from error
        if self.insecure or not self.check_hostname:
            context.check_hostname = False
        if self.insecure:
            context.verify_mode = ssl.CERT_NONE
        return context

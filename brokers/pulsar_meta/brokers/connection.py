"""A connection to a broker: bytes out, commands in, all of it before a deadline.

The protocol itself is in `brokers.lookup`; here are only the socket and TLS.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from pulsar_meta.access.tls import TlsSettings
from pulsar_meta.codecs.errors import UnreachableError, decoding
from pulsar_meta.codecs.wire.commands import encode_command, take_command
from pulsar_meta.codecs.wire.service_url import BrokerAddress
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand

_PIECE: Final = 64 * 1024


class BrokerConnection:
    """One connection. Its methods raise UnreachableError once `timeout` seconds since the start are over."""

    def __init__(self, address: BrokerAddress, *, tls: TlsSettings, timeout: float) -> None:
        """Connect, with the TLS handshake where the address asks for it."""
        self._address = address
        self._deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._received = bytearray()
        self._socket = self._open(tls)

    def _open(self, tls: TlsSettings) -> socket.socket:
        address = self._address
        context = tls.context() if address.tls else None
        try:
            plain = socket.create_connection((address.host, address.port), timeout=self._left())
            if context is None:
                return plain
            try:
                return context.wrap_socket(plain, server_hostname=address.host)
            except BaseException:
                plain.close()
                raise
        except ssl.SSLCertVerificationError as error:
            raise self._unreachable(f"its certificate is not trusted: {error.verify_message}") from error
        except (OSError, UnicodeError) as error:
            raise self._unreachable(_reason(error)) from error

    def ask(self, command: BaseCommand) -> BaseCommand:
        """Send `command` and return the next command that the broker sends."""
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(encode_command(command))
            return self._next()
        except OSError as error:
            raise self._unreachable(_reason(error)) from error

    def _next(self) -> BaseCommand:
        while True:
            with decoding(str(self._address)):
                found = take_command(bytes(self._received))
            if found is not None:
                del self._received[: found.size]
                return found.command
            self._socket.settimeout(self._left())
            piece = self._socket.recv(_PIECE)
            if not piece:
                raise self._unreachable("closed the connection without an answer")
            self._received += piece

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _unreachable(self, why: str) -> UnreachableError:
        if why == "timed out":
            why = f"no answer within {self._timeout:g} seconds"
        return UnreachableError(why, source=str(self._address))

    def close(self) -> None:
        """Let go of the socket. Safe to call twice."""
        with suppress(OSError):
            self._socket.close()


def connect_to_any(
    addresses: Sequence[BrokerAddress], *, tls: TlsSettings, timeout: float
) -> tuple[BrokerAddress, BrokerConnection]:
    """Return the first of `addresses` that answers, and the connection; else the last UnreachableError."""
    for address in addresses[:-1]:
        with suppress(UnreachableError):
            return address, BrokerConnection(address, tls=tls, timeout=timeout)
    return addresses[-1], BrokerConnection(addresses[-1], tls=tls, timeout=timeout)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__

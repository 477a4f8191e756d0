"""A connection to a broker: bytes out, commands in, all of it before a deadline.

The protocol itself is in `brokers.lookup`; here are only the socket and TLS.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pulsar_meta.access.sockets import TimedSocket, reason
from pulsar_meta.access.tls import TlsSettings
from pulsar_meta.codecs.errors import UnreachableError, decoding
from pulsar_meta.codecs.wire.commands import encode_command, take_command
from pulsar_meta.codecs.wire.service_url import BrokerAddress
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand


class BrokerConnection:
    """One connection. Its methods raise UnreachableError once `timeout` seconds since the start are over."""

    def __init__(self, address: BrokerAddress, *, tls: TlsSettings, timeout: float) -> None:
        """Connect, with the TLS handshake where the address asks for it."""
        self._address, self._timeout = address, timeout
        self._received = bytearray()
        context = tls.context() if address.tls else None
        try:
            self._socket = TimedSocket(address.host, address.port, seconds=timeout, context=context)
        except (OSError, UnicodeError) as error:
            raise self._unreachable(reason(error, timeout)) from error

    def ask(self, command: BaseCommand) -> BaseCommand:
        """Send `command` and return the next command that the broker sends."""
        try:
            self._socket.send(encode_command(command))
            return self._next()
        except OSError as error:
            raise self._unreachable(reason(error, self._timeout)) from error

    def _next(self) -> BaseCommand:
        while True:
            with decoding(str(self._address)):
                found = take_command(bytes(self._received))
            if found is not None:
                del self._received[: found.size]
                return found.command
            piece = self._socket.receive()
            if not piece:
                raise self._unreachable("it closed the connection without an answer")
            self._received += piece

    def _unreachable(self, why: str) -> UnreachableError:
        return UnreachableError(why, source=str(self._address))

    def close(self) -> None:
        """Let go of the socket. Safe to call twice."""
        self._socket.close()


def connect_to_any(
    addresses: Sequence[BrokerAddress], *, tls: TlsSettings, timeout: float
) -> tuple[BrokerAddress, BrokerConnection]:
    """Return the first of `addresses` that answers, and the connection; else the last UnreachableError."""
    for address in addresses[:-1]:
        with suppress(UnreachableError):
            return address, BrokerConnection(address, tls=tls, timeout=timeout)
    return addresses[-1], BrokerConnection(addresses[-1], tls=tls, timeout=timeout)

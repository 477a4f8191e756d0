"""Calls over gRPC with an end in sight: reads go on to the next server, writes are sent once.

No generated stubs: a call is its method's name and the class of its answer. Retries of gRPC's own are off,
since a write must not be sent twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Event, RLock
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from pulsar_meta.access.urls import ServerUrl
from pulsar_meta.codecs.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message

PAUSE: Final = 0.1
Answer = TypeVar("Answer", bound="Message")
Taken = TypeVar("Taken")


def open_channel(endpoint: str, url: ServerUrl, *, tls: bool) -> grpc.Channel:
    """Return a channel to one server; nothing is sent yet."""
    import grpc

    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    if not tls:
        return grpc.insecure_channel(endpoint, options)
    certificate, key = url.file("cert"), url.file("key")
    if (certificate is None) != (key is None):
        raise UsageError("cert and key belong together", source=url.url)
    credentials = grpc.ssl_channel_credentials(url.file("ca"), key, certificate)
    return grpc.secure_channel(endpoint, credentials, options)


class GrpcClient:
    """The servers of one store, for any number of threads. `metadata` (a token) goes with every call."""

    def __init__(self, url: ServerUrl, *, tls: bool) -> None:
        """Prepare a channel to each server; connections are made by the first call."""
        # gRPC's core writes to stderr by itself, unless it finds this when it is first imported.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        self._url = url
        self._timeout = url.timeout
        self._tls = tls
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = RLock()
        self._answered = url.endpoints[0]
        self.metadata: tuple[tuple[str, str], ...] = ()
        # What a server says that has started and will answer soon.
        self.not_yet: frozenset[str] = frozenset()
        # Gets a new token into `metadata`; tokens run out, and are forgotten by a restarted server.
        self.renew: Callable[[], None] | None = None

    def read(self, method: str, request: Message, answer: type[Answer], server: str | None = None) -> Answer:
        """Return the answer to a call that changes nothing, from `server` or from whichever answers first."""
        return self._until_answered(lambda at, left: self._unary(at, method, request, answer, left), server)

    def write(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        """Return the answer to a call that is sent once, to the server that answered last."""
        import grpc

        try:
            return self._unary(self._answered, method, request, answer, self._timeout, wait=True)
        except grpc.RpcError as error:
            self.unreachable(error)

    def stream(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        enough: Callable[[Answer], bool] | None = None,
        server: str | None = None,
    ) -> list[Answer]:
        """Return the answers of a stream until it ends or `enough` says so."""

        def call(at: str, left: float) -> list[Answer]:
            run = self.channel(at).unary_stream(
                method,
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            taken: list[Answer] = _taken(run(request, timeout=left, metadata=self.metadata), enough)
            return taken

        return self._until_answered(call, server)

    def exchange(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        server: str,
        metadata: Sequence[tuple[str, str]],
    ) -> Answer:
        """Return the first answer on a two-way stream to a request that is sent once."""
        import grpc

        run = self.channel(server).stream_stream(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        answered = Event()
        try:
            answers = run(
                _held_open(request, answered),
                timeout=self._timeout,
                wait_for_ready=True,
                metadata=(*self.metadata, *metadata),
            )
            taken: list[Answer] = _taken(answers, lambda _: True)
            return taken[0]
        except (grpc.RpcError, IndexError) as error:
            self.unreachable(error)
        finally:
            answered.set()

    def channel(self, server: str) -> grpc.Channel:
        """Return the channel to `server`."""
        with self._lock:
            if server not in self._channels:
                self._channels[server] = open_channel(server, self._url, tls=self._tls)
            return self._channels[server]

    def unreachable(self, error: Exception) -> NoReturn:
        """Raise UnreachableError saying what gRPC said."""
        raise UnreachableError(f"no answer: {reason(error)}", source=self._url.url) from error

    def close(self) -> None:
        """Close every channel. Safe to call twice."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _unary(
        self,
        server: str,
        method: str,
        request: Message,
        answer: type[Answer],
        seconds: float,
        wait: bool = False,
    ) -> Answer:
        call = self.channel(server).unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )

        def send() -> Answer:
            # `wait`: for a connection, within the time; what was not sent by then never is.
            result: Answer = call(request, timeout=seconds, wait_for_ready=wait, metadata=self.metadata)
            return result

        return self._with_token(send)

    def _with_token(self, send: Callable[[], Answer]) -> Answer:
        """Send; once more with a new token where the server took the old one for none."""
        import grpc

        used = self.metadata
        try:
            return send()
        except grpc.RpcError as error:
            if self.renew is None or not used or error.code() != grpc.StatusCode.UNAUTHENTICATED:
                raise
        with self._lock:
            # Unless another thread was here first.
            if self.metadata is used:
                self.renew()
        return send()

    def _servers(self) -> list[str]:
        return [self._answered, *(one for one in self._url.endpoints if one != self._answered)]

    def _until_answered(self, call: Callable[[str, float], Taken], server: str | None) -> Taken:
        import grpc

        again = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        deadline = time.monotonic() + self._timeout
        while True:
            servers = [server] if server else self._servers()
            for at, name in enumerate(servers):
                share = (deadline - time.monotonic()) / (len(servers) - at)
                try:
                    result = call(name, max(share, PAUSE))
                except grpc.RpcError as error:
                    passing = error.code() in again or error.details() in self.not_yet
                    if not passing or time.monotonic() + PAUSE > deadline:
                        self.unreachable(error)
                else:
                    self._answered = name
                    return result
            time.sleep(PAUSE)


def reason(error: Exception) -> str:
    """Return what a gRPC error says, in one line."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if not callable(code) or not callable(details):
        return type(error).__name__
    return " ".join(f"{getattr(code(), 'name', code())}: {details()}".split())


def _held_open(request: Message, answered: Event) -> Iterator[Message]:
    # A server may take the end of the requests for the end of the exchange.
    yield request
    answered.wait()


def _taken(answers: Any, enough: Callable[[Answer], bool] | None) -> list[Answer]:
    taken: list[Answer] = []
    for answer in answers:
        taken.append(answer)
        if enough is not None and enough(answer):
            answers.cancel()
            break
    return taken

"""Calls over gRPC with an end in sight: reads go on to the next server, writes are sent once.

No generated stubs: a call is its method's name and the class of its answer. Retries of gRPC's own are off,
since a write must not be sent twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Event, RLock
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from pulsar_meta.access.sockets import no_answer, nobody_listens
from pulsar_meta.access.urls import ServerUrl
from pulsar_meta.codecs.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message

PAUSE: Final = 0.1
NUDGE: Final = 0.2
# The largest message that is taken: Oxia sends up to 256 MiB. What a stream brings in all is bounded as well.
LARGEST_ANSWER: Final = 257 << 20
LARGEST_STREAM: Final = 1 << 30
# Streams that are under way at once.
AT_ONCE: Final = 64
# For how long it is found out whether a server is there at all.
PROBE: Final = 1.0
# How messages of the servers themselves begin.
OWN_WORDS: Final = ("etcdserver:", "oxia:")
Answer = TypeVar("Answer", bound="Message")
Taken = TypeVar("Taken")
# Whether an answer was the last one wanted, by it and the bytes of all so far.
Enough = Callable[[Answer, int], bool]


def open_channel(endpoint: str, url: ServerUrl, *, tls: bool) -> grpc.Channel:
    """Return a channel to one server; nothing is sent yet."""
    import grpc

    options = [
        ("grpc.max_receive_message_length", LARGEST_ANSWER),
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


class TooLargeError(UnreachableError):
    """An answer that is larger than what is taken; a smaller question may help."""


class Counted(Generic[Answer]):
    """Reads messages of a kind, and counts the bytes that they came in: ByteSize() would encode them anew."""

    def __init__(self, kind: type[Answer]) -> None:
        """Nothing has come yet."""
        self.kind = kind
        self.size = 0

    def __call__(self, data: bytes) -> Answer:
        """Return the message; protobuf's DecodeError where it is none."""
        self.size += len(data)
        return self.kind.FromString(data)


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
        self._heard = False
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

    def write_all(self, method: str, requests: Sequence[Message], answer: type[Answer]) -> list[Answer]:
        """Return the answers to calls that are each sent once, all of them under way at the same time."""
        import grpc

        if not requests:
            return []
        call = self._call(self._answered, method, requests[0], answer)
        pending = [
            call.future(request, timeout=self._timeout, wait_for_ready=True, metadata=self.metadata)
            for request in requests
        ]
        # All answers first: nothing more is sent while requests of ours are still under way.
        errors = [one.exception() for one in pending]
        answers: list[Answer] = []
        for request, one, error in zip(requests, pending, errors, strict=True):
            if error is None:
                answers.append(one.result())
            elif error.code() == grpc.StatusCode.UNAUTHENTICATED:
                # A token runs out: with a new one.
                answers.append(self.write(method, request, answer))
            else:
                self.unreachable(error)
        return answers

    def stream(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        enough: Enough[Answer] | None = None,
        server: str | None = None,
    ) -> list[Answer]:
        """Return the answers of a stream until it ends or `enough` says so."""

        def call(at: str, left: float) -> list[Answer]:
            counted = Counted(answer)
            return self._taken(self._streaming(at, method, request, counted, left), counted, enough)

        return self._until_answered(call, server)

    def stream_all(
        self, method: str, requests: Sequence[tuple[Message, str]], answer: type[Answer]
    ) -> list[list[Answer]]:
        """Return all answers to each request, sent to the server beside it; some are under way at once."""
        import grpc

        def begun(request: Message, server: str) -> tuple[Any, Counted[Answer]]:
            counted = Counted(answer)
            return self._streaming(server, method, request, counted, self._timeout), counted

        def ended(request: Message, server: str, answers: Any, counted: Counted[Answer]) -> list[Answer]:
            try:
                return self._taken(answers, counted, None)
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    self.unreachable(error, [server])
                return self.stream(method, request, answer, None, server)

        taken: list[list[Answer]] = []
        for at in range(0, len(requests), AT_ONCE):
            some = requests[at : at + AT_ONCE]
            pending = [begun(*one) for one in some]
            taken += [ended(*one, *under_way) for one, under_way in zip(some, pending, strict=True)]
        return taken

    def exchange(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        server: str,
        metadata: Sequence[tuple[str, str]],
    ) -> Answer:
        """Return the first answer on a two-way stream to a request that is sent once."""
        answered = Event()
        requests = _held_open(request, answered)
        taken = self._converse(method, requests, request, answer, one_answer, server, metadata, answered)
        if not taken:
            raise UnreachableError("it ended the exchange without an answer", source=self._url.url)
        return taken[0]

    def converse(
        self,
        method: str,
        request: Message,
        nudge: Message,
        answer: type[Answer],
        enough: Enough[Answer],
    ) -> list[Answer]:
        """Return the answers on a two-way stream, up to the one of which `enough` says so.

        `nudge` is sent again and again, every `NUDGE` seconds, until then.
        """
        answered = Event()
        requests = _nudged(request, nudge, answered)
        return self._converse(method, requests, request, answer, enough, self._answered, (), answered)

    def _converse(
        self,
        method: str,
        requests: Iterator[Message],
        request: Message,
        answer: type[Answer],
        enough: Enough[Answer],
        server: str,
        metadata: Sequence[tuple[str, str]],
        answered: Event,
    ) -> list[Answer]:
        import grpc

        counted = Counted(answer)
        run = self.channel(server).stream_stream(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=counted,
        )
        answers = run(
            requests, timeout=self._timeout, wait_for_ready=True, metadata=(*self.metadata, *metadata)
        )
        try:
            return self._taken(answers, counted, enough)
        except grpc.RpcError as error:
            self.unreachable(error, [server])
        finally:
            answered.set()
            answers.cancel()

    def channel(self, server: str) -> grpc.Channel:
        """Return the channel to `server`."""
        with self._lock:
            if server not in self._channels:
                self._channels[server] = open_channel(server, self._url, tls=self._tls)
            return self._channels[server]

    def unreachable(self, error: grpc.RpcError, servers: Sequence[str] | None = None) -> NoReturn:
        """Raise UnreachableError saying in our words why a call failed; the server's own words are kept."""
        import grpc

        code, details = error.code(), " ".join((error.details() or "").split())
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
            text = f"its answer is over {LARGEST_ANSWER} bytes"
            raise TooLargeError(text, source=self._url.url) from error
        text = f"it refuses: {details or code.name}"
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            text = no_answer(self._timeout)
        elif code == grpc.StatusCode.UNAVAILABLE and details not in self.not_yet:
            text = self._unavailable(details, servers or self._url.endpoints)
        elif "xception" in details and "deserializing" in details:
            text = "it speaks another protocol: its answer cannot be read"
        elif code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED):
            text = f"it failed: {details or code.name}"
        raise UnreachableError(text, source=self._url.url) from error

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
        call = self._call(server, method, request, answer)

        def send() -> Answer:
            # `wait`: for a connection, within the time; what was not sent by then never is.
            result: Answer = call(request, timeout=seconds, wait_for_ready=wait, metadata=self.metadata)
            return result

        return self._with_token(send)

    def _call(self, server: str, method: str, request: Message, answer: type[Answer]) -> Any:
        return self.channel(server).unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )

    def _streaming(
        self, server: str, method: str, request: Message, counted: Counted[Answer], seconds: float
    ) -> Any:
        call = self.channel(server).unary_stream(
            method, request_serializer=type(request).SerializeToString, response_deserializer=counted
        )
        return call(request, timeout=seconds, metadata=self.metadata)

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

    def _unavailable(self, details: str, servers: Sequence[str]) -> str:
        """Return why gRPC has no connection; its own words name files and addresses of its insides."""
        if details.startswith(OWN_WORDS):
            return f"it refuses: {details}"
        nobody = nobody_listens(servers, min(self._timeout, PROBE))
        if nobody is not None:
            return nobody
        tls = "handshake" in details.lower() or "ssl" in details.lower()
        return "TLS failed" if tls else "it takes the connection and ends it without an answer"

    def _taken(self, answers: Any, counted: Counted[Answer], enough: Enough[Answer] | None) -> list[Answer]:
        taken: list[Answer] = []
        for answer in answers:
            taken.append(answer)
            if counted.size > LARGEST_STREAM:
                answers.cancel()
                raise TooLargeError(f"its answer is over {LARGEST_STREAM} bytes", source=self._url.url)
            if enough is not None and enough(answer, counted.size):
                answers.cancel()
                break
        return taken

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
                        self.unreachable(error, servers)
                else:
                    self._answered, self._heard = name, True
                    return result
            if not self._heard and (nobody := nobody_listens(servers, PROBE)):
                # Who was never there is not waited for; who was comes back.
                raise UnreachableError(nobody, source=self._url.url)
            time.sleep(PAUSE)


def one_answer(answer: Message, size: int) -> bool:
    """Return that one answer is enough."""
    return True


def _held_open(request: Message, answered: Event) -> Iterator[Message]:
    # A server may take the end of the requests for the end of the exchange.
    yield request
    answered.wait()


def _nudged(request: Message, nudge: Message, answered: Event) -> Iterator[Message]:
    yield request
    while not answered.wait(NUDGE):
        yield nudge

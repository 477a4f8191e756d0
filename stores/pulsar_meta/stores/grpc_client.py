"""gRPC calls with a time limit. Reads are retried on other servers, writes are sent once.

There are no generated stubs. A call names its method and the class of its answer. gRPC's retries are off,
because a write must not be sent twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Event, RLock
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from pulsar_meta.access.sockets import TIMEOUT_IN_URL, connection_problem, no_answer
from pulsar_meta.access.urls import ServerUrl
from pulsar_meta.codecs.compression import LIMITS, MAX_UNPACKED
from pulsar_meta.codecs.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message

PAUSE: Final = 0.1
NUDGE: Final = 0.2
# The largest message that is accepted; Oxia sends up to 256 MiB.
LARGEST_ANSWER: Final = 257 << 20
# The number of streams in flight.
AT_ONCE: Final = 64
# The time to find out if any server listens, in seconds.
PROBE: Final = 1.0
# Prefixes of error messages that come from the servers, not from gRPC.
SERVER_PREFIXES: Final = ("etcdserver:", "oxia:")
Answer = TypeVar("Answer", bound="Message")
Result = TypeVar("Result")
# Takes an answer and the total size of all answers so far, and returns True to stop the stream.
Enough = Callable[[Answer, int], bool]


def open_channel(endpoint: str, url: ServerUrl, *, tls: bool) -> grpc.Channel:
    """Return a channel to one server, without connecting."""
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
        raise UsageError("cert and key must be used together", source=url.url)
    credentials = grpc.ssl_channel_credentials(url.file("ca"), key, certificate)
    return grpc.secure_channel(endpoint, credentials, options)


class TooLargeError(UnreachableError):
    """An answer exceeds the size limit. A request for less may succeed."""


class Counted(Generic[Answer]):
    """Parses messages of one class and counts their bytes, because ByteSize() would encode them again."""

    def __init__(self, kind: type[Answer]) -> None:
        """Start counting at 0."""
        self.kind = kind
        self.size = 0

    def __call__(self, data: bytes) -> Answer:
        """Parse a message. Raises protobuf's DecodeError if it is invalid."""
        self.size += len(data)
        return self.kind.FromString(data)


class GrpcClient:
    """A thread-safe client for the servers of one store. Every call carries `metadata` (a token)."""

    def __init__(self, url: ServerUrl, *, tls: bool) -> None:
        """Create the client. The first call opens connections."""
        # gRPC's core writes to stderr unless this is set before it is imported.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        self._url = url
        self._timeout = url.timeout
        self._tls = tls
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = RLock()
        self._answered = url.endpoints[0]
        self._heard = False
        self.metadata: tuple[tuple[str, str], ...] = ()
        # Error messages of servers that are starting and will answer soon.
        self.not_yet: frozenset[str] = frozenset()
        # Puts a new token into `metadata`, because tokens expire, and a restarted server forgets them.
        self.renew: Callable[[], None] | None = None

    def read(self, method: str, request: Message, answer: type[Answer], server: str | None = None) -> Answer:
        """Return the answer to a read, from `server` or from the first server that answers."""
        return self._until_answered(lambda at, left: self._unary(at, method, request, answer, left), server)

    def write(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        """Send a call once, to the server that answered last, and return the answer."""
        import grpc

        try:
            return self._unary(self._answered, method, request, answer, self._timeout, wait=True)
        except grpc.RpcError as error:
            self.unreachable(error)

    def write_all(self, method: str, requests: Sequence[Message], answer: type[Answer]) -> list[Answer]:
        """Send each call once, with all of them in flight together, and return their answers."""
        import grpc

        if not requests:
            return []
        call = self._call(self._answered, method, requests[0], answer)
        pending = [
            call.future(request, timeout=self._timeout, wait_for_ready=True, metadata=self.metadata)
            for request in requests
        ]
        # Collect all answers first, so that nothing else is sent while these requests are in flight.
        errors = [future.exception() for future in pending]
        answers: list[Answer] = []
        for request, future, error in zip(requests, pending, errors, strict=True):
            if error is None:
                answers.append(future.result())
            elif error.code() == grpc.StatusCode.UNAUTHENTICATED:
                # The token has expired, so `write` sends the request with a new one.
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
        most: int | None = None,
    ) -> list[Answer]:
        """Return the answers of a stream, with up to `most` bytes, until it ends or `enough` returns True."""

        def call(at: str, left: float) -> list[Answer]:
            counted = Counted(answer)
            return self._collect(self._streaming(at, method, request, counted, left), counted, enough, most)

        return self._until_answered(call, server)

    def stream_all(
        self, method: str, requests: Sequence[tuple[Message, str]], answer: type[Answer]
    ) -> list[list[Answer]]:
        """Return all answers to each (request, server), with up to AT_ONCE streams in flight."""
        import grpc

        def start(request: Message, server: str) -> tuple[Any, Counted[Answer]]:
            counted = Counted(answer)
            return self._streaming(server, method, request, counted, self._timeout), counted

        def finish(request: Message, server: str, answers: Any, counted: Counted[Answer]) -> list[Answer]:
            try:
                return self._collect(answers, counted, None, most)
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    self.unreachable(error, [server])
                return self.stream(method, request, answer, None, server, most)

        # Names take several times their size, and many lists can be on their way.
        most = LIMITS.max_unpacked // 4
        results: list[list[Answer]] = []
        for at in range(0, len(requests), AT_ONCE):
            group = requests[at : at + AT_ONCE]
            pending = [start(*request) for request in group]
            results += [finish(*request, *stream) for request, stream in zip(group, pending, strict=True)]
        return results

    def exchange(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        server: str,
        metadata: Sequence[tuple[str, str]],
    ) -> Answer:
        """Send a request once on a bidirectional stream, and return the first answer."""
        answered = Event()
        requests = _held_open(request, answered)
        answers = self._converse(method, requests, request, answer, one_answer, server, metadata, answered)
        if not answers:
            raise UnreachableError("the server ended the stream without an answer", source=self._url.url)
        return answers[0]

    def converse(
        self,
        method: str,
        request: Message,
        nudge: Message,
        answer: type[Answer],
        enough: Enough[Answer],
    ) -> list[Answer]:
        """Send a request on a bidirectional stream, and return the answers until `enough` returns True.

        Sends `nudge` every NUDGE seconds until then.
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
            return self._collect(answers, counted, enough)
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
        """Raise UnreachableError with the reason of a failed call. Messages from the server are quoted."""
        import grpc

        code, details = error.code(), " ".join((error.details() or "").split())
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
            text = f"the answer has more than {LARGEST_ANSWER} bytes"
            raise TooLargeError(text, source=self._url.url) from error
        text = f"the server refused the request: {details or code.name}"
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            text = no_answer(self._timeout, TIMEOUT_IN_URL)
        elif code == grpc.StatusCode.UNAVAILABLE and details not in self.not_yet:
            text = self._unavailable(details, servers or self._url.endpoints)
        elif "xception" in details and "deserializing" in details:
            text = "cannot parse the answer; the server speaks another protocol"
        elif code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED):
            text = f"the request failed: {details or code.name}"
        raise UnreachableError(text, source=self._url.url) from error

    def close(self) -> None:
        """Close every channel. Can be called twice."""
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
            # With `wait`, the call waits for a connection. If none is made in time, nothing is sent.
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
        """Send the call, and once more with a new token if the server rejects the old one."""
        import grpc

        used = self.metadata
        try:
            return send()
        except grpc.RpcError as error:
            if self.renew is None or not used or error.code() != grpc.StatusCode.UNAUTHENTICATED:
                raise
        with self._lock:
            # Another thread may have renewed it already.
            if self.metadata is used:
                self.renew()
        return send()

    def _unavailable(self, details: str, servers: Sequence[str]) -> str:
        """Return why gRPC has no connection. Its own messages name internal files and addresses."""
        if details.startswith(SERVER_PREFIXES):
            return f"the server refused the request: {details}"
        problem = connection_problem(servers, min(self._timeout, PROBE))
        if problem is not None:
            return problem
        if "timed out" in details:
            return no_answer(self._timeout, TIMEOUT_IN_URL)
        if "Failed parsing HTTP/2" in details:
            return "the server speaks another protocol"
        tls = "handshake" in details.lower() or "ssl" in details.lower()
        return "TLS failed" if tls else "the server closed the connection without an answer"

    def _collect(
        self, answers: Any, counted: Counted[Answer], enough: Enough[Answer] | None, most: int | None = None
    ) -> list[Answer]:
        """Return the answers of a stream. Raises TooLargeError if they have more than `most` bytes."""
        most = LIMITS.max_unpacked * 2 if most is None else most
        collected: list[Answer] = []
        for answer in answers:
            collected.append(answer)
            if counted.size > most:
                answers.cancel()
                text = f"the answer has more than {most} bytes (raise the limit with {MAX_UNPACKED})"
                raise TooLargeError(text, source=self._url.url)
            if enough is not None and enough(answer, counted.size):
                answers.cancel()
                break
        return collected

    def _until_answered(self, call: Callable[[str, float], Result], server: str | None) -> Result:
        """Call `call(server, seconds)` for each server until one answers or the timeout ends."""
        import grpc

        transient = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        deadline = time.monotonic() + self._timeout
        while True:
            others = [endpoint for endpoint in self._url.endpoints if endpoint != self._answered]
            servers = [server] if server else [self._answered, *others]
            for at, name in enumerate(servers):
                share = (deadline - time.monotonic()) / (len(servers) - at)
                try:
                    result = call(name, max(share, PAUSE))
                except grpc.RpcError as error:
                    retry = error.code() in transient or error.details() in self.not_yet
                    if not retry or time.monotonic() + PAUSE > deadline:
                        self.unreachable(error, servers)
                else:
                    self._answered, self._heard = name, True
                    return result
            # Only wait for servers that have answered before, because they usually come back.
            if not self._heard and (problem := connection_problem(servers, PROBE)):
                raise UnreachableError(problem, source=self._url.url)
            time.sleep(PAUSE)


def one_answer(answer: Message, size: int) -> bool:
    """Return True, because one answer is enough."""
    return True


def _held_open(request: Message, answered: Event) -> Iterator[Message]:
    # A server may end the stream when the requests end.
    yield request
    answered.wait()


def _nudged(request: Message, nudge: Message, answered: Event) -> Iterator[Message]:
    yield request
    while not answered.wait(NUDGE):
        yield nudge

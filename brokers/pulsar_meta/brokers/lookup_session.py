"""Run lookups over sockets and TLS, measure the times of each hop, and collect the outcome.

The protocol is in `brokers.lookup`. Every connection has a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NotRequired, TypedDict, TypeVar

from pulsar_meta.access.sockets import TimedSocket, TlsSettings, reason
from pulsar_meta.brokers.lookup import (
    OLDEST_WITH_PROPERTIES,
    Connect,
    Hop,
    LookupRequest,
    PartitionAnswer,
    SegmentOf,
    Step,
    ask_partitions,
    ask_segments,
    knows_properties,
    look_up,
    next_address,
    release_of,
)
from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError, UnreachableError, UsageError, decoding
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.wire.commands import BrokerAddress, encode_command, take_command, text_of
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, CommandLookupTopicResponse, ServerError

# The option of `lookup` that sets the time limit.
TIMEOUT_OPTION: Final = "--timeout"


class BrokerConnection:
    """A connection to a broker. All methods raise UnreachableError `timeout` seconds after the start."""

    def __init__(self, address: BrokerAddress, *, tls: TlsSettings, timeout: float) -> None:
        """Connect, with a TLS handshake if the address has a TLS scheme."""
        self._address, self._timeout = address, timeout
        self._received = bytearray()
        context = tls.context() if address.tls else None
        try:
            self._socket = TimedSocket(address.host, address.port, seconds=timeout, context=context)
        except (OSError, UnicodeError) as error:
            raise self._unreachable(f"cannot connect: {reason(error, timeout, TIMEOUT_OPTION)}") from error

    def ask(self, command: BaseCommand) -> BaseCommand:
        """Send `command` and return the next command that the broker sends."""
        try:
            self._socket.send(encode_command(command))
            return self._next()
        except OSError as error:
            raise self._unreachable(reason(error, self._timeout, TIMEOUT_OPTION)) from error

    def _next(self) -> BaseCommand:
        while True:
            with decoding(str(self._address)):
                taken = take_command(bytes(self._received))
            if taken is not None:
                del self._received[: taken.size]
                return taken.command
            piece = self._socket.receive()
            if not piece:
                raise self._unreachable("the broker closed the connection without an answer")
            self._received += piece

    def _unreachable(self, why: str) -> UnreachableError:
        return UnreachableError(why, source=str(self._address))

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        self._socket.close()


def connect_to_any(
    addresses: Sequence[BrokerAddress], *, tls: TlsSettings, timeout: float
) -> tuple[BrokerAddress, BrokerConnection]:
    """Connect to the first address that answers. Raises the last UnreachableError if none does."""
    for address in addresses[:-1]:
        with suppress(UnreachableError):
            return address, BrokerConnection(address, tls=tls, timeout=timeout)
    return addresses[-1], BrokerConnection(addresses[-1], tls=tls, timeout=timeout)


Result = TypeVar("Result")
OLDEST_WITH_SCALABLE: Final = (5, 0)
PARTITIONED: Final = ("persistent", "non-persistent")


class LookupAnswer(TypedDict):
    """A broker's answer to a lookup."""

    broker_service_url: str | None
    broker_service_url_tls: str | None
    authoritative: bool
    proxy_through_service_url: bool


class LookupHop(LookupAnswer):
    """One broker of a lookup. Times are in milliseconds."""

    broker: str
    server_version: str
    protocol_version: int
    knows_properties: bool | None
    asked_authoritative: bool
    response: str
    connect_ms: float
    answer_ms: float
    error: NotRequired[str]
    message: NotRequired[str]


class SegmentDocument(TypedDict, total=False):
    """The scalable topic to which a segment belongs. `controller` decides about splits."""

    scalable_topic: str
    segment_state: str
    controller: str


class LookupDocument(SegmentDocument):
    """The broker that a client with these properties would find, or why the lookup failed."""

    topic: str
    properties: dict[str, str]
    status: NotRequired[Literal["found", "failed"]]
    error: NotRequired[str]
    broker: NotRequired[str]
    broker_service_url: NotRequired[str | None]
    broker_service_url_tls: NotRequired[str | None]
    authoritative: NotRequired[bool]
    proxy_through_service_url: NotRequired[bool]
    notes: list[str]
    hops: list[LookupHop]


@dataclass(slots=True)
class LookupOutcome:
    """The result of a lookup: a document for each hop, and the last hop or the error that ended it."""

    request: LookupRequest
    hops: list[LookupHop] = field(default_factory=list)
    last: Hop | None = None
    error: PulsarMetaError | None = None
    remarks: list[str] = field(default_factory=list)
    segment: SegmentOf | None = None

    def document(self) -> LookupDocument:
        """Return the JSON document of `lookup`."""
        document: LookupDocument = {
            "topic": self.request.topic,
            **self._of_segment(),
            "properties": dict(self.request.properties),
            "notes": self.notes(),
            "hops": self.hops,
        }
        if self.error is not None:
            document |= {"status": "failed", "error": str(self.error)}
        elif self.last is not None:
            document |= {"status": "found", "broker": str(next_address(self.last)), **_answer(self.last)}
        return document

    def _of_segment(self) -> SegmentDocument:
        segment = self.segment
        if segment is None:
            return {}
        document: SegmentDocument = {
            "scalable_topic": segment.scalable_topic,
            "segment_state": segment.state,
        }
        if segment.controller is not None:
            document["controller"] = segment.controller
        return document

    def notes(self) -> list[str]:
        """Return remarks about the lookup, such as brokers that ignored the properties."""
        hops = [hop["broker"] for hop in self.hops if hop["knows_properties"] is False]
        notes = list(self.remarks)
        if self.request.properties and hops:
            version = ".".join(map(str, OLDEST_WITH_PROPERTIES))
            notes.append(f"{', '.join(hops)} ignored the properties, which need Pulsar {version} or later")
        if self.request.properties and any(hop["proxy_through_service_url"] for hop in self.hops):
            notes.append(
                "the broker says to connect through the service URL, as every standalone does; if that is a"
                " Pulsar proxy, it forwarded the lookup without its properties"
            )
        return notes


@dataclass(frozen=True, slots=True)
class LookupSession:
    """Runs lookups over sockets, starting at any of `addresses`. Each hop may take `timeout` seconds."""

    addresses: Sequence[BrokerAddress]
    tls: TlsSettings
    timeout: float

    def look_up(self, request: LookupRequest) -> LookupOutcome:
        """Look up one topic. Errors are part of the outcome."""
        outcome, wire = LookupOutcome(request), _Wire(self.tls, self.timeout)
        try:
            outcome.last = _run(look_up(self.addresses, request), wire, outcome.hops)
        except PulsarMetaError as error:
            outcome.error = error
        return outcome

    def partitions(self, request: LookupRequest) -> PartitionAnswer:
        """Request the number of partitions. Raises the errors of `ask_partitions`."""
        return _run(ask_partitions(self.addresses, request), _Wire(self.tls, self.timeout), [])

    def look_up_all(
        self, request: LookupRequest, report: Callable[[str], None], *, short: bool = False
    ) -> Iterator[LookupOutcome]:
        """Yield the outcome of the topic, or of each of its partitions or segments.

        With `short`, the name has no domain and can also be a scalable topic. Calls `report` with the reason
        if the number of partitions was not requested.
        """
        name = TopicName.parse(request.topic)
        if name.domain == "topic":
            yield from self._look_up_segments(request)
            return
        if name.partition is not None or name.domain not in PARTITIONED:
            yield self._one_part(request, name)
            return
        try:
            answer = self.partitions(request)
        except PulsarMetaError as error:
            yield LookupOutcome(request, error=error)
            return
        names = [str(name.with_partition(number)) for number in range(answer.count or 0)] or [request.topic]
        segments, remarks = self._scalable(request, name) if answer.scalable else ({}, [])
        if short and segments and (answer.absent or segments.keys() >= set(names)):
            yield from self._each(request, segments.values())
            return
        if short and segments:
            both = UsageError(f"two topics have this name; use {name} or {name.as_scalable}")
            yield LookupOutcome(request, error=both)
            return
        if answer.why is not None and not answer.refused:
            report(answer.why)
        elif answer.why is not None:
            remarks.append(answer.why)
        if answer.absent:
            remarks.append(f"the topic {name} doesn't exist yet; brokers also answer lookups of unused names")
        for topic in names:
            outcome = self.look_up(replace(request, topic=topic))
            yield _as_old_part(outcome, segments, remarks)

    def _one_part(self, request: LookupRequest, name: TopicName) -> LookupOutcome:
        """Look up a single partition or a topic that can't be partitioned."""
        outcome, base = self.look_up(request), name.partitioned
        release = None if outcome.last is None else release_of(outcome.last)
        if base is None or release is None or release < OLDEST_WITH_SCALABLE:
            return outcome
        return _as_old_part(outcome, *self._scalable(request, base))

    def _scalable(self, request: LookupRequest, name: TopicName) -> tuple[dict[str, SegmentOf], list[str]]:
        """Return the segments of the scalable topic with this name, and remarks about errors."""
        try:
            segments = self._segments(replace(request, topic=str(name.as_scalable)))
        except NotFoundError:
            return {}, []
        except PulsarMetaError as error:
            return {}, [f"cannot find out if {name.as_scalable} exists: {error}"]
        return {segment.topic: segment for segment in segments}, []

    def _segments(self, request: LookupRequest) -> list[SegmentOf]:
        return _run(ask_segments(self.addresses, request), _Wire(self.tls, self.timeout), [])

    def _look_up_segments(self, request: LookupRequest) -> Iterator[LookupOutcome]:
        try:
            segments = self._segments(request)
        except PulsarMetaError as error:
            yield LookupOutcome(request, error=error)
            return
        yield from self._each(request, segments)

    def _each(self, request: LookupRequest, segments: Iterable[SegmentOf]) -> Iterator[LookupOutcome]:
        for segment in segments:
            outcome = self.look_up(replace(request, topic=segment.topic))
            outcome.segment = segment
            yield outcome


def _as_old_part(
    outcome: LookupOutcome, segments: Mapping[str, SegmentOf], remarks: Iterable[str]
) -> LookupOutcome:
    """Add `remarks` to an outcome, and a note if the topic is the sealed old part of a scalable topic."""
    topic = outcome.request.topic
    outcome.segment = segments.get(topic)
    outcome.remarks += remarks
    if outcome.segment is not None:
        others = sum(not name.startswith("persistent://") for name in segments)
        old = f"{topic} is only the sealed old part of {outcome.segment.scalable_topic}"
        outcome.remarks.append(f"{old}, which has {others} more segments")
    return outcome


def _run(protocol: Generator[Step | Hop, Any, Result], wire: _Wire, hops: list[LookupHop]) -> Result:
    """Perform the steps of `protocol` until it returns, and append each hop to `hops`."""
    sent: Any = None
    try:
        while True:
            step = protocol.send(sent)
            if isinstance(step, Hop):
                hops.append(hop_document(step, wire.connect_ms, wire.answer_ms))
                sent = None
            elif isinstance(step, Connect):
                sent = wire.connect(step.addresses)
            else:
                sent = wire.ask(step.command)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        wire.close()


def hop_document(hop: Hop, connect_ms: float, answer_ms: float) -> LookupHop:
    """Return the JSON document of a hop. Times are in milliseconds."""
    answer = hop.answer
    document: LookupHop = {
        "broker": str(hop.address),
        "server_version": hop.server_version,
        "protocol_version": hop.protocol_version,
        "knows_properties": knows_properties(hop),
        "asked_authoritative": hop.authoritative,
        "response": CommandLookupTopicResponse.LookupType.Name(answer.response).lower(),
        **_answer(hop),
        "connect_ms": round(connect_ms, 3),
        "answer_ms": round(answer_ms, 3),
    }
    if answer.HasField("error"):
        document |= {"error": ServerError.Name(answer.error), "message": text_of(answer.message)}
    return document


def _answer(hop: Hop) -> LookupAnswer:
    answer = hop.answer
    return {
        "broker_service_url": text_of(answer.brokerServiceUrl) or None,
        "broker_service_url_tls": text_of(answer.brokerServiceUrlTls) or None,
        "authoritative": answer.authoritative,
        "proxy_through_service_url": answer.proxy_through_service_url,
    }


class _Wire:
    """The connection of the current hop, with the times to connect and to get answers (ms)."""

    def __init__(self, tls: TlsSettings, timeout: float) -> None:
        self._tls, self._timeout = tls, timeout
        self._connection: BrokerConnection | None = None
        self.connect_ms = self.answer_ms = 0.0

    def connect(self, addresses: Sequence[BrokerAddress]) -> BrokerAddress:
        self.close()
        start = time.perf_counter()
        address, self._connection = connect_to_any(addresses, tls=self._tls, timeout=self._timeout)
        self.connect_ms, self.answer_ms = _since(start), 0.0
        return address

    def ask(self, command: Any) -> Any:
        assert self._connection is not None
        start = time.perf_counter()
        try:
            return self._connection.ask(command)
        finally:
            self.answer_ms += _since(start)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1000

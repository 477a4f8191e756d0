"""Run a lookup over real connections: the socket and TLS, each hop with its times, and the outcome.

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


Result = TypeVar("Result")
OLDEST_WITH_SCALABLE: Final = (5, 0)
PARTITIONED: Final = ("persistent", "non-persistent")


class LookupAnswer(TypedDict):
    """What a broker answered to a lookup."""

    broker_service_url: str | None
    broker_service_url_tls: str | None
    authoritative: bool
    proxy_through_service_url: bool


class LookupHop(LookupAnswer):
    """A broker that was asked; times are in milliseconds."""

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
    """Of which scalable topic what is looked up is a segment; `controller` decides about splits."""

    scalable_topic: str
    segment_state: str
    controller: str


class LookupDocument(SegmentDocument):
    """Where a topic is served, as a client with these properties would find it, or why that is not known."""

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
    """What a lookup found: a document per hop, the last hop's answer, or the error that ended it."""

    request: LookupRequest
    hops: list[LookupHop] = field(default_factory=list)
    last: Hop | None = None
    error: PulsarMetaError | None = None
    remarks: list[str] = field(default_factory=list)
    segment: SegmentOf | None = None

    def document(self) -> LookupDocument:
        """Return it in the JSON form of `lookup`."""
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
        named: SegmentDocument = {
            "scalable_topic": segment.scalable_topic,
            "segment_state": segment.state,
        }
        if segment.controller is not None:
            named["controller"] = segment.controller
        return named

    def notes(self) -> list[str]:
        """Return what one should know of the properties that were sent."""
        hops = [hop["broker"] for hop in self.hops if hop["knows_properties"] is False]
        notes = list(self.remarks)
        if self.request.properties and hops:
            version = ".".join(map(str, OLDEST_WITH_PROPERTIES))
            notes.append(f"{', '.join(hops)} ignored the properties: Pulsar knows them from {version} on")
        if self.request.properties and any(hop["proxy_through_service_url"] for hop in self.hops):
            notes.append(
                "the answer says to connect through the service URL (a standalone always says so): where a"
                " Pulsar proxy stands there, it passed the lookup on without its properties"
            )
        return notes


@dataclass(frozen=True, slots=True)
class LookupSession:
    """Lookups over sockets, starting at any of `addresses`, each hop within `timeout` seconds."""

    addresses: Sequence[BrokerAddress]
    tls: TlsSettings
    timeout: float

    def look_up(self, request: LookupRequest) -> LookupOutcome:
        """Look one topic up; what fails is in the outcome."""
        outcome, wire = LookupOutcome(request), _Wire(self.tls, self.timeout)
        try:
            outcome.last = _run(look_up(self.addresses, request), wire, outcome.hops)
        except PulsarMetaError as error:
            outcome.error = error
        return outcome

    def partitions(self, request: LookupRequest) -> PartitionAnswer:
        """Ask how many partitions the topic has; raises as `ask_partitions`."""
        return _run(ask_partitions(self.addresses, request), _Wire(self.tls, self.timeout), [])

    def look_up_all(
        self, request: LookupRequest, report: Callable[[str], None], *, short: bool = False
    ) -> Iterator[LookupOutcome]:
        """Yield the outcome of the topic, or of each partition or segment where it has some.

        `short`: no domain was written, so that the topic may be a scalable one. `report` is given why the
        broker was not asked for partitions.
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
            both = UsageError(f"two topics have this name: say {name} or {name.as_scalable}")
            yield LookupOutcome(request, error=both)
            return
        if answer.why is not None and not answer.refused:
            report(answer.why)
        elif answer.why is not None:
            remarks.append(answer.why)
        if answer.absent:
            remarks.append(f"there is no topic {name} yet: brokers answer for a name that nobody uses, too")
        for topic in names:
            outcome = self.look_up(replace(request, topic=topic))
            yield _as_old_part(outcome, segments, remarks)

    def _one_part(self, request: LookupRequest, name: TopicName) -> LookupOutcome:
        """Look up a topic that has no partitions of its own."""
        outcome, base = self.look_up(request), name.partitioned
        release = None if outcome.last is None else release_of(outcome.last)
        if base is None or release is None or release < OLDEST_WITH_SCALABLE:
            return outcome
        return _as_old_part(outcome, *self._scalable(request, base))

    def _scalable(self, request: LookupRequest, name: TopicName) -> tuple[dict[str, SegmentOf], list[str]]:
        """Return the segments of the scalable topic of this name, and what is not known of it."""
        try:
            found = self._segments(replace(request, topic=str(name.as_scalable)))
        except NotFoundError:
            return {}, []
        except PulsarMetaError as error:
            return {}, [f"whether {name.as_scalable} is there is not known: {error}"]
        return {segment.topic: segment for segment in found}, []

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
    """Return the outcome of a full name; it says where that is a sealed old part of a scalable topic."""
    topic = outcome.request.topic
    outcome.segment = segments.get(topic)
    outcome.remarks += remarks
    if outcome.segment is not None:
        more = sum(not one.startswith("persistent://") for one in segments)
        old = f"{topic} is but the sealed old part of {outcome.segment.scalable_topic}"
        outcome.remarks.append(f"{old}, which has {more} segments more")
    return outcome


def _run(talk: Generator[Step | Hop, Any, Result], wire: _Wire, hops: list[LookupHop]) -> Result:
    """Do what `talk` wants until it returns; each hop is added to `hops`."""
    sent: Any = None
    try:
        while True:
            step = talk.send(sent)
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
    """Return a hop in the JSON form of `lookup`; times in milliseconds."""
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
    """The connection of the hop at hand, and how long it took: to be connected, then to be answered."""

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

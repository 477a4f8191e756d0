"""The lookup protocol of clients, without sockets: who serves a topic, its partitions, its segments.

`look_up` is a generator: it yields `Connect` and `Ask` and is sent what came back, so the same protocol runs
over a socket and over the bytes of a test. As a client's lookup does, it makes a broker take a bundle that no
broker owns. Asking for the number of partitions can create partitions of a topic that does not exist, if the
broker creates topics automatically; Pulsar 3.0.6, 3.3.1 and 4.0 on can be asked not to. Asking for segments
of a
scalable topic (PIP-460) opens a session that ends with the connection.

Sources: apache/pulsar BinaryProtoLookupService.findBroker (redirects, authoritative, which URL), ClientCnx
(CONNECT, PING, AUTH_CHALLENGE), ServerCnx.handleLookup, handlePartitionMetadataRequest and
handleCommandScalableTopicLookup, LookupProxyHandler, DagWatchSession, DagWatchClient; PIP-344, PIP-368; the
classes of pulsar-common 5.0.0-M1 (field numbers).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pulsar_meta.codecs.errors import (
    DecodeError,
    NotFoundError,
    PulsarMetaError,
    UnreachableError,
    UsageError,
)
from pulsar_meta.codecs.names import LAST_HASH, TopicName
from pulsar_meta.codecs.wire.commands import BrokerAddress, body_of, command_name, parse_service_url, text_of
from pulsar_meta.proto.PulsarApi_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    ScalableTopicDAG,
    SegmentInfoProto,
    SegmentState,
    ServerError,
)

PROTOCOL_VERSION: Final = 21
# 21 came before lookup properties did, so whoever agrees on less cannot know them (PIP-368, Pulsar 4.0).
OLDEST_WITH_PROPERTIES: Final = (4, 0)
MAX_REDIRECTS: Final = 20

_version_re = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to authenticate: Pulsar's name of the method, and a function that returns the current secret."""

    method: str = "none"
    secret: Callable[[], bytes] = field(default=lambda: b"", repr=False)


@dataclass(frozen=True, slots=True)
class OriginalClient:
    """What a proxy says of the client it speaks for."""

    principal: str | None = None
    auth_data: str | None = field(default=None, repr=False)
    auth_method: str | None = None


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """One lookup: the full name of a topic and everything that goes along with it."""

    topic: str
    properties: Mapping[str, str] = field(default_factory=dict)
    listener_name: str | None = None
    authoritative: bool = False
    credentials: Credentials = field(default_factory=Credentials)
    original: OriginalClient = field(default_factory=OriginalClient)
    max_redirects: int = MAX_REDIRECTS
    client_version: str = "pulsar-meta"


@dataclass(frozen=True, slots=True)
class Connect:
    """Wanted: a fresh connection to the first of these that answers. The address is sent back."""

    addresses: Sequence[BrokerAddress]


@dataclass(frozen=True, slots=True)
class Ask:
    """Wanted: send this command, and send back the next one that arrives."""

    command: BaseCommand


Step = Connect | Ask


@dataclass(frozen=True, slots=True)
class Hop:
    """One broker that was asked: who it says it is, and its answer (None where it failed before one)."""

    address: BrokerAddress
    authoritative: bool
    server_version: str
    protocol_version: int
    answer: CommandLookupTopicResponse


def look_up(addresses: Sequence[BrokerAddress], request: LookupRequest) -> Generator[Step | Hop, Any, Hop]:
    """Yield what to do and each Hop when it is known; return the last one, which names the topic's broker.

    NotFoundError where there is no such topic, UsageError where its name is refused, UnreachableError for
    every other refusal and for more than `max_redirects` redirects, DecodeError for an answer of nonsense.
    """
    authoritative = request.authoritative
    for _ in range(request.max_redirects + 1):
        hop = yield from _ask_broker(addresses, request, authoritative)
        yield hop
        if not hop.answer.HasField("response") or hop.answer.response == CommandLookupTopicResponse.Failed:
            raise refusal(hop.address, hop.answer.error, hop.answer.message)
        target = next_address(hop)
        if hop.answer.response == CommandLookupTopicResponse.Connect:
            return hop
        addresses, authoritative = [target], hop.answer.authoritative
    raise UnreachableError(f"more than {request.max_redirects} redirects for {request.topic}")


def next_address(hop: Hop) -> BrokerAddress:
    """Return the broker that an answer names, by the URL that fits how we came: plain or TLS."""
    tls = hop.address.tls
    url = hop.answer.brokerServiceUrlTls if tls else hop.answer.brokerServiceUrl
    if not url:
        kind = "TLS" if tls else "plain"
        raise UnreachableError(f"the answer names no {kind} URL of a broker", source=str(hop.address))
    try:
        return parse_service_url(text_of(url))[0]
    except UsageError as error:
        raise DecodeError(
            f"not a broker's URL in the answer: {error.message}", source=str(hop.address)
        ) from error


def knows_properties(hop: Hop) -> bool | None:
    """Return whether the broker's version knows lookup properties, None where it does not say."""
    if hop.protocol_version < PROTOCOL_VERSION:
        return False
    version = release_of(hop)
    return None if version is None else version >= OLDEST_WITH_PROPERTIES


def release_of(hop: Hop) -> tuple[int, int] | None:
    """Return the major and minor number of the broker's release, None where it does not say."""
    version = _version_re.search(hop.server_version)
    return (int(version[1]), int(version[2])) if version else None


def refusal(address: BrokerAddress, error: int, message: str | bytes) -> PulsarMetaError:
    """Return the error, with its exit code, for a ServerError that a broker answered."""
    name = ServerError.Name(error) if error in ServerError.values() else f"error {error}"
    text = " ".join(f"{name}: {text_of(message)}".split())
    if error in (ServerError.TopicNotFound,):
        return NotFoundError(text, source=str(address))
    if error in (ServerError.InvalidTopicName,):
        return UsageError(text, source=str(address))
    return UnreachableError(f"refused, {text}", source=str(address))


def _ask_broker(
    addresses: Sequence[BrokerAddress], request: LookupRequest, authoritative: bool
) -> Generator[Step, Any, Hop]:
    address = yield Connect(addresses)
    reply = yield from converse(address, connect_command(request), request, "CONNECTED")
    connected = reply.connected
    reply = yield from converse(address, lookup_command(request, authoritative), request, "LOOKUP_RESPONSE")
    return Hop(
        address=address,
        authoritative=authoritative,
        server_version=text_of(connected.server_version),
        protocol_version=connected.protocol_version,
        answer=reply.lookupTopicResponse,
    )


def converse(
    address: BrokerAddress, command: BaseCommand, request: LookupRequest, wanted: str
) -> Generator[Step, Any, BaseCommand]:
    """Send `command` and return the `wanted` one; what the broker asks meanwhile is answered.

    Raises the broker's refusal, DecodeError where another command comes back.
    """
    reply: BaseCommand = yield Ask(command)
    while (name := command_name(reply)) in _ANSWERS:
        reply = yield Ask(_ANSWERS[name](request))
    if name == "ERROR":
        raise refusal(address, reply.error.error, reply.error.message)
    if name != wanted or body_of(reply) is None:
        raise DecodeError(f"expected {wanted} from the broker, found {name}", source=str(address))
    return reply


def connect_command(request: LookupRequest) -> BaseCommand:
    """Return the CONNECT that opens every connection."""
    command = BaseCommand(type=BaseCommand.CONNECT)
    connect = command.connect
    connect.client_version = request.client_version
    connect.protocol_version = PROTOCOL_VERSION
    connect.auth_method_name = request.credentials.method
    connect.auth_data = request.credentials.secret()
    connect.feature_flags.supports_auth_refresh = True
    add_original(connect, request.original)
    return command


def lookup_command(request: LookupRequest, authoritative: bool) -> BaseCommand:
    """Return the LOOKUP, properties in the order given."""
    command = BaseCommand(type=BaseCommand.LOOKUP)
    lookup = command.lookupTopic
    lookup.topic, lookup.request_id, lookup.authoritative = request.topic, 1, authoritative
    if request.listener_name:
        lookup.advertised_listener_name = request.listener_name
    for key, value in request.properties.items():
        lookup.properties.add(key=key, value=value)
    add_original(lookup, request.original)
    return command


def add_original(body: Any, original: OriginalClient) -> None:
    """Put the original client into a command: each has a place for it, newer brokers believe CONNECT only."""
    for name in ("principal", "auth_data", "auth_method"):
        value = getattr(original, name)
        if value is not None:
            setattr(body, f"original_{name}", value)


def _pong(request: LookupRequest) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.PONG)
    command.pong.SetInParent()
    return command


def _auth_response(request: LookupRequest) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.AUTH_RESPONSE)
    response = command.authResponse
    response.client_version, response.protocol_version = request.client_version, PROTOCOL_VERSION
    response.response.auth_method_name = request.credentials.method
    response.response.auth_data = request.credentials.secret()
    return command


_ANSWERS: Final[dict[str, Callable[[LookupRequest], BaseCommand]]] = {
    "PING": _pong,
    "AUTH_CHALLENGE": _auth_response,
}


MAX_PARTITIONS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The number of partitions, 0 for none; None where `why` says what kept it from being known.

    `refused`: the broker was asked and refused; else it was not asked, since that could create some.
    `absent`: it says that there is no such topic. `scalable`: it can be asked for scalable topics.
    """

    count: int | None
    why: str | None = None
    refused: bool = False
    absent: bool = False
    scalable: bool = False


def ask_partitions(
    addresses: Sequence[BrokerAddress], request: LookupRequest
) -> Generator[Step, Any, PartitionAnswer]:
    """Yield what to do and return the answer; a topic that does not exist has no partitions.

    Raises what connecting raises in `look_up`, DecodeError for an answer of nonsense.
    """
    address = yield Connect(addresses)
    connect = connect_command(request)
    connect.connect.feature_flags.supports_scalable_topics = True
    reply = yield from converse(address, connect, request, "CONNECTED")
    scalable = reply.connected.feature_flags.supports_scalable_topics
    if not reply.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation:
        version = text_of(reply.connected.server_version)
        why = f"{address} ({version}) cannot be asked for partitions without creating some"
        return PartitionAnswer(None, f"{why}: {request.topic} is looked up as it is named")
    command = partitions_command(request)
    reply = yield from converse(address, command, request, "PARTITIONED_METADATA_RESPONSE")
    return replace(_checked(address, reply.partitionMetadataResponse), scalable=scalable)


def _checked(address: BrokerAddress, answer: CommandPartitionedTopicMetadataResponse) -> PartitionAnswer:
    if not answer.HasField("response") or answer.response == CommandPartitionedTopicMetadataResponse.Failed:
        error = refusal(address, answer.error, answer.message)
        if isinstance(error, NotFoundError):
            return PartitionAnswer(0, absent=True)
        return PartitionAnswer(None, f"whether there are partitions is not known: {error}", refused=True)
    if answer.partitions > MAX_PARTITIONS:
        raise DecodeError(f"the broker claims {answer.partitions} partitions", source=str(address))
    return PartitionAnswer(answer.partitions)


def partitions_command(request: LookupRequest) -> BaseCommand:
    """Return the PARTITIONED_METADATA that creates nothing."""
    command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
    question = command.partitionMetadata
    question.topic, question.request_id = request.topic, 1
    question.metadata_auto_creation_enabled = False
    add_original(question, request.original)
    return command


MOST_SEGMENTS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class SegmentOf:
    """A segment, by the name that its ledgers have, and which scalable topic it belongs to.

    `state` is ACTIVE or SEALED, `controller` the URL of the broker that decides about splits and merges.
    """

    topic: str
    scalable_topic: str
    state: str
    controller: str | None


def ask_segments(
    addresses: Sequence[BrokerAddress], request: LookupRequest
) -> Generator[Step, Any, list[SegmentOf]]:
    """Yield what to do and return the segments in the order of their ids.

    Raises what connecting raises in `look_up`, the broker's refusal, UnreachableError for a broker without
    scalable topics, DecodeError for an answer of nonsense.
    """
    address = yield Connect(addresses)
    connect = connect_command(request)
    connect.connect.feature_flags.supports_scalable_topics = True
    reply = yield from converse(address, connect, request, "CONNECTED")
    if not reply.connected.feature_flags.supports_scalable_topics:
        version = text_of(reply.connected.server_version)
        raise UnreachableError(f"{version} has no scalable topics: Pulsar 5 has", source=str(address))
    reply = yield from converse(address, segments_command(request.topic), request, "SCALABLE_TOPIC_UPDATE")
    update = reply.scalableTopicUpdate
    if update.HasField("error"):
        raise refusal(address, update.error, update.message)
    if not 0 < len(update.dag.segments) <= MOST_SEGMENTS:
        raise DecodeError("expected the segments of a scalable topic", source=str(address))
    return _segments(TopicName.parse(request.topic), update.dag, address)


def segments_command(topic: str) -> BaseCommand:
    """Return the SCALABLE_TOPIC_LOOKUP of a full name."""
    command = BaseCommand(type=BaseCommand.SCALABLE_TOPIC_LOOKUP)
    command.scalableTopicLookup.session_id, command.scalableTopicLookup.topic = 1, topic
    return command


def _segments(name: TopicName, dag: ScalableTopicDAG, address: BrokerAddress) -> list[SegmentOf]:
    url = dag.controller_broker_url_tls if address.tls else dag.controller_broker_url
    controller = text_of(url) or None
    ordered = sorted(dag.segments, key=lambda segment: segment.segment_id)
    return [
        SegmentOf(_topic(name, one, address), str(name), SegmentState.Name(one.state), controller)
        for one in ordered
    ]


def _topic(name: TopicName, segment: SegmentInfoProto, address: BrokerAddress) -> str:
    if segment.legacy_topic_name:
        return text_of(segment.legacy_topic_name)
    if not segment.hash_start <= segment.hash_end <= LAST_HASH:
        raise DecodeError(f"segment {segment.segment_id} has no range of hashes", source=str(address))
    return str(name.segment_topic(segment.hash_start, segment.hash_end, segment.segment_id))

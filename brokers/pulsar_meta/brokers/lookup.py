"""The clients' lookup protocol without sockets: a topic's broker, its partitions and its segments.

`look_up` is a generator. It yields `Connect` and `Ask`, and the caller sends back the result, so that the
same protocol runs over a socket and over bytes in a test. Like a client's lookup, it makes a broker load a
bundle that no broker owns. Requesting the number of partitions of a missing topic can create partitions if
the broker creates topics automatically; since Pulsar 3.0.6, 3.3.1 and 4.0 the request can forbid that.
Requesting the segments of a scalable topic (PIP-460) opens a session that ends with the connection.

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
# Version 21 is older than lookup properties, so brokers with a lower version don't support them (PIP-368,
# Pulsar 4.0).
OLDEST_WITH_PROPERTIES: Final = (4, 0)
MAX_REDIRECTS: Final = 20

_version_re = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Pulsar's name of an authentication method, and a function that returns the current secret."""

    method: str = "none"
    secret: Callable[[], bytes] = field(default=lambda: b"", repr=False)


@dataclass(frozen=True, slots=True)
class OriginalClient:
    """The client on whose behalf a proxy sends a request."""

    principal: str | None = None
    auth_data: str | None = field(default=None, repr=False)
    auth_method: str | None = None


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """One lookup: the full name of a topic, and everything that a client sends with it."""

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
    """Requests a new connection to the first address that answers. The caller sends back that address."""

    addresses: Sequence[BrokerAddress]


@dataclass(frozen=True, slots=True)
class Ask:
    """Requests that a command is sent. The caller sends back the next command from the broker."""

    command: BaseCommand


Step = Connect | Ask


@dataclass(frozen=True, slots=True)
class Hop:
    """One broker of a lookup, with its version and its answer."""

    address: BrokerAddress
    authoritative: bool
    server_version: str
    protocol_version: int
    answer: CommandLookupTopicResponse


def look_up(addresses: Sequence[BrokerAddress], request: LookupRequest) -> Generator[Step | Hop, Any, Hop]:
    """Run a lookup. Yields steps and each Hop, and returns the last hop, which names the topic's broker.

    Raises NotFoundError if the topic doesn't exist, UsageError if its name is invalid, UnreachableError if
    the lookup is refused for another reason or has more than `max_redirects` redirects, and DecodeError for
    an invalid answer.
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
    """Return the broker in an answer, from the TLS URL if this hop used TLS, else from the plain one."""
    tls = hop.address.tls
    url = hop.answer.brokerServiceUrlTls if tls else hop.answer.brokerServiceUrl
    if not url:
        kind = "TLS" if tls else "plain"
        raise UnreachableError(f"the answer has no {kind} URL of a broker", source=str(hop.address))
    try:
        return parse_service_url(text_of(url))[0]
    except UsageError as error:
        raise DecodeError(
            f"the answer has an invalid broker URL: {error.message}", source=str(hop.address)
        ) from error


def knows_properties(hop: Hop) -> bool | None:
    """Whether the broker supports lookup properties, or None if its version is unknown."""
    if hop.protocol_version < PROTOCOL_VERSION:
        return False
    version = release_of(hop)
    return None if version is None else version >= OLDEST_WITH_PROPERTIES


def release_of(hop: Hop) -> tuple[int, int] | None:
    """Return the major and minor version of the broker's release, or None if it is unknown."""
    version = _version_re.search(hop.server_version)
    return (int(version[1]), int(version[2])) if version else None


def refusal(address: BrokerAddress, error: int, message: str | bytes) -> PulsarMetaError:
    """Convert a broker's ServerError to the error with the right exit code."""
    name = ServerError.Name(error) if error in ServerError.values() else f"error {error}"
    text = " ".join(f"{name}: {text_of(message)}".split())
    if error in (ServerError.TopicNotFound,):
        return NotFoundError(text, source=str(address))
    if error in (ServerError.InvalidTopicName,):
        return UsageError(text, source=str(address))
    return UnreachableError(f"the broker refused the request: {text}", source=str(address))


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
    """Send `command` and return the broker's `wanted` command. Answers PING and AUTH_CHALLENGE.

    Raises the broker's error, or DecodeError if the broker sends another command.
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
    """Return the CONNECT command, which is the first one of every connection."""
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
    """Return the LOOKUP command, with the properties in the given order."""
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
    """Add the original client to a command. Newer brokers only use the one in CONNECT."""
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
    """The number of partitions (0 if not partitioned), or None with the reason `why` it is unknown.

    `refused` means that the broker refused the request. Otherwise an unknown number means that no request was
    sent, because it could create partitions. `absent` means that the topic doesn't exist. `scalable` means
    that the broker supports scalable topics.
    """

    count: int | None
    why: str | None = None
    refused: bool = False
    absent: bool = False
    scalable: bool = False


def ask_partitions(
    addresses: Sequence[BrokerAddress], request: LookupRequest
) -> Generator[Step, Any, PartitionAnswer]:
    """Request the number of partitions. A topic that doesn't exist has none.

    Raises the errors that connecting raises in `look_up`, and DecodeError for an invalid answer.
    """
    address = yield Connect(addresses)
    connect = connect_command(request)
    connect.connect.feature_flags.supports_scalable_topics = True
    reply = yield from converse(address, connect, request, "CONNECTED")
    scalable = reply.connected.feature_flags.supports_scalable_topics
    if not reply.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation:
        version = text_of(reply.connected.server_version)
        why = f"did not request the partitions of {request.topic}"
        return PartitionAnswer(None, f"{why}, because {address} ({version}) could create some")
    command = partitions_command(request)
    reply = yield from converse(address, command, request, "PARTITIONED_METADATA_RESPONSE")
    return replace(_checked(address, reply.partitionMetadataResponse), scalable=scalable)


def _checked(address: BrokerAddress, answer: CommandPartitionedTopicMetadataResponse) -> PartitionAnswer:
    if not answer.HasField("response") or answer.response == CommandPartitionedTopicMetadataResponse.Failed:
        error = refusal(address, answer.error, answer.message)
        if isinstance(error, NotFoundError):
            return PartitionAnswer(0, absent=True)
        return PartitionAnswer(None, f"cannot find out the number of partitions: {error}", refused=True)
    if answer.partitions > MAX_PARTITIONS:
        raise DecodeError(f"the broker claims {answer.partitions} partitions", source=str(address))
    return PartitionAnswer(answer.partitions)


def partitions_command(request: LookupRequest) -> BaseCommand:
    """Return a PARTITIONED_METADATA command that doesn't create a topic."""
    command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
    question = command.partitionMetadata
    question.topic, question.request_id = request.topic, 1
    question.metadata_auto_creation_enabled = False
    add_original(question, request.original)
    return command


MAX_SEGMENTS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class SegmentOf:
    """A segment of a scalable topic.

    `topic` is the name under which its ledgers are stored, `state` is ACTIVE or SEALED, and `controller` is
    the URL of the broker that decides about splits and merges.
    """

    topic: str
    scalable_topic: str
    state: str
    controller: str | None


def ask_segments(
    addresses: Sequence[BrokerAddress], request: LookupRequest
) -> Generator[Step, Any, list[SegmentOf]]:
    """Request the segments of a scalable topic, sorted by id.

    Raises the errors that connecting raises in `look_up`, the broker's error, UnreachableError if the broker
    doesn't support scalable topics, and DecodeError for an invalid answer.
    """
    address = yield Connect(addresses)
    connect = connect_command(request)
    connect.connect.feature_flags.supports_scalable_topics = True
    reply = yield from converse(address, connect, request, "CONNECTED")
    if not reply.connected.feature_flags.supports_scalable_topics:
        version = text_of(reply.connected.server_version)
        raise UnreachableError(f"{version} has no scalable topics, which need Pulsar 5", source=str(address))
    reply = yield from converse(address, segments_command(request.topic), request, "SCALABLE_TOPIC_UPDATE")
    update = reply.scalableTopicUpdate
    if update.HasField("error"):
        raise refusal(address, update.error, update.message)
    if not 0 < len(update.dag.segments) <= MAX_SEGMENTS:
        raise DecodeError("expected the segments of a scalable topic", source=str(address))
    return _segments(TopicName.parse(request.topic), update.dag, address)


def segments_command(topic: str) -> BaseCommand:
    """Return the SCALABLE_TOPIC_LOOKUP command for a full name."""
    command = BaseCommand(type=BaseCommand.SCALABLE_TOPIC_LOOKUP)
    command.scalableTopicLookup.session_id, command.scalableTopicLookup.topic = 1, topic
    return command


def _segments(name: TopicName, dag: ScalableTopicDAG, address: BrokerAddress) -> list[SegmentOf]:
    url = dag.controller_broker_url_tls if address.tls else dag.controller_broker_url
    controller = text_of(url) or None
    ordered = sorted(dag.segments, key=lambda segment: segment.segment_id)
    return [
        SegmentOf(_topic(name, segment, address), str(name), SegmentState.Name(segment.state), controller)
        for segment in ordered
    ]


def _topic(name: TopicName, segment: SegmentInfoProto, address: BrokerAddress) -> str:
    if segment.legacy_topic_name:
        return text_of(segment.legacy_topic_name)
    if not segment.hash_start <= segment.hash_end <= LAST_HASH:
        raise DecodeError(f"segment {segment.segment_id} has an invalid hash range", source=str(address))
    return str(name.segment_topic(segment.hash_start, segment.hash_end, segment.segment_id))

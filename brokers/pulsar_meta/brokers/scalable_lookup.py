"""Which segments a scalable topic has (PIP-460, Pulsar 5), asked of a broker.

The question opens a session in which the broker goes on to say what changes; it ends with the connection.
Each segment is then looked up by its own name, as the client for scalable topics does it.

Source: apache/pulsar DagWatchSession, ServerCnx.handleCommandScalableTopicLookup, DagWatchClient; the
classes of pulsar-common 5.0.0-M1 (numbers of the fields).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pulsar_meta.brokers.lookup import Connect, LookupRequest, Step, connect_command, converse, refusal
from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.names import LAST_HASH, TopicName
from pulsar_meta.codecs.wire.commands import text_of
from pulsar_meta.codecs.wire.service_url import BrokerAddress
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, ScalableTopicDAG, SegmentInfoProto, SegmentState

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

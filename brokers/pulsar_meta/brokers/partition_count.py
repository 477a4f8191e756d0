"""How many partitions a topic has, asked of a broker without making it create any.

The question creates the partitions of a topic that does not exist, where the broker does so by itself;
only newer brokers can be asked not to (Pulsar 3.0.6, 3.3.1, 4.0).

Source: apache/pulsar PIP-344, ServerCnx.handlePartitionMetadataRequest.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pulsar_meta.brokers.lookup import (
    Connect,
    LookupRequest,
    Step,
    add_original,
    connect_command,
    converse,
    refusal,
)
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.wire.commands import text_of
from pulsar_meta.codecs.wire.service_url import BrokerAddress
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, CommandPartitionedTopicMetadataResponse

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

"""Asking a broker how many partitions a topic has, without creating the topic."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pulsar_meta.brokers.lookup import (
    MAX_PARTITIONS,
    Connect,
    LookupRequest,
    OriginalClient,
    PartitionAnswer,
    ask_partitions,
)
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.wire.commands import parse_service_url
from pulsar_meta.proto.PulsarApi_pb2 import (
    BaseCommand,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)

TOPIC = "persistent://public/default/t"
SUCCESS, FAILED = (
    CommandPartitionedTopicMetadataResponse.Success,
    CommandPartitionedTopicMetadataResponse.Failed,
)


def play(replies: list[BaseCommand], request: LookupRequest) -> tuple[PartitionAnswer, list[BaseCommand]]:
    """Run the question against scripted replies; return the answer and the commands that were sent."""
    protocol, commands = ask_partitions(parse_service_url("pulsar://b"), request), list[BaseCommand]()
    remaining, sent = iter(replies), cast(Any, None)
    try:
        while True:
            step: Any = protocol.send(sent)
            if isinstance(step, Connect):
                sent = step.addresses[0]
            else:
                commands.append(step.command)
                sent = next(remaining)
    except StopIteration as end:
        return end.value, commands


def connected(*, knows: bool) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.CONNECTED)
    command.connected.server_version = "Pulsar Server2.8.2"
    if knows:
        command.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    return command


def answer(**members: Any) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
    command.partitionMetadataResponse.CopyFrom(
        CommandPartitionedTopicMetadataResponse(request_id=1, **members)
    )
    return command


def test_the_question_forbids_creating_the_topic() -> None:
    request = LookupRequest(TOPIC, original=OriginalClient("me"))
    result, commands = play([connected(knows=True), answer(partitions=3, response=SUCCESS)], request)
    assert result == PartitionAnswer(3)
    question = commands[-1].partitionMetadata
    assert question.HasField("metadata_auto_creation_enabled")
    assert question.metadata_auto_creation_enabled is False
    assert (question.topic, question.original_principal) == (TOPIC, "me")


def test_a_broker_that_would_create_the_topic_gets_no_question() -> None:
    result, commands = play([connected(knows=False)], LookupRequest(TOPIC))
    assert (result.count, result.refused) == (None, False)
    assert "2.8.2" in str(result.why)
    assert [command.type for command in commands] == [BaseCommand.CONNECT]


def test_a_missing_topic_has_no_partitions() -> None:
    missing = answer(response=FAILED, error=ServerError.TopicNotFound, message="no")
    assert play([connected(knows=True), missing], LookupRequest(TOPIC))[0] == PartitionAnswer(0, absent=True)


def test_a_refusal_is_reported() -> None:
    refused = answer(response=FAILED, error=ServerError.AuthorizationError, message="not you")
    result, _ = play([connected(knows=True), refused], LookupRequest(TOPIC))
    assert (result.count, result.refused) == (None, True)
    assert "AuthorizationError: not you" in str(result.why)


def test_nonsensical_answers_are_refused() -> None:
    for reply in (answer(partitions=MAX_PARTITIONS + 1, response=SUCCESS), connected(knows=True)):
        with pytest.raises(DecodeError):
            play([connected(knows=True), reply], LookupRequest(TOPIC))

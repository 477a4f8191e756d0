"""The lookup protocol, step by step, without a socket."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pulsar_meta.brokers.lookup import (
    Ask,
    Connect,
    Credentials,
    Hop,
    LookupRequest,
    OriginalClient,
    knows_properties,
    look_up,
    next_address,
)
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.codecs.wire.commands import BrokerAddress, parse_service_url
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, CommandLookupTopicResponse, ServerError

TOPIC = "persistent://public/default/t"
START = parse_service_url("pulsar://first:6650")
REDIRECT, CONNECT, FAILED = (
    CommandLookupTopicResponse.Redirect,
    CommandLookupTopicResponse.Connect,
    CommandLookupTopicResponse.Failed,
)


def connected(version: str = "Pulsar Server4.2.4", protocol: int = 21) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.CONNECTED)
    command.connected.server_version, command.connected.protocol_version = version, protocol
    return command


def response(**members: Any) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    command.lookupTopicResponse.CopyFrom(CommandLookupTopicResponse(request_id=1, **members))
    return command


def accepted(url: str = "pulsar://owner:6650", **members: Any) -> BaseCommand:
    return response(brokerServiceUrl=url, response=CONNECT, **members)


def play(
    request: LookupRequest, replies: Iterable[BaseCommand], addresses: list[BrokerAddress] = START
) -> tuple[Hop, list[Any]]:
    """Run a lookup against scripted replies; return its result and all its steps."""
    remaining = iter(replies)
    protocol, steps = look_up(addresses, request), list[Any]()
    sent: Any = None
    try:
        while True:
            step = protocol.send(sent)
            steps.append(step)
            sent = step.addresses[0] if isinstance(step, Connect) else None
            if isinstance(step, Ask):
                sent = next(remaining)
    except StopIteration as end:
        assert next(remaining, None) is None
        return end.value, steps


def commands_of(steps: list[Any], kind: str) -> list[Any]:
    return [
        getattr(step.command, kind) for step in steps if isinstance(step, Ask) and step.command.HasField(kind)
    ]


def test_properties_listener_and_topic_arrive_in_the_command() -> None:
    request = LookupRequest(TOPIC, {"rack": "A", "zone": "ü 1"}, listener_name="inner", authoritative=True)
    hop, steps = play(request, [connected(), accepted()])
    (lookup,) = commands_of(steps, "lookupTopic")
    assert [(property.key, property.value) for property in lookup.properties] == [
        ("rack", "A"),
        ("zone", "ü 1"),
    ]
    assert (lookup.topic, lookup.advertised_listener_name, lookup.authoritative) == (TOPIC, "inner", True)
    assert str(next_address(hop)) == "pulsar://owner:6650"


def test_both_commands_name_the_original_client() -> None:
    request = LookupRequest(TOPIC, original=OriginalClient("me", "secret", "token"))
    _, steps = play(request, [connected(), accepted()])
    for body in commands_of(steps, "connect") + commands_of(steps, "lookupTopic"):
        original = (body.original_principal, body.original_auth_data, body.original_auth_method)
        assert original == ("me", "secret", "token")


def test_redirects_are_followed_and_carry_authoritative() -> None:
    replies = [
        connected(),
        response(brokerServiceUrl="pulsar://second:7000", response=REDIRECT, authoritative=True),
        connected(),
        response(brokerServiceUrl="pulsar://third", response=REDIRECT),
        connected(),
        accepted(),
    ]
    hop, steps = play(LookupRequest(TOPIC, {"rack": "A"}), replies)
    addresses = [str(step.addresses[0]) for step in steps if isinstance(step, Connect)]
    assert addresses == ["pulsar://first:6650", "pulsar://second:7000", "pulsar://third:6650"]
    lookups = commands_of(steps, "lookupTopic")
    assert [lookup.authoritative for lookup in lookups] == [False, True, False]
    assert all(len(lookup.properties) == 1 for lookup in lookups)
    assert [step.answer.response for step in steps if isinstance(step, Hop)] == [REDIRECT, REDIRECT, CONNECT]
    assert str(hop.address) == "pulsar://third:6650"


def test_endless_redirects_are_refused() -> None:
    loop = [connected(), response(brokerServiceUrl="pulsar://first", response=REDIRECT)]
    with pytest.raises(UnreachableError, match="more than 3 redirects"):
        play(LookupRequest(TOPIC, max_redirects=3), loop * 4)


def test_pings_and_challenges_are_answered_at_any_time() -> None:
    ping = BaseCommand(type=BaseCommand.PING)
    challenge = BaseCommand(type=BaseCommand.AUTH_CHALLENGE)
    challenge.authChallenge.challenge.auth_method_name = "token"
    secrets = iter([b"one", b"two"])
    request = LookupRequest(TOPIC, credentials=Credentials("token", lambda: next(secrets)))
    _, steps = play(request, [ping, challenge, connected(), ping, accepted()])
    assert len(commands_of(steps, "pong")) == 2
    assert commands_of(steps, "connect")[0].auth_data == b"one"
    (answer,) = commands_of(steps, "authResponse")
    assert (answer.response.auth_method_name, answer.response.auth_data) == ("token", b"two")


def test_a_tls_lookup_uses_the_tls_url() -> None:
    addresses = parse_service_url("pulsar+ssl://first")
    hop, _ = play(
        LookupRequest(TOPIC), [connected(), accepted(brokerServiceUrlTls="pulsar+ssl://o:6651")], addresses
    )
    assert str(next_address(hop)) == "pulsar+ssl://o:6651"
    with pytest.raises(UnreachableError, match="has no TLS URL"):
        play(LookupRequest(TOPIC), [connected(), accepted()], addresses)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServerError.TopicNotFound, NotFoundError),
        (ServerError.InvalidTopicName, UsageError),
        (ServerError.ServiceNotReady, UnreachableError),
        (ServerError.AuthorizationError, UnreachableError),
        (ServerError.TooManyRequests, UnreachableError),
    ],
)
def test_a_brokers_refusal_becomes_the_matching_error(error: ServerError, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="why"):
        play(LookupRequest(TOPIC), [connected(), response(response=FAILED, error=error, message="why\n not")])


def test_an_answer_without_a_verdict_is_a_refusal() -> None:
    with pytest.raises(UnreachableError):
        play(LookupRequest(TOPIC), [connected(), response(brokerServiceUrl="pulsar://x")])


def test_a_refused_connect() -> None:
    refused = BaseCommand(type=BaseCommand.ERROR)
    refused.error.request_id, refused.error.error = 2**64 - 1, ServerError.AuthenticationError
    refused.error.message = "bad token"
    with pytest.raises(UnreachableError, match="AuthenticationError: bad token"):
        play(LookupRequest(TOPIC), [refused])


@pytest.mark.parametrize(
    "replies",
    [
        [BaseCommand(type=BaseCommand.SUCCESS)],
        [BaseCommand(type=BaseCommand.CONNECTED)],
        [connected(), connected()],
        [connected(), accepted("http://x")],
        [connected(), accepted("pulsar://")],
        [connected(), accepted("pulsar://x:99999")],
    ],
)
def test_nonsensical_answers_are_decode_errors(replies: list[BaseCommand]) -> None:
    with pytest.raises(DecodeError):
        play(LookupRequest(TOPIC), replies)


@pytest.mark.parametrize(
    ("version", "protocol", "knows"),
    [
        ("Pulsar Server4.2.4", 21, True),
        ("Pulsar Server4.0.0", 21, True),
        ("Pulsar Server5.0.0-M1", 21, True),
        ("Pulsar Server3.3.6", 21, False),
        ("Pulsar Server2.8.2", 17, False),
        ("of our own", 20, False),
        ("of our own", 21, None),
    ],
)
def test_brokers_too_old_for_properties_are_known(version: str, protocol: int, knows: bool | None) -> None:
    hop, _ = play(LookupRequest(TOPIC), [connected(version, protocol), accepted()])
    assert knows_properties(hop) is knows


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("pulsar://h", ["pulsar://h:6650"]),
        ("pulsar+ssl://h/", ["pulsar+ssl://h:6651"]),
        ("pulsar://a:1,b;c:3/x", ["pulsar://a:1", "pulsar://b:6650", "pulsar://c:3"]),
        ("pulsar://[::1]:7000", ["pulsar://[::1]:7000"]),
    ],
)
def test_service_urls_are_parsed(url: str, addresses: list[str]) -> None:
    assert [str(address) for address in parse_service_url(url)] == addresses


@pytest.mark.parametrize(
    "url", ["", "h:1", "http://h", "pulsar://", "pulsar://h:0", "pulsar://h:x", "pulsar://:1"]
)
def test_invalid_service_urls_are_usage_errors(url: str) -> None:
    with pytest.raises(UsageError):
        parse_service_url(url)

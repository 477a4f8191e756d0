"""Wire frames of real clients and brokers are decoded, shown and encoded again."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.protobuf.to_json import message_to_json
from pulsar_meta.codecs.wire.commands import (
    body_of,
    command_name,
    command_to_json,
    decode_command_stream,
    decode_commands,
    encode_command,
    encode_command_stream,
    json_to_command,
    newer_type,
    take_command,
)
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, CommandConnect

STREAMS = sorted((Path(__file__).parents[3] / "fixtures" / "commands").glob("*.bin"))
CPP_RECEIVED, CPP_SENT, JAVA_RECEIVED, JAVA_SENT = STREAMS


def names(data: bytes) -> list[str]:
    return [command_name(frame.command) for frame in decode_commands(data)]


def test_streams_decode_to_the_commands_that_were_sent() -> None:
    assert names(JAVA_SENT.read_bytes()) == [
        "CONNECT", "PARTITIONED_METADATA", "LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID", "FLOW",
    ]  # fmt: skip
    assert names(CPP_RECEIVED.read_bytes()).count("MESSAGE") == 2
    assert names(CPP_SENT.read_bytes()).count("SEND") == 2


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_streams_survive_a_round_trip(stream: Path) -> None:
    data = stream.read_bytes()
    value, meaning = decode_command_stream(data)
    assert encode_command_stream(value) == data
    assert sum(frame["size"] for frame in meaning["frames"]) == len(data)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_every_command_of_the_streams_is_known(stream: Path) -> None:
    for frame in decode_commands(stream.read_bytes()):
        assert body_of(frame.command) is not None
        assert "unknown_fields" not in str(command_to_json(frame))


@pytest.mark.parametrize(
    ("name", "written", "field", "value"),
    [
        (
            "SCALABLE_TOPIC_SUBSCRIBE",
            "0849ca042608071218746f7069633a2f2f7075626c69632f64656661756c742f741a017322016328033001",
            "scalableTopicSubscribe",
            {
                "request_id": 7,
                "topic": "topic://public/default/t",
                "subscription": "s",
                "consumer_name": "c",
                "consumer_id": 3,
                "consumer_type": "CHECKPOINT",
            },
        ),
        (
            "SCALABLE_TOPIC_ASSIGNMENT_UPDATE",
            "084bda043808031234080212300801100018ffff0122267365676d656e743a2f2f7075626c69632f64656661756c742f742f"
            "303030302d376666662d31",
            "scalableTopicAssignmentUpdate",
            {
                "consumer_id": 3,
                "assignment": {
                    "layout_epoch": 2,
                    "segments": [
                        {
                            "segment_id": 1,
                            "hash_start": 0,
                            "hash_end": 32767,
                            "segment_topic": "segment://public/default/t/0000-7fff-1",
                        }
                    ],
                },
            },
        ),
        (
            "WATCH_SCALABLE_TOPICS_UPDATE",
            "084dea041e08051a1a0a18746f7069633a2f2f7075626c69632f64656661756c742f74",
            "watchScalableTopicsUpdate",
            {"watch_id": 5, "diff": {"added": ["topic://public/default/t"]}},
        ),
        (
            "WATCH_TC_ASSIGNMENTS_UPDATE",
            "085082051b08011217081012130800120f70756c7361723a2f2f623a36363530",
            "watchTcAssignmentsUpdate",
            {
                "watch_id": 1,
                "snapshot": {
                    "parallelism": 16,
                    "assignments": [{"tc_id": 0, "broker_service_url": "pulsar://b:6650"}],
                },
            },
        ),
    ],
)
def test_commands_of_pulsar_5_have_their_fields(name: str, written: str, field: str, value: object) -> None:
    """The bytes are those that the class BaseCommand of 5.0.0-M1 wrote."""
    body = bytes.fromhex(written)
    command = BaseCommand.FromString(body)
    assert command_name(command) == name
    assert message_to_json(command)[field] == value
    assert command.SerializeToString() == body


def test_a_stored_frame_is_broker_metadata_and_the_frame_that_was_sent() -> None:
    sent = [frame.entry for frame in decode_commands(CPP_SENT.read_bytes()) if len(frame.entry)]
    received = [frame.entry for frame in decode_commands(CPP_RECEIVED.read_bytes()) if len(frame.entry)]
    for client, stored in zip(sent, received, strict=True):
        assert bytes(stored[:2]) == b"\x0e\x02"
        assert bytes(stored[6 + stored[5] :]) == bytes(client)


def test_the_entry_of_a_message_has_a_meaning() -> None:
    _, meaning = decode_command_stream(CPP_RECEIVED.read_bytes())
    entries: list[Any] = [frame["entry"] for frame in meaning["frames"] if "entry" in frame]
    assert [entry["broker_metadata"]["index"] for entry in entries] == [2, 3]
    assert [entry["frame_checksum"] for entry in entries] == ["ok", "ok"]
    assert entries[0]["metadata"]["num_messages_in_batch"] == 3
    assert entries[1]["metadata"]["properties"] == [{"key": "region", "value": "eu"}]


def test_a_command_with_a_broken_entry_is_decoded() -> None:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = command.send.sequence_id = 1
    data = encode_command(command, b"\0\0\0\x63x")
    value, meaning = decode_command_stream(data)
    assert "claims 99 bytes" in str(meaning["frames"][0]["entry"])
    assert encode_command_stream(value) == data


def test_a_stream_that_arrives_byte_by_byte_is_decoded() -> None:
    data = CPP_SENT.read_bytes()
    buffer, seen = bytearray(), []
    for byte in data:
        buffer.append(byte)
        if (frame := take_command(bytes(buffer))) is not None:
            seen.append(command_name(frame.command))
            buffer.clear()
    assert seen == names(data)
    assert not buffer


def test_a_stream_truncated_within_a_frame_is_a_decode_error() -> None:
    data = CPP_SENT.read_bytes()
    borders = {frame.offset for frame in decode_commands(data)} | {len(data)}
    for length in range(len(data)):
        if length in borders:
            continue
        with pytest.raises(DecodeError, match="truncated"):
            list(decode_commands(data[:length]))


@pytest.mark.parametrize(
    ("data", "offset", "words"),
    [
        (struct.pack(">I", 0), 0, "4 to"),
        (struct.pack(">I", 3) + b"abc", 0, "4 to"),
        (struct.pack(">II", 6, 900) + b"\x08\x12", 4, "claims 900 bytes"),
        (struct.pack(">II", 6, 2) + b"\x08\xff", 8, "broken protobuf"),
        (struct.pack(">II", 4, 0), 8, "required type missing"),
        (struct.pack(">II", 7, 2) + b"\x08\x12!", 10, "PING, which has no entry"),
    ],
)
def test_broken_frames_are_decode_errors(data: bytes, offset: int, words: str) -> None:
    with pytest.raises(DecodeError, match=words) as caught:
        list(decode_commands(data))
    assert caught.value.offset == offset


def test_a_frame_that_claims_a_huge_size_is_refused_at_once() -> None:
    with pytest.raises(DecodeError, match="claims 4294967295"):
        take_command(b"\xff\xff\xff\xff")
    assert take_command(struct.pack(">I", 5_000_000)) is None


def test_a_command_of_a_newer_pulsar_survives() -> None:
    data = struct.pack(">II", 10, 6) + b"\x08\xe8\x07\xc2\x3e\x00"
    (frame,) = decode_commands(data)
    assert newer_type(frame.command) == 1000
    value, meaning = decode_command_stream(data)
    assert meaning["types"] == ["1000"]
    assert encode_command_stream(value) == data


def connect(secret: bytes) -> bytes:
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.CopyFrom(CommandConnect(client_version="c", auth_method_name="token", auth_data=secret))
    return encode_command(command)


def test_secrets_are_redacted_unless_asked_for() -> None:
    data = connect(b"topsecret")
    hidden = decode_document(data, source="-", options=DecodeOptions("Command")).document
    assert "topsecret" not in str(hidden)
    assert "dG9wc2VjcmV0" not in str(hidden)
    with pytest.raises(DecodeError, match="redacted"):
        encode_document(hidden)
    shown = decode_document(data, source="-", options=DecodeOptions("Command", show_secrets=True)).document
    assert encode_document(shown).data == data


def test_javas_field_order_does_not_leak_secrets() -> None:
    # The type, then connect with auth_method_name before auth_data, which is Java's order.
    inner = b"\x0a\x01c\x2a\x05token\x1a\x09topsecret"
    body = b"\x08\x02\x12" + bytes([len(inner)]) + inner
    assert BaseCommand.FromString(body) == BaseCommand.FromString(connect(b"topsecret")[8:])
    (frame,) = decode_commands(struct.pack(">II", 4 + len(body), len(body)) + body)
    assert "body" not in command_to_json(frame)


def test_an_edited_command_is_encoded_with_its_edits() -> None:
    value, _ = decode_command_stream(JAVA_SENT.read_bytes())
    first = value["commands"][0]
    assert "body" in first
    first["command"]["connect"]["client_version"] = "other"
    frame = next(decode_commands(encode_command_stream(value)))
    assert frame.command.connect.client_version == "other"


@pytest.mark.parametrize(
    "item",
    [
        None,
        [],
        {},
        {"command": {}},
        {"command": {"type": "NOPE"}},
        {"command": {"type": "PING"}, "entry": "AAAA"},
        {"command": {"type": "SEND"}, "entry": "!"},
        {"command": {"type": "CONNECT", "connect": {"auth_data": 7}}},
        {"command": {"type": "PING"}, "other": 1},
    ],
)
def test_json_that_is_no_command_is_refused(item: object) -> None:
    with pytest.raises(DecodeError):
        json_to_command(item, "value")
    with pytest.raises(DecodeError):
        encode_command_stream(item)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_decode_or_raise_a_decode_error(data: bytes) -> None:
    try:
        decode_command_stream(data)
    except DecodeError:
        return


@settings(deadline=None)
@given(st.integers(0, len(CPP_SENT.read_bytes()) - 1), st.integers(0, 255))
def test_a_changed_byte_raises_only_decode_errors(at: int, byte: int) -> None:
    data = bytearray(CPP_SENT.read_bytes())
    data[at] = byte
    try:
        value, _ = decode_command_stream(data)
        encode_command_stream(value)
    except DecodeError:
        return

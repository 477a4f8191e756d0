"""A stream of wire commands in the JSON form of `decode` and `encode`, kind `Command`.

`{"commands": [{"command": …, "entry"?: …, "body"?: …}, …]}`: each BaseCommand in the shape of its .proto;
after SEND and MESSAGE the entry frame as it was sent, in base64. Java clients write the fields of CONNECT
in an order of their own: then `body` keeps the bytes of the command too, unless a secret is in them, and
they are encoded again as long as they say what `command` says.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, NotRequired, TypedDict

from google.protobuf.message import DecodeError as ProtobufError

from pulsar_meta.codecs.checksum import Verdict
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.json_text import from_base64, shown
from pulsar_meta.codecs.protobuf.from_json import fill_message
from pulsar_meta.codecs.protobuf.json_shape import message_shape
from pulsar_meta.codecs.protobuf.to_json import message_to_json
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.codecs.secrets import redact, refuse_redacted
from pulsar_meta.codecs.wire.commands import (
    WITH_ENTRY,
    CommandFrame,
    command_name,
    decode_commands,
    encode_command,
    missing_fields,
    wrap_command,
)
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, BrokerEntryMetadata, MessageMetadata

MEMBERS: Final = ("command", "entry", "body")


class CommandValue(TypedDict):
    """A command as it was sent; `entry`, the frame after it, and `body` are base64."""

    command: Annotated[dict[str, Any], message_shape(BaseCommand)]
    entry: NotRequired[str]
    body: NotRequired[str]


class CommandsValue(TypedDict):
    """The commands of a stream."""

    commands: list[CommandValue]
    order_kept: NotRequired[bool]


def decode_command_stream(data: Buffer) -> tuple[CommandsValue, CommandsMeaning]:
    """Return value and meaning of the frames in `data`; `meaning` has offsets and sizes in bytes.

    DecodeError where there is none, or at the first that is cut off or broken.
    """
    frames = list(decode_commands(data))
    if not frames:
        raise DecodeError("not a command: empty", offset=0)
    value: CommandsValue = {"commands": [command_to_json(frame) for frame in frames]}
    return value, {"types": [command_name(frame.command) for frame in frames], "frames": _meanings(frames)}


def encode_command_stream(value: Any, path: str = "value") -> bytes:
    """Return the bytes that `decode_command_stream` made `value` from; DecodeError where it is none."""
    commands = value.get("commands") if isinstance(value, dict) and set(value) == {"commands"} else None
    if not isinstance(commands, list):
        raise DecodeError(f"{path}: expected an object with a list of commands, found {shown(value)}")
    return b"".join(json_to_command(item, f"{path}.commands[{at}]") for at, item in enumerate(commands))


class BrokenEntry(TypedDict):
    """Why what follows a command is no frame."""

    error: str


class SentEntry(TypedDict):
    """What the frame after a command says; `payload_size` is in bytes."""

    broker_metadata: Annotated[dict[str, Any], message_shape(BrokerEntryMetadata)] | None
    frame_checksum: Verdict
    metadata: Annotated[dict[str, Any], message_shape(MessageMetadata)]
    payload_size: int


class CommandMeaning(TypedDict):
    """A command: its type, where its frame begins, how many bytes that has, what the entry after it says."""

    type: str
    offset: int
    size: int
    entry: NotRequired[SentEntry | BrokenEntry]


class CommandsMeaning(TypedDict):
    """The commands of a stream: what they are, and their frames."""

    types: list[str]
    frames: list[CommandMeaning]


def command_to_json(frame: CommandFrame) -> CommandValue:
    """Return one frame in the JSON form, secrets included."""
    item: CommandValue = {"command": message_to_json(frame.command)}
    if len(frame.entry):
        item["entry"] = base64.b64encode(frame.entry).decode()
    as_we_write = frame.command.SerializePartialToString()
    if as_we_write != frame.body and redact(item) == item:
        item["body"] = base64.b64encode(frame.body).decode()
    return item


def json_to_command(item: Any, path: str) -> bytes:
    """Return the bytes of one frame; DecodeError names the place that is wrong or was redacted."""
    if not isinstance(item, dict):
        raise DecodeError(f"{path}: expected an object, found {shown(item)}")
    for name in item:
        if name not in MEMBERS:
            raise DecodeError(f"{path}.{name}: no such field; there are {', '.join(MEMBERS)}")
    refuse_redacted(item, path)
    command = _command(item.get("command"), f"{path}.command")
    entry = from_base64(item.get("entry", ""), f"{path}.entry")
    if entry and command.HasField("type") and command.type not in WITH_ENTRY:
        raise DecodeError(f"{path}.entry: only SEND and MESSAGE have an entry after them")
    body = from_base64(item.get("body", ""), f"{path}.body")
    return wrap_command(body, entry) if _says(body, command) else encode_command(command, entry)


def _command(value: Any, path: str) -> BaseCommand:
    command = BaseCommand()
    fill_message(command, value, path)
    missing = missing_fields(command)
    if missing:
        raise DecodeError(f"{path}: required {', '.join(missing)} missing")
    return command


def _says(body: bytes, command: BaseCommand) -> bool:
    try:
        return bool(body) and BaseCommand.FromString(body) == command
    except ProtobufError:
        return False


def _meanings(frames: list[CommandFrame]) -> list[CommandMeaning]:
    meanings = []
    for frame in frames:
        meaning: CommandMeaning = {
            "type": command_name(frame.command),
            "offset": frame.offset,
            "size": frame.size,
        }
        if len(frame.entry):
            meaning["entry"] = _entry_meaning(frame.entry)
        meanings.append(meaning)
    return meanings


def _entry_meaning(entry: memoryview) -> SentEntry | BrokenEntry:
    """Return what the entry after a command says; a broken one says how, the command itself is sound."""
    try:
        frame = decode_frame(entry)
    except DecodeError as error:
        return {"error": str(error)}
    broker = frame.broker_metadata
    return {
        "broker_metadata": None if broker is None else message_to_json(broker),
        "frame_checksum": frame.checksum,
        "metadata": message_to_json(frame.metadata),
        "payload_size": len(frame.payload),
    }

"""Commands of the binary protocol between clients and brokers, their JSON form, and broker URLs.

    int32 total size, int32 command size, BaseCommand, and after SEND and MESSAGE an entry frame

The total counts everything after itself. A SEND contains the frame that the broker stores, without broker
metadata. A MESSAGE also contains broker metadata if broker and client agreed on it.

The JSON form is `{"commands": [{"command": …, "entry"?: …, "body"?: …}, …]}`. Each BaseCommand has the fields
of its .proto, and the entry frame is base64. If a client orders fields differently (Java clients do so in
CONNECT), `body` has the command's bytes, unless they contain a secret. `encode` uses them if they match
`command`.

Sources: apache/pulsar Commands.java (serializeWithSize, serializeCommandSendWithSize), PulsarApi.proto,
ServiceURI.java (schemes, default ports, several hosts).
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NotRequired, TypedDict

from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_meta.codecs.backends import Verdict
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.json_text import from_base64, shown
from pulsar_meta.codecs.protobuf.from_json import fill_message, message_shape
from pulsar_meta.codecs.protobuf.to_json import message_to_json
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view
from pulsar_meta.codecs.secrets import redact, refuse_redacted
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, BrokerEntryMetadata, MessageMetadata

# The default of brokers and clients: Commands.DEFAULT_MAX_MESSAGE_SIZE and MESSAGE_SIZE_FRAME_PADDING.
MAX_FRAME_SIZE: Final = 5 * 1024 * 1024 + 10 * 1024
WITH_ENTRY: Final = frozenset({BaseCommand.SEND, BaseCommand.MESSAGE})

_MAX_INT: Final = 2**31 - 1
_SIZE: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class CommandFrame:
    """A command, its bytes (`body`), and the entry frame after SEND and MESSAGE, else empty. Both are views.

    `offset` and `size` (in bytes, including the total size) are the frame's place in the stream.
    """

    command: BaseCommand
    body: memoryview = field(repr=False)
    entry: memoryview = field(repr=False)
    offset: int = 0
    size: int = 0


def take_command(data: Buffer, offset: int = 0, *, max_size: int = MAX_FRAME_SIZE) -> CommandFrame | None:
    """Decode the frame at `offset`, or return None if it is not complete yet.

    Raises DecodeError if it claims more than `max_size` bytes or is not a command.
    """
    view = byte_view(data)
    if len(view) < offset + 4:
        return None
    total = int(_SIZE.unpack_from(view, offset)[0])
    if not 4 <= total <= max_size:
        raise DecodeError(f"expected a frame of 4 to {max_size} bytes, it claims {total}", offset=offset)
    end = offset + 4 + total
    return None if len(view) < end else _decode(view, offset, end)


def decode_commands(data: Buffer) -> Iterator[CommandFrame]:
    """Yield the frames in `data`. Raises DecodeError if a frame is truncated or broken."""
    view, at = byte_view(data), 0
    while at < len(view):
        frame = take_command(view, at, max_size=_MAX_INT)
        if frame is None:
            raise DecodeError(f"a frame is truncated after {len(view) - at} bytes", offset=at)
        yield frame
        at += frame.size


def encode_command(command: BaseCommand, entry: Buffer = b"") -> bytes:
    """Encode a frame; `entry` is the entry frame after SEND or MESSAGE."""
    return wrap_command(command.SerializePartialToString(), entry)


def wrap_command(body: Buffer, entry: Buffer = b"") -> bytes:
    """Encode a frame with a serialized command."""
    return b"".join((_SIZE.pack(4 + len(body) + len(entry)), _SIZE.pack(len(body)), body, entry))


def body_of(command: BaseCommand) -> Message | None:
    """Return the message for the command's type, or None if it is missing or the type is unknown."""
    field = command.DESCRIPTOR.fields_by_number.get(command.type) if command.HasField("type") else None
    if field is None or not command.HasField(field.name):
        return None
    body: Message = getattr(command, field.name)
    return body


def _decode(view: memoryview, offset: int, end: int) -> CommandFrame:
    reader = Reader(view[:end], offset + 4)
    body = reader.sized("BaseCommand")
    command = _parse(body, reader.at - len(body))
    entry = reader.rest()
    if len(entry) and command.HasField("type") and command.type not in WITH_ENTRY:
        name = command_name(command)
        raise DecodeError(f"{len(entry)} bytes follow a {name}, which has no entry", offset=reader.at)
    return CommandFrame(command, body, entry, offset, end - offset)


def _parse(data: memoryview, offset: int) -> BaseCommand:
    """Parse a command. A type that is not in the .proto becomes an unknown field."""
    try:
        command = BaseCommand.FromString(bytes(data))
    except ProtobufError as error:
        raise DecodeError("not a BaseCommand: broken protobuf", offset=offset) from error
    missing = missing_fields(command)
    if missing:
        raise DecodeError(f"not a BaseCommand: required {', '.join(missing)} missing", offset=offset)
    return command


def missing_fields(command: BaseCommand) -> list[str]:
    """Return the required fields that a command lacks. A type that is not in the .proto is not missing."""
    missing: list[str] = command.FindInitializationErrors()  # type: ignore[attr-defined]
    return [] if missing == ["type"] and newer_type(command) is not None else missing


def newer_type(command: BaseCommand) -> int | None:
    """Return the number of a command's type if it is not in the .proto, else None."""
    unknowns = UnknownFieldSet(command)
    for unknown in (unknowns[at] for at in range(len(unknowns))):
        if unknown.field_number == BaseCommand.TYPE_FIELD_NUMBER and isinstance(unknown.data, int):
            return unknown.data
    return None


def text_of(value: str | bytes) -> str:
    """Return a string field as text. Protobuf returns bytes if a peer sent bytes that are not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def command_name(command: BaseCommand) -> str:
    """Return the name of the command's type, or its number if it is not in the .proto."""
    return BaseCommand.Type.Name(command.type) if command.HasField("type") else str(newer_type(command))


MEMBERS: Final = ("command", "entry", "body")


class CommandValue(TypedDict):
    """A command; `entry` (the frame after it) and `body` are base64."""

    command: Annotated[dict[str, Any], message_shape(BaseCommand)]
    entry: NotRequired[str]
    body: NotRequired[str]


class CommandsValue(TypedDict):
    """A stream of commands."""

    commands: list[CommandValue]
    order_kept: NotRequired[bool]


def decode_command_stream(data: Buffer) -> tuple[CommandsValue, CommandsMeaning]:
    """Return the JSON and the summary of the commands in `data`; offsets and sizes are in bytes.

    Raises DecodeError if there are none, or if one is truncated or broken.
    """
    frames = list(decode_commands(data))
    if not frames:
        raise DecodeError("not a command: empty", offset=0)
    value: CommandsValue = {"commands": [command_to_json(frame) for frame in frames]}
    return value, {"types": [command_name(frame.command) for frame in frames], "frames": _meanings(frames)}


def encode_command_stream(value: Any, path: str = "value") -> bytes:
    """Reverse `decode_command_stream`. Raises DecodeError, naming the path of an invalid member."""
    commands = value.get("commands") if isinstance(value, dict) and set(value) == {"commands"} else None
    if not isinstance(commands, list):
        raise DecodeError(f"{path}: expected an object with a list of commands, found {shown(value)}")
    return b"".join(json_to_command(item, f"{path}.commands[{at}]") for at, item in enumerate(commands))


class BrokenEntry(TypedDict):
    """The reason why the bytes after a command are not a frame."""

    error: str


class SentEntry(TypedDict):
    """Summary of the frame after a command; `payload_size` is in bytes."""

    broker_metadata: Annotated[dict[str, Any], message_shape(BrokerEntryMetadata)] | None
    frame_checksum: Verdict
    metadata: Annotated[dict[str, Any], message_shape(MessageMetadata)]
    payload_size: int


class CommandMeaning(TypedDict):
    """Summary of a command: its type, its frame's offset and size in bytes, and the entry after it."""

    type: str
    offset: int
    size: int
    entry: NotRequired[SentEntry | BrokenEntry]


class CommandsMeaning(TypedDict):
    """Summary of a stream of commands: their types and their frames."""

    types: list[str]
    frames: list[CommandMeaning]


def command_to_json(frame: CommandFrame) -> CommandValue:
    """Convert a frame to JSON, including secrets."""
    item: CommandValue = {"command": message_to_json(frame.command)}
    if len(frame.entry):
        item["entry"] = base64.b64encode(frame.entry).decode()
    if frame.command.SerializePartialToString() != frame.body and redact(item) == item:
        item["body"] = base64.b64encode(frame.body).decode()
    return item


def json_to_command(item: Any, path: str) -> bytes:
    """Encode a frame. Raises DecodeError, naming the path of an invalid or redacted member."""
    if not isinstance(item, dict):
        raise DecodeError(f"{path}: expected an object, found {shown(item)}")
    for name in item:
        if name not in MEMBERS:
            raise DecodeError(f"{path}.{name}: no such field; use {', '.join(MEMBERS)}")
    refuse_redacted(item, path)
    command = _command(item.get("command"), f"{path}.command")
    entry = from_base64(item.get("entry", ""), f"{path}.entry")
    if entry and command.HasField("type") and command.type not in WITH_ENTRY:
        raise DecodeError(f"{path}.entry: only SEND and MESSAGE have an entry")
    body = from_base64(item.get("body", ""), f"{path}.body")
    return wrap_command(body, entry) if _is_body_of(body, command) else encode_command(command, entry)


def _command(value: Any, path: str) -> BaseCommand:
    command = BaseCommand()
    fill_message(command, value, path)
    missing = missing_fields(command)
    if missing:
        raise DecodeError(f"{path}: required {', '.join(missing)} missing")
    return command


def _is_body_of(body: bytes, command: BaseCommand) -> bool:
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
    """Summarize the entry after a command, or its error if it is broken."""
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


DEFAULT_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}

_host_re = re.compile(r"^(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/\[\]]+))(?::(?P<port>\d{1,5}))?$")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """An address at which a broker or proxy serves the binary protocol."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"pulsar{'+ssl' if self.tls else ''}://{host}:{self.port}"


def parse_service_url(url: str) -> list[BrokerAddress]:
    """Parse a service URL into its addresses, in order. Raises UsageError if it is not valid."""
    scheme, separator, rest = url.partition("://")
    port = DEFAULT_PORTS.get(scheme)
    if not separator or port is None:
        raise UsageError(f"invalid broker URL {url!r}: use pulsar://host:port or pulsar+ssl://host:port")
    hosts = [host for host in re.split("[,;]", rest.split("/", 1)[0]) if host]
    if not hosts:
        raise UsageError(f"invalid broker URL {url!r}: it has no host")
    return [_address(url, host, port, scheme == "pulsar+ssl") for host in hosts]


def _address(url: str, text: str, default_port: int, tls: bool) -> BrokerAddress:
    match = _host_re.match(text)
    port = int((match and match["port"]) or default_port)
    if not match or not 0 < port < 65536:
        raise UsageError(f"invalid broker URL {url!r}: {text!r} is not host:port")
    return BrokerAddress(match["ipv6"] or match["host"], port, tls)

"""Commands of the binary protocol between clients and brokers, their JSON form, and broker URLs.

    int32 total size, int32 command size, BaseCommand, and after SEND and MESSAGE an entry frame

The total counts everything after itself. A SEND carries the frame that the broker stores, without the
broker's
part; a MESSAGE carries that part too if broker and client agreed on it.

The JSON form is `{"commands": [{"command": …, "entry"?: …, "body"?: …}, …]}` with each BaseCommand in the
shape of
its .proto and the entry frame in base64. Java clients order the fields of CONNECT differently, so `body`
keeps the
command's bytes too, unless they contain a secret; `encode` uses them as long as they match `command`.

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

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.hashes import Verdict
from pulsar_meta.codecs.json_text import from_base64, shown
from pulsar_meta.codecs.protobuf.from_json import fill_message, message_shape
from pulsar_meta.codecs.protobuf.to_json import message_to_json
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view
from pulsar_meta.codecs.secrets import redact, refuse_redacted
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, BrokerEntryMetadata, MessageMetadata

# Commands.DEFAULT_MAX_MESSAGE_SIZE and MESSAGE_SIZE_FRAME_PADDING: the default of both ends.
MAX_FRAME_SIZE: Final = 5 * 1024 * 1024 + 10 * 1024
WITH_ENTRY: Final = frozenset({BaseCommand.SEND, BaseCommand.MESSAGE})

_MAX_INT: Final = 2**31 - 1
_SIZE: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class CommandFrame:
    """A command, its own bytes, and the entry frame after SEND and MESSAGE (views, the latter may be empty).

    `offset` and `size` (in bytes, with the four of the total size) are its place in the stream.
    """

    command: BaseCommand
    body: memoryview = field(repr=False)
    entry: memoryview = field(repr=False)
    offset: int = 0
    size: int = 0


def take_command(data: Buffer, offset: int = 0, *, max_size: int = MAX_FRAME_SIZE) -> CommandFrame | None:
    """Return the frame that begins at `offset`, None while it is not all there yet.

    DecodeError where it claims more than `max_size` bytes, or does not hold a command.
    """
    view = byte_view(data)
    if len(view) < offset + 4:
        return None
    total = int(_SIZE.unpack_from(view, offset)[0])
    if not 4 <= total <= max_size:
        raise DecodeError(f"a frame of 4 to {max_size} bytes expected, it claims {total}", offset=offset)
    end = offset + 4 + total
    return None if len(view) < end else _decode(view, offset, end)


def decode_commands(data: Buffer) -> Iterator[CommandFrame]:
    """Yield the frames that follow one another in `data`, to its last byte.

    DecodeError at the first that is cut off or broken; `offset` counts from the start of `data`.
    """
    view, at = byte_view(data), 0
    while at < len(view):
        found = take_command(view, at, max_size=_MAX_INT)
        if found is None:
            raise DecodeError(f"a frame is cut off: {len(view) - at} bytes are left of it", offset=at)
        yield found
        at += found.size


def encode_command(command: BaseCommand, entry: Buffer = b"") -> bytes:
    """Return the bytes of one frame; `entry` is the entry frame after SEND or MESSAGE."""
    return wrap_command(command.SerializePartialToString(), entry)


def wrap_command(body: Buffer, entry: Buffer = b"") -> bytes:
    """Return the frame around a command that is already bytes."""
    return b"".join((_SIZE.pack(4 + len(body) + len(entry)), _SIZE.pack(len(body)), body, entry))


def body_of(command: BaseCommand) -> Message | None:
    """Return the message that goes with the command's type; None where it is missing or not known."""
    known = command.DESCRIPTOR.fields_by_number.get(command.type) if command.HasField("type") else None
    if known is None or not command.HasField(known.name):
        return None
    body: Message = getattr(command, known.name)
    return body


def _decode(view: memoryview, offset: int, end: int) -> CommandFrame:
    reader = Reader(view[:end], offset + 4)
    body = reader.sized("BaseCommand")
    command = _parse(body, reader.at - len(body))
    entry = reader.rest()
    if len(entry) and command.HasField("type") and command.type not in WITH_ENTRY:
        name = command_name(command)
        raise DecodeError(f"{len(entry)} bytes follow a {name}, which has none after it", offset=reader.at)
    return CommandFrame(command, body, entry, offset, end - offset)


def _parse(data: memoryview, offset: int) -> BaseCommand:
    """Return the command; one of a type that only a newer Pulsar knows keeps it as an unknown field."""
    try:
        command = BaseCommand.FromString(bytes(data))
    except ProtobufError as error:
        raise DecodeError("not a BaseCommand: broken protobuf", offset=offset) from error
    missing = missing_fields(command)
    if missing:
        raise DecodeError(f"not a BaseCommand: required {', '.join(missing)} missing", offset=offset)
    return command


def missing_fields(command: BaseCommand) -> list[str]:
    """Return the required fields that a command lacks; a type without a name here is not lacking."""
    missing: list[str] = command.FindInitializationErrors()  # type: ignore[attr-defined]
    return [] if missing == ["type"] and newer_type(command) is not None else missing


def newer_type(command: BaseCommand) -> int | None:
    """Return the number of a command's type where this program has no name for it."""
    unknowns = UnknownFieldSet(command)
    for unknown in (unknowns[at] for at in range(len(unknowns))):
        if unknown.field_number == BaseCommand.TYPE_FIELD_NUMBER and isinstance(unknown.data, int):
            return unknown.data
    return None


def text_of(value: str | bytes) -> str:
    """Return a string field as text; protobuf hands out bytes where a peer sent something else than UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def command_name(command: BaseCommand) -> str:
    """Return the name of the command's type, its number where this program has no name for it."""
    return BaseCommand.Type.Name(command.type) if command.HasField("type") else str(newer_type(command))


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


DEFAULT_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}

_host_re = re.compile(r"^(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/\[\]]+))(?::(?P<port>\d{1,5}))?$")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One place where a broker or proxy listens on the binary protocol."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"pulsar{'+ssl' if self.tls else ''}://{host}:{self.port}"


def parse_service_url(url: str) -> list[BrokerAddress]:
    """Return the addresses of a service URL, in its order; UsageError where it is none."""
    scheme, separator, rest = url.partition("://")
    port = DEFAULT_PORTS.get(scheme)
    if not separator or port is None:
        raise UsageError(
            f"{url!r}: a broker's binary protocol is at pulsar://host:port or pulsar+ssl://host:port"
        )
    hosts = [host for host in re.split("[,;]", rest.split("/", 1)[0]) if host]
    if not hosts:
        raise UsageError(f"{url!r}: no host")
    return [_address(url, host, port, scheme == "pulsar+ssl") for host in hosts]


def _address(url: str, text: str, default_port: int, tls: bool) -> BrokerAddress:
    match = _host_re.match(text)
    port = int((match and match["port"]) or default_port)
    if not match or not 0 < port < 65536:
        raise UsageError(f"{url!r}: not host:port")
    return BrokerAddress(match["ipv6"] or match["host"], port, tls)

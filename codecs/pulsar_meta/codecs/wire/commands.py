"""Frames of the binary protocol between clients and brokers, in both directions.

    int32 total size, int32 command size, BaseCommand, and after SEND and MESSAGE an entry frame

The total counts everything after itself. What follows a SEND is the frame that the broker stores, but
for the broker's own part in front; a MESSAGE carries that part too, where broker and client agreed on it.

Source: apache/pulsar Commands.java (serializeWithSize, serializeCommandSendWithSize), PulsarApi.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand

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

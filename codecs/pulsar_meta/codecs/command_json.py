"""Wire commands in the JSON form of `decode` and `encode`, kind `Command`.

`value` is the BaseCommand in the shape of its .proto; behind SEND and MESSAGE there is one member more,
`headers_and_payload`: the entry frame as it was sent, in base64, so that encoding gives the same bytes.
Java clients write the fields of CONNECT in an order of their own; then `body` keeps the bytes of the
command too, and they are encoded again as long as they say what the other members say.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufError

from pulsar_meta.codecs.checksum import Buffer
from pulsar_meta.codecs.commands import (
    WITH_ENTRY,
    CommandFrame,
    command_name,
    decode_commands,
    encode_command,
    missing_fields,
    wrap_command,
)
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frame import decode_frame
from pulsar_meta.codecs.json_message import fill_message, from_base64
from pulsar_meta.codecs.message_json import message_to_json
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand

ENTRY: Final = "headers_and_payload"
BODY: Final = "body"
REDACTED: Final = "(redacted)"
# What opens a door: the credentials of the client, of the client behind a proxy, and their refreshing.
SECRETS: Final[tuple[tuple[str, ...], ...]] = (
    ("connect", "auth_data"),
    ("connect", "original_auth_data"),
    ("partitionMetadata", "original_auth_data"),
    ("lookupTopic", "original_auth_data"),
    ("authChallenge", "challenge", "auth_data"),
    ("authResponse", "response", "auth_data"),
)

Json = dict[str, Any]


def command_documents(data: Buffer, *, show_secrets: bool = False) -> Iterator[Json]:
    """Yield `{"value", "meaning"}` of each frame in a stream; `meaning` has its offset and size in bytes.

    DecodeError at the first frame that is cut off or broken.
    """
    for frame in decode_commands(data):
        value = command_to_json(frame)
        hidden = [] if show_secrets else _redact(value)
        yield {"value": value, "meaning": _meaning(frame, hidden)}


def command_to_json(frame: CommandFrame) -> Json:
    """Return a frame in the JSON form of `value`, secrets included."""
    value = message_to_json(frame.command)
    if frame.command.HasField("type") and frame.command.type in WITH_ENTRY:
        value[ENTRY] = base64.b64encode(frame.entry).decode()
    if frame.command.SerializePartialToString() != frame.body:
        value[BODY] = base64.b64encode(frame.body).decode()
    return value


def json_to_command(value: Any) -> bytes:
    """Return the bytes of the frame that `command_to_json` made `value` from.

    DecodeError where it is not that form, or where a secret in it was redacted.
    """
    if not isinstance(value, dict):
        raise DecodeError("value: expected an object, a BaseCommand")
    for path in SECRETS:
        if _at(value, path) == REDACTED:
            raise DecodeError(f"value.{'.'.join(path)} was redacted: decode it with --show-secrets")
    entry = from_base64(value.get(ENTRY, ""), f"value.{ENTRY}")
    body = from_base64(value.get(BODY, ""), f"value.{BODY}")
    rest = {key: one for key, one in value.items() if key not in (ENTRY, BODY)}
    command = _command(rest)
    if entry and command.type not in WITH_ENTRY:
        raise DecodeError(f"value.{ENTRY}: only SEND and MESSAGE have an entry behind them")
    return wrap_command(body, entry) if _says(body, command) else encode_command(command, entry)


def _command(value: Json) -> BaseCommand:
    command = BaseCommand()
    fill_message(command, value, "value")
    missing = missing_fields(command)
    if missing:
        raise DecodeError(f"value: required {', '.join(missing)} missing")
    return command


def _says(body: bytes, command: BaseCommand) -> bool:
    try:
        return bool(body) and BaseCommand.FromString(body) == command
    except ProtobufError:
        return False


def _meaning(frame: CommandFrame, hidden: list[str]) -> Json:
    told: Json = {"command": command_name(frame.command), "offset": frame.offset, "size": frame.size}
    if len(frame.entry):
        told["entry"] = _entry_meaning(frame.entry)
    if hidden:
        told["redacted"] = hidden
    return told


def _entry_meaning(entry: memoryview) -> Json:
    """Return what the entry behind a command says; a broken one says how, the command itself is sound."""
    try:
        frame = decode_frame(entry)
    except DecodeError as error:
        return {"error": str(error)}
    return {
        "broker_metadata": frame.broker_metadata and message_to_json(frame.broker_metadata),
        "frame_checksum": frame.checksum,
        "metadata": message_to_json(frame.metadata),
        "payload_size": len(frame.payload),
    }


def _redact(value: Json) -> list[str]:
    """Replace every secret in `value` by a word that encodes to nothing; return where they were."""
    hidden = []
    for path in SECRETS:
        if _at(value, path):
            _at(value, path[:-1])[path[-1]] = REDACTED
            hidden.append(".".join(path))
    if hidden:
        value.pop(BODY, None)
    return hidden


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value

"""Values that are a binary protobuf message: managed ledgers, cursors, schemas, bookies, functions."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import EncodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_meta.codecs.documents.value import FUNCTION_KINDS, Value, value_shape
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.envelope import foreign_position_form
from pulsar_meta.codecs.protobuf.to_json import encoder_of, has_unknown_fields

# Module and class of each kind's message. Names only, because imports are slow.
_PROTO: Final = "pulsar_meta.proto."
_MANAGED: Final = "pulsar_meta.codecs.metadata.managed_meaning"
_MESSAGES: Final[dict[str, tuple[str, str]]] = {
    "ManagedLedgerInfo": ("MLDataFormats_pb2", "ManagedLedgerInfo"),
    "ManagedCursorInfo": ("MLDataFormats_pb2", "ManagedCursorInfo"),
    "PositionInfo": ("MLDataFormats_pb2", "PositionInfo"),
    "BookieServiceInfo": ("DataFormats_pb2", "BookieServiceInfoFormat"),
    "SchemaLocator": ("SchemaStorageFormat_pb2", "SchemaLocator"),
    "SchemaEntry": ("SchemaStorageFormat_pb2", "SchemaEntry"),
    "FunctionMetaData": ("Functions_pb2", "FunctionMetaData"),
    "FunctionAssignment": ("Functions_pb2", "Assignment"),
    "FunctionRequest": ("Functions_pb2", "ServiceRequest"),
}
_MEANINGS: Final = {
    "ManagedLedgerInfo": "managed_ledger_meaning",
    "ManagedCursorInfo": "cursor_meaning",
    "PositionInfo": "position_meaning",
}
KINDS: Final = tuple(_MESSAGES)
# All fields of functions are optional, so that almost any message fits them. They need a name.
GUESSED: Final = tuple(kind for kind in KINDS if kind not in FUNCTION_KINDS)
_WITH_BIT_SETS: Final = frozenset({"ManagedCursorInfo", "PositionInfo"})


@cache
def message_type(kind: str) -> type[Message]:
    """Return the generated message class of `kind`."""
    module, name = _MESSAGES[kind]
    message: type[Message] = getattr(import_module(_PROTO + module), name)
    return message


def shapes() -> dict[str, Any]:
    """Return the JSON type of each kind."""
    return {kind: value_shape(kind, message_type(kind)) for kind in KINDS}


def parses(kind: str, data: bytes) -> bool:
    """Return True if `data` parses as `kind` with its required fields, and possibly with unknown ones."""
    try:
        return message_type(kind).FromString(data).IsInitialized()
    except ProtobufError:
        return False


def fits(kind: str, data: bytes) -> bool:
    """Return True if `data` is exactly a message of `kind` without unknown fields."""
    try:
        message = message_type(kind).FromString(data)
        message.DiscardUnknownFields()
        # Raises EncodeError if a required field is missing.
        return message.SerializeToString() == data
    except (ProtobufError, EncodeError):
        return False


def fits_newer(kind: str, data: bytes) -> bool:
    """Return True if `data` can be a `kind` of a later release: its unknown fields have new numbers."""
    if not parses(kind, data):
        return False
    message = message_type(kind).FromString(data)
    return bool(message.ListFields()) and _has_only_new_fields(message)


def _has_only_new_fields(message: Message) -> bool:
    # A known number among the unknown fields means that its wire type is not that of the .proto.
    unknown = (field.field_number for field in UnknownFieldSet(message))  # type: ignore[attr-defined]
    if any(number in message.DESCRIPTOR.fields_by_number for number in unknown):
        return False
    return all(
        _has_only_new_fields(inner)
        for field, value in message.ListFields()
        if field.message_type is not None and not field.message_type.GetOptions().map_entry
        for inner in (value if field.is_repeated else [value])
    )


def decode_value(kind: str, data: bytes) -> Value:
    """Decode a message of `kind`. If it is broken, the result has an error and the fields before it."""
    foreign = foreign_position_form(data) if kind == "PositionInfo" else None
    if foreign:
        return Value(None, error=DecodeError(foreign, offset=0))
    error = None
    try:
        message = message_type(kind).FromString(data)
    except ProtobufError:
        message, error = _decode_old_or_partly(kind, data)
    if error is None and not message.IsInitialized():
        error = _missing(kind, message, len(data))
    if error is None and kind in _WITH_BIT_SETS:
        from pulsar_meta.codecs.metadata.acks import check_bit_sets

        try:
            check_bit_sets(message, len(data))  # type: ignore[arg-type]
        except DecodeError as excess:
            return Value(None, error=excess)
    careful = not message.IsInitialized() or has_unknown_fields(message)
    value = encoder_of(message.DESCRIPTOR, careful=careful)(message)
    same = error is None and message.SerializePartialToString() == data
    if same and careful:
        # Protobuf preserves the exact bytes of unknown fields, but JSON only their numbers and values.
        same = encode_value(kind, value) == data
    if error is not None:
        return Value(value or None, meaning_of(kind, _complete_parts(message), whole=False), False, error)
    return Value(value, meaning_of(kind, message), same)


def encode_value(kind: str, value: Any, path: str = "value") -> bytes:
    """Encode a value of `kind`. Raises DecodeError, naming the path of an invalid member."""
    from pulsar_meta.codecs.protobuf.from_json import json_to_message

    return json_to_message(message_type(kind), value, path).SerializeToString()


def meaning_of(kind: str, message: Message, *, whole: bool = True) -> dict[str, Any]:
    """Summarize a message, if its kind has a summary. `whole` is False if only a part could be read."""
    if kind not in _MEANINGS:
        return {}
    meaning: dict[str, Any] = _meaning(kind)(message, whole=whole)
    return meaning


@cache
def _meaning(kind: str) -> Any:
    return getattr(import_module(_MANAGED), _MEANINGS[kind])


def _decode_old_or_partly(kind: str, data: bytes) -> tuple[Message, DecodeError | None]:
    from pulsar_meta.codecs.protobuf.parse import looks_like_text, parse_partly, parse_text

    if looks_like_text(message_type(kind), data):
        # Brokers before 1.20 wrote text format; current brokers don't read it.
        try:
            return parse_text(message_type(kind), data.decode()), None
        except DecodeError as error:
            return message_type(kind)(), error
    return parse_partly(message_type(kind), data)


def _complete_parts(message: Message) -> Message:
    """Return a copy without inner messages that lack required fields."""
    copy = type(message)()
    copy.CopyFrom(message)
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        copy.ClearField(field.name)
        if field.is_repeated:
            getattr(copy, field.name).extend(inner for inner in value if inner.IsInitialized())
        elif value.IsInitialized():
            getattr(copy, field.name).CopyFrom(value)
    return copy


def _missing(kind: str, message: Any, size: int) -> DecodeError:
    missing = ", ".join(message.FindInitializationErrors())
    return DecodeError(f"not a {kind}: required {missing} missing", offset=size)

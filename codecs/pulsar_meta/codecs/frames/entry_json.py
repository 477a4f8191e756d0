"""Entries and their messages as JSON, as `dump-entries` writes them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, get_args

from pulsar_meta.codecs.backends import Verdict
from pulsar_meta.codecs.frames.batch import Message, OpenedEntry
from pulsar_meta.codecs.frames.frame import Frame
from pulsar_meta.codecs.protobuf.from_json import NotTextShape, message_shape
from pulsar_meta.codecs.protobuf.to_json import UnknownField, message_to_json, readable, unknown_fields
from pulsar_meta.codecs.shapes import Either, Members
from pulsar_meta.codecs.transactions.snapshots import ANY_SNAPSHOT
from pulsar_meta.proto.PulsarApi_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata

PayloadForm = Literal["text", "hex", "base64", "hash"]

PAYLOAD_FORMS: Final[tuple[PayloadForm, ...]] = get_args(PayloadForm)

_PARTITION_KEY: Final = "partition_key"


class BrokerMetadata(TypedDict):
    """Fields of the broker's metadata that are not in the .proto."""

    unknown_fields: list[UnknownField]


class BrokerFacts(TypedDict, total=False):
    """The broker's metadata of an entry; times are in ms, `index` is that of the last message."""

    broker_timestamp: int
    index: int
    first_index: int
    last_index: int
    broker_metadata: BrokerMetadata


def _shape(metadata: type[MessageMetadata | SingleMessageMetadata]) -> Members:
    """Return the JSON type of the values that `metadata_to_json` returns."""
    name = metadata.DESCRIPTOR.name
    return message_shape(metadata, {"key": str | NotTextShape, "properties": dict[str, str]}, name=name)


class FrameFacts(BrokerFacts):
    """A frame's headers; `metadata` is MessageMetadata (PulsarApi.proto), empty if there is no frame."""

    frame_checksum: Verdict
    metadata: Annotated[dict[str, Any], _shape(MessageMetadata)]


class MessagePlace(TypedDict, total=False):
    """A message's index in its batch, and its index in the topic."""

    batch_index: int
    index: int


class MessageDocument(MessagePlace):
    """A message; `metadata` is SingleMessageMetadata in a batch, else MessageMetadata."""

    metadata: Annotated[dict[str, Any], Either((_shape(MessageMetadata), _shape(SingleMessageMetadata)))]
    payload_size: int
    payload: NotRequired[str]
    payload_sha256: NotRequired[str]
    payload_file: NotRequired[str]
    snapshot: NotRequired[Annotated[dict[str, Any], ANY_SNAPSHOT] | None]


class OpenedFacts(TypedDict, total=False):
    """The messages of an entry; `unopened` is the reason why messages are missing."""

    messages: list[MessageDocument]
    unopened: str


def frame_to_json(frame: Frame) -> FrameFacts:
    """Convert a frame's headers to JSON; absent fields are left out."""
    facts: BrokerFacts = {}
    if frame.broker_timestamp is not None:
        facts["broker_timestamp"] = frame.broker_timestamp
    if frame.index_range is not None and frame.index is not None:
        facts["index"] = frame.index
        facts["first_index"], facts["last_index"] = frame.index_range
    if frame.broker_metadata is not None and (unknown := unknown_fields(frame.broker_metadata)):
        facts["broker_metadata"] = {"unknown_fields": unknown}
    return {"frame_checksum": frame.checksum, **facts, "metadata": metadata_to_json(frame.metadata)}


def metadata_to_json(metadata: MessageMetadata | SingleMessageMetadata) -> dict[str, Any]:
    """Convert metadata to JSON with `properties` as an object and the partition key as `key`.

    If two properties have the same name, the later one wins, as in Pulsar's clients.
    """
    document = message_to_json(metadata)
    if _PARTITION_KEY in document:
        document["key"] = document.pop(_PARTITION_KEY)
    if metadata.properties:
        document["properties"] = properties_of(metadata.properties)
    return document


def properties_of(pairs: Iterable[KeyValue]) -> dict[str, str]:
    """Return properties as a dictionary; bytes that are not UTF-8 are escaped."""
    return {readable(pair.key): readable(pair.value) for pair in pairs}


def opened_to_json(opened: OpenedEntry, form: PayloadForm | None = None) -> OpenedFacts:
    """Convert an entry's messages to JSON, and the reason if it has none."""
    facts: OpenedFacts = {"messages": [message_to_document(message, form) for message in opened.messages]}
    if opened.unopened is not None:
        facts["unopened"] = opened.unopened
    return facts


def message_to_document(message: Message, form: PayloadForm | None = None) -> MessageDocument:
    """Convert a message to JSON; without `form`, only the size of its payload."""
    place: MessagePlace = {}
    if message.batch_index is not None:
        place["batch_index"] = message.batch_index
    if message.index is not None:
        place["index"] = message.index
    document: MessageDocument = {
        **place,
        "metadata": metadata_to_json(message.metadata),
        "payload_size": len(message.payload),
    }
    if form is not None:
        document["payload_sha256" if form == "hash" else "payload"] = payload_text(message.payload, form)
    return document


def payload_text(payload: memoryview, form: PayloadForm) -> str:
    """Format a payload. In the form `text`, bytes that are not UTF-8 are escaped."""
    match form:
        case "text":
            return bytes(payload).decode("utf-8", "backslashreplace")
        case "hex":
            return payload.hex()
        case "base64":
            return base64.b64encode(payload).decode()
        case "hash":
            return hashlib.sha256(payload).hexdigest()

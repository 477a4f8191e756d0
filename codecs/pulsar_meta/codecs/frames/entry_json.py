"""The JSON form of entries and their messages, as `dump-entries` writes it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

from pulsar_meta.codecs.frames.batch import Message, OpenedEntry
from pulsar_meta.codecs.frames.frame import Frame
from pulsar_meta.codecs.protobuf.to_json import message_to_json, readable, unknown_fields
from pulsar_meta.proto.PulsarApi_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata

PayloadForm = Literal["text", "hex", "base64", "hash"]

PAYLOAD_FORMS: Final[tuple[PayloadForm, ...]] = get_args(PayloadForm)

_PARTITION_KEY: Final = "partition_key"


def frame_to_json(frame: Frame) -> dict[str, Any]:
    """Return what a frame says of its entry; what it does not say is absent."""
    shown: dict[str, Any] = {"frame_checksum": frame.checksum}
    if frame.broker_timestamp is not None:
        shown["broker_timestamp"] = frame.broker_timestamp
    if frame.index_range is not None:
        shown["index"] = frame.index
        shown["first_index"], shown["last_index"] = frame.index_range
    if frame.broker_metadata is not None and (unknown := unknown_fields(frame.broker_metadata)):
        shown["broker_metadata"] = {"unknown_fields": unknown}
    return {**shown, "metadata": metadata_to_json(frame.metadata)}


def metadata_to_json(metadata: MessageMetadata | SingleMessageMetadata) -> dict[str, Any]:
    """Return metadata with `properties` as an object and the partition key as `key`.

    Of two properties of one name the later counts, as for Pulsar's own clients.
    """
    shown = message_to_json(metadata)
    if _PARTITION_KEY in shown:
        shown["key"] = shown.pop(_PARTITION_KEY)
    if metadata.properties:
        shown["properties"] = properties_of(metadata.properties)
    return shown


def properties_of(pairs: Iterable[KeyValue]) -> dict[str, str]:
    """Return properties as a dictionary; bytes that are not UTF-8 are escaped."""
    return {readable(pair.key): readable(pair.value) for pair in pairs}


def opened_to_json(opened: OpenedEntry, form: PayloadForm | None = None) -> dict[str, Any]:
    """Return `messages`, and `unopened` where there is a reason why there are none."""
    shown: dict[str, Any] = {"messages": [message_to_document(message, form) for message in opened.messages]}
    return shown if opened.unopened is None else {**shown, "unopened": opened.unopened}


def message_to_document(message: Message, form: PayloadForm | None = None) -> dict[str, Any]:
    """Return one message; without `form` only the size of its payload."""
    shown: dict[str, Any] = {}
    if message.batch_index is not None:
        shown["batch_index"] = message.batch_index
    if message.index is not None:
        shown["index"] = message.index
    shown["metadata"] = metadata_to_json(message.metadata)
    shown["payload_size"] = len(message.payload)
    if form is not None:
        name = "payload_sha256" if form == "hash" else "payload"
        shown[name] = payload_text(message.payload, form)
    return shown


def payload_text(payload: memoryview, form: PayloadForm) -> str:
    """Return a payload in one of the forms; in `text` what is not UTF-8 is escaped."""
    match form:
        case "text":
            return bytes(payload).decode("utf-8", "backslashreplace")
        case "hex":
            return payload.hex()
        case "base64":
            return base64.b64encode(payload).decode()
        case "hash":
            return hashlib.sha256(payload).hexdigest()

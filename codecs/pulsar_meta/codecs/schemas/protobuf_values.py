"""Values of PROTOBUF_NATIVE schemas: any message, by the descriptors that its schema carries.

Source: apache/pulsar ProtobufNativeSchemaUtils.java, ProtobufNativeSchemaData.java (JSON with a
FileDescriptorSet in base64).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message_factory import GetMessageClass

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import from_base64, read_json_object
from pulsar_meta.codecs.protobuf.parse import parse_message, parse_part


def protobuf_decoder(definition: bytes) -> Callable[[bytes], Any]:
    """Return what reads values of a PROTOBUF_NATIVE schema; DecodeError where its descriptors do not fit.

    Values come in protobuf's own JSON mapping, with the names of the .proto; DecodeError for broken ones.
    """
    kind = _message_class(definition)

    def decode(data: bytes) -> Any:
        message = parse_part(kind, data)
        try:
            return MessageToDict(message, preserving_proto_field_name=True)
        except (JsonError, TypeError, ValueError, KeyError) as error:
            raise DecodeError(f"a {kind.DESCRIPTOR.full_name} that JSON cannot hold: {error}") from error

    return decode


def _message_class(definition: bytes) -> Any:
    stated = read_json_object(definition)
    name, encoded = stated.get("rootMessageTypeName"), stated.get("fileDescriptorSet")
    if not isinstance(name, str):
        raise DecodeError("not a PROTOBUF_NATIVE schema: no rootMessageTypeName")
    files = parse_message(FileDescriptorSet, from_base64(encoded, "fileDescriptorSet"))
    pool = DescriptorPool()
    try:
        for file in _in_order(files):
            pool.AddSerializedFile(file.SerializeToString())
        return GetMessageClass(pool.FindMessageTypeByName(name))
    except (TypeError, KeyError, ValueError, ProtobufError) as error:
        raise DecodeError(f"not a PROTOBUF_NATIVE schema of {name}: {error}") from error


def _in_order(files: FileDescriptorSet) -> Iterator[FileDescriptorProto]:
    """Yield each file once, after those that it imports."""
    waiting = {file.name: file for file in files.file}
    while waiting:
        ready = [one for one in waiting.values() if waiting.keys().isdisjoint(one.dependency)]
        if not ready:
            raise DecodeError("not a PROTOBUF_NATIVE schema: files that import each other")
        for file in ready:
            yield waiting.pop(file.name)

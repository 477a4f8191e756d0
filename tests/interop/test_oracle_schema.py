"""Every field of Pulsar's own generated classes has the name and number that our .proto files give it."""

from __future__ import annotations

import pytest

from pulsar_meta.proto import MLDataFormats_pb2, PulsarApi_pb2
from tests.servers.jvm import Jvm
from tests.servers.pulsar import release

pytestmark = pytest.mark.interop

MANAGED = sorted(MLDataFormats_pb2.DESCRIPTOR.message_types_by_name)
WIRE = ("BrokerEntryMetadata", "MessageMetadata", "SingleMessageMetadata", "CommandLookupTopic",
        "CommandLookupTopicResponse", "CommandConnect", "CommandConnected", "CommandSend", "CommandMessage",
        "EncryptionKeys", "KeyValue", "MessageIdData", "Schema")  # fmt: skip

# PR 9292 (ranges as bit maps), PIP-146 (compressed cursors) and subscription properties.
SINCE = {"LongListMap": (4, 0), "ManagedCursorInfoMetadata": (2, 9), "StringProperty": (2, 9)}


def our_numbers(module: object, name: str) -> dict[str, int]:
    fields = module.DESCRIPTOR.message_types_by_name[name].fields  # type: ignore[attr-defined]
    return {field.name.replace("_", "").lower(): field.number for field in fields}


@pytest.mark.parametrize("name", MANAGED)
def test_metadata_messages_have_the_same_fields(name: str, oracle: Jvm) -> None:
    theirs = oracle.call("tests.interop.oracle.managed:field_numbers", name)
    assert theirs or release(oracle.version) < SINCE[name]
    assert theirs.items() <= our_numbers(MLDataFormats_pb2, name).items()


@pytest.mark.parametrize("name", WIRE)
def test_wire_messages_have_the_same_fields(name: str, oracle: Jvm) -> None:
    theirs = oracle.call("tests.interop.oracle.managed:wire_field_numbers", name)
    assert theirs
    assert theirs.items() <= our_numbers(PulsarApi_pb2, name).items()

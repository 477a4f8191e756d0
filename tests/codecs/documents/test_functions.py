"""Records of functions workers. The bytes are of 4.2.4 and 5.0.0-M1 (tests/servers/functions.py)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.documents.kinds import fitting_kinds
from pulsar_meta.proto.Functions_pb2 import Assignment, FunctionMetaData, ServiceRequest

# A compacted metadata topic of 4.2.4: the function itself.
FUNCTION = base64.b64decode(
    "CrYCCgZwdWJsaWMSB2RlZmF1bHQaBXNob3V0IjZvcmcuYXBhY2hlLnB1bHNhci5mdW5jdGlvbnMuYXBpLnV0aWxzLklkZW50"
    "aXR5RnVuY3Rpb246JHsid29yZCI6ImxvdWQiLCJwYXNzd29yZCI6Imh1bnRlcjIifUgBUAFaQCoQamF2YS5sYW5nLk9iamVj"
    "dFIqCh5wZXJzaXN0ZW50Oi8vcHVibGljL2RlZmF1bHQvaW4SCAoGc3RyaW5nWAFiNRofcGVyc2lzdGVudDovL3B1YmxpYy9k"
    "ZWZhdWx0L291dCoQamF2YS5sYW5nLk9iamVjdEABahEJAAAAAAAA4D8QgICAgAQYAYIBKnsiZGIiOnsicGF0aCI6InZhdWx0"
    "L2RiIiwia2V5IjoiaHVudGVyMyJ9fZABARIVChNmaWxlOi90bXAvc2hvdXQuamFyGAEg8qnUlaE0KgQIABAB"
)
# The assignments topic of 4.2.4.
ASSIGNMENT = base64.b64decode(
    "CuICCt8CCrYCCgZwdWJsaWMSB2RlZmF1bHQaBXNob3V0IjZvcmcuYXBhY2hlLnB1bHNhci5mdW5jdGlvbnMuYXBpLnV0aWxz"
    "LklkZW50aXR5RnVuY3Rpb246JHsid29yZCI6ImxvdWQiLCJwYXNzd29yZCI6Imh1bnRlcjIifUgBUAFaQCoQamF2YS5sYW5n"
    "Lk9iamVjdFIqCh5wZXJzaXN0ZW50Oi8vcHVibGljL2RlZmF1bHQvaW4SCAoGc3RyaW5nWAFiNRofcGVyc2lzdGVudDovL3B1"
    "YmxpYy9kZWZhdWx0L291dCoQamF2YS5sYW5nLk9iamVjdEABahEJAAAAAAAA4D8QgICAgAQYAYIBKnsiZGIiOnsicGF0aCI6"
    "InZhdWx0L2RiIiwia2V5IjoiaHVudGVyMyJ9fZABARIVChNmaWxlOi90bXAvc2hvdXQuamFyGAEg8qnUlaE0KgQIABABEh9j"
    "LXN0YW5kYWxvbmUtZnctMTI3LjAuMC4xLTEzNTIx"
)
# A metadata topic of 5.0.0-M1, which writes the fields in the order of the .proto, not of their numbers.
REQUEST = base64.b64decode(
    "EiRmN2RhNDI2ZC0zNDk2LTRlMzYtYmRhOC03ODBkNzYxMGE0NzEa3wIKtgIKBnB1YmxpYxIHZGVmYXVsdBoFc2hvdXQiNm9y"
    "Zy5hcGFjaGUucHVsc2FyLmZ1bmN0aW9ucy5hcGkudXRpbHMuSWRlbnRpdHlGdW5jdGlvbjokeyJ3b3JkIjoibG91ZCIsInBh"
    "c3N3b3JkIjoiaHVudGVyMiJ9ggEqeyJkYiI6eyJwYXRoIjoidmF1bHQvZGIiLCJrZXkiOiJodW50ZXIzIn19SAFQAVpAKhBq"
    "YXZhLmxhbmcuT2JqZWN0UioKHnBlcnNpc3RlbnQ6Ly9wdWJsaWMvZGVmYXVsdC9pbhIICgZzdHJpbmdYAWI1KhBqYXZhLmxh"
    "bmcuT2JqZWN0Gh9wZXJzaXN0ZW50Oi8vcHVibGljL2RlZmF1bHQvb3V0QAFqEQkAAAAAAADgPxCAgICABBgBkAEBEhUKE2Zp"
    "bGU6L3RtcC9zaG91dC5qYXIYASDKtdWVoTQqBAgAEAEiH2Mtc3RhbmRhbG9uZS1mdy0xMjcuMC4wLjEtMTIxMzg="
)
VALUES = {"FunctionMetaData": FUNCTION, "FunctionAssignment": ASSIGNMENT, "FunctionRequest": REQUEST}

SHOUT = {
    "tenant": "public",
    "namespace": "default",
    "name": "shout",
    "className": "org.apache.pulsar.functions.api.utils.IdentityFunction",
    "userConfig": '{"word":"loud","password":"hunter2"}',
    "secretsMap": '{"db":{"path":"vault/db","key":"hunter3"}}',
    "autoAck": True,
    "parallelism": 1,
    "source": {
        "typeClassName": "java.lang.Object",
        "inputSpecs": [{"key": "persistent://public/default/in", "value": {"schemaType": "string"}}],
        "cleanupSubscription": True,
    },
    "sink": {
        "typeClassName": "java.lang.Object",
        "topic": "persistent://public/default/out",
        "forwardSourceMessageProperty": True,
    },
    "resources": {"cpu": 0.5, "ram": 1073741824, "disk": 1},
    "componentType": "FUNCTION",
}


def decoded(kind: str, data: bytes, *, show_secrets: bool = True) -> dict[str, Any]:
    options = DecodeOptions(kind=kind, show_secrets=show_secrets)
    value: dict[str, Any] = decode_document(data, source="s", options=options).document["value"]
    return value


def function(created: int) -> dict[str, Any]:
    return {
        "functionDetails": SHOUT,
        "packageLocation": {"packagePath": "file:/tmp/shout.jar"},
        "version": 1,
        "createTime": created,
        "instanceStates": [{"key": 0, "value": "STOPPED"}],
    }


def test_records_have_every_field_of_the_function() -> None:
    assert decoded("FunctionMetaData", FUNCTION) == function(1795610186994)
    assert decoded("FunctionAssignment", ASSIGNMENT) == {
        "instance": {"functionMetaData": function(1795610186994)},
        "workerId": "c-standalone-fw-127.0.0.1-13521",
    }
    assert decoded("FunctionRequest", REQUEST) == {
        "requestId": "f7da426d-3496-4e36-bda8-780d7610a471",
        "functionMetaData": function(1795610204874),
        "workerId": "c-standalone-fw-127.0.0.1-12138",
        "order_kept": False,
    }


@pytest.mark.parametrize("kind", VALUES)
def test_encoding_keeps_the_meaning_and_where_it_can_the_bytes(kind: str) -> None:
    document = decode_document(
        VALUES[kind], source="s", options=DecodeOptions(kind=kind, show_secrets=True)
    ).document
    encoded = encode_document(document)
    assert (encoded.data == VALUES[kind]) == encoded.order_kept == (kind != "FunctionRequest")
    assert decoded(kind, encoded.data) == {k: v for k, v in document["value"].items() if k != "order_kept"}


@pytest.mark.parametrize("kind", VALUES)
def test_secrets_of_functions_are_redacted(kind: str) -> None:
    shown = decoded(kind, VALUES[kind], show_secrets=False)
    assert "hunter" not in json.dumps(shown)
    inner = shown.get("instance", shown).get("functionMetaData", shown)
    details = inner["functionDetails"]
    assert details["userConfig"] == {"redacted": True, "text": '{"word":"loud","password":***}'}
    assert details["secretsMap"] == {"redacted": True}
    assert details["sink"] == SHOUT["sink"]


def with_secrets() -> FunctionMetaData:
    """A function with a secret in each field that can have one."""
    record = FunctionMetaData()
    details = record.functionDetails
    details.userConfig = '{"apiKey":"hunter0"}'
    details.secretsMap = "hunter1"
    details.source.configs = '{"accessKey":"hunter2","url":"jdbc:x://u:hunter3@h/"}'
    details.sink.configs = '{"nested":{"password":"hunter4"}}'
    details.sink.consumerProperties["authParams"] = "token:hunter5"
    details.sink.producerSpec.cryptoSpec.cryptoKeyReaderConfig = '{"privateKey":"hunter6"}'
    details.source.inputSpecs.add(key="t").value.consumerProperties["password"] = "hunter7"
    details.customRuntimeOptions = '{"env":{"DB_PASSWORD":"hunter8"}}'
    details.runtimeFlags = "-Dx.password=hunter9 -Dy=1"
    details.packageUrl = "https://bob:hunter10@repository/f.jar"
    record.packageLocation.packagePath = details.packageUrl
    # ClearTextFunctionTokenAuthProvider stores the token itself.
    record.functionAuthSpec.data = b"hunter11"
    record.functionAuthSpec.provider = "org.example.Provider"
    return record


def test_a_secret_is_redacted_wherever_a_function_has_it() -> None:
    record = with_secrets()
    records = {
        "FunctionMetaData": record,
        "FunctionAssignment": Assignment(instance={"functionMetaData": record}),
        "FunctionRequest": ServiceRequest(functionMetaData=record),
    }
    for kind, message in records.items():
        data = message.SerializeToString()
        shown = json.dumps(decode_document(data, source="s", options=DecodeOptions(kind=kind)).document)
        assert "hunter" not in shown
        assert base64.b64encode(b"hunter11").decode() not in shown
        assert "org.example.Provider" in shown
        assert all(f"hunter{n}" in json.dumps(decoded(kind, data)) for n in range(11))


def test_content_is_never_taken_for_a_function() -> None:
    """All fields are optional, so many other values would fit."""
    for data in VALUES.values():
        assert not any(kind.startswith("Function") for kind in fitting_kinds(data))

"""Secrets in values are shown only on request, in any field and in broken values too."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo

SECRET = "geheim-7f3a"
CLUSTER = "/admin/clusters/c"
TOPIC = "/managed-ledgers/a/b/persistent/t"


def hidden(data: bytes, path: str | None = CLUSTER) -> Document:
    """Decode a value; check that the secret is hidden by default and shown on request."""
    document = decode_document(data, source="s", path=path).document
    assert SECRET not in json.dumps(document)
    assert base64.b64encode(SECRET.encode()).decode() not in json.dumps(document)
    open_document = decode_document(data, source="s", path=path, options=DecodeOptions(show_secrets=True))
    if open_document.error is None:
        assert encode_document(open_document.document).data == data
        with pytest.raises(DecodeError, match="--show-secrets"):
            encode_document(document)
    return document


@pytest.mark.parametrize(
    "name",
    [
        "password", "tlsKeyStorePassword", "keystore-password", "passwd", "passphrase", "secret",
        "clientSecret", "token", "brokerClientToken", "secretKey", "secret_key",
        "awsSecretAccessKey", "accessKey",
        "access_key", "credential", "credentials", "authParams", "auth_params", "authData", "authParameters",
        "brokerClientAuthenticationParameters", "privateKey", "apiKey", "saslJaasConfig",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [SECRET, [SECRET], {"a": [SECRET]}, ["x", {"b": SECRET}]])
def test_every_secret_name_hides_all_values_below_it(name: str, value: Any) -> None:
    data = json.dumps({"url": "u", "inner": [{name: value}]}, separators=(",", ":")).encode()
    document = hidden(data)
    assert document["value"] == {"url": "u", "inner": [{name: {"redacted": True}}]}


def test_numbers_are_hidden_and_empty_values_are_not() -> None:
    data = b'{"password":12345,"token":null,"secret":"","credentials":[],"authData":false}'
    document = decode_document(data, source="s", path=CLUSTER).document
    assert document["value"] == json.loads(data) | {"password": {"redacted": True}}


@pytest.mark.parametrize(
    "text",
    [
        '{"url":"u","password":"%s"',
        '{"url":"u","password":"%s',
        '{"password":["a","%s"],}',
        '{"authParams": {"token": "%s"}} trailing',
        "password=%s\nurl=u\n",
        "tlsPassword: '%s'",
    ],
)
def test_secrets_in_invalid_json_are_hidden(text: str) -> None:
    document = hidden((text % SECRET).encode())
    assert document["kind"] == "Text"
    assert document["value"]["redacted"] is True
    assert "***" in document["value"]["text"]


def test_secrets_in_json_with_invalid_utf8_are_hidden() -> None:
    document = hidden(b'{"password":"' + SECRET.encode() + b'", \xff}')
    assert (document["kind"], document["value"]) == ("Bytes", {"redacted": True})


def test_text_without_a_secret_is_shown() -> None:
    text = "the token bucket has no secrets, 16 passwords were changed"
    assert decode_document(text.encode(), source="s", path="/x").document["value"] == text


@pytest.mark.parametrize("form", [2, 3])
def test_secrets_in_a_ledgers_custom_metadata_are_hidden(form: int) -> None:
    metadata = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=1, length=0, state=LedgerMetadataFormat.OPEN,
        customMetadata=[
            {"key": "password", "value": SECRET.encode()}, {"key": "application", "value": b"pulsar"},
        ],
    )  # fmt: skip
    document = hidden(encode_ledger_metadata(LedgerMetadata(form, metadata)), "/ledgers/00/0000/L0001")
    assert document["meaning"]["custom"] == {"password": {"redacted": True}, "application": "pulsar"}


def test_an_error_does_not_quote_a_broken_line_of_ledger_metadata() -> None:
    data = b'BookieMetadataFormatVersion\t2\nquorumSize: 1\npassword: "%s" x\n' % SECRET.encode()
    decoded = decode_document(data, source="s", path="/ledgers/00/0000/L0001")
    assert decoded.error is not None
    assert SECRET not in str(decoded.error)


def test_secrets_in_properties_of_topics_and_cursors_are_hidden() -> None:
    ledger = ManagedLedgerInfo(
        ledgerInfo=[{"ledgerId": 1, "properties": [{"key": "token", "value": SECRET}]}],
        properties=[{"key": "password", "value": SECRET}, {"key": "owner", "value": "team"}],
    )
    document = hidden(ledger.SerializeToString(), TOPIC)
    assert document["meaning"]["properties"] == {"password": {"redacted": True}, "owner": "team"}
    cursor = ManagedCursorInfo(cursorsLedgerId=-1, cursorProperties=[{"name": "secret", "value": SECRET}])
    document = hidden(cursor.SerializeToString(), f"{TOPIC}/c")
    assert document["meaning"]["cursor_properties"] == {"secret": {"redacted": True}}


def test_an_error_does_not_quote_a_value_of_the_wrong_type() -> None:
    decoded = decode_document(
        json.dumps([SECRET]).encode(), source="s", options=DecodeOptions(kind="BrokerLookupData")
    )
    assert decoded.error is not None
    assert SECRET not in str(decoded.error)


def test_a_ledgers_creator_token_is_no_secret() -> None:
    metadata = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=1, length=0, state=LedgerMetadataFormat.OPEN, cToken=77
    )
    data = encode_ledger_metadata(LedgerMetadata(3, metadata))
    assert decode_document(data, source="s").document["value"]["cToken"] == 77

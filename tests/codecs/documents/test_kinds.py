"""A value's kind is named, or follows from its path or content. It is never guessed."""

from __future__ import annotations

import base64
import json

import pytest

from pulsar_meta.cli.render.values import document_lines
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.documents.kinds import fitting_kinds, kind_of, kind_of_path, store_path_of_file
from pulsar_meta.codecs.documents.value import SCALABLE_KINDS, TRANSACTION_KINDS
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from pulsar_meta.codecs.protobuf.parse import bytes_field
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo

LEDGER = bytes.fromhex("0a090807100a18e8072001")
CURSOR = ManagedCursorInfo(
    cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=7, lastActive=178
).SerializeToString()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/managed-ledgers/public/default/persistent/orders", "ManagedLedgerInfo"),
        ("/managed-ledgers/public/default/persistent/orders/s1", "ManagedCursorInfo"),
        ("/managed-ledgers/prop/cluster/ns/persistent/v1-topic", "ManagedLedgerInfo"),
        ("/managed-ledgers/prop/cluster/ns/persistent/v1-topic/c", "ManagedCursorInfo"),
        ("/managed-ledgers/public/default/segment/topic/0000-ffff-0", "ManagedLedgerInfo"),
        ("/managed-ledgers/public/default/segment/topic/0000-ffff-0/c", "ManagedCursorInfo"),
        ("/managed-ledgers/public/default/persistent", None),
        ("/managed-ledgers/public", None),
        ("/ledgers/00/0000/L0012", "LedgerMetadata"),
        ("/ledgers/000/0000/0021/4748/L3648", "LedgerMetadata"),
        ("/ledgers/LAYOUT", None),
        ("/ledgers/cookies/127.0.0.1:3181", "Cookie"),
        ("/ledgers/available/127.0.0.1:3181", "BookieServiceInfo"),
        ("/ledgers/available/readonly", None),
        ("/ledgers/available/readonly/127.0.0.1:3181", "BookieServiceInfo"),
        ("/schemas/public/default/orders", "SchemaLocator"),
        ("/schemas/public/default", None),
        ("/admin/policies/public/default", None),
        ("/topics/public/default", None),
        ("/topics/public/default/t", "ScalableTopic"),
        ("/topics/public/default/t/controller", None),
        ("/topics/public/default/t/segments/3", None),
        ("/topics/public/default/t/segments/3/load", "SegmentLoad"),
        ("/topics/public/default/t/subscriptions/s", "ScalableSubscription"),
        ("/topics/public/default/t/subscriptions/s/consumers", None),
        ("/topics/public/default/t/subscriptions/s/consumers/c", "ScalableConsumer"),
        ("/txn/id/1_0", "Transaction"),
        ("/txn/op/1_0-00000000000000000001", "TransactionOp"),
        ("/txn/op/1_0__seq_counter__", "Counter"),
        ("/txn/segment-events/s-00000000000000000001", "TransactionEvent"),
        ("/txn/subscription-events/s:c-00000000000000000001", "TransactionEvent"),
        ("/txn/segment-state", None),
        ("/txn/segment-state/aborted/s:1_0", "AbortedTransaction"),
        ("/txn/segment-state/watermark/s", "SegmentWatermark"),
        ("/txn/tc/leader/3", "TransactionCoordinator"),
        ("/txn/tc/parallelism", None),
        ("/admin/topic-policies/local/public/default/persistent/orders", "TopicPolicies"),
        ("/admin/topic-policies/global/public/default/topic/od+d%3An%C3%A4me", "TopicPolicies"),
        ("/admin/topic-policies/public/default/persistent/orders", "TopicPolicies"),
        ("/admin/local-policies/topic-policies/public/default/persistent/orders", "TopicPolicies"),
        ("/admin/topic-policies/local/public/default/persistent", None),
        ("/admin/local-policies/public/default", None),
        ("/txn/tc-seq/3", "TransactionSequence"),
    ],
)
def test_a_path_determines_the_kind(path: str, kind: str | None) -> None:
    assert kind_of_path(path) == kind


def test_the_end_of_a_files_path_is_its_store_path() -> None:
    path = "/managed-ledgers/public/default/persistent/orders"
    assert store_path_of_file(f"backup/monday{path}/.value") == path
    assert store_path_of_file(f"/dump{path}/sub") == f"{path}/sub"
    assert store_path_of_file("/var/ledgers/notes.bin") is None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (LEDGER, "ManagedLedgerInfo"),
        (wrap_envelope(LEDGER, "zstd"), "ManagedLedgerInfo"),
        (bytes.fromhex("08ffffffffffffffffff01"), "ManagedCursorInfo"),
        (b"16", "Text"),
        (b'{"a":1}', "Json"),
        (b'{"webServiceUrl":"x","brokerVersion":"4.2.4"}', "BrokerLookupData"),
        (b'{"webServiceUrl":"x","loadReportType":"LocalBrokerData"}', "LocalBrokerData"),
        (b"ledgerInfo {\n  ledgerId: 5\n}\n", "ManagedLedgerInfo"),
        (b"cursorsLedgerId: -1\nmarkDeleteLedgerId: 5\n", "ManagedCursorInfo"),
        (b"3\nh:1\n/j\n1\t/l\n", "Cookie"),
    ],
)
def test_content_determines_the_kind(data: bytes, kind: str) -> None:
    assert kind_of(data) == kind


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (bytes.fromhex("08051003"), ["ManagedCursorInfo", "PositionInfo"]),
        (wrap_envelope(b"", "zstd"), ["ManagedLedgerInfo", "ManagedCursorInfo"]),
        (b"", ["ManagedLedgerInfo", "Text", "Bytes"]),
    ],
)
def test_content_that_fits_several_kinds_needs_type(data: bytes, kinds: list[str]) -> None:
    with pytest.raises(UsageError, match="--type") as raised:
        kind_of(data)
    assert all(kind in raised.value.message for kind in kinds)


def test_content_that_fits_no_kind_is_refused() -> None:
    with pytest.raises(DecodeError, match="--type"):
        kind_of(b"\xff\x00\xff")


def test_other_values_of_a_store_are_text_or_bytes() -> None:
    assert kind_of(b"", path="/ledgers/idgen") == "Text"
    assert kind_of(b"\xff\x00", path="/other/elses") == "Bytes"
    assert kind_of(bytes.fromhex("08051003"), path="/other/elses") == "Bytes"
    assert kind_of(b'{"webServiceUrl":"x"}', path="/loadbalance/brokers/b:8080") == "BrokerLookupData"


SEGMENT = "segment%3A%2F%2Fpublic%2Fdefault%2Ft%2F0000-7fff-0"
HEADER = b'{"state":"OPEN","timeout":60.000000000,"createdAt":1795314268.449182255}'


@pytest.mark.parametrize(
    ("path", "data", "meaning"),
    [
        (
            "/txn/id/1_7",
            HEADER,
            {
                "transaction": "(1,7)",
                "coordinator": 1,
                "state": "OPEN",
                "created": "2026-11-22T02:24:28.449Z",
                "deadline": "2026-11-22T02:25:28.449Z",
            },
        ),
        (
            "/txn/op/1_7-00000000000000000012",
            b'{"kind":"ACK","segment":"segment://public/default/t/0000-7fff-0","subscription":"s","ledgerId":3,'
            b'"entryId":4,"cumulative":false}',
            {
                "transaction": "(1,7)",
                "coordinator": 1,
                "number": 12,
                "operation": "ACK",
                "segment": "segment://public/default/t/0000-7fff-0",
                "subscription": "s",
                "position": "3:4",
                "cumulative": False,
            },
        ),
        (
            f"/txn/subscription-events/{SEGMENT}:my%2Fsub-00000000000000000002",
            b'{"txnId":"4_0","decision":"ABORTED"}',
            {
                "segment": "segment://public/default/t/0000-7fff-0",
                "subscription": "my/sub",
                "number": 2,
                "transaction": "(4,0)",
                "coordinator": 4,
                "decision": "ABORTED",
            },
        ),
        (
            f"/txn/segment-state/watermark/{SEGMENT}",
            b'{"ledgerId":74,"entryId":6}',
            {"segment": "segment://public/default/t/0000-7fff-0", "decided_through": "74:6"},
        ),
        ("/txn/tc/leader/3", b'{"brokerId":"b:8080"}', {"coordinator": 3, "broker": "b:8080"}),
        ("/txn/tc-seq/3", b'{"next":1}', {"coordinator": 3, "next_transaction": "(3,1)"}),
        ("/txn/tc-seq/3", b"{}", {"coordinator": 3}),
        (
            f"/txn/segment-events/{SEGMENT}__seq_counter__",
            b"\0\0\0\0\0\0\0\x04",
            {"counts": "/txn/segment-events/segment://public/default/t/0000-7fff-0", "last_number": 4},
        ),
        (
            "/topics/public/default/a+b/subscriptions/s",
            b'{"type":"QUEUE"}',
            {"scalable_topic": "topic://public/default/a b", "subscription": "s", "type": "QUEUE"},
        ),
        (
            "/topics/public/default/t/segments/2/load",
            b'{"msgRateIn":0.0}',
            {"scalable_topic": "topic://public/default/t", "segment_id": 2},
        ),
    ],
)
def test_records_of_pulsar_5_have_a_meaning(path: str, data: bytes, meaning: dict[str, object]) -> None:
    decoded = decode_document(data, source="s", path=path)
    assert (decoded.error, decoded.document["meaning"]) == (None, meaning)
    assert encode_document(decoded.document).data == data


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/topics/public/default/t", b"[]"),
        ("/txn/id/1_0", b'"OPEN"'),
        ("/txn/id/1_0", b"{"),
        ("/txn/op/1_0__seq_counter__", b"1234567"),
    ],
)
def test_records_that_pulsar_5_cannot_read_are_errors(path: str, data: bytes) -> None:
    assert decode_document(data, source="s", path=path).error is not None


def test_a_scalable_topic_that_no_broker_can_read_says_why() -> None:
    decoded = decode_document(b'{"epoch":0,"segments":{"0":{}}}', source="s", path="/topics/a/b/c")
    assert decoded.error is None
    assert decoded.document["meaning"]["note"].startswith("no broker can read it: segments.0")
    assert encode_document(decoded.document).data == b'{"epoch":0,"segments":{"0":{}}}'


def test_an_empty_parent_is_no_record() -> None:
    assert kind_of(b"", path="/topics/public/default/t") == "Text"
    assert kind_of(b"", path="/txn/id/1_0") == "Text"


@pytest.mark.parametrize("kind", [*SCALABLE_KINDS, *TRANSACTION_KINDS])
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"state": 7, "timeout": "x", "createdAt": True, "ledgerId": None, "txnId": 3, "next": "9" * 400},
        {"segments": {"0": 7, "1": {"hashRange": 3, "createdAtMs": 10**30, "parentIds": 1}}},
        {"segments": [1], "createdAt": 1e300, "timeout": -1e300, "maxLedgerId": [1]},
    ],
)
def test_records_with_missing_or_wrong_fields_are_shown(kind: str, value: object) -> None:
    data = json.dumps(value).encode()
    for path in (None, "/x", "/txn/id/x", "/topics/a/b/c", "/txn/segment-state/aborted/%ff"):
        decoded = decode_document(data, source="s", path=path, options=DecodeOptions(kind=kind))
        assert decoded.error is None
        assert list(document_lines(decoded.document))


def test_empty_bytes_are_a_managed_ledger_but_no_cursor() -> None:
    ledger = decode_document(b"", source="s", path="/managed-ledgers/a/b/persistent/t")
    assert (ledger.error, ledger.document["value"]) == (None, {})
    cursor = decode_document(b"", source="s", path="/managed-ledgers/a/b/persistent/t/c")
    assert cursor.error is not None
    assert "cursorsLedgerId" in cursor.error.message


def test_text_of_old_brokers_is_encoded_as_binary_and_marked() -> None:
    decoded = decode_document(b"ledgerInfo {\n  ledgerId: 5\n}\n", source="s")
    assert decoded.document["value"] == {"ledgerInfo": [{"ledgerId": 5}], "order_kept": False}
    assert not decoded.same_bytes
    assert encode_document(decoded.document).data == bytes.fromhex("0a020805")


@pytest.mark.parametrize(
    ("data", "words"),
    [(b'{"numParts":2,"length":10}', "PIP-381"), (b"\x00\x00\x00\x0a(\xb5/\xfd", "compressed cursor entry")],
)
def test_cursor_entries_of_other_builds_are_named(data: bytes, words: str) -> None:
    decoded = decode_document(data, source="s", options=DecodeOptions(kind="PositionInfo"))
    assert decoded.error is not None
    assert words in decoded.error.message
    assert decoded.document["value"] is None


PASSWORD = b"BookieMetadataFormatVersion\t3\n\x0e" + bytes.fromhex("08011001180028014206") + b"geheim"


def test_a_ledger_password_is_redacted_unless_asked_for() -> None:
    data = PASSWORD.replace(b"\n\x0e", b"\n\x10")
    hidden = decode_document(data, source="s").document
    assert hidden["value"]["password"] == {"redacted": True}
    assert "Z2VoZWlt" not in str(hidden)
    with pytest.raises(DecodeError, match=r"value\.password.*--show-secrets"):
        encode_document(hidden)
    shown = decode_document(data, source="s", options=DecodeOptions(show_secrets=True)).document
    assert shown["value"]["password"] == "Z2VoZWlt"
    assert encode_document(shown).data == data


def test_secrets_in_json_are_redacted_too() -> None:
    data = b'{"brokerClientAuthenticationParameters":"token:abc","brokerClientTlsKeyStorePassword":""}'
    hidden = decode_document(data, source="s", path="/admin/clusters/c").document
    assert "token:abc" not in str(hidden)
    assert hidden["value"]["brokerClientTlsKeyStorePassword"] == ""
    with pytest.raises(DecodeError, match="brokerClientAuthenticationParameters"):
        encode_document(hidden)


def test_a_corrupt_value_is_decoded_up_to_the_error() -> None:
    data = bytes.fromhex("0a090807100a18e80720010a090809")
    decoded = decode_document(data, source="s", options=DecodeOptions(kind="ManagedLedgerInfo"))
    assert decoded.document["value"]["ledgerInfo"][0]["ledgerId"] == 7
    assert decoded.document["value"]["ledgerInfo"][1] == {"ledgerId": 9}
    assert decoded.document["error"]["offset"] == 11
    assert decoded.document["meaning"]["ledger_count"] == 2


def test_a_damaged_envelope_is_decoded_up_to_the_damage() -> None:
    ledgers = [ManagedLedgerInfo.LedgerInfo(ledgerId=number, timestamp=0) for number in range(5000)]
    message = ManagedLedgerInfo(ledgerInfo=ledgers).SerializeToString()
    envelope = wrap_envelope(message, "zlib")
    decoded = decode_document(
        envelope[: len(envelope) // 2], source="s", path="/managed-ledgers/a/b/persistent/t"
    )
    assert decoded.error is not None
    assert decoded.document["envelope"]["codec"] == "zlib"
    assert len(decoded.document["value"]["ledgerInfo"]) > 10


def test_an_unknown_kind_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="ManagedCursorInfo"):
        kind_of(b"", named="Cursor")
    assert kind_of(b"", named="managedledgerinfo") == "ManagedLedgerInfo"


NEW_FIELD = bytes_field(100, b"of a later release")


def test_a_value_of_a_later_release_is_recognized() -> None:
    for stored in (CURSOR + NEW_FIELD, wrap_envelope(CURSOR + NEW_FIELD, "zstd")):
        assert fitting_kinds(stored) == ["ManagedCursorInfo"]
    ledger = LEDGER + bytes_field(1, b"\x08\x05" + NEW_FIELD) + NEW_FIELD
    for stored in (ledger, wrap_envelope(ledger, "lz4")):
        assert fitting_kinds(stored) == ["ManagedLedgerInfo"]


def test_header_fields_of_a_later_release_survive() -> None:
    stored = wrap_envelope(CURSOR, "lz4", unknown=NEW_FIELD)
    path = "/managed-ledgers/a/b/persistent/t/c"
    decoded = decode_document(stored, source="s", path=path)
    value = base64.b64encode(b"of a later release").decode()
    assert decoded.document["envelope"]["unknown_fields"] == [{"number": 100, "wire_type": 2, "value": value}]
    assert encode_document(decoded.document).data == stored
    damaged = decode_document(stored[:-3], source="s", path=path)
    assert damaged.document["envelope"]["unknown_fields"][0]["number"] == 100

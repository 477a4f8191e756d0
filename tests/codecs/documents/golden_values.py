"""Golden values: their bytes, their meaning and how they are stored. Both directions use this table.

The bytes were made by hand and with protoc's Python classes, not with the codecs under test. The bytes of
managed ledgers with an envelope come from the description of the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulsar_meta.codecs.json_text import Number


@dataclass(frozen=True)
class Golden:
    """A value. `stored` decodes to `value`, and `value` encodes to the same bytes."""

    name: str
    kind: str
    stored: bytes
    value: Any
    codec: str | None = None


def _hex(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts))


ONE_LEDGER = {"ledgerInfo": [{"ledgerId": 7, "entries": 10, "size": 1000, "timestamp": 1}]}
INDEX_ENTRY = {"version": 0, "position": {"ledgerId": 2, "entryId": 0}, "hash": "/w=="}
METADATA = {"producer_name": "p", "sequence_id": 0, "publish_time": 1}

# Records of transaction logs.
UPDATED = _hex("0803", "1003", "1800", "2000", "2801", "5098eed788a034", "5810")
UPDATE = {
    "metadata_op": "UPDATE", "txnid_least_bits": 3, "txnid_most_bits": 0, "expected_status": "OPEN",
    "new_status": "COMMITTING", "last_modification_time": 1795314546456, "max_local_txn_id": 16,
}  # fmt: skip
PENDING = {
    "pending_ack_op": "ACK", "ack_type": "Cumulative", "txnid_least_bits": 20, "txnid_most_bits": 0,
    "pending_ack_metadata": [{"ledgerId": 31, "entryId": 8, "ack_set": ["14"], "batch_size": 4}],
}  # fmt: skip
# Pulsar uses Java's Deflater without a last block and checksum. We decode this form but never write it.
JAVA_ZLIB = _hex("4778000000040802100b789ce2e2e46017e09278c1aec008000000ffff")

GOLDEN = [
    Golden("ledger", "ManagedLedgerInfo", _hex("0a090807100a18e8072001"), ONE_LEDGER),
    Golden("just created", "ManagedLedgerInfo", b"", {}),
    Golden(
        "open and terminated, with properties",
        "ManagedLedgerInfo",
        _hex("0a0d0805200032070a016b12027631", "1204", "08051003", "1a060a017012017a"),
        {
            "ledgerInfo": [{"ledgerId": 5, "timestamp": 0, "properties": [{"key": "k", "value": "v1"}]}],
            "terminatedPosition": {"ledgerId": 5, "entryId": 3},
            "properties": [{"key": "p", "value": "z"}],
        },
    ),
    Golden(
        "offloaded, unordered, an id over 2^53",
        "ManagedLedgerInfo",
        _hex(
            "0a38088180808080808010", "100118022003", "2a27", "08ffffffffffffffffff01", "1001", "1801", "2000"
        )
        + _hex("2804", "320c0a02533312060a0162120163", "3a0408013006", "0a020808"),
        {
            "ledgerInfo": [
                {
                    "ledgerId": "9007199254740993",
                    "entries": 1,
                    "size": 2,
                    "timestamp": 3,
                    "offloadContext": {
                        "uidMsb": -1,
                        "uidLsb": 1,
                        "complete": True,
                        "bookkeeperDeleted": False,
                        "timestamp": 4,
                        "driverMetadata": {"name": "S3", "properties": [{"key": "b", "value": "c"}]},
                        "offloadSegment": [{"uidMsb": 1, "endEntryId": 6}],
                    },
                },
                {"ledgerId": 8},
            ]
        },
    ),
    Golden(
        "NONE in an envelope",
        "ManagedLedgerInfo",
        _hex("477800000004", "0800100b", "0a090807100a18e8072001"),
        ONE_LEDGER,
        "none",
    ),
    Golden(
        "state in the record", "ManagedCursorInfo", _hex("08ffffffffffffffffff01"), {"cursorsLedgerId": -1}
    ),
    Golden(
        "cursor with everything",
        "ManagedCursorInfo",
        _hex("08ffffffffffffffffff01", "1007", "18ffffffffffffffffff01")
        + _hex("22150a0d080710ffffffffffffffffff01120408071002", "2a050a01411005", "3006")
        + _hex("3a130a040807100310ffffffffffffffffff011001", "42060a016112017a"),
        {
            "cursorsLedgerId": -1,
            "markDeleteLedgerId": 7,
            "markDeleteEntryId": -1,
            "individualDeletedMessages": [
                {
                    "lowerEndpoint": {"ledgerId": 7, "entryId": -1},
                    "upperEndpoint": {"ledgerId": 7, "entryId": 2},
                }
            ],
            "properties": [{"name": "A", "value": 5}],
            "lastActive": 6,
            "batchedEntryDeletionIndexInfo": [
                {"position": {"ledgerId": 7, "entryId": 3}, "deleteSet": ["-1", "1"]}
            ],
            "cursorProperties": [{"name": "a", "value": "z"}],
        },
    ),
    Golden(
        "position with bit maps",
        "PositionInfo",
        _hex("08031005", "320f", "0809", "1080808080808080808001", "1003"),
        {
            "ledgerId": 3,
            "entryId": 5,
            "individualDeletedMessageRanges": [{"key": 9, "values": ["-9223372036854775808", "3"]}],
        },
    ),
    Golden(
        "unknown fields at the end",
        "ManagedCursorInfo",
        _hex("0801", "4807", "520161", "5d01000000", "610200000000000000"),
        {
            "cursorsLedgerId": 1,
            "unknown_fields": [
                {"number": 9, "wire_type": 0, "value": 7},
                {"number": 10, "wire_type": 2, "value": "YQ=="},
                {"number": 11, "wire_type": 5, "value": 1},
                {"number": 12, "wire_type": 1, "value": 2},
            ],
        },
    ),
    Golden(
        "unknown fields inside, as forks write them",
        "ManagedLedgerInfo",
        _hex("0a0a", "0807", "2a04", "4005", "4801", "3801"),
        {
            "ledgerInfo": [
                {
                    "ledgerId": 7,
                    "offloadContext": {
                        "unknown_fields": [
                            {"number": 8, "wire_type": 0, "value": 5},
                            {"number": 9, "wire_type": 0, "value": 1},
                        ]
                    },
                    "unknown_fields": [{"number": 7, "wire_type": 0, "value": 1}],
                }
            ]
        },
    ),
    Golden(
        "text that is not UTF-8",
        "ManagedCursorInfo",
        _hex("0801", "42060a01ff12017a"),
        {"cursorsLedgerId": 1, "cursorProperties": [{"name": {"base64": "/w=="}, "value": "z"}]},
    ),
    Golden(
        "ledger metadata, form 1",
        "LedgerMetadata",
        b"BookieMetadataFormatVersion\t1\n2\n3\n100\n0\ta:1\tb:1\n5\tc:1\td:1\n9\tCLOSED",
        {
            "metadata_format_version": 1,
            "quorumSize": 2,
            "ensembleSize": 3,
            "length": 100,
            "lastEntryId": 9,
            "state": "CLOSED",
            "segment": [
                {"ensembleMember": ["a:1", "b:1"], "firstEntryId": 0},
                {"ensembleMember": ["c:1", "d:1"], "firstEntryId": 5},
            ],
        },
    ),
    Golden(
        "ledger metadata, form 1, in recovery",
        "LedgerMetadata",
        b"BookieMetadataFormatVersion\t1\n2\n2\n0\n0\ta:1\tb:1\n-102\tCLOSED",
        {
            "metadata_format_version": 1,
            "quorumSize": 2,
            "ensembleSize": 2,
            "length": 0,
            "state": "IN_RECOVERY",
            "segment": [{"ensembleMember": ["a:1", "b:1"], "firstEntryId": 0}],
        },
    ),
    Golden(
        "ledger metadata, form 2",
        "LedgerMetadata",
        b"BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nlastEntryId: -1\n"
        b'state: OPEN\nsegment {\n  ensembleMember: "a:1"\n  firstEntryId: 0\n}\ndigestType: CRC32C\n'
        b'password: ""\nackQuorumSize: 1\n',
        {
            "metadata_format_version": 2,
            "quorumSize": 1,
            "ensembleSize": 1,
            "length": 0,
            "lastEntryId": -1,
            "state": "OPEN",
            "segment": [{"ensembleMember": ["a:1"], "firstEntryId": 0}],
            "digestType": "CRC32C",
            "password": "",
            "ackQuorumSize": 1,
        },
    ),
    Golden(
        "ledger metadata, form 3",
        "LedgerMetadata",
        b"BookieMetadataFormatVersion\t3\n\x11" + _hex("080110011800280132070a03613a311000"),
        {
            "metadata_format_version": 3,
            "quorumSize": 1,
            "ensembleSize": 1,
            "length": 0,
            "state": "OPEN",
            "segment": [{"ensembleMember": ["a:1"], "firstEntryId": 0}],
        },
    ),
    Golden(
        "cookie, layout 5",
        "Cookie",
        b'5\nbookieHost: "h:1"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\ninstanceId: "i"\n',
        {
            "layout_version": 5,
            "bookieHost": "h:1",
            "journalDir": "/j",
            "ledgerDirs": "1\t/l",
            "instanceId": "i",
        },
    ),
    Golden(
        "cookie, layout 3",
        "Cookie",
        b"3\nh:1\n/j\n1\t/l\n",
        {"layout_version": 3, "bookieHost": "h:1", "journalDir": "/j", "ledgerDirs": "1\t/l"},
    ),
    Golden(
        "bookie service",
        "BookieServiceInfo",
        _hex("320b", "0a0161", "1005", "1a0168", "220170"),
        {"endpoints": [{"id": "a", "port": 5, "host": "h", "protocol": "p"}]},
    ),
    Golden(
        "schema locator",
        "SchemaLocator",
        _hex("0a0b08001204080210001a01ff", "120b08001204080210001a01ff"),
        {"info": INDEX_ENTRY, "index": [INDEX_ENTRY]},
    ),
    Golden(
        "schema entry",
        "SchemaEntry",
        _hex("12026869", "2a0b08001204080210001a01ff"),
        {"schema_data": "aGk=", "index": [INDEX_ENTRY]},
    ),
    Golden(
        "JSON with doubles as Java writes them",
        "Json",
        '{"a":[1,2.5,4.37E-5,1.0E7,0.001,null,true],"é":"\\n"}'.encode(),
        {"a": [1, 2.5, Number("4.37E-5"), Number("1.0E7"), 0.001, None, True], "é": "\n"},
    ),
    Golden(
        "broker of the extensible load manager",
        "BrokerLookupData",
        b'{"webServiceUrl":"http://b:8080","brokerVersion":"4.2.4","properties":{"lookup.rack":"A"}}',
        {
            "webServiceUrl": "http://b:8080",
            "brokerVersion": "4.2.4",
            "properties": {"lookup.rack": "A"},
        },
    ),
    Golden(
        "scalable topic",
        "ScalableTopic",
        b'{"epoch":0,"nextSegmentId":1,"segments":{"0":{"segmentId":0,"hashRange":{"start":0,"end":65535},'
        b'"state":"ACTIVE","parentIds":[],"childIds":[],"createdAtMs":1795314267033,"sealedAtMs":-1}}}',
        {
            "epoch": 0,
            "nextSegmentId": 1,
            "segments": {
                "0": {
                    "segmentId": 0,
                    "hashRange": {"start": 0, "end": 65535},
                    "state": "ACTIVE",
                    "parentIds": [],
                    "childIds": [],
                    "createdAtMs": 1795314267033,
                    "sealedAtMs": -1,
                }
            },
        },
    ),
    Golden("scalable subscription", "ScalableSubscription", b'{"type":"STREAM"}', {"type": "STREAM"}),
    Golden("scalable consumer", "ScalableConsumer", b"{}", {}),
    Golden(
        "load of a segment",
        "SegmentLoad",
        b'{"msgRateIn":0.0,"bytesRateIn":1.25}',
        {"msgRateIn": 0.0, "bytesRateIn": 1.25},
    ),
    Golden(
        "transaction",
        "Transaction",
        b'{"state":"OPEN","timeout":60.000000000,"createdAt":1795314268.449182255}',
        {"state": "OPEN", "timeout": Number("60.000000000"), "createdAt": Number("1795314268.449182255")},
    ),
    Golden(
        "operation of a transaction",
        "TransactionOp",
        b'{"kind":"WRITE","segment":"segment://t/n/x/0000-ffff-0","ledgerId":3,"entryId":0}',
        {"kind": "WRITE", "segment": "segment://t/n/x/0000-ffff-0", "ledgerId": 3, "entryId": 0},
    ),
    Golden(
        "event of a transaction",
        "TransactionEvent",
        b'{"txnId":"1_0","decision":"COMMITTED"}',
        {"txnId": "1_0", "decision": "COMMITTED"},
    ),
    Golden(
        "aborted transaction",
        "AbortedTransaction",
        b'{"maxLedgerId":74,"maxEntryId":6}',
        {"maxLedgerId": 74, "maxEntryId": 6},
    ),
    Golden("watermark", "SegmentWatermark", b'{"ledgerId":73,"entryId":3}', {"ledgerId": 73, "entryId": 3}),
    Golden(
        "policies of a topic",
        "TopicPolicies",
        b'{"isGlobal":false,"messageTTLInSeconds":30,"messageTTLSet":true}',
        {"isGlobal": False, "messageTTLInSeconds": 30, "messageTTLSet": True},
    ),
    Golden("coordinator", "TransactionCoordinator", b'{"brokerId":"b:8080"}', {"brokerId": "b:8080"}),
    Golden("transactions of a coordinator", "TransactionSequence", b'{"next":1}', {"next": 1}),
    Golden(
        "record of a coordinator's log",
        "TransactionLogEntry",
        UPDATED,
        {"batched": False, "records": [UPDATE]},
    ),
    Golden(
        "records of a coordinator's log",
        "TransactionLogEntry",
        _hex("0e010001", "0a13", UPDATED.hex(), "0a13", UPDATED.hex()),
        {"batched": True, "records": [UPDATE, UPDATE]},
    ),
    Golden(
        "pending acknowledgment",
        "PendingAckLogEntry",
        _hex("08011001181420002a08081f1008180e2004"),
        {"batched": False, "records": [PENDING]},
    ),
    Golden(
        "function",
        "FunctionMetaData",
        _hex("0a06", "120164", "1a0166", "2005", "2a0408001001"),
        {
            "functionDetails": {"namespace": "d", "name": "f"},
            "createTime": 5,
            "instanceStates": [{"key": 0, "value": "STOPPED"}],
        },
    ),
    Golden(
        "assignment of a function",
        "FunctionAssignment",
        _hex("0a02", "1003", "120177"),
        {"instance": {"instanceId": 3}, "workerId": "w"},
    ),
    Golden(
        "request to delete a function",
        "FunctionRequest",
        _hex("0801", "120172", "1a02", "1803"),
        {"serviceRequestType": "DELETE", "requestId": "r", "functionMetaData": {"version": 3}},
    ),
    Golden(
        "snapshot of a transaction buffer",
        "TransactionBufferSnapshot",
        _hex("02", "02", "06560600", "00", "3056", "02", "0674c3b8"),
        {
            "aborts": [{"entryId": 3, "ledgerId": 43, "txnIdLeastBits": 3, "txnIdMostBits": 0}],
            "maxReadPositionEntryId": 24,
            "maxReadPositionLedgerId": 43,
            "topicName": "tø",
        },
    ),
    Golden(
        "snapshot that points to segments",
        "TransactionBufferSnapshotIndexes",
        _hex("02", "02", "0204060800", "00", "02", "00", "0203", "00"),
        {
            "indexList": [
                {
                    "abortedMarkEntryID": 1,
                    "abortedMarkLedgerID": 2,
                    "segmentEntryID": 3,
                    "segmentLedgerID": 4,
                    "sequenceID": 0,
                }
            ],
            "snapshot": {"aborts": None, "maxReadPositionEntryId": 1, "maxReadPositionLedgerId": -2},
            "topicName": None,
        },
    ),
    Golden(
        "segment of a snapshot",
        "TransactionBufferSnapshotSegment",
        _hex("02", "00", "8002", "feffffffffffffffff01", "02", "00"),
        {
            "aborts": [],
            "persistentPositionEntryId": 128,
            "persistentPositionLedgerId": "9223372036854775807",
            "sequenceId": 1,
            "topicName": None,
        },
    ),
    Golden("counter", "Counter", _hex("0000000000000006"), 6),
    Golden("counters", "Counter", _hex("0000000000000006", "ffffffffffffffff"), [6, -1]),
    Golden("text", "Text", b"16", "16"),
    Golden("bytes", "Bytes", b"\x00\xff", "AP8="),
    Golden(
        "frame with everything",
        "Frame",
        _hex("0e02", "00000004", "08021003", "0e01", "7ed8df46", "00000007", "0a017010001801", "6869"),
        {
            "broker_metadata": {"broker_timestamp": 2, "index": 3},
            "checksum": "ok",
            "metadata": METADATA,
            "payload": "aGk=",
        },
    ),
    Golden(
        "frame with a wrong checksum",
        "Frame",
        _hex("0e01", "00000001", "00000007", "0a017010001801", "6869"),
        {"checksum": 1, "metadata": METADATA, "payload": "aGk="},
    ),
    Golden(
        "bare frame",
        "Frame",
        _hex("00000007", "0a017010001801", "6869"),
        {"metadata": METADATA, "payload": "aGk="},
    ),
    Golden(
        "bookie entry",
        "BookieEntry",
        _hex(
            "0000000000000001", "0000000000000002", "ffffffffffffffff", "0000000000000002", "0443c2e0", "6869"
        ),
        {
            "ledger_id": 1,
            "entry_id": 2,
            "last_confirmed": -1,
            "length": 2,
            "digest_type": "CRC32C",
            "digest": "ok",
            "data": "aGk=",
        },
    ),
    Golden(
        "command",
        "Command",
        _hex("00000009", "00000005", "0812920100"),
        {"commands": [{"command": {"type": "PING", "ping": {}}}]},
    ),
]

"""Documents of every kind for property tests: most are valid, some have a hostile value somewhere."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

from pulsar_meta.codecs.documents import message_values
from pulsar_meta.codecs.documents.kinds import KINDS
from pulsar_meta.codecs.documents.value import JSON_KINDS
from pulsar_meta.codecs.frames.bookie_entry import DIGEST_SIZES
from pulsar_meta.proto.DataFormats_pb2 import CookieFormat, LedgerMetadataFormat
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand, BrokerEntryMetadata, MessageMetadata
from pulsar_meta.proto.TransactionLogs_pb2 import PendingAckMetadataEntry, TransactionMetadataEntry

Json = st.SearchStrategy[Any]

BYTES = st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode())
TEXT = st.text(max_size=12) | BYTES.map(lambda text: {"base64": text})
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def nested(depth: int, leaf: Any) -> Any:
    """Wrap `leaf` in `depth` lists and objects."""
    for _ in range(depth):
        leaf = [{"value": leaf}]
    return leaf


def groups(depth: int) -> list[dict[str, Any]]:
    """Nest unknown groups to `depth`."""
    inner: list[dict[str, Any]] = []
    for _ in range(depth):
        inner = [{"number": 99, "wire_type": 3, "value": inner}]
    return inner


HOSTILE: Json = st.one_of(
    st.sampled_from(
        [{}, [], "", "-", "1e999", "9" * 5000, 10**400, -(10**400), 2**64, -1, 1e308, float("inf"), 0.5, True]
    ),
    st.sampled_from(["\ud800", "\0", "٣", {"base64": "//79"}, {"base64": 1}, {"redacted": True}]),
    st.integers(1, 400).map(lambda depth: nested(depth, 1)),
    st.integers(1, 300).map(lambda depth: {"unknown_fields": groups(depth)}),
    st.integers(1, 300).map(groups),
)


def integers(low: int, high: int) -> Json:
    numbers = st.integers(low, high)
    return numbers | numbers.map(str)


def unknown_fields() -> Json:
    return st.lists(
        st.fixed_dictionaries({"number": st.integers(200, 300), "wire_type": st.just(2), "value": BYTES}),
        max_size=2,
    )


def message(descriptor: Any, depth: int = 3) -> Json:
    """Generate the JSON of a message: its required fields and some of the others."""
    fields = {field.name: _field(field, depth) for field in descriptor.fields}
    required = {field.name for field in descriptor.fields if field.is_required}
    optional = {name: value for name, value in fields.items() if name not in required}
    if depth <= 0:
        optional = {}
    return st.fixed_dictionaries(
        {name: fields[name] for name in required}, optional={**optional, "unknown_fields": unknown_fields()}
    )


def _field(field: FieldDescriptor, depth: int) -> Json:
    single = st.deferred(lambda: _value(field, depth))
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return st.dictionaries(st.text(max_size=8), TEXT, max_size=3)
    return st.lists(single, max_size=3) if field.is_repeated else single


def _value(field: FieldDescriptor, depth: int) -> Json:
    if field.message_type is not None:
        return message(field.message_type, depth - 1)
    if field.enum_type is not None:
        return st.sampled_from([value.name for value in field.enum_type.values])
    if field.cpp_type in _INTEGERS:
        return integers(*_INTEGERS[field.cpp_type])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    return BYTES if field.type == FieldDescriptor.TYPE_BYTES else TEXT


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
LONG = integers(-(2**63), 2**63 - 1)


def _values() -> dict[str, Json]:
    frame = st.fixed_dictionaries(
        {"metadata": message(MessageMetadata.DESCRIPTOR), "payload": BYTES},
        optional={
            "broker_metadata": message(BrokerEntryMetadata.DESCRIPTOR),
            "checksum": st.just("ok") | integers(0, 2**32 - 1),
        },
    )
    entry = st.fixed_dictionaries(
        dict.fromkeys(("ledger_id", "entry_id", "last_confirmed", "length"), LONG) | {"data": BYTES},
        optional={"digest_type": st.sampled_from(sorted(DIGEST_SIZES)), "digest": st.just("ok") | BYTES},
    )
    command = message(BaseCommand.DESCRIPTOR, 2)
    commands = st.lists(st.fixed_dictionaries({"command": command}, optional={"body": BYTES}), max_size=2)
    values = {kind: message(message_values.message_type(kind).DESCRIPTOR) for kind in message_values.KINDS}
    values |= dict.fromkeys(JSON_KINDS, PLAIN)
    records = {
        kind: st.fixed_dictionaries(
            {"batched": st.just(True), "records": st.lists(message(record.DESCRIPTOR), max_size=2)}
        )
        for kind, record in (
            ("TransactionLogEntry", TransactionMetadataEntry),
            ("PendingAckLogEntry", PendingAckMetadataEntry),
        )
    }
    txn = st.fixed_dictionaries({"leastSigBits": LONG, "mostSigBits": LONG})
    topic, aborts = st.none() | st.text(max_size=5), st.none() | st.lists(txn, max_size=2)
    newest = {"aborts": aborts, "maxReadPositionEntryId": LONG, "maxReadPositionLedgerId": LONG}
    index = dict.fromkeys(
        ("abortedMarkEntryID", "abortedMarkLedgerID", "segmentEntryID", "segmentLedgerID", "sequenceID"), LONG
    )
    aborted = dict.fromkeys(("entryId", "ledgerId", "txnIdLeastBits", "txnIdMostBits"), LONG)
    positions = ("persistentPositionEntryId", "persistentPositionLedgerId", "sequenceId")
    snapshots = {
        "TransactionBufferSnapshot": newest
        | {"aborts": st.none() | st.lists(st.fixed_dictionaries(aborted), max_size=2)},
        "TransactionBufferSnapshotIndexes": {
            "indexList": st.none() | st.lists(st.fixed_dictionaries(index), max_size=2),
            "snapshot": st.none() | st.fixed_dictionaries(newest),
        },
        "TransactionBufferSnapshotSegment": {"aborts": aborts} | dict.fromkeys(positions, LONG),
    }
    values |= records | {
        kind: st.fixed_dictionaries(fields | {"topicName": topic}) for kind, fields in snapshots.items()
    }
    ledger = message(LedgerMetadataFormat.DESCRIPTOR)
    return values | {
        "LedgerMetadata": st.tuples(ledger, st.sampled_from([{}, {"metadata_format_version": 2}])).map(
            lambda parts: parts[0] | parts[1]
        ),
        "Cookie": message(CookieFormat.DESCRIPTOR),
        "Frame": frame,
        "BookieEntry": entry,
        "Command": st.fixed_dictionaries({"commands": commands}),
        "Counter": LONG | st.lists(LONG, min_size=1, max_size=2),
        "Text": st.text(max_size=20),
        "Bytes": BYTES,
    }


ENVELOPE = st.none() | st.fixed_dictionaries(
    {"codec": st.sampled_from(["none", "lz4", "zlib", "zstd", "snappy"])},
    optional={"stored_size": st.integers(), "unknown_fields": unknown_fields()},
)
VALID: Json = st.one_of(
    [
        st.fixed_dictionaries(
            {"kind": st.just(kind), "value": value, "envelope": ENVELOPE},
            optional={"version": LONG, "path": st.text(max_size=9), "source": st.text(max_size=9)},
        )
        for kind, value in sorted(_values().items())
    ]
)
assert set(_values()) == set(KINDS)


@st.composite
def with_hostile_part(draw: st.DrawFn) -> dict[str, Any]:
    """Generate a document that has a hostile value in a random place."""
    document: dict[str, Any] = draw(VALID)
    _put_hostile(draw, document)
    return document


def _put_hostile(draw: st.DrawFn, document: dict[str, Any]) -> None:
    """Replace a random member, at any depth, by a hostile value, or add one."""
    holder: Any = document
    while True:
        names: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not names:
            break
        if holder is document and draw(st.integers(0, 9)) < 8:
            names = ["value"]
        name = draw(st.sampled_from(names))
        if isinstance(holder[name], (dict, list)) and draw(st.booleans()):
            holder = holder[name]
            continue
        holder[name] = draw(HOSTILE)
        return
    if isinstance(holder, dict):
        holder[draw(st.sampled_from(["version", "unknown_fields", "x"]))] = draw(HOSTILE)
    else:
        holder.append(draw(HOSTILE))

"""Snapshots of transaction buffers, which contain the aborted transactions of a topic.

Snapshots are messages in system topics of the topic's namespace. Their key is the topic's name:

    __transaction_buffer_snapshot           TransactionBufferSnapshot: aborted transactions
    __transaction_buffer_snapshot_indexes   TransactionBufferSnapshotIndexes: the newest, and the segments
    __transaction_buffer_snapshot_segments  TransactionBufferSnapshotSegment: older ones (`multiple-N-TOPIC`)

They are Avro records with fixed schemas, whose fields are in alphabetical order.

Sources: apache/pulsar broker/transaction/buffer/metadata (and v2), the schemas that 3.0.7 to 5.0.0-M1 stored;
the Avro specification, "Binary encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import integer, shown
from pulsar_meta.codecs.names import SnapshotKind
from pulsar_meta.codecs.reader import Buffer, Reader
from pulsar_meta.codecs.shapes import Either, Members, many

_LONGEST: Final = 10


class Avro(NamedTuple):
    """An Avro type: a decoder, an encoder (which takes the path for errors), and a JSON type."""

    read: Callable[[Reader], Any]
    write: Callable[[Any, str], bytes]
    shape: Any


def decode_whole(kind: Avro, data: Buffer) -> Any:
    """Decode a single value. Raises DecodeError if it is broken or bytes are left over."""
    reader = Reader(data)
    value = kind.read(reader)
    if reader.left:
        raise DecodeError(f"{reader.left} bytes follow the value", offset=reader.at)
    return value


def _read_long(reader: Reader) -> int:
    """Read a signed number of up to 64 bits, a zig-zag varint."""
    number = 0
    for group in range(_LONGEST):
        byte = reader.expect(1, "a number")[0]
        number |= (byte & 0x7F) << 7 * group
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
    raise DecodeError(f"a number of more than {_LONGEST} bytes", offset=reader.at)


def _write_long(value: Any, path: str) -> bytes:
    number = integer(value, path, -(2**63), 2**63 - 1)
    folded, groups = (number << 1) ^ (number >> 63), bytearray()
    while folded > 0x7F:
        groups.append(folded & 0x7F | 0x80)
        folded >>= 7
    return bytes([*groups, folded])


def _read_text(reader: Reader) -> str:
    """Read a string. Bytes that are not UTF-8 are escaped."""
    return bytes(reader.take(_read_long(reader), "a text")).decode("utf-8", "backslashreplace")


def _write_text(value: Any, path: str) -> bytes:
    if not isinstance(value, str):
        raise DecodeError(f"{path}: expected a string, found {shown(value)}")
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise DecodeError(f"{path}: contains half of a surrogate pair") from error
    return _write_long(len(data), path) + data


long: Final = Avro(_read_long, _write_long, int)
text: Final = Avro(_read_text, _write_text, str)


def nullable(kind: Avro) -> Avro:
    """Return the type of nullable values, the union of null and `kind`."""

    def read(reader: Reader) -> Any:
        branch = _read_long(reader)
        if branch not in (0, 1):
            raise DecodeError(f"no branch {branch} in a union of two", offset=reader.at)
        return kind.read(reader) if branch else None

    def write(value: Any, path: str) -> bytes:
        return _write_long(0, path) if value is None else _write_long(1, path) + kind.write(value, path)

    return Avro(read, write, Either((kind.shape, NoneType)))


def array(kind: Avro) -> Avro:
    """Return the type of lists of `kind`: blocks with a count, the last one empty. Writes a single block."""

    def read(reader: Reader) -> list[Any]:
        items: list[Any] = []
        while count := _read_long(reader):
            if count < 0:
                count = -count
                _read_long(reader)  # The block's size in bytes, for readers that skip it.
            if count > reader.left:
                raise DecodeError(
                    f"a list claims {count} items, {reader.left} bytes are left", offset=reader.at
                )
            items += (kind.read(reader) for _ in range(count))
        return items

    def write(value: Any, path: str) -> bytes:
        if not isinstance(value, list):
            raise DecodeError(f"{path}: expected a list, found {shown(value)}")
        items = b"".join(kind.write(item, f"{path}[{at}]") for at, item in enumerate(value))
        return (_write_long(len(value), path) + items if value else b"") + _write_long(0, path)

    return Avro(read, write, many(kind.shape))


def record(name: str, fields: Mapping[str, Avro]) -> Avro:
    """Return the type of records, as dictionaries; `fields` are in the order of the schema."""
    shape = Members(name, f"Pulsar's class {name}.", lambda: {key: fields[key].shape for key in fields})

    def write(value: Any, path: str) -> bytes:
        if not isinstance(value, dict):
            raise DecodeError(f"{path}: expected an object, found {shown(value)}")
        for name in value:
            if name not in fields:
                raise DecodeError(f"{path}.{name}: no such field; use {', '.join(fields)}")
        return b"".join(kind.write(value.get(name), f"{path}.{name}") for name, kind in fields.items())

    return Avro(lambda reader: {name: kind.read(reader) for name, kind in fields.items()}, write, shape)


_ABORTED: Final = record(
    "AbortTxnMetadata", dict.fromkeys(("entryId", "ledgerId", "txnIdLeastBits", "txnIdMostBits"), long)
)
_TXN: Final = record("TxnIDData", dict.fromkeys(("leastSigBits", "mostSigBits"), long))
_INDEX: Final = record(
    "TransactionBufferSnapshotIndex",
    dict.fromkeys(
        ("abortedMarkEntryID", "abortedMarkLedgerID", "segmentEntryID", "segmentLedgerID", "sequenceID"), long
    ),
)
_NEWEST: Final = record(
    "TransactionBufferSnapshotIndexesMetadata",
    {"aborts": nullable(array(_TXN)), "maxReadPositionEntryId": long, "maxReadPositionLedgerId": long},
)
_RECORDS: Final[dict[SnapshotKind, Avro]] = {
    "snapshot": record(
        "TransactionBufferSnapshot",
        {
            "aborts": nullable(array(_ABORTED)),
            "maxReadPositionEntryId": long,
            "maxReadPositionLedgerId": long,
            "topicName": nullable(text),
        },
    ),
    "indexes": record(
        "TransactionBufferSnapshotIndexes",
        {"indexList": nullable(array(_INDEX)), "snapshot": nullable(_NEWEST), "topicName": nullable(text)},
    ),
    "segment": record(
        "TransactionBufferSnapshotSegment",
        {
            "aborts": nullable(array(_TXN)),
            "persistentPositionEntryId": long,
            "persistentPositionLedgerId": long,
            "sequenceId": long,
            "topicName": nullable(text),
        },
    ),
}
SHAPES: Final = {kind: avro.shape for kind, avro in _RECORDS.items()}
ANY_SNAPSHOT: Final = Either(tuple(SHAPES.values()))


def decode_snapshot(kind: SnapshotKind, payload: Buffer) -> dict[str, Any]:
    """Decode a snapshot in a message's payload; fields have the names of Pulsar's classes.

    Raises DecodeError if it is broken or bytes are left over.
    """
    snapshot: dict[str, Any] = decode_whole(_RECORDS[kind], payload)
    return snapshot


def encode_snapshot(kind: SnapshotKind, value: Any, path: str = "value") -> bytes:
    """Encode the result of `decode_snapshot`. Raises DecodeError, naming the path of an invalid member."""
    return _RECORDS[kind].write(value, path)

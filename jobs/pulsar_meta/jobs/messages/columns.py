"""The columns of messages, and the Arrow batches in which they are collected.

Values that all messages of an entry share are read once per entry and repeated by Arrow. Only requested
columns are computed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pulsar_meta.codecs.frames.entry_json import properties_of
from pulsar_meta.codecs.frames.frame import Frame
from pulsar_meta.codecs.frames.row_schema import (
    MESSAGE_COLUMNS,
    TYPES,
    arrow_schema,
    arrow_type,
    types_of,
)
from pulsar_meta.codecs.protobuf.to_json import readable
from pulsar_meta.codecs.schemas.values import schema_version
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata

if TYPE_CHECKING:
    import pyarrow as pa

# A batch is passed on when it has this many rows, or bytes of payload.
ROWS_AT_ONCE: Final = 8192
BYTES_AT_ONCE: Final = 32 << 20

Metadata = MessageMetadata | SingleMessageMetadata

TOPIC, SCALABLE = "topic", "scalable_topic"
PAYLOAD, VALUE, ERROR = "payload", "value", "error"


def key_bytes(metadata: Metadata) -> bytes | None:
    """The bytes of a message's key; None if it has no key."""
    if not _has_key(metadata):
        return None
    text = metadata.partition_key
    raw = text if isinstance(text, bytes) else text.encode()
    if not metadata.partition_key_b64_encoded:
        return raw
    try:
        return base64.b64decode(raw, validate=True)
    except binascii.Error:
        return raw


def transaction_of(metadata: MessageMetadata) -> TxnId | None:
    """The transaction in which an entry was published; None if there is none."""
    if not (metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")):
        return None
    return TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)


def _has_key(metadata: Metadata) -> bool:
    return metadata.HasField("partition_key") and not metadata.null_partition_key


def key_of(metadata: Metadata) -> str | None:
    """A message's key in the form that clients return; None if it has no key."""
    return readable(metadata.partition_key) if _has_key(metadata) else None


def _ordering_key(metadata: Metadata, frame: Frame) -> bytes | None:
    return metadata.ordering_key if metadata.HasField("ordering_key") else None


def _event_time(metadata: Metadata, frame: Frame) -> int | None:
    """The event time of a message. Clients write 0 if there is none."""
    time = metadata.event_time if metadata.HasField("event_time") else frame.metadata.event_time
    return wrapped(time) or None


def _sequence_id(metadata: Metadata, frame: Frame) -> int:
    """A message's sequence id, or else that of its batch (as in MessageImpl.java)."""
    if metadata.HasField("sequence_id"):
        return wrapped(metadata.sequence_id)
    return wrapped(frame.metadata.sequence_id)


_OF_ENTRY: Final[Mapping[str, Callable[[Frame], Any]]] = {
    "publish_time": lambda frame: wrapped(frame.metadata.publish_time),
    "broker_timestamp": lambda frame: _wrapped(frame.broker_timestamp),
    "producer_name": lambda frame: readable(frame.metadata.producer_name),
    "schema_version": lambda frame: schema_version(frame.metadata.schema_version),
    "transaction": lambda frame: _text(transaction_of(frame.metadata)),
}
_OF_MESSAGE: Final[Mapping[str, Callable[[Metadata, Frame], Any]]] = {
    "key": lambda metadata, frame: key_of(metadata),
    "key_bytes": lambda metadata, frame: key_bytes(metadata),
    "ordering_key": _ordering_key,
    "properties": lambda metadata, frame: list(properties_of(metadata.properties).items()),
    "event_time": _event_time,
    "sequence_id": _sequence_id,
    "null_value": lambda metadata, frame: metadata.null_value,
}


def wrapped(number: int) -> int:
    """Convert an unsigned 64-bit number to Java's signed long."""
    return number - 2**64 if number >= 2**63 else number


def _wrapped(number: int | None) -> int | None:
    return None if number is None else wrapped(number)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


class Rows:
    """Messages collected into a batch; `names` are the values of constant columns (topic, scalable_topic)."""

    def __init__(self, columns: Sequence[str], names: Mapping[str, str | None]) -> None:
        """`columns` are the columns of the batches, in order."""
        self.columns, self._names = tuple(columns), names
        self._entry = [(name, _OF_ENTRY[name]) for name in columns if name in _OF_ENTRY]
        self._message = [(name, _OF_MESSAGE[name]) for name in columns if name in _OF_MESSAGE]
        self._payload = PAYLOAD in columns
        self._frame: Frame | None = None
        self._clear()

    @property
    def full(self) -> bool:
        """True if the batch should be passed on."""
        return self.count >= ROWS_AT_ONCE or self._bytes >= BYTES_AT_ONCE

    def entry(self, place: Position, frame: Frame | None) -> None:
        """Begin an entry; `frame` is None if it can't be read."""
        self._frame = frame
        self._places.append(place)
        self._counts.append(0)
        for name, of in self._entry:
            self._values[name].append(None if frame is None else of(frame))

    def message(
        self,
        metadata: Metadata | None,
        payload: memoryview | bytes | None,
        *,
        batch_index: int | None = None,
        index: int | None = None,
        value: str | None = None,
        error: str | None = None,
    ) -> None:
        """Add a message of the last entry; `metadata` is None if it can't be read."""
        frame = self._frame
        for name, of in self._message:
            self._values[name].append(None if metadata is None or frame is None else of(metadata, frame))
        values = self._values
        values["batch_index"].append(batch_index)
        values["index"].append(_wrapped(index))
        values[VALUE].append(value)
        values[ERROR].append(error)
        if self._payload:
            values[PAYLOAD].append(payload)
            self._bytes += 0 if payload is None else len(payload)
        self._counts[-1] += 1
        self.count += 1

    def take(self) -> pa.RecordBatch:
        """Return the collected messages as a batch, and begin an empty one."""
        import numpy as np
        import pyarrow as pa

        counts = np.array(self._counts, np.int64)
        entries = None if (counts == 1).all() else pa.array(np.repeat(np.arange(len(counts)), counts))
        arrays = [self._array(name, entries) for name in self.columns]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(types_of(self.columns)))

    def _array(self, name: str, entries: pa.Array | None) -> pa.Array:
        import pyarrow as pa

        kind = arrow_type(TYPES[name])
        if name in (TOPIC, SCALABLE):
            return pa.repeat(pa.scalar(self._names.get(name), kind), self.count)
        if name in ("ledger_id", "entry_id"):
            part = 0 if name == "ledger_id" else 1
            values = pa.array([place[part] for place in self._places], kind)
        else:
            values = pa.array(self._values[name], kind)
            if name not in _OF_ENTRY:
                return values
        return values if entries is None else values.take(entries)

    def _clear(self) -> None:
        self._places: list[Position] = []
        self._counts: list[int] = []
        self._values: dict[str, list[Any]] = {name: [] for name in MESSAGE_COLUMNS}
        self.count = self._bytes = 0

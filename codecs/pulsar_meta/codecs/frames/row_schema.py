"""The columns of entries and messages: their types, and the columns of each output format.

Times are milliseconds since the epoch. Numbers are Java's longs, so unsigned numbers above 2⁶³-1 wrap around.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

# The type of properties, for which Arrow has no name.
STRING_MAP: Final = "map"

# Arrow type names, by column.
TYPES: Final[Mapping[str, str]] = {
    "topic": "string",
    "scalable_topic": "string",
    "ledger_id": "int64",
    "entry_id": "int64",
    "batch_index": "int32",
    "size": "int64",  # of the frame, in bytes
    "broken": "bool",
    "index": "int64",
    "first_index": "int64",
    "last_index": "int64",
    "num_messages": "int64",
    "num_messages_in_batch": "int32",
    "broker_timestamp": "int64",
    "publish_time": "int64",
    "event_time": "int64",
    "producer_name": "string",
    "sequence_id": "int64",
    "key": "string",
    "key_bytes": "binary",
    "ordering_key": "binary",
    "properties": STRING_MAP,
    "compression": "string",
    "uncompressed_size": "int64",
    "schema_version": "int64",
    "marker_type": "int64",
    "transaction": "string",
    "transaction_state": "string",
    "txnid_most_bits": "int64",
    "txnid_least_bits": "int64",
    "readable": "bool",
    "encrypted": "bool",
    "chunk_id": "int64",
    "has_metadata": "bool",
    "null_value": "bool",
    "payload": "binary",
    "payload_size": "int64",
    "payload_sha256": "string",
    "payload_file": "string",
    "value": "string",
    "digest": "string",
    "frame_checksum": "string",
    "unopened": "string",
    "error": "string",
}

# Entry headers in the Python API and in Spark's `pulsar_entries`. An entry that is not a frame has only the
# first four.
HEADER_COLUMNS: Final = (
    "ledger_id", "entry_id", "size", "broken", "broker_timestamp", "index", "first_index", "last_index",
    "num_messages", "publish_time", "event_time", "producer_name", "sequence_id", "compression",
    "uncompressed_size", "marker_type", "txnid_most_bits", "txnid_least_bits", "encrypted", "chunk_id",
    "has_metadata", "digest", "frame_checksum",
)  # fmt: skip
ENTRY_COLUMNS: Final = ("topic", *HEADER_COLUMNS)
# Messages in exports, in the Python API and in Spark's `pulsar_messages`.
MESSAGE_COLUMNS: Final = (
    "topic", "scalable_topic", "ledger_id", "entry_id", "batch_index", "index", "key", "key_bytes",
    "ordering_key", "properties", "publish_time", "event_time", "broker_timestamp", "producer_name",
    "sequence_id", "schema_version", "transaction", "null_value", "payload", "value", "error",
)  # fmt: skip
# Entries in a Parquet file of `dump-entries`.
PARQUET_COLUMNS: Final = (
    "ledger_id", "entry_id", "index", "first_index", "last_index", "broker_timestamp", "publish_time",
    "event_time", "producer_name", "sequence_id", "key", "num_messages_in_batch", "compression", "size",
    "frame_checksum", "digest", "properties", "unopened", "topic", "scalable_topic",
)  # fmt: skip
# Fields of entries and messages that a template of `dump-entries --format` can use.
TEMPLATE_COLUMNS: Final = (
    "ledger_id", "entry_id", "batch_index", "index", "first_index", "last_index", "broker_timestamp",
    "publish_time", "event_time", "producer_name", "sequence_id", "key", "num_messages_in_batch",
    "compression", "size", "payload_size", "payload", "payload_sha256", "payload_file", "frame_checksum",
    "digest", "unopened", "transaction", "transaction_state", "readable", "topic", "scalable_topic",
)  # fmt: skip
# Fields of the JSON documents of entries and messages that are columns in CSV.
ENTRY_FIELDS: Final = (
    "ledger_id", "entry_id", "index", "first_index", "last_index", "broker_timestamp",
    "metadata.publish_time", "metadata.producer_name", "metadata.sequence_id",
    "metadata.num_messages_in_batch", "size", "metadata.compression", "frame_checksum", "digest",
    "metadata.properties", "unopened", "transaction", "transaction_state", "readable", "topic",
    "scalable_topic", "forgotten",
)  # fmt: skip
MESSAGE_FIELDS: Final = (
    "ledger_id", "entry_id", "message.batch_index", "message.index", "broker_timestamp",
    "metadata.publish_time", "metadata.producer_name", "message.metadata.sequence_id", "message.metadata.key",
    "message.metadata.event_time", "message.payload_size", "frame_checksum", "digest",
    "message.metadata.properties", "message.payload", "message.payload_sha256", "message.payload_file",
    "unopened", "transaction", "transaction_state", "readable", "topic", "scalable_topic",
    "forgotten",
)  # fmt: skip

_SPARK_TYPES: Final = {
    "int64": "bigint", "int32": "int", "string": "string", "binary": "binary", "bool": "boolean",
    STRING_MAP: "map<string,string>",
}  # fmt: skip


def checked_names(names: Sequence[str], columns: Sequence[str], rows: str) -> tuple[str, ...]:
    """Return the given names, or all `columns` if there are none. Raises UsageError for an unknown name.

    `rows` names the rows in the error: "entries" or "messages".
    """
    for name in names:
        if name not in columns:
            raise UsageError(f"{rows} have no column {name!r}; choose from {', '.join(columns)}")
    return tuple(names) or tuple(columns)


def types_of(names: Iterable[str]) -> dict[str, str]:
    """Return the Arrow type names of columns."""
    return {name: TYPES[name] for name in names}


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type for a name in TYPES."""
    import pyarrow as pa

    return pa.map_(pa.string(), pa.string()) if kind == STRING_MAP else pa.type_for_alias(kind)


def arrow_schema(types: Mapping[str, str]) -> pa.Schema:
    """Return an Arrow schema with columns of these types."""
    import pyarrow as pa

    return pa.schema([(name, arrow_type(kind)) for name, kind in types.items()])


def spark_schema(names: Iterable[str]) -> str:
    """Return a Spark DDL schema of columns."""
    return ", ".join(f"{name} {_SPARK_TYPES[TYPES[name]]}" for name in names)

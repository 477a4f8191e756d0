"""Columns as Arrow, which Spark takes as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from pulsar_meta.codecs.columns.column import COLUMN_TYPES, Column

TOPIC: Final = "topic"
ARROW_TYPES: Final = {"integer": pa.int64(), "boolean": pa.bool_(), "text": pa.string()}
SPARK_TYPES: Final = {"integer": "bigint", "boolean": "boolean", "text": "string"}


def entry_schema(columns: Sequence[str]) -> str:
    """Return the columns of entries as Spark's DDL."""
    return ", ".join(
        f"{name} {'string' if name == TOPIC else SPARK_TYPES[COLUMN_TYPES[name]]}" for name in columns
    )


def record_batch(columns: Mapping[str, Column], names: Sequence[str], topic: str | None) -> pa.RecordBatch:
    """Return the columns `names` as a batch; `topic` fills the column of that name."""
    rows = len(next(iter(columns.values())).present)
    arrays = [
        pa.array([topic] * rows, pa.string())
        if name == TOPIC
        else arrow_array(columns[name], COLUMN_TYPES[name])
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def arrow_array(column: Column, kind: str) -> Any:
    """Return a column as an Arrow array, null where it has no value."""
    absent = None if column.present.all() else ~column.present
    if column.names is not None:
        return pa.array(column.names, pa.string()).take(pa.array(column.values, pa.int64(), mask=absent))
    return pa.array(column.values, ARROW_TYPES[kind], mask=absent)

"""Write documents as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import IO, Any, Final

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.frames.row_schema import arrow_schema
from pulsar_meta.codecs.json_text import Document

ROWS_AT_ONCE: Final = 50_000
# Batches in a row group, at most.
BATCHES_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows that are already columns: one Arrow array per type, in the order of the types."""

    arrays: Sequence[Any]


def write_parquet(documents: Iterable[Document | Columns], out: IO[bytes], types: Mapping[str, str]) -> None:
    """Write a column for each of `types` (as in `row_schema.TYPES`), null if a document lacks the field.

    Raises UsageError if a value does not fit its column's type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(types)
    # Only texts repeat so often that a dictionary saves space.
    texts = [name for name, kind in types.items() if kind == "string"]
    with pq.ParquetWriter(out, schema, use_dictionary=texts) as writer:
        batches = (pa.record_batch(columns, schema=schema) for columns in _as_columns(documents, schema))
        while row_group := list(islice(batches, BATCHES_AT_ONCE)):
            writer.write_table(pa.Table.from_batches(row_group))


def _as_columns(documents: Iterable[Document | Columns], schema: Any) -> Iterator[Sequence[Any]]:
    import pyarrow as pa

    for are_columns, group in groupby(documents, key=lambda item: isinstance(item, Columns)):
        if are_columns:
            yield from (item.arrays for item in group if isinstance(item, Columns))
            continue
        while rows := [item for item in islice(group, ROWS_AT_ONCE) if not isinstance(item, Columns)]:
            columns = []
            for field in schema:
                try:
                    columns.append(pa.array([row.get(field.name) for row in rows], field.type))
                except (pa.ArrowInvalid, OverflowError) as error:
                    raise UsageError(f"-o parquet: a {field.name!r} does not fit {field.type}") from error
            yield columns

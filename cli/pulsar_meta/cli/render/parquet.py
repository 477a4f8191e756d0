"""Documents as a Parquet file, for other programs' tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import IO, Any, Final

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.frames.row_schema import arrow_schema
from pulsar_meta.codecs.json_text import Document

ROWS_AT_ONCE: Final = 50_000
# A row group of the file has at most so many batches.
BATCHES_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows that are columns already: an array of Arrow for each type, in their order."""

    arrays: Sequence[Any]


def write_parquet(documents: Iterable[Document | Columns], out: IO[bytes], types: Mapping[str, str]) -> None:
    """Write a column for each of `types` (as in `row_schema.TYPES`), null if a document lacks it.

    UsageError for a number that the column's type does not hold.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(types)
    # Only texts repeat so often that a dictionary saves space.
    texts = [name for name, kind in types.items() if kind == "string"]
    with pq.ParquetWriter(out, schema, use_dictionary=texts) as writer:
        batches = (pa.record_batch(columns, schema=schema) for columns in _as_columns(documents, schema))
        while some := list(islice(batches, BATCHES_AT_ONCE)):
            writer.write_table(pa.Table.from_batches(some))


def _as_columns(documents: Iterable[Document | Columns], schema: Any) -> Iterator[Sequence[Any]]:
    import pyarrow as pa

    for made, group in groupby(documents, key=lambda one: isinstance(one, Columns)):
        if made:
            yield from (one.arrays for one in group if isinstance(one, Columns))
            continue
        while rows := [one for one in islice(group, ROWS_AT_ONCE) if not isinstance(one, Columns)]:
            columns = []
            for field in schema:
                try:
                    columns.append(pa.array([row.get(field.name) for row in rows], field.type))
                except (pa.ArrowInvalid, OverflowError) as error:
                    raise UsageError(f"-o parquet: a value of {field.name!r} is no {field.type}") from error
            yield columns

"""Documents as a Parquet file, for other programs' tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import IO, Final

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document

ROWS_AT_ONCE: Final = 50_000


def write_parquet(documents: Iterable[Document], out: IO[bytes], types: Mapping[str, str]) -> None:
    """Write a column for each of `types` (Arrow's names), null where a document lacks it.

    UsageError for a number that the column's type does not hold.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in types.items()])
    with pq.ParquetWriter(out, schema) as writer:
        for rows in _in_groups(documents):
            columns = []
            for field in schema:
                try:
                    columns.append(pa.array([row.get(field.name) for row in rows], field.type))
                except (pa.ArrowInvalid, OverflowError) as error:
                    raise UsageError(f"-o parquet: a value of {field.name!r} is no {field.type}") from error
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _in_groups(documents: Iterable[Document]) -> Iterator[list[Document]]:
    left = iter(documents)
    while rows := list(islice(left, ROWS_AT_ONCE)):
        yield rows

"""Write messages to a Parquet, NDJSON or CSV file, which appears only when it is complete.

In the text formats, bytes are base64. In CSV, properties are a JSON object.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from glob import escape
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal

from pulsar_meta.access.files import PRIVATE, make_directories, replace_durably, sync_file
from pulsar_meta.codecs.errors import GuardError, UnreachableError
from pulsar_meta.codecs.json_text import Document, dumps

if TYPE_CHECKING:
    import pyarrow as pa

Form = Literal["parquet", "ndjson", "csv"]
# The maximum number of rows and bytes of a row group.
GROUP_ROWS: Final = 128 * 1024
GROUP_BYTES: Final = 64 << 20
PART: Final = ".part"
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A file is in the folders namespace=…/name=…/partition=… of the export.
_FOLDERS: Final = 3


def write_file(path: Path, form: Form, batches: Iterable[pa.RecordBatch]) -> tuple[str, int] | None:
    """Write batches of one schema to a file. Returns (SHA-256 in hex, size in bytes).

    Returns None, and writes no file, if there are no rows. Raises UnreachableError if writing fails.
    """
    left = iter(batches)
    first = next(left, None)
    if first is None:
        path.unlink(missing_ok=True)
        return None
    # A unique name, because workers of a killed command may still write during the next run.
    unfinished = path.with_name(f".{path.name}.{os.urandom(8).hex()}{PART}")
    try:
        if links := [place for place in (path, *path.parents[:_FOLDERS]) if place.is_symlink()]:
            raise GuardError("refusing to follow a symbolic link in an export", source=str(links[0]))
        make_directories(path.parent)
        with os.fdopen(os.open(unfinished, _CREATE, PRIVATE), "w+b") as out:
            _WRITERS[form](out, first, left)
            sync_file(out)
            out.seek(0)
            digest = hashlib.file_digest(out, "sha256").hexdigest()
            size = out.seek(0, os.SEEK_END)
        replace_durably(unfinished, path)
        for left_over in path.parent.glob(f".{escape(path.name)}.*{PART}"):
            left_over.unlink(missing_ok=True)
    except OSError as error:
        raise UnreachableError(f"cannot be written: {error.strerror or error}", source=str(path)) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return digest, size


def _parquet(out: IO[bytes], first: pa.RecordBatch, left: Iterator[pa.RecordBatch]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(out, first.schema, compression="zstd") as writer:
        held, rows, size = [first], first.num_rows, first.nbytes
        for batch in left:
            if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(held))
                held, rows, size = [], 0, 0
            held.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        writer.write_table(pa.Table.from_batches(held))


def _ndjson(out: IO[bytes], first: pa.RecordBatch, left: Iterator[pa.RecordBatch]) -> None:
    for batch in chain([first], left):
        for row in batch.to_pylist():
            out.write(dumps(_document(row)).encode())
            out.write(b"\n")


def _csv(out: IO[bytes], first: pa.RecordBatch, left: Iterator[pa.RecordBatch]) -> None:
    import pyarrow.csv as pc

    texts = _as_texts(first)
    with pc.CSVWriter(out, texts.schema) as writer:
        writer.write_batch(texts)
        for batch in left:
            writer.write_batch(_as_texts(batch))


def _document(row: Document) -> Document:
    """Convert a row to JSON, with properties as an object."""
    if row.get("properties") is None:
        return row
    return {**row, "properties": dict(row["properties"])}


def _as_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert bytes to base64 and properties to JSON."""
    import pyarrow as pa

    arrays = [
        pa.array(map(_text_of, column.to_pylist()), pa.string())
        if pa.types.is_binary(column.type) or pa.types.is_map(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _text_of(value: Any) -> str | None:
    if value is None:
        return None
    return dumps(value)[1:-1] if isinstance(value, bytes) else dumps(dict(value))


_WRITERS: Final[dict[Form, Callable[[IO[bytes], pa.RecordBatch, Iterator[pa.RecordBatch]], None]]] = {
    "parquet": _parquet,
    "ndjson": _ndjson,
    "csv": _csv,
}

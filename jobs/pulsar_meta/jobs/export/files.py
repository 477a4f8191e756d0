"""The files of an export: Parquet, NDJSON or CSV, and the manifest with a line per exported piece.

A file appears only when it is complete. In the text formats, bytes are base64. In CSV, properties are a JSON
object.

The first line of the manifest, `_manifest.jsonl`, has the `settings` of the export. Every other line is a
piece: the ranges of entries that were read, the number of rows, the file with its size and SHA-256, and the
faults. If two lines begin with the same entry, or have the same file, the later one counts. A line is written
after its file, so a killed export can be resumed. Programs that read tables skip the manifest because of its
name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import escape
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NotRequired, TypedDict

from pulsar_meta.access.files import (
    PRIVATE,
    locked_now,
    make_directories,
    replace_durably,
    sync_directory,
    sync_file,
)
from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    GuardError,
    UnreachableError,
    UsageError,
    unreadable,
)
from pulsar_meta.codecs.json_text import Document, dumps, read_json_object

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


NAME: Final = "_manifest.jsonl"
VERSION: Final = 1
_OPEN: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

# The ranges of a piece: (ledger, first entry, last entry), in reading order.
Ranges = tuple[tuple[int, int, int], ...]


class DoneRange(TypedDict):
    """A range of entries of a ledger, including both ends."""

    ledger_id: int
    first: int
    last: int


class DoneDocument(TypedDict):
    """An exported piece, as a line of the manifest."""

    topic: str
    scalable_topic: NotRequired[str]
    ranges: list[DoneRange]
    rows: int
    file: str | None
    size: int
    sha256: str | None
    whole: bool
    counts: dict[str, int]
    errors: list[str]


@dataclass(frozen=True, slots=True)
class Done:
    """An exported piece. `file` is its name below the directory, None if it has no rows.

    `counts` are those of `MessageCounts`. `whole` is True if exporting it again would give the same result.
    """

    topic: str
    ranges: Ranges
    rows: int
    whole: bool
    file: str | None = None
    sha256: str | None = None
    size: int = 0
    scalable_topic: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    errors: tuple[str, ...] = ()

    def document(self) -> DoneDocument:
        """Convert the piece to a line of the manifest."""
        document: DoneDocument = {
            "topic": self.topic,
            "ranges": [
                {"ledger_id": ledger_id, "first": first, "last": last}
                for ledger_id, first, last in self.ranges
            ],
            "rows": self.rows,
            "file": self.file,
            "size": self.size,
            "sha256": self.sha256,
            "whole": self.whole,
            "counts": dict(self.counts),
            "errors": list(self.errors),
        }
        if self.scalable_topic is not None:
            document["scalable_topic"] = self.scalable_topic
        return document

    @classmethod
    def of(cls, line: Document) -> Done:
        """Parse a line of the manifest. Raises DecodeError."""
        try:
            ranges = tuple(
                (int(item["ledger_id"]), int(item["first"]), int(item["last"])) for item in line["ranges"]
            )
            if not ranges:
                raise ValueError("no ranges")
            return cls(
                str(line["topic"]), ranges, int(line["rows"]), bool(line["whole"]), line["file"],
                line["sha256"], int(line["size"]), line.get("scalable_topic"), dict(line["counts"]),
                tuple(line["errors"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise DecodeError(f"not a piece of an export: {error!r}") from error


class Manifest:
    """The exported pieces, and the file that new ones are appended to."""

    def __init__(self, directory: Path, out: IO[bytes], pieces: Iterator[Done]) -> None:
        """`out` is locked for this run, and positioned at its end."""
        self.directory, self._out = directory, out
        self._topics: dict[str, dict[tuple[int, int], Done]] = {}
        self._files: dict[str, tuple[int, int]] = {}
        for piece in pieces:
            self._take(piece)

    def add(self, piece: Done) -> None:
        """Record that a piece was exported. Its file must exist."""
        _write(self._out, piece.document())
        self._take(piece)

    def is_there(self, piece: Done) -> bool:
        """True if the file of a piece exists and has the right size."""
        if piece.file is None:
            return True
        try:
            return (self.directory / piece.file).stat().st_size == piece.size
        except OSError:
            return False

    def of_topic(self, topic: str) -> list[Done]:
        """The pieces of a topic in the order of their first entries."""
        return sorted(self._topics.get(topic, {}).values(), key=lambda piece: piece.ranges[:1])

    @property
    def count(self) -> int:
        """The number of pieces."""
        return sum(map(len, self._topics.values()))

    def _take(self, piece: Done) -> None:
        pieces, start = self._topics.setdefault(piece.topic, {}), piece.ranges[0][:2]
        if piece.file is not None:
            pieces.pop(self._files.get(piece.file, start), None)
            self._files[piece.file] = start
        pieces[start] = piece


@contextmanager
def open_manifest(directory: Path, settings: Document) -> Iterator[Manifest]:
    """Open the manifest of an export, or create it, and lock it.

    Raises UsageError if the directory contains other files, or an export with other settings; ConflictError
    if another export writes to it; DecodeError if it is corrupt.
    """
    path = directory / NAME
    try:
        make_directories(directory)
        if not path.exists() and any(not file.name.startswith(".") for file in directory.iterdir()):
            raise UsageError(f"not empty, and no export: there is no {NAME}", source=str(directory))
        out = os.fdopen(os.open(path, _OPEN, PRIVATE), "a+b")
        sync_directory(directory)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError("no directory: an export is written into one", source=str(directory)) from error
    except OSError as error:
        raise unreadable(error, str(directory)) from error
    with out:
        if not locked_now(out):
            raise ConflictError("another export writes to it now", source=str(directory))
        yield Manifest(directory, out, _read(out, path, settings))


def _read(out: IO[bytes], path: Path, settings: Document) -> Iterator[Done]:
    """Yield the pieces. Removes a partial last line, and writes the first line of an empty file."""
    out.seek(0)
    data = out.read()
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].splitlines()
    wanted = json.loads(dumps({"manifest": VERSION, "settings": settings}))
    if lines and (found := read_json_object(lines[0], source=f"{path}, line 1")) != wanted:
        raise UsageError(f"made otherwise: {_difference(found, wanted)}", source=str(path))
    if not lines and not dumps(wanted).encode().startswith(data):
        raise UsageError("refusing to write: this is not the manifest of an export", source=str(path))
    if whole < len(data):
        out.truncate(whole)
    if not lines:
        _write(out, wanted)
        return
    for number, line in enumerate(lines[1:], start=2):
        try:
            yield Done.of(read_json_object(line))
        except DecodeError as error:
            raise error.within(f"{path}, line {number}") from error


def _difference(found: Document, wanted: Document) -> str:
    old, new = found.get("settings"), wanted["settings"]
    if not isinstance(old, dict) or found.get("manifest") != VERSION:
        return "this is the manifest of another release"
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} was {dumps(old.get(name))}, is {dumps(new.get(name))}" for name in names)


def _write(out: IO[bytes], line: Document) -> None:
    out.write(dumps(line).encode() + b"\n")
    sync_file(out)

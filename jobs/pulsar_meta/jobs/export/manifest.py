"""The manifest of an export: `_manifest.jsonl` in its directory, with a line per exported piece.

The first line has the `settings` of the export. Every other line is a piece: the ranges of entries that were
read, the number of rows, the file with its size and SHA-256, and the faults. If two lines begin with the same
entry, or have the same file, the later one counts. A line is written after its file, so a killed export can
be resumed. Programs that read tables skip the manifest because of its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NotRequired, TypedDict

from pulsar_meta.access.files import PRIVATE, locked_now, make_directories, sync_directory, sync_file
from pulsar_meta.codecs.errors import ConflictError, DecodeError, UsageError, unreadable
from pulsar_meta.codecs.json_text import Document, dumps, read_json_object

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

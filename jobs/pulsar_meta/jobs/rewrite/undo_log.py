"""The undo file: what a run is about to overwrite, on disk before it is overwritten.

NDJSON. The first line is `{"undo": 2, "command", "codec", "store", "created"}`. Then, a group at a time, a
line for each value, `{"path", "version", "old_sha256", "new_sha256", "old" (base64)}` (no `old`: there was
nothing; no `new_sha256`: it was deleted), and after the group was sent `{"sent": […]}`: for each of its
values the new version (-1: deleted), null where the write met a conflict. Where the records of a group came
to the disk while the group before was sent, one such line answers both, or more of them. The last line of a
run that was not interrupted is `{"end": true}`. A run that goes on after a crash adds to the file. While a
run writes to the file it holds a lock on it (flock).

Each line but the first has a `sum` over itself and the lines above it, so that an added or changed line is
noticed. Format 1 has no sums.

After a power loss, the last lines can be cut short or have zeros. They were never followed by a write, so
that a file without a whole line means that nothing happened.
"""

from __future__ import annotations

import json
import os
import time
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Final, NotRequired, TypedDict

from pulsar_meta.access.files import PRIVATE, locked_now, make_directories, sync_directory, sync_file
from pulsar_meta.codecs.errors import DecodeError, UnreachableError, UsageError, decoding, unreadable
from pulsar_meta.codecs.json_text import read_json, read_json_object, shown
from pulsar_meta.jobs.rewrite.decision import Change, digest
from pulsar_meta.jobs.rewrite.run_files import (
    HEADER_LIMIT,
    LineSums,
    StoreDocument,
    StoreIdentity,
    check_file,
    check_identity,
    whole_lines,
)

FORMAT = 2
# Format 1 is still read and continued.
FORMATS: Final = (1, FORMAT)
# The start of the first line.
_BEGINNING = b'{"undo":'
# The start of the line after a group.
_ANSWER = b'{"sent":'
# How much is answered by one line: a reader holds that in memory.
ANSWERED_GROUPS: Final = 8
ANSWERED_BYTES: Final = 16 << 20
# One encoder for all records: a new one for each takes a third of the record's time.
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """One value: what it was and, by its SHA-256, what it became.

    `answered`: the group's outcome is known; then `sent` is the version that our write got, None where it
    met a conflict. Otherwise the write may or may not have happened.
    """

    path: str
    version: int
    old: bytes | None = field(repr=False)
    old_sha256: str | None
    new_sha256: str | None
    answered: bool = False
    sent: int | None = None


class UndoHeader(TypedDict):
    """The first line of an undo file. `codec` is the codec that the run applies; `created` is in ms."""

    undo: int
    command: str
    codec: str | None
    store: StoreDocument
    created: int


class UndoLine(TypedDict):
    """The old value (base64, missing if there was none), and the SHA-256 of the new one."""

    path: str
    version: int
    old_sha256: str | None
    new_sha256: str | None
    old: NotRequired[str]
    sum: NotRequired[str]


class UndoAnswer(TypedDict):
    """The versions that the writes of a group got; null for a conflict."""

    sent: list[int | None]
    sum: NotRequired[str]


class UndoEnd(TypedDict):
    """The last line of a run that came to its end."""

    end: bool
    sum: NotRequired[str]


class UndoLog:
    """Appends to an undo file, which is made when the first group comes.

    One thread may append a group while another answers the one before.
    """

    def __init__(
        self,
        path: Path,
        command: str,
        store: StoreIdentity,
        *,
        resume: bool = False,
        codec: str | None = None,
    ) -> None:
        """Write to `path`; UsageError where the file exists and this run does not continue its run.

        `codec`: what the run gives to every value, None where it is no such run.
        """
        self.path = path
        self._header: UndoHeader = {
            "undo": FORMAT,
            "command": command,
            "codec": codec,
            "store": store.document(),
            "created": 0,
        }
        self._file: BinaryIO | None = None
        self._sums = LineSums(b"")
        self._lock = Lock()
        # Of the groups since the last line that answered any, the answers as far as they are known, and how
        # many bytes their records have.
        self._answers: dict[int, Sequence[int | None] | None] = {}
        self._unanswered = 0
        self._failed: UnreachableError | None = None
        if path.exists() and not (path.is_file() and is_unused(path)):
            if not resume:
                raise UsageError(f"{path} exists; an undo file is never overwritten (--resume continues it)")
            _check_resumable(path, self._header, store)

    @property
    def written(self) -> bool:
        """Whether there is a file that holds records."""
        return self._file is not None or (self.path.is_file() and not is_unused(self.path))

    @property
    def full(self) -> bool:
        """Whether all groups should be answered before the next one is appended."""
        return len(self._answers) >= ANSWERED_GROUPS or self._unanswered >= ANSWERED_BYTES

    def append(self, lines: Sequence[bytes]) -> int:
        """Put the lines of a group (`undo_line`) onto the disk; returns its number when they are there.

        UnreachableError where there is no room for them: the group must not be sent then, and nothing more is
        appended or answered, since it would come behind a line that may be cut.
        """
        with self._lock:
            number = len(self._answers)
            self._answers[number] = None
            self._unanswered += sum(map(len, lines))
            self._write(lines)
        self._sync()
        return number

    def answer(self, number: int, versions: Sequence[int | None]) -> None:
        """Write the outcome of a group."""
        with self._lock:
            self._answers[number] = versions
            known = [answer for answer in self._answers.values() if answer is not None]
            if len(known) == len(self._answers):
                self._write([_line(UndoAnswer(sent=list(chain.from_iterable(known))))])
                self._answers, self._unanswered = {}, 0

    def finish(self) -> None:
        """Note that the run came to its end."""
        if self.written:
            self._write([_line(UndoEnd(end=True))])
            self._sync()

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            # Failed writes were reported when they were tried.
            with suppress(OSError):
                file.close()

    def _write(self, lines: Sequence[bytes]) -> None:
        with self._writing():
            # At once: each write lets the other threads have the interpreter, and waits to get it back.
            file = self._open()
            file.write(b"".join(map(self._sums.added, lines)))
            file.flush()

    def _sync(self) -> None:
        with self._writing():
            sync_file(self._open())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._failed is not None:
            raise self._failed
        try:
            yield
        except OSError as error:
            text = f"the undo file cannot be written: {error.strerror}"
            self._failed = UnreachableError(text, source=str(self.path))
            raise self._failed from error

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = self._reopen() if self.path.exists() else self._create()
        return self._file

    def _reopen(self) -> BinaryIO:
        """Open the file for appending, and cut off incomplete last lines after a crash."""
        file = self.path.open("r+b")
        self._claim(file)
        try:
            end = self._whole_end(file)
        except DecodeError:
            file.close()
            raise
        file.seek(end)
        file.truncate()
        if end == 0:
            self._begin(file)
        return file

    def _whole_end(self, file: BinaryIO) -> int:
        """Return the offset after the last complete line. Raises DecodeError if a sum is wrong."""
        end = 0
        for number, line in whole_lines(file):
            if number == 1:
                self._sums = LineSums(line, read_header(self.path)["undo"])
            else:
                self._sums.check(line, number, self.path)
            end += len(line)
        return end

    def _create(self) -> BinaryIO:
        try:
            make_directories(self.path.parent, mode=0o700)
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        except OSError as error:
            raise UsageError(f"cannot make the undo file: {error.strerror}", source=str(self.path)) from error
        sync_directory(self.path.parent)
        file = os.fdopen(handle, "wb")
        self._claim(file)
        self._begin(file)
        return file

    def _claim(self, file: BinaryIO) -> None:
        if not locked_now(file):
            file.close()
            raise UsageError("another run is writing to this undo file", source=str(self.path))

    def _begin(self, file: BinaryIO) -> None:
        """Write the first line; it reaches the disk with the first records."""
        line = _line({**self._header, "created": time.time_ns() // 10**6})
        self._sums = LineSums(line)
        file.write(line)


def undo_line(change: Change) -> bytes:
    """Make the undo record of a write, with the complete old value and the digest of the new one."""
    return _line(_record(change))


def is_unused(path: Path) -> bool:
    """Return True if a run was killed before its first undo record, so that it wrote nothing.

    Such a file is empty, or has a part of the first line. NotFoundError where there is no such file.
    """
    check_file(path)
    try:
        with path.open("rb") as file:
            head = file.readline(HEADER_LIMIT)
    except OSError as error:
        raise unreadable(error, str(path)) from error
    head, _, rest = head.partition(b"\0")
    if not head and rest.strip(b"\0"):
        return False
    whole = head.endswith(b"\n") or len(head) == HEADER_LIMIT
    return not whole and _BEGINNING.startswith(head[: len(_BEGINNING)])


def read_header(path: Path) -> dict[str, Any]:
    """Read the first line of an undo file. Raises NotFoundError or DecodeError."""
    check_file(path)
    try:
        with path.open("rb") as file:
            header = read_json(file.readline(HEADER_LIMIT))
    except OSError as error:
        raise unreadable(error, str(path)) from error
    except DecodeError as error:
        raise error.within(str(path), what="not an undo file, its first line") from error
    if (
        not isinstance(header, dict)
        or header.get("undo") not in FORMATS
        or not isinstance(header.get("store"), dict)
    ):
        raise DecodeError(f"not an undo file of format {FORMAT}", source=str(path), offset=0)
    return header


def read_records(path: Path) -> Iterator[UndoRecord]:
    """Yield the records of an undo file. Memory holds at most the records that one line answers."""
    return _paired(_lines(path), path)


def read_backwards(path: Path) -> Iterator[UndoRecord]:
    """Yield the records of an undo file, last one first. Memory holds the records that one line answers."""
    begins, end = _group_begins(path)
    with path.open("rb") as file:
        for offset, number in reversed(begins):
            file.seek(offset)
            lines = enumerate(file.read(end - offset).splitlines(), number)
            records = _paired(((at, _record_of(line, at, path)) for at, line in lines), path)
            yield from reversed(list(records))
            end = offset


def _group_begins(path: Path) -> tuple[list[tuple[int, int]], int]:
    """Return where each group begins (offset and number of its line), and where the last whole line ends."""
    begins: list[tuple[int, int]] = []
    offset, between = 0, True
    with path.open("rb") as file:
        for number, line in whole_lines(file):
            if number > 1:
                if between:
                    begins.append((offset, number))
                between = line.startswith(_ANSWER)
            offset += len(line)
    return begins, offset


def _paired(lines: Iterable[tuple[int, dict[str, Any]]], path: Path) -> Iterator[UndoRecord]:
    """Yield the records among numbered lines, with their answers if there are any."""
    group: list[dict[str, Any]] = []
    for number, record in lines:
        if "sent" in record:
            sent = record["sent"]
            if not isinstance(sent, list) or len(sent) > len(group):
                raise DecodeError(f"line {number}: an answer to no group", source=str(path))
            first = len(group) - len(sent)
            yield from (_parsed(held, path) for held in group[:first])
            yield from (
                _parsed(held, path, answered=True, sent=version)
                for held, version in zip(group[first:], sent, strict=True)
            )
            group = []
        elif "path" in record:
            group.append(record)
    yield from (_parsed(held, path) for held in group)


def is_finished(path: Path) -> bool:
    """Return whether the run that wrote an undo file came to its end."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 128))
        return file.read().rstrip().rpartition(b"\n")[2].startswith(b'{"end":true')


def _check_resumable(path: Path, own: Mapping[str, Any], store: StoreIdentity) -> None:
    header = read_header(path)
    # A second codec over the first one could not be undone.
    for name in ("command", "codec"):
        if header.get(name) != own[name]:
            raise UsageError(f"{path} is of the {name} {shown(header.get(name))}, not {shown(own[name])}")
    check_identity(header["store"], store, source=str(path), allowed=False)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    sums = LineSums(b"")
    with path.open("rb") as file:
        for number, line in whole_lines(file):
            if number == 1:
                sums = LineSums(line, read_header(path)["undo"])
                continue
            sums.check(line, number, path)
            yield number, _record_of(line, number, path)


def _record_of(line: bytes, number: int, path: Path) -> dict[str, Any]:
    with decoding(str(path), what=f"line {number}"):
        return read_json_object(line)


def _parsed(
    record: dict[str, Any], path: Path, *, answered: bool = False, sent: int | None = None
) -> UndoRecord:
    try:
        old = None if record.get("old") is None else b64decode(record["old"], validate=True)
        version = int(record["version"])
    except (KeyError, TypeError, ValueError, OverflowError, Base64Error) as error:
        raise DecodeError(f"{record.get('path')}: a broken record", source=str(path)) from error
    if digest(old) != record.get("old_sha256"):
        raise DecodeError(f"{record['path']}: the old value does not have its SHA-256", source=str(path))
    return UndoRecord(
        str(record["path"]), version, old, digest(old), record.get("new_sha256"), answered, sent
    )


def _record(change: Change) -> UndoLine:
    record: UndoLine = {
        "path": change.path,
        "version": change.version,
        "old_sha256": digest(change.old),
        "new_sha256": digest(change.new),
    }
    if change.old is not None:
        record["old"] = b64encode(change.old).decode()
    return record


def _line(record: Mapping[str, object]) -> bytes:
    old = record.get("old")
    if not isinstance(old, str):
        return _json(record).encode() + b"\n"
    # Most of the line, and base64, of which JSON has nothing to escape.
    rest = _json({name: value for name, value in record.items() if name != "old"})
    return b'%b,"old":"%b"}\n' % (rest[:-1].encode(), old.encode())

"""The work file of a rebuild, FILE.work beside its FILE: what each ledger that was looked at is and says.

NDJSON. The first line says of which disks (number, bytes and a hash over names, sizes and times of files),
under which options and when it was begun; then comes a line for each ledger. A kill costs the ledger it was
at. The file goes when FILE is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final, Self

from pulsar_meta.access.locks import locked_now
from pulsar_meta.codecs.errors import ConflictError, DecodeError, UsageError, unreadable
from pulsar_meta.codecs.json_text import Document, read_json_object
from pulsar_meta.entries.bookie_disk import directories_of
from pulsar_meta.jobs.rebuild.plain_forms import plain, read_plain
from pulsar_meta.jobs.rebuild.scan import LedgerScan, Scanner
from pulsar_meta.jobs.topics.topic import Report

FORMAT: Final = 2
# It has what disks keep of ledgers' passwords.
MODE: Final = 0o600


def work_file_of(target: Path) -> Path:
    """Return where the facts lie while `target` is not whole."""
    return target.with_name(target.name + ".work")


def looked_at(
    urls: Sequence[str], lost: Sequence[str], password: bytes, *, tool: str, taken: str
) -> Document:
    """Return the first line of a work file: the disks as they are now, the options, who looks and when.

    UnreachableError where a directory cannot be listed.
    """
    return {
        "rebuild": FORMAT,
        "tool": tool,
        "taken": taken,
        "lost": list(lost),
        "password": _salted(secrets.token_hex(8), password),
        "disks": [_files_of(url) for url in urls],
    }


class WorkFile:
    """What was found so far. `head` is its first line, that of the run that began.

    It is made with the first ledger; without a path nothing is.
    """

    def __init__(self, path: Path | None, head: Document, password: bytes, *, resume: bool = False) -> None:
        """Read what a run left. UsageError where that is not asked for, or of other disks or options.

        ConflictError where another run is at it, DecodeError where it is broken.
        """
        self.path, self.head = path, head
        self._kept: dict[int, LedgerScan] = {}
        self._file: IO[bytes] | None = None
        if path is None or not path.exists():
            return
        if not resume:
            raise UsageError("left by a run that did not end: --resume goes on with it", source=str(path))
        self._file = _locked(path, "r+b")
        try:
            self._read(self._file, path, password)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def kept(self) -> int:
        """How many ledgers it has."""
        return len(self._kept)

    def keeping(self, scanner: Scanner, report: Report) -> Scanner:
        """Return what gives the ledgers that are here, and writes down what `scanner` says of the others."""

        def scanned(ledger_ids: Iterable[int]) -> Iterator[LedgerScan]:
            wanted = list(ledger_ids)
            left = [one for one in wanted if one not in self._kept]
            rest = scanner(left) if left else iter(())
            for ledger_id in wanted:
                known = self._kept.get(ledger_id)
                if known is None:
                    known = next(rest)
                    self._add(known)
                else:
                    for fault in known.faults:
                        report(fault)
                yield known

        return scanned

    def remove(self) -> None:
        """Remove the file: what it was for is done."""
        if self.path is not None and self._file is not None:
            self.path.unlink(missing_ok=True)

    def _add(self, scan: LedgerScan) -> None:
        if self.path is None:
            return
        if self._file is None:
            self._file = _locked(self.path, "x+b")
            _write(self._file, self.path, self.head)
        _write(self._file, self.path, {"ledger": plain(scan)})

    def _read(self, file: IO[bytes], path: Path, password: bytes) -> None:
        """Take what is there; what a kill left of a last line is cut off."""
        end = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            place = f"{path}, line {number}"
            found = read_json_object(line, source=place)
            if number == 1:
                self._check(found, path, password)
                self.head = found
            else:
                scan = _scan_of(found, place)
                self._kept[scan.examined.ledger_id] = scan
            end += len(line)
        file.seek(end)
        file.truncate()
        if end == 0:
            _write(file, path, self.head)

    def _check(self, found: Document, path: Path, password: bytes) -> None:
        """Raise UsageError where facts were found otherwise than this run would; DecodeError."""
        other = [name for name in ("rebuild", "tool", "lost", "disks") if found.get(name) != self.head[name]]
        if not _is_salted(found.get("password"), password):
            other.append("password")
        if not other and not isinstance(found.get("taken"), str):
            raise DecodeError("it does not say when it was begun", source=str(path))
        if other:
            why = f"begun with other {', '.join(other)}: without it everything is looked at anew"
            raise UsageError(why, source=str(path))


def _write(file: IO[bytes], path: Path, line: Document) -> None:
    try:
        # Numbers as they are: they are read back.
        file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        file.flush()
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", source=str(path)) from error


def _locked(path: Path, mode: str) -> IO[bytes]:
    try:
        file: IO[bytes] = open(  # noqa: SIM115
            path, mode, opener=lambda name, flags: os.open(name, flags, MODE)
        )
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", source=str(path)) from error
    if not locked_now(file):
        file.close()
        raise ConflictError("another rebuild writes to it now", source=str(path))
    return file


def _scan_of(line: Document, place: str) -> LedgerScan:
    try:
        scan: LedgerScan = read_plain(LedgerScan, line.get("ledger"))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise DecodeError(f"no facts about a ledger: {error}", source=place) from error
    return scan


def _salted(salt: str, password: bytes) -> list[str]:
    return [salt, hashlib.sha256(salt.encode() + password).hexdigest()]


def _is_salted(found: object, password: bytes) -> bool:
    return isinstance(found, list) and found[:1] != [] and found == _salted(str(found[0]), password)


def _unlisted(error: OSError) -> None:
    raise unreadable(error, str(error.filename)) from error


def _files_of(url: str) -> Document:
    """Return what tells whether the files of disks are the same: their number, bytes, and a hash."""
    count, size, listing = 0, 0, hashlib.sha256()
    for top in directories_of(url):
        for folder, below, names in os.walk(top, onerror=_unlisted):
            below.sort()
            for name in sorted(names):
                path = Path(folder, name)
                try:
                    state = path.lstat()
                except OSError as error:
                    raise unreadable(error, str(path)) from error
                listing.update(os.fsencode(path.relative_to(top)))
                listing.update(f"\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
                count, size = count + 1, size + state.st_size
    return {"files": count, "bytes": size, "sha256": listing.hexdigest()}

"""Scan the ledgers on the disks one at a time, and keep the results in a work file.

The results are plain values, so several processes can produce them. The work file is FILE.work next to the
rebuilt FILE. It is NDJSON: the first line identifies the disks (number and size of files, and a hash over
their names, sizes and times), the options and the start time, followed by one line per ledger. If the run is
killed, only the ledger that was being scanned is lost. The work file is removed when FILE is complete.
Needs NumPy.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Final, Self, TypeVar

from pulsar_meta.access.files import bounded_lines, locked_now, private
from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    NotFoundError,
    PulsarMetaError,
    UsageError,
    unreadable,
)
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.json_text import Document, read_json_object
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_disk import directories_of
from pulsar_meta.jobs.rebuild.cursor_ledgers import CompactedClues, CursorClues, compacted_clues, cursor_clues
from pulsar_meta.jobs.rebuild.evidence import DataClues, Mention, data_clues
from pulsar_meta.jobs.rebuild.kinds import Kind, from_plain, kind_of, to_plain
from pulsar_meta.jobs.rebuild.ledgers import (
    Disks,
    ExaminedLedger,
    FoundLedger,
    as_runs,
    choose_stripings,
    disks_of,
    examine,
)
from pulsar_meta.jobs.rebuild.readable import readable
from pulsar_meta.jobs.rebuild.replication import CopiedFrom
from pulsar_meta.jobs.rebuild.schemas import SchemaClues, schema_clues
from pulsar_meta.jobs.rebuild.transactions import LogClues, log_clues
from pulsar_meta.jobs.topics.topic import Report

Clues = DataClues | CompactedClues | CursorClues | SchemaClues | LogClues
OfKind = TypeVar("OfKind", bound=Clues)


@dataclass(frozen=True, slots=True)
class LedgerScan:
    """The scan of one ledger: its entries, its kind, the clues in it (None if none), and damage found."""

    examined: ExaminedLedger
    kind: Kind
    clues: Clues | None = None
    faults: tuple[PulsarMetaError, ...] = ()


@dataclass(frozen=True)
class ScanResult:
    """All ledgers on the disks by id, in ascending order."""

    ledgers: Mapping[int, FoundLedger]
    kinds: Mapping[int, Kind]
    clues: Mapping[int, Clues] = field(repr=False)

    @classmethod
    def of(cls, scans: Sequence[LedgerScan], password: bytes) -> ScanResult:
        """Combine the scans of all ledgers. If several quorums fit a ledger, the most usual one is chosen."""
        choose_striping = choose_stripings([scan.examined for scan in scans], password)
        ledgers = {ledger.ledger_id: ledger for ledger in choose_striping}
        kinds = {scan.examined.ledger_id: scan.kind for scan in scans}
        clues = {scan.examined.ledger_id: scan.clues for scan in scans if scan.clues is not None}
        return cls(ledgers, kinds, clues)

    def clues_of(self, kind: type[OfKind]) -> dict[int, OfKind]:
        """Select the clues of one class, by ledger."""
        return {ledger_id: clues for ledger_id, clues in self.clues.items() if isinstance(clues, kind)}

    @cached_property
    def kept(self) -> frozenset[int]:
        """The ledgers for which BookKeeper metadata is written."""
        return frozenset(ledger_id for ledger_id, ledger in self.ledgers.items() if ledger.refused is None)

    @cached_property
    def torn(self) -> frozenset[int]:
        """The ledgers whose first or last entries may be on disks that are not available.

        These are the ledgers that lack entries. If many ledgers do, complete disks are missing, so it is all
        ledgers.
        """
        torn = frozenset(ledger_id for ledger_id, ledger in self.ledgers.items() if ledger.missing)
        return frozenset(self.ledgers) if len(torn) > len(self.ledgers) * TORN_SHARE else torn

    def mentions(self) -> Iterator[Mention]:
        """Yield the references from ledgers to data ledgers of the same topic."""
        for ledger_id, clues in self.clues.items():
            if isinstance(clues, CompactedClues | CursorClues | LogClues) and clues.named:
                reason = COMPACTED if isinstance(clues, CompactedClues) else MENTIONED
                yield Mention(ledger_id, self.kinds[ledger_id], clues.named, reason)
        yield from self._replication_mentions()

    def _replication_mentions(self) -> Iterator[Mention]:
        """Yield the references in markers, and the ledgers with copies from the same remote ledger."""
        copies = defaultdict[CopiedFrom, set[int]](set)
        for ledger_id, clues in self.clues_of(DataClues).items():
            if clues.replicated.named:
                yield Mention(ledger_id, "data", clues.replicated.named | {ledger_id}, MARKED)
            for origin in clues.replicated.copied_from:
                copies[origin].add(ledger_id)
        for origin, ledgers in sorted(copies.items()):
            if len(ledgers) > 1:
                cluster = origin.cluster.replace("{", "{{").replace("}", "}}")
                reason = COPIED.format(cluster, origin.ledger_id)
                yield Mention(min(ledgers), "data", frozenset(ledgers), reason)


# Evidence that data ledgers belong to one topic: the ledger with the reference, and two that it refers to.
MENTIONED: Final = "the cursor in ledger {} refers to {} and {}"
COMPACTED: Final = "the compacted data in ledger {} was made from {} and {}"
MARKED: Final = "a marker in ledger {} refers to {} and {}"
COPIED: Final = "messages of cluster {}, ledger {}, were copied to {{1}} and {{2}}"
# If more than this share of ledgers lacks entries, complete disks are missing.
TORN_SHARE: Final = 0.02
# Scans ledgers and yields the results in the order of the ids.
Scanner = Callable[[Iterable[int]], Iterator[LedgerScan]]


def local_scanner(source: EntrySource, report: Report, *, password: bytes, lost: Sequence[str]) -> Scanner:
    """Make a scanner that works in this process and sends damage to `report`.

    The scanner raises UnreachableError.
    """
    disks = disks_of(source)

    def scanned(ledger_ids: Iterable[int]) -> Iterator[LedgerScan]:
        for ledger_id in ledger_ids:
            scan = scan_ledger(source, disks, ledger_id, password=password, lost=lost)
            for fault in scan.faults:
                report(fault)
            yield scan

    return scanned


def scan_ledger(
    source: EntrySource, disks: Disks, ledger_id: int, *, password: bytes, lost: Sequence[str]
) -> LedgerScan:
    """Scan one ledger. Raises UnreachableError."""
    faults: list[PulsarMetaError] = []
    left, unreadable = readable(source, ledger_id, password, faults.append)
    if left.last_entry(ledger_id) is None:
        left = source
    # Unreadable entries were reported.
    examined = examine(
        source, disks, ledger_id, lambda error: None, password=password, lost=lost, readable=left
    )
    examined = replace(examined, unreadable=as_runs(unreadable))
    kind = kind_of(left, ledger_id, examined.last_entry, examined.digest_type)
    return LedgerScan(examined, kind, _clues(left, examined, kind), tuple(faults))


def _clues(source: EntrySource, examined: ExaminedLedger, kind: Kind) -> Clues | None:
    ledger_id, digest_type = examined.ledger_id, examined.digest_type
    match kind:
        case "data":
            return data_clues(source, ledger_id, digest_type)
        case "compacted":
            return compacted_clues(source, ledger_id, digest_type)
        case "cursor":
            return cursor_clues(source, ledger_id)
        case "transaction-log" | "pending-acks":
            return log_clues(source, ledger_id, kind, digest_type)
        case "schema":
            return _schema(source, examined)
        case _:
            return None


def _schema(source: EntrySource, examined: ExaminedLedger) -> SchemaClues | None:
    ledger_id, last = examined.ledger_id, examined.last_entry
    try:
        entry = decode_bookie_entry(source.read(ledger_id, last).data, examined.digest_type)
    except (DecodeError, NotFoundError):
        return None
    return schema_clues(ledger_id, last, entry.data)


FORMAT: Final = 4


def work_file_of(target: Path) -> Path:
    """The path of the work file that exists until `target` is complete."""
    return target.with_name(target.name + ".work")


def work_file_head(
    urls: Sequence[str], lost: Sequence[str], password: bytes, *, tool: str, taken: str
) -> Document:
    """Make the first line of a work file: the current state of the disks, the options, the tool, the time.

    Raises UnreachableError if a directory cannot be listed.
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
    """Results of a scan on disk, so that a run can be resumed. `head` is the first line, of the first run.

    The file is created when the first ledger has been scanned. If `path` is None, there is no file.
    """

    def __init__(self, path: Path | None, head: Document, password: bytes, *, resume: bool = False) -> None:
        """Read the file that an earlier run left.

        Raises UsageError if there is one and `resume` is False, or if its disks or options differ;
        ConflictError if another run has it open; DecodeError if it is corrupt.
        """
        self.path, self.head = path, head
        self._kept: dict[int, LedgerScan] = {}
        self._file: IO[bytes] | None = None
        if path is None or not path.exists():
            return
        if not resume:
            raise UsageError("a run that did not finish left this file: add --resume", source=str(path))
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
        """The number of ledgers in the file."""
        return len(self._kept)

    def keeping(self, scanner: Scanner, report: Report) -> Scanner:
        """Wrap `scanner` so that it skips the ledgers in the file and records the others in it."""

        def scanned(ledger_ids: Iterable[int]) -> Iterator[LedgerScan]:
            wanted = list(ledger_ids)
            left = [ledger_id for ledger_id in wanted if ledger_id not in self._kept]
            rest = scanner(left) if left else iter(())
            for ledger_id in wanted:
                scan = self._kept.get(ledger_id)
                if scan is None:
                    scan = next(rest)
                    self._add(scan)
                else:
                    for fault in scan.faults:
                        report(fault)
                yield scan

        return scanned

    def remove(self) -> None:
        """Remove the file, because the rebuilt store is complete."""
        if self.path is not None and self._file is not None:
            self.path.unlink(missing_ok=True)

    def _add(self, scan: LedgerScan) -> None:
        if self.path is None:
            return
        if self._file is None:
            self._file = _locked(self.path, "x+b")
            _write(self._file, self.path, self.head)
        _write(self._file, self.path, {"ledger": to_plain(scan)})

    def _read(self, file: IO[bytes], path: Path, password: bytes) -> None:
        """Read the file. A partial last line, left by a kill, is cut off."""
        end = 0
        for number, line in enumerate(bounded_lines(file), start=1):
            if not line.endswith(b"\n"):
                break
            place = f"{path}, line {number}"
            document = read_json_object(line, source=place)
            if number == 1:
                self._check(document, path, password)
                self.head = document
            else:
                scan = _scan_of(document, place)
                self._kept[scan.examined.ledger_id] = scan
            end += len(line)
        file.seek(end)
        file.truncate()
        if end == 0:
            _write(file, path, self.head)

    def _check(self, document: Document, path: Path, password: bytes) -> None:
        """Raise UsageError if the file was written with other disks or options than this run has."""
        other = [
            name for name in ("rebuild", "tool", "lost", "disks") if document.get(name) != self.head[name]
        ]
        if not _is_salted(document.get("password"), password):
            other.append("password")
        if not other and not isinstance(document.get("taken"), str):
            raise DecodeError("the start time is missing", source=str(path))
        if other:
            changed = ", ".join(other)
            why = (
                f"refusing to resume: {changed} changed since; without --resume, everything is scanned again"
            )
            raise UsageError(why, source=str(path))


def _write(file: IO[bytes], path: Path, line: Document) -> None:
    try:
        # Plain JSON numbers, not strings, because this program reads them back.
        file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        file.flush()
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", source=str(path)) from error


def _locked(path: Path, mode: str) -> IO[bytes]:
    try:
        # Private, because the file contains what the disks keep of ledgers' passwords.
        file: IO[bytes] = open(path, mode, opener=private)  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", source=str(path)) from error
    if not locked_now(file):
        file.close()
        raise ConflictError("another rebuild is writing to it", source=str(path))
    return file


def _scan_of(line: Document, place: str) -> LedgerScan:
    try:
        scan: LedgerScan = from_plain(LedgerScan, line.get("ledger"))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise DecodeError(f"not the scan of a ledger: {error}", source=place) from error
    return scan


def _salted(salt: str, password: bytes) -> list[str]:
    return [salt, hashlib.sha256(salt.encode() + password).hexdigest()]


def _is_salted(salted: object, password: bytes) -> bool:
    return isinstance(salted, list) and salted[:1] != [] and salted == _salted(str(salted[0]), password)


def _unlisted(error: OSError) -> None:
    raise unreadable(error, str(error.filename)) from error


def _files_of(url: str) -> Document:
    """A fingerprint of a disk's files: their number, total size, and a hash over names, sizes and times."""
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

"""Scan the ledgers on the disks one at a time, and keep the results in a work file.

The results are plain values, so many workers can produce them. The work file is FILE.work next to the rebuilt
FILE:
NDJSON whose first line identifies the disks (number, bytes, and a hash over names, sizes and times of files),
the
options and the start time, followed by one line per ledger. A kill costs the ledger that was being scanned.
The work
file is removed once FILE is complete. Needs NumPy.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Final, Self, TypeVar

from pulsar_meta.access.files import locked_now
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
from pulsar_meta.jobs.rebuild.kinds import Kind, kind_of, plain, read_plain
from pulsar_meta.jobs.rebuild.ledgers import Disks, Examined, FoundLedger, disks_of, examine, judged
from pulsar_meta.jobs.rebuild.replication import CopiedFrom
from pulsar_meta.jobs.rebuild.schemas import SchemaClues, schema_clues
from pulsar_meta.jobs.rebuild.transactions import LogClues, log_clues
from pulsar_meta.jobs.topics.topic import Report

Clues = DataClues | CompactedClues | CursorClues | SchemaClues | LogClues
OfKind = TypeVar("OfKind", bound=Clues)


@dataclass(frozen=True, slots=True)
class LedgerScan:
    """One ledger: what its entries show, what it holds, what it says (None: nothing), what was damaged."""

    examined: Examined
    kind: Kind
    clues: Clues | None = None
    faults: tuple[PulsarMetaError, ...] = ()


@dataclass(frozen=True)
class Scanned:
    """All ledgers that are on the disks, by their ids, in order."""

    found: Mapping[int, FoundLedger]
    kinds: Mapping[int, Kind]
    clues: Mapping[int, Clues] = field(repr=False)

    @classmethod
    def of(cls, scans: Sequence[LedgerScan], password: bytes) -> Scanned:
        """Judge ledgers together: which quorums are usual decides for those that fit several."""
        found = {one.ledger_id: one for one in judged([scan.examined for scan in scans], password)}
        kinds = {scan.examined.ledger_id: scan.kind for scan in scans}
        clues = {scan.examined.ledger_id: scan.clues for scan in scans if scan.clues is not None}
        return cls(found, kinds, clues)

    def said(self, kind: type[OfKind]) -> dict[int, OfKind]:
        """Return what the ledgers of one kind say."""
        return {at: clues for at, clues in self.clues.items() if isinstance(clues, kind)}

    @cached_property
    def kept(self) -> frozenset[int]:
        """The ledgers that BookKeeper is to know."""
        return frozenset(at for at, found in self.found.items() if found.refused is None)

    @cached_property
    def torn(self) -> frozenset[int]:
        """The ledgers whose first or last entries may be on disks that are not here.

        Those that lack entries; all, where so many do that whole disks are missing.
        """
        torn = frozenset(at for at, found in self.found.items() if found.missing)
        return frozenset(self.found) if len(torn) > len(self.found) * TORN_SHARE else torn

    def mentions(self) -> Iterator[Mention]:
        """Yield which ledgers name data ledgers of their topic."""
        for at, clues in self.clues.items():
            if isinstance(clues, CompactedClues | CursorClues | LogClues) and clues.named:
                says = COMPACTED if isinstance(clues, CompactedClues) else MENTIONED
                yield Mention(at, self.kinds[at], clues.named, says)
        yield from self._by_replication()

    def _by_replication(self) -> Iterator[Mention]:
        """Yield what markers and copies say: a ledger that was copied from is one topic's here, too."""
        copies = defaultdict[CopiedFrom, set[int]](set)
        for at, clues in self.said(DataClues).items():
            if clues.replicated.named:
                yield Mention(at, "data", clues.replicated.named | {at}, MARKED)
            for origin in clues.replicated.copied_from:
                copies[origin].add(at)
        for origin, ledgers in sorted(copies.items()):
            if len(ledgers) > 1:
                cluster = origin.cluster.replace("{", "{{").replace("}", "}}")
                says = COPIED.format(cluster, origin.ledger_id)
                yield Mention(min(ledgers), "data", frozenset(ledgers), says)


# Why data ledgers are one topic's, by a ledger and two that it names.
MENTIONED: Final = "the cursor in ledger {} names {} and {}"
COMPACTED: Final = "the compacted data in ledger {} is that of {} and {}"
MARKED: Final = "a marker in ledger {} names {} and {}"
COPIED: Final = "messages of cluster {}, ledger {}, are copied to {{1}} and {{2}}"
# Where more than this share of ledgers lacks entries, disks are missing.
TORN_SHARE: Final = 0.02
# Looks at ledgers, in order.
Scanner = Callable[[Iterable[int]], Iterator[LedgerScan]]


def scan_here(source: EntrySource, report: Report, *, password: bytes, lost: Sequence[str]) -> Scanner:
    """Return what looks at ledgers in this process; damage goes to `report`. It raises UnreachableError."""
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
    """Return what one ledger is and says. UnreachableError."""
    faults: list[PulsarMetaError] = []
    examined = examine(source, disks, ledger_id, faults.append, password=password, lost=lost)
    kind = kind_of(source, ledger_id, examined.last_entry, examined.digest_type)
    return LedgerScan(examined, kind, _clues(source, examined, kind), tuple(faults))


def _clues(source: EntrySource, examined: Examined, kind: Kind) -> Clues | None:
    ledger_id, digest = examined.ledger_id, examined.digest_type
    match kind:
        case "data":
            return data_clues(source, ledger_id, digest)
        case "compacted":
            return compacted_clues(source, ledger_id, digest)
        case "cursor":
            return cursor_clues(source, ledger_id)
        case "transaction-log" | "pending-acks":
            return log_clues(source, ledger_id, kind, digest)
        case "schema":
            return _schema(source, examined)
        case _:
            return None


def _schema(source: EntrySource, examined: Examined) -> SchemaClues | None:
    ledger_id, last = examined.ledger_id, examined.last_entry
    try:
        entry = decode_bookie_entry(source.read(ledger_id, last).data, examined.digest_type)
    except (DecodeError, NotFoundError):
        return None
    return schema_clues(ledger_id, last, entry.data)


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

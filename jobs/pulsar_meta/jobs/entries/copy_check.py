"""Verify every copy of entries on several bookies' disks, and hide the damaged copies from other checks.

A copy is damaged if its record can't be read, or its header or digest does not fit. The digest covers all
bytes that a client reads, so a copy with a correct digest is good.

Sources: apache/bookkeeper DigestManager; BookieShell, RecoverCommand (copies a ledger's entries of one bookie
to another one).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.base import BookieLedgerState, EntrySource, Outcome, RawEntry, entry_of, outcome_of
from pulsar_meta.entries.joined import JoinedEntries
from pulsar_meta.entries.locations import Located
from pulsar_meta.jobs.entries.entry_blocks import Patience, read_blocks
from pulsar_meta.jobs.entries.entry_choice import Range
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat


class CopyDocument(TypedDict):
    """The fields that describe a damaged copy; `repair` is missing if no copy is good."""

    bookie: str
    file: str | None
    offset: int | None
    good: int
    copies: int
    repair: NotRequired[str]


@dataclass(frozen=True, slots=True)
class BadCopy:
    """A damaged copy of an entry. `file` and `offset` are where the bookie has it, None if that is unknown.

    `good` of the `copies` on the given disks are intact.
    """

    entry_id: int
    bookie: str
    fault: str
    file: str | None
    offset: int | None
    good: int
    copies: int

    def text(self, ledger_id: int) -> str:
        """Return what is wrong, and BookKeeper's command that makes a new copy if there is a good one."""
        place = "" if self.file is None else f", {self.file} at offset {self.offset}"
        left = f"{self.good} of {self.copies} copies are good" if self.good else "no good copy is left"
        command = f"; to replace it: {self.repair(ledger_id)}" if self.good else ""
        return f"bad copy on bookie {self.bookie}{place}: {self.fault}; {left}{command}"

    def document(self, ledger_id: int) -> CopyDocument:
        """Return the fields that describe the copy in a printed fault."""
        document: CopyDocument = {
            "bookie": self.bookie,
            "file": self.file,
            "offset": self.offset,
            "good": self.good,
            "copies": self.copies,
        }
        if self.good:
            document["repair"] = self.repair(ledger_id)
        return document

    def repair(self, ledger_id: int) -> str:
        """Return BookKeeper's command that copies the bookie's entries of the ledger to another bookie."""
        return f"bookkeeper shell recover -ledger {ledger_id} {self.bookie}"


@dataclass(slots=True)
class CopyReport:
    """The damaged copies of a range of one ledger, by entry and bookie, and the number of copies read."""

    copies: int = 0
    bad: list[BadCopy] = field(default_factory=list)


def disks_by_bookie(source: EntrySource) -> dict[str, EntrySource]:
    """Return the disks of each bookie, entry logs and journals joined."""
    parts: dict[str, list[EntrySource]] = {}
    for part in source.parts:
        if part.bookies is not None and len(part.bookies) == 1:
            [bookie] = part.bookies
            parts.setdefault(bookie, []).append(part)
    return {bookie: JoinedEntries(some) for bookie, some in parts.items()}


def check_copies(part: Range, source: EntrySource, form: EntryFormat, patience: Patience) -> CopyReport:
    """Verify every copy of a ledger's entries within a range, if at least two bookies were given."""
    disks = disks_by_bookie(source)
    report = CopyReport()
    if len(disks) < 2:
        return report
    faults: dict[int, dict[str, str]] = defaultdict(dict)
    for bookie, disk in disks.items():
        for entry_id, fault in _faults(part, disk, form, patience, report):
            faults[entry_id][bookie] = fault
    for entry_id in sorted(faults):
        report.bad += _bad_copies(part.ledger.ledger_id, entry_id, faults[entry_id], disks)
    return report


def _faults(
    part: Range, disk: EntrySource, form: EntryFormat, patience: Patience, report: CopyReport
) -> Iterator[tuple[int, str]]:
    """Yield the damaged entries on one bookie's disks, and count all of them."""
    ledger_id = part.ledger.ledger_id
    for item in read_blocks(disk, ledger_id, part.first, part.last, form, patience, with_headers=False):
        outcomes: Iterator[tuple[int, Outcome]]
        if isinstance(item, tuple):
            outcomes = iter([item])
            report.copies += 1
        else:
            # Rows are whole if their digest fits, so only the others are read one by one.
            suspected = item.entry_ids[~item.whole].tolist()
            outcomes = ((entry_id, outcome_of(disk, ledger_id, entry_id)) for entry_id in suspected)
            report.copies += len(item.entry_ids)
        for entry_id, outcome in outcomes:
            fault = _fault_of(outcome, form)
            if fault is not None:
                yield entry_id, fault


def _fault_of(outcome: Outcome, form: EntryFormat) -> str | None:
    try:
        raw = entry_of(outcome)
        entry = (
            decode_bookie_entry(raw.data, form.digest_type, password=form.password) if raw.bookie else None
        )
    except (DecodeError, NotFoundError) as error:
        return error.message
    if entry is None:
        return None
    if (entry.ledger_id, entry.entry_id) != (raw.ledger_id, raw.entry_id):
        return f"its header is that of entry {entry.ledger_id}:{entry.entry_id}"
    return f"its {entry.digest_type} digest does not fit" if entry.digest == "bad" else None


def _bad_copies(
    ledger_id: int, entry_id: int, faults: dict[str, str], disks: dict[str, EntrySource]
) -> Iterator[BadCopy]:
    copies = [
        bookie
        for bookie, disk in disks.items()
        if next(disk.entry_ids(ledger_id, entry_id, entry_id), None) is not None
    ]
    for bookie, fault in faults.items():
        file, offset = _place_of(disks[bookie], ledger_id, entry_id)
        good = len(copies) - len(faults)
        yield BadCopy(entry_id, bookie, fault, file, offset, good, len(copies))


def _place_of(disk: EntrySource, ledger_id: int, entry_id: int) -> tuple[str | None, int | None]:
    """Return the file of an entry and the offset of its record in it."""
    with suppress(DecodeError):
        for files, table in disk.located(ledger_id, entry_id, entry_id) or ():
            location = table.location(entry_id)
            if location is not None:
                return files.name(location >> 32), location & 0xFFFFFFFF
    return None, None


def without_bad_copies(source: EntrySource, ledger_id: int, bad: list[BadCopy]) -> EntrySource:
    """Return the source without damaged copies of entries that have a good copy."""
    hidden: dict[str, set[int]] = {}
    for copy in bad:
        if copy.good:
            hidden.setdefault(copy.bookie, set()).add(copy.entry_id)
    if not hidden:
        return source
    parts = [
        _WithoutCopies(part, ledger_id, hidden.get(next(iter(part.bookies or ()), ""), set()))
        for part in source.parts
    ]
    return JoinedEntries(parts, source.url)


class _WithoutCopies(EntrySource):
    """A bookie's disk without some entries of one ledger."""

    def __init__(self, part: EntrySource, ledger_id: int, hidden: Set[int]) -> None:
        self.url, self.bookies, self.cookies = part.url, part.bookies, part.cookies
        self.whole_ledgers, self.entry_logs = part.whole_ledgers, part.entry_logs
        self._part, self._ledger_id, self._hidden = part, ledger_id, hidden

    def _hides(self, ledger_id: int, entry_id: int) -> bool:
        return ledger_id == self._ledger_id and entry_id in self._hidden

    def ledgers(self) -> list[int]:
        return self._part.ledgers()

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        ids = self._part.entry_ids(ledger_id, first, last)
        return (entry_id for entry_id in ids if not self._hides(ledger_id, entry_id))

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        if self._hides(ledger_id, entry_id):
            raise NotFoundError(f"no good copy of entry {ledger_id}:{entry_id}", source=self.url)
        return self._part.read(ledger_id, entry_id)

    def ledger_state(self, ledger_id: int) -> BookieLedgerState | None:
        return self._part.ledger_state(ledger_id)

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        return None

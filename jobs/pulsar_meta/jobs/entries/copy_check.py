"""Verify every copy of entries, and hide the damaged copies from other checks.

Copies are read from several bookies' disks, or from the running bookies of the ledger. A copy is damaged if
its record can't be read, or its header or digest does not fit. The digest covers all bytes that a client
reads, so a copy with a correct digest is good. A running bookie that has no copy of an entry of a closed
ledger has lost it. Copies on a bookie that does not answer are not checked.

Sources: apache/bookkeeper DigestManager; BookieShell, RecoverCommand (copies a ledger's entries of one bookie
to another one).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.base import BookieLedgerState, EntrySource, Outcome, RawEntry, entry_of, outcome_of
from pulsar_meta.entries.locations import Located
from pulsar_meta.entries.sources import JoinedEntries
from pulsar_meta.jobs.entries.entry_blocks import Patience, read_blocks
from pulsar_meta.jobs.entries.entry_choice import Range
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat

# The bad copies of each entry: by bookie, the fault, or None if the bookie has no copy.
_Faults = defaultdict[int, dict[str, str | None]]


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
    """A damaged or lost copy of an entry. `file` and `offset` are where the bookie has it, None if unknown.

    `good` of the `copies` on the given bookies are intact. The bookie has also lost its copies of the next
    `more` entries that it should have, the last of which is `last`.
    """

    entry_id: int
    bookie: str
    fault: str
    file: str | None
    offset: int | None
    good: int
    copies: int
    is_lost: bool = False
    more: int = 0
    last: int = -1

    def text(self, ledger_id: int) -> str:
        """Return what is wrong, and BookKeeper's command that makes a new copy if there is a good one."""
        place = "" if self.file is None else f", {self.file} at offset {self.offset}"
        left = f"{self.good} of {self.copies} copies are good" if self.good else "no good copy is left"
        command = f"; to replace it: {self.repair(ledger_id)}" if self.good else ""
        if self.is_lost:
            more = f", nor of {self.more} more up to {self.last}" if self.more else ""
            return f"bookie {self.bookie} has no copy of the entry{more}; {left}{command}"
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
    """The damaged copies of a range of one ledger, by entry and bookie, and the number of copies read.

    `not_checked` has the reason for each bookie whose copies could not be read.
    """

    copies: int = 0
    bad: list[BadCopy] = field(default_factory=list)
    not_checked: dict[str, str] = field(default_factory=dict)


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
    ledger_id, report = part.ledger.ledger_id, CopyReport()
    bookies = {**source.replicas(ledger_id), **disks_by_bookie(source)}
    if len(bookies) < 2:
        return report
    faults: _Faults = defaultdict(dict)
    for bookie, disk in bookies.items():
        try:
            for entry_id, fault in read_faults(part, disk, form, patience, report):
                faults[entry_id][bookie] = fault
        except UnreachableError as error:
            report.not_checked[bookie] = error.message
    lost_counts = any(None in each.values() for each in faults.values()) and source.requires_all_copies(
        ledger_id
    )
    reached = {bookie: disk for bookie, disk in bookies.items() if bookie not in report.not_checked}
    for entry_id in sorted(faults):
        report.bad += _bad_copies(ledger_id, entry_id, faults[entry_id], reached, lost_counts=lost_counts)
    report.bad = _joined(report.bad)
    return report


def read_faults(
    part: Range, disk: EntrySource, form: EntryFormat, patience: Patience, report: CopyReport
) -> Iterator[tuple[int, str | None]]:
    """Yield the damaged entries of one bookie, or None for those it lacks, and count all that it has."""
    ledger_id = part.ledger.ledger_id
    for item in read_blocks(disk, ledger_id, part.first, part.last, form, patience, with_headers=False):
        outcomes: Iterator[tuple[int, Outcome]]
        if isinstance(item, tuple):
            outcomes = iter([item])
            report.copies += not isinstance(item[1], NotFoundError)
        else:
            # Rows are whole if their digest fits, so only the others are read one by one.
            suspected = item.entry_ids[~item.whole].tolist()
            outcomes = ((entry_id, outcome_of(disk, ledger_id, entry_id)) for entry_id in suspected)
            report.copies += len(item.entry_ids)
        for entry_id, outcome in outcomes:
            if isinstance(outcome, NotFoundError):
                yield entry_id, None
            elif (fault := _fault_of(outcome, form)) is not None:
                yield entry_id, fault


def _fault_of(outcome: RawEntry | DecodeError, form: EntryFormat) -> str | None:
    try:
        raw = entry_of(outcome)
        entry = (
            decode_bookie_entry(raw.data, form.digest_type, password=form.password) if raw.bookie else None
        )
    except DecodeError as error:
        return error.message
    if entry is None:
        return None
    if (entry.ledger_id, entry.entry_id) != (raw.ledger_id, raw.entry_id):
        return f"its header is that of entry {entry.ledger_id}:{entry.entry_id}"
    return f"its {entry.digest_type} digest does not fit" if entry.digest == "bad" else None


def _bad_copies(
    ledger_id: int,
    entry_id: int,
    faults: Mapping[str, str | None],
    bookies: Mapping[str, EntrySource],
    *,
    lost_counts: bool,
) -> Iterator[BadCopy]:
    """Yield the bad copies of an entry, and the lost ones if `lost_counts` and any other copy is left."""
    copies = {
        bookie
        for bookie, disk in bookies.items()
        if next(disk.entry_ids(ledger_id, entry_id, entry_id), None) is not None
    }
    copies.update(faults)
    lost = {bookie for bookie, fault in faults.items() if fault is None}
    if not lost_counts:
        copies -= lost
    if lost == copies:
        # The entry itself is missing, which is another fault.
        return
    good = len(copies - set(faults))
    for bookie, fault in faults.items():
        if fault is not None:
            file, offset = place_of(bookies[bookie], ledger_id, entry_id)
            yield BadCopy(entry_id, bookie, fault, file, offset, good, len(copies))
        elif lost_counts:
            yield BadCopy(entry_id, bookie, "no copy", None, None, good, len(copies), True, 0, entry_id)


def _joined(bad: Iterable[BadCopy]) -> list[BadCopy]:
    """Join the lost copies of each bookie while the number of good copies stays the same."""
    joined: list[BadCopy] = []
    before: dict[str, int] = {}
    for copy in bad:
        at = before.get(copy.bookie, -1)
        known = joined[at] if at >= 0 else None
        if (
            known
            and copy.is_lost
            and known.is_lost
            and (known.good, known.copies) == (copy.good, copy.copies)
        ):
            joined[at] = replace(known, more=known.more + 1, last=copy.entry_id)
        else:
            before[copy.bookie] = len(joined)
            joined.append(copy)
    return joined


def place_of(disk: EntrySource, ledger_id: int, entry_id: int) -> tuple[str | None, int | None]:
    """Return the file of an entry and the offset of its record in it, None if they are unknown."""
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
        WithoutEntries(part, ledger_id, hidden.get(next(iter(part.bookies or ()), ""), set()))
        for part in source.parts
    ]
    return JoinedEntries(parts, source.url)


class WithoutEntries(EntrySource):
    """A bookie's disk without some entries of one ledger."""

    def __init__(self, part: EntrySource, ledger_id: int, hidden: Set[int]) -> None:
        self.url, self.bookies, self.cookies = part.url, part.bookies, part.cookies
        self.whole_ledgers, self.entry_logs = part.whole_ledgers, part.entry_logs
        self._part, self._ledger_id, self._hidden = part, ledger_id, hidden

    def _hides(self, ledger_id: int, entry_id: int) -> bool:
        return ledger_id == self._ledger_id and entry_id in self._hidden

    def ledgers(self) -> list[int]:
        """List all ledgers of the disk."""
        return self._part.ledgers()

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of the entries that are not hidden."""
        ids = self._part.entry_ids(ledger_id, first, last)
        return (entry_id for entry_id in ids if not self._hides(ledger_id, entry_id))

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry. Raises NotFoundError if it is hidden, and the errors of the disk."""
        if self._hides(ledger_id, entry_id):
            raise NotFoundError(f"no good copy of entry {ledger_id}:{entry_id}", source=self.url)
        return self._part.read(ledger_id, entry_id)

    def ledger_state(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the state of a ledger on the disk."""
        return self._part.ledger_state(ledger_id)

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        """Return None, so that entries are read one by one."""
        return None

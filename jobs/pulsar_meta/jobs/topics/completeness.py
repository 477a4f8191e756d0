"""Find out how complete the given sources are: a bookie's directories, index, journals and entry logs.

An entry that no source has is only missing if every place that could hold it was given and could be read.
Everything that was not given, or could not be read, is a `Gap`.

Sources: apache/bookkeeper Cookie.java (ledgerDirs, indexDirs, journalDir), DbLedgerStorage.java (one ledger
is in one directory), EntryLogManagerBase.java (numbers of entry logs).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_layout import DISK, NOWHERE, BookieLayout, layouts_of, place
from pulsar_meta.entries.data_files import entry_logs, journals

if TYPE_CHECKING:
    from pulsar_meta.entries.data_files import DataFiles
    from pulsar_meta.entries.locations import LedgerLocations

Part = Literal["cookie", "directory", "index", "journal", "disk"]


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of a bookie that was not given, or that can't be read.

    `place` is a directory or file as the bookie names it. `why` describes the problem.
    """

    bookie: str | None
    part: Part
    place: str
    why: str = "not given"

    def __str__(self) -> str:
        if self.part == "disk":
            return f"the disks of bookie {self.bookie} were not given"
        bookie = "a bookie without a VERSION file" if self.bookie is None else f"bookie {self.bookie}"
        return f"{bookie}, {self.part} {self.place} {self.why}"


@dataclass(frozen=True, slots=True)
class MissingLog:
    """An entry log without entries that a bookie's index places in it, because it is missing or damaged.

    `entry_ids` are the entries of one ledger that should be in it. `why` describes a log that exists.
    """

    bookie: str | None
    directory: str
    number: int
    ledger_id: int
    entry_ids: tuple[int, ...] = field(repr=False)
    why: str = ""

    @property
    def file(self) -> str:
        """The path of the file, as far as the directory is known."""
        return f"{self.directory}/{self.number:x}.log"


@dataclass(frozen=True, slots=True)
class Completeness:
    """How complete the disks of some bookies are. `gaps` are grouped by bookie.

    `lives` is True if running bookies are read over the network, whose answers are complete.
    """

    bookies: frozenset[str] = frozenset()
    gaps: Mapping[str | None, tuple[Gap, ...]] = field(default_factory=dict)
    lives: bool = False

    @property
    def every_gap(self) -> list[Gap]:
        """All gaps, ordered by bookie."""
        names = sorted(self.gaps, key=lambda bookie: bookie or "")
        return [gap for name in names for gap in self.gaps[name]]

    def of(self, members: Iterable[str]) -> list[Gap]:
        """The gaps that may hide entries of a ledger with these ensemble members.

        A disk without a VERSION file may belong to any bookie. Bookies without any given disk are not gaps,
        because the ensemble shows which entries only they should have.
        """
        wanted = [bookie for bookie in dict.fromkeys(members) if bookie in self.gaps]
        names: list[str | None] = [*wanted, *([None] if None in self.gaps else [])]
        return [gap for name in names for gap in self.gaps[name]]


COMPLETE: Final = Completeness()


def completeness_of(source: EntrySource | None) -> Completeness:
    """Find out how complete the disks of `source` are. Raises UnreachableError if one can't be listed."""
    if source is None:
        return COMPLETE
    given = _urls_of(source)
    gaps: dict[str | None, list[Gap]] = {}
    known = set[str]()
    for layout in _layouts(given):
        known.update(() if layout.bookie_id is None else [layout.bookie_id])
        for gap in (*layout_gaps(layout), *_without_marked_journal(layout)):
            gaps.setdefault(gap.bookie, []).append(gap)
    for gap in _unreadable(source):
        gaps.setdefault(gap.bookie, []).append(gap)
    lives = any(url.partition(":")[0] == "bookie" for url in given)
    return Completeness(
        frozenset(known), {name: tuple(dict.fromkeys(items)) for name, items in gaps.items()}, lives
    )


def layout_gaps(layout: BookieLayout) -> Iterator[Gap]:
    """Yield the directories of a bookie's cookie that were not found.

    Copied disks have other paths than on the bookie, so paths are compared from their ends.
    """
    if layout.bookie_id is None:
        yield Gap(None, "cookie", f"{_first(layout)}/VERSION", "does not exist or cannot be read")
        return
    ledgers, indexes, journals = layout.ledger_list, layout.index_list, layout.journal_list
    yield from _not_given(
        layout.bookie_id, "directory", ledgers, _candidates(layout, ledgers, layout.ledger_dirs)
    )
    if indexes != ledgers:
        yield from _not_given(
            layout.bookie_id, "index", indexes, _candidates(layout, indexes, layout.index_dirs)
        )
    if not any(path in ledgers for path in journals):
        yield from _not_given(
            layout.bookie_id, "journal", journals, _candidates(layout, journals, layout.journal_dirs)
        )


def _without_marked_journal(layout: BookieLayout) -> Iterator[Gap]:
    """Yield the directories of journals without the file that `lastMark` names: the bookie does not start."""
    for directory in layout.journal_dirs or _beside_ledgers(layout):
        mark = layout.mark(directory)
        if mark is not None and mark[0] > 0 and mark[0] not in journals(directory):
            why = f"does not have {mark[0]:x}.txn, from which the bookie would read on, so it does not start"
            yield Gap(layout.bookie_id, "journal", str(directory), why)


def _beside_ledgers(layout: BookieLayout) -> Sequence[Path]:
    """Return the directories with entry logs that should also have a journal."""
    listed, journal_list = layout.ledger_list, layout.journal_list
    filled = [path for path in layout.ledger_dirs if entry_logs([path])]
    if set(listed) <= set(journal_list):
        return filled
    return [path for path in filled if (at := place(path, listed)) != NOWHERE and listed[at] in journal_list]


def _candidates(layout: BookieLayout, listed: Sequence[Path], of_part: Sequence[Path]) -> list[Path]:
    """Return the given directories that may be in a list of the cookie.

    A directory is a candidate if its path fits this list best, if it has such files (`of_part`), or if it has
    no files of a bookie and fits no list.
    """
    lists = (layout.ledger_list, layout.index_list, layout.journal_list)
    others = dict.fromkeys(path for each in lists for path in each if path not in listed)
    filled = {*layout.ledger_dirs, *layout.index_dirs, *layout.journal_dirs}
    places = {path: place(path, (*listed, *others)) for path in layout.directories}
    return [
        path
        for path, at in places.items()
        if 0 <= at < len(listed) or path in of_part or (at == NOWHERE and path not in filled)
    ]


def directories_not_given(source: EntrySource, urls: Sequence[str] = ()) -> list[Gap]:
    """Return the ledger directories of the given bookies that were not given.

    `urls` are the URLs that `source` was opened from, by default those of its parts. Reads no
    data. Raises UnreachableError if a directory can't be listed.
    """
    gaps = (gap for layout in _layouts(urls or _urls_of(source)) for gap in layout_gaps(layout))
    return sorted({gap: None for gap in gaps if gap.part == "directory"}, key=lambda gap: gap.bookie or "")


def _urls_of(source: EntrySource) -> list[str]:
    return list(dict.fromkeys(part.url for part in source.parts))


def missing_logs(source: EntrySource, ledger_id: int, last: int | None = None) -> Iterator[MissingLog]:
    """Yield the entry logs without entries of a ledger that the index places in them. Needs NumPy.

    Reads the ids of each entry. Raises UnreachableError.
    """
    for part in source.parts:
        yield from _missing_logs_of(part, ledger_id, 0, last)


def _missing_logs_of(part: EntrySource, ledger_id: int, first: int, last: int | None) -> Iterator[MissingLog]:
    import numpy as np

    for files, table in part.located(ledger_id, first, last) or ():
        numbers = np.frombuffer(table.locations, np.int64) >> 32
        for number in np.unique(numbers).tolist():
            rows = table.rows(np.flatnonzero(numbers == number))
            entry_ids, why = _lost_in(files, number, rows)
            if not entry_ids:
                continue
            path = files.paths.get(number)
            directory = next(iter(files.directories), part.url) if path is None else path.parent
            bookie = next(iter(part.bookies or ()), None)
            yield MissingLog(bookie, str(directory), number, ledger_id, entry_ids, why)


def _lost_in(files: DataFiles, number: int, rows: LedgerLocations) -> tuple[tuple[int, ...], str]:
    """Return the entries that a log should have and does not have, and what is wrong with an existing log."""
    from pulsar_meta.entries.locations import has_records

    path = files.paths.get(number)
    if path is None or not path.exists():
        return tuple(rows.entry_ids), ""
    try:
        found = has_records(files, number, rows)
    except DecodeError as error:
        return tuple(rows.entry_ids), f"cannot be read: {error.message}"
    lost = tuple(entry_id for entry_id, is_there in zip(rows.entry_ids, found, strict=True) if not is_there)
    return lost, _what_is_wrong(len(files.view(number)), max(rows.locations) & 0xFFFFFFFF)


def _what_is_wrong(size: int, last_offset: int) -> str:
    if not size:
        return "is empty"
    return f"ends after {size} bytes" if last_offset >= size else "has other bytes where entries should be"


def first_missing_logs(source: EntrySource) -> Iterator[MissingLog]:
    """Yield the entry logs that should have the first or last entry of any ledger, and do not have it.

    Only two entries per ledger are looked up, to be fast. A missing log in the middle of a ledger is found
    when the ledger's entries are counted.
    """
    for part in source.parts:
        if part.entry_logs is None:
            continue
        for ledger_id in part.ledgers():
            ends = {next(part.entry_ids(ledger_id), None), part.last_entry(ledger_id)} - {None}
            for entry_id in ends:
                yield from _missing_logs_of(part, ledger_id, entry_id or 0, entry_id)


def _layouts(urls: Iterable[str]) -> Iterator[BookieLayout]:
    for url in urls:
        if not url.startswith(DISK):
            continue
        try:
            yield from layouts_of(url)
        except (NotFoundError, UsageError, UnreachableError):
            # The error was reported when the source was opened.
            continue


def _unreadable(source: EntrySource) -> Iterator[Gap]:
    """Yield the indexes and states that can't be used, and the journals that can't be read to their end."""
    for part in source.parts:
        bookie = next(iter(part.bookies or ()), None)
        states = None
        try:
            # Lists all ledgers, because some damage to an index shows only then.
            part.ledgers_without_state()
        except DecodeError as error:
            why = f"has no readable states of ledgers, so the bookie does not serve them: {error.message}"
            states = Gap(bookie, "index", error.source or part.url, why)
        if part.index_fault is not None:
            yield Gap(bookie, "index", *_place_of(part.index_fault, part))
        if states is not None:
            yield states
        if part.bookies is not None and part.entry_logs is None:
            for fault in part.faults:
                yield Gap(bookie, "journal", *_place_of(fault, part))


def _place_of(fault: DecodeError, part: EntrySource) -> tuple[str, str]:
    return fault.source or part.url, f"cannot be used: {fault.message}"


def _not_given(bookie: str, part: Part, listed: Sequence[Path], given: Sequence[Path]) -> Iterator[Gap]:
    """Yield the listed directories that were not given, if fewer were given than are listed."""
    places = [place(directory, listed) for directory in given]
    matched = {number for number in places if number != NOWHERE}
    unknown = sum(number == NOWHERE for number in places)
    left = [path for number, path in enumerate(listed) if number not in matched]
    # A directory with another name is assumed to be one of those that are left.
    if len(left) <= unknown:
        return
    if unknown:
        yield Gap(bookie, part, f"{len(left) - unknown} of {', '.join(map(str, left))}")
        return
    for path in left:
        yield Gap(bookie, part, str(path))


def _first(layout: BookieLayout) -> Path:
    return next(iter((*layout.ledger_dirs, *layout.journal_dirs, *layout.index_dirs)), Path("current"))

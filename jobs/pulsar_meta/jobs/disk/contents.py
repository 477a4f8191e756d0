"""Find out which ledgers are on disks: their entries, bytes and files, per bookie and per entry log.

The contents of an entry log come from the map at its end or from its records. Needs NumPy. Source:
apache/bookkeeper DefaultEntryLogger (ledgers map), EntryLogMetadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal, TypedDict

import numpy as np

from pulsar_meta.codecs.bookie_files.entry_log import HEADER_SIZE, LogHeader, decode_log_header, ledgers_map
from pulsar_meta.codecs.columns.records import find_records
from pulsar_meta.codecs.columns.words import Positions
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.locations import Located, record_sizes
from pulsar_meta.entries.sources import JoinedEntries
from pulsar_meta.jobs.seek.readings import State, examine
from pulsar_meta.jobs.topics.topic import Report


@dataclass(slots=True)
class StoredLedger:
    """The entries of a ledger in a source. `files` has (entries, bytes) by the path of each file.

    Bytes are those of records in entry logs: the bookie entry and the size before it, as BookKeeper's ledgers
    maps count them. For other sources, they are the bytes of the entries. `unsized` counts entries whose
    record exceeds its file; their bytes are in no sum.
    """

    ledger_id: int
    entries: int = 0
    size: int = 0
    first_entry: int | None = None
    last_entry: int | None = None
    unsized: int = 0
    files: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, entry_ids: Positions, sizes: Positions, file: str) -> None:
        """Add entries of one file. Size 0 means that the size is unknown."""
        count, total = len(entry_ids), int(sizes.sum())
        self.entries += count
        self.size += total
        self.unsized += int((sizes == 0).sum())
        low, high = int(entry_ids.min()), int(entry_ids.max())
        self.first_entry = low if self.first_entry is None else min(self.first_entry, low)
        self.last_entry = high if self.last_entry is None else max(self.last_entry, high)
        known = self.files.get(file, (0, 0))
        self.files[file] = known[0] + count, known[1] + total


def by_bookie(source: EntrySource) -> list[tuple[str | None, EntrySource]]:
    """Group a source into the disks of each bookie, with the bookie's id.

    The id is None if the disks have no cookie, and for sources that are not disks.
    """
    groups: dict[tuple[str, frozenset[str] | None], list[EntrySource]] = {}
    for part in source.parts:
        groups.setdefault((part.url, part.bookies), []).append(part)
    return [
        (
            next(iter(bookies), None) if bookies else None,
            parts[0] if len(parts) == 1 else JoinedEntries(parts),
        )
        for (_, bookies), parts in groups.items()
    ]


def stored_ledgers(source: EntrySource, report: Report) -> Iterator[StoredLedger]:
    """Yield the ledgers with entries in `source`, in order. Each entry is counted once.

    Unreadable files go to `report`. Raises UnreachableError.
    """
    for ledger_id in source.ledgers():
        stored = stored_ledger(source, ledger_id, report)
        if stored.entries:
            yield stored


def stored_ledger(source: EntrySource, ledger_id: int, report: Report) -> StoredLedger:
    """Count the entries of one ledger in `source`."""
    stored = StoredLedger(ledger_id)
    located = source.located(ledger_id)
    if located is None:
        _add_read(stored, source, report)
    for part in located or ():
        _add_located(stored, part, report)
    return stored


def times_of(source: EntrySource, stored: StoredLedger) -> tuple[int | None, int | None]:
    """The times of the first and last entry in ms, by the broker's clock or else the producer's.

    None if the entry is not a message or can't be read.
    """
    ends = stored.first_entry, stored.last_entry
    first, last = (_time(source, stored.ledger_id, entry_id) for entry_id in ends)
    return first, last


def _add_located(stored: StoredLedger, located: Located, report: Report) -> None:
    files, table = located
    entry_ids = np.frombuffer(table.entry_ids, np.int64)
    locations = np.frombuffer(table.locations, np.int64)
    numbers = locations >> 32
    for number in np.unique(numbers).tolist():
        here = numbers == number
        try:
            sizes = record_sizes(files, number, locations[here] & 0xFFFFFFFF)
            name = files.name(number)
        except DecodeError as error:
            report(error)
            sizes, name = np.zeros(int(here.sum()), np.int64), f"{number:x}.log"
        stored.add(entry_ids[here], sizes, name)


def _add_read(stored: StoredLedger, source: EntrySource, report: Report) -> None:
    """Add the entries of a source without files by reading them."""
    ids, sizes = [], []
    try:
        for raw in source.read_many(stored.ledger_id):
            ids.append(raw.entry_id)
            sizes.append(len(raw.data))
    except DecodeError as error:
        report(error)
    if ids:
        stored.add(np.array(ids, np.int64), np.array(sizes, np.int64), source.url)


def _time(source: EntrySource, ledger_id: int, entry_id: int | None) -> int | None:
    if entry_id is None:
        return None
    try:
        reading = examine(source.read(ledger_id, entry_id))
    except (DecodeError, NotFoundError):
        return None
    if reading.state is not State.READ:
        return None
    return reading.publish_time if reading.broker_timestamp is None else reading.broker_timestamp


_SIZE = 4


@dataclass(frozen=True, slots=True)
class EntryLog:
    """An entry log: its file, its size in bytes, and the bytes that are not records (header and map).

    `ledgers` has the bytes of each ledger, including deleted ones. `entries` has the number of entries if the
    records were read. `read` tells where both come from.
    """

    bookie: str | None
    path: str
    size: int
    overhead: int
    read: Literal["map", "scan"]
    ledgers: dict[int, int]
    entries: dict[int, int]


def entry_logs(
    source: EntrySource, report: Report, chosen: Collection[str] | None = None
) -> Iterator[EntryLog]:
    """Yield the entry logs of each disk, or the chosen ones by path. Unreadable ones go to `report`."""
    for part in source.parts:
        files = part.entry_logs
        bookie = next(iter(part.bookies), None) if part.bookies else None
        for number in [] if files is None else files.paths:
            assert files is not None
            if chosen is not None and files.name(number) not in chosen:
                continue
            try:
                yield _entry_log(files, number, bookie)
            except DecodeError as error:
                report(error if error.source else error.within(str(part.url)))


def _entry_log(files: DataFiles, number: int, bookie: str | None) -> EntryLog:
    view, name = files.view(number), files.name(number)
    try:
        # A preallocated log is empty or contains zeros.
        header = decode_log_header(view) if any(view[:4]) else LogHeader(0, 0, 0)
    except DecodeError as error:
        files.check(number)
        raise error.within(name) from error
    sizes_in_map = ledgers_map(view, header)
    files.check(number)
    if sizes_in_map is not None:
        overhead = HEADER_SIZE + len(view) - header.ledgers_map_offset
        return EntryLog(bookie, name, len(view), overhead, "map", sizes_in_map, {})
    sizes, counts = _scanned(view)
    files.check(number)
    return EntryLog(bookie, name, len(view), min(HEADER_SIZE, len(view)), "scan", sizes, counts)


def _scanned(view: memoryview) -> tuple[dict[int, int], dict[int, int]]:
    """Count the bytes and the entries of each ledger in the records of a log."""
    records = find_records(view)
    if not len(records.offsets):
        return {}, {}
    ids, which, counts = np.unique(records.ledgers, return_inverse=True, return_counts=True)
    sizes = np.zeros(len(ids), np.int64)
    np.add.at(sizes, which, records.sizes + _SIZE)
    names = ids.tolist()
    return dict(zip(names, sizes.tolist(), strict=True)), dict(zip(names, counts.tolist(), strict=True))


class LedgerLine(TypedDict):
    """The entries of a ledger on a bookie's disks. `bookie` is null if the disks have no cookie."""

    ledger_id: int
    bookie: str | None
    entries: int
    first_entry: int | None
    last_entry: int | None
    size: int
    unsized: int
    first_time: int | None
    last_time: int | None
    files: list[str]


class LogLine(TypedDict):
    """The entries of a ledger in an entry log. `entries` is null if the log's map was read."""

    log: str
    bookie: str | None
    ledger_id: int
    entries: int | None
    size: int
    read: Literal["map", "scan"]


def ledger_lines(source: EntrySource, report: Report) -> Iterator[LedgerLine]:
    """Yield a line per bookie and ledger: entries, bytes, times, files."""
    for bookie, disks in by_bookie(source):
        for stored in stored_ledgers(disks, report):
            first_time, last_time = times_of(disks, stored)
            yield {
                "ledger_id": stored.ledger_id,
                "bookie": bookie,
                "entries": stored.entries,
                "first_entry": stored.first_entry,
                "last_entry": stored.last_entry,
                "size": stored.size,
                "unsized": stored.unsized,
                "first_time": first_time,
                "last_time": last_time,
                "files": [PurePath(path).name for path in sorted(stored.files)],
            }


def lines_by_log(source: EntrySource, report: Report, read: Callable[[], None]) -> Iterator[LogLine]:
    """Yield a line per entry log and ledger, including deleted ledgers.

    `read` is called for each log, including empty ones.
    """
    for log in entry_logs(source, report):
        read()
        yield from (_line(log, ledger_id) for ledger_id in sorted(log.ledgers))


def _line(log: EntryLog, ledger_id: int) -> LogLine:
    return {
        "log": log.path,
        "bookie": log.bookie,
        "ledger_id": ledger_id,
        "entries": log.entries.get(ledger_id),
        "size": log.ledgers[ledger_id],
        "read": log.read,
    }

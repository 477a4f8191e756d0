"""Lines about the ledgers on disks: one per ledger of a bookie, or one per ledger in an entry log.

The contents of an entry log come from the map at its end or from its records. Needs NumPy.
Source: apache/bookkeeper DefaultEntryLogger (ledgers map), EntryLogMetadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, TypedDict

import numpy as np

from pulsar_meta.codecs.bookie_files.entry_log import HEADER_SIZE, LogHeader, decode_log_header, ledgers_map
from pulsar_meta.codecs.columns.records import find_records
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.jobs.disk.held import by_bookie, held_ledgers, times_of
from pulsar_meta.jobs.topics.topic import Report

_SIZE = 4


@dataclass(frozen=True, slots=True)
class EntryLog:
    """One entry log: its file, its size in bytes, and what of that are no records (header and map).

    `ledgers` has the bytes of each ledger, deleted ones too; `entries` how many entries, where the records
    were read. `read` says where both are from.
    """

    bookie: str | None
    path: str
    size: int
    overhead: int
    read: Literal["map", "scan"]
    ledgers: dict[int, int]
    entries: dict[int, int]


def entry_logs(source: EntrySource, report: Report) -> Iterator[EntryLog]:
    """Yield the entry logs of each disk; one that cannot be read is reported."""
    for part in source.parts:
        files = part.entry_logs
        bookie = next(iter(part.bookies), None) if part.bookies else None
        for number in [] if files is None else files.paths:
            try:
                assert files is not None
                yield _entry_log(files, number, bookie)
            except DecodeError as error:
                report(error if error.source else error.within(str(part.url)))


def _entry_log(files: DataFiles, number: int, bookie: str | None) -> EntryLog:
    view, name = files.view(number), files.name(number)
    try:
        # A log that was made ahead is zeros, or nothing yet.
        header = decode_log_header(view) if any(view[:4]) else LogHeader(0, 0, 0)
    except DecodeError as error:
        files.check(number)
        raise error.within(name) from error
    known = ledgers_map(view, header)
    files.check(number)
    if known is not None:
        overhead = HEADER_SIZE + len(view) - header.ledgers_map_offset
        return EntryLog(bookie, name, len(view), overhead, "map", known, {})
    sizes, counts = _scanned(view)
    files.check(number)
    return EntryLog(bookie, name, len(view), min(HEADER_SIZE, len(view)), "scan", sizes, counts)


def _scanned(view: memoryview) -> tuple[dict[int, int], dict[int, int]]:
    """Return the bytes and the number of entries of each ledger that has records in a log."""
    records = find_records(view)
    if not len(records.offsets):
        return {}, {}
    ids, which, counts = np.unique(records.ledgers, return_inverse=True, return_counts=True)
    sizes = np.zeros(len(ids), np.int64)
    np.add.at(sizes, which, records.sizes + _SIZE)
    names = ids.tolist()
    return dict(zip(names, sizes.tolist(), strict=True)), dict(zip(names, counts.tolist(), strict=True))


class LedgerLine(TypedDict):
    """What a bookie has of a ledger; `bookie` is null where the disks have no cookie."""

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
    """What an entry log has of a ledger; `entries` is null where the log's map was read."""

    log: str
    bookie: str | None
    ledger_id: int
    entries: int | None
    size: int
    read: Literal["map", "scan"]


def ledger_lines(source: EntrySource, report: Report) -> Iterator[LedgerLine]:
    """Yield what each bookie has of each ledger: entries, bytes, times, files."""
    for bookie, disks in by_bookie(source):
        for held in held_ledgers(disks, report):
            first_time, last_time = times_of(disks, held)
            yield {
                "ledger_id": held.ledger_id,
                "bookie": bookie,
                "entries": held.entries,
                "first_entry": held.first_entry,
                "last_entry": held.last_entry,
                "size": held.size,
                "unsized": held.unsized,
                "first_time": first_time,
                "last_time": last_time,
                "files": [PurePath(path).name for path in sorted(held.files)],
            }


def lines_by_log(source: EntrySource, report: Report, read: Callable[[], None]) -> Iterator[LogLine]:
    """Yield what each entry log has of each ledger, deleted ones too: by its map, else by its records.

    `read` is called for each log, one with nothing in it, too.
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

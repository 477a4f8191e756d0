"""Entry logs by themselves: which ledgers have bytes in each, by the map at its end or by its records.

Needs NumPy. Source: apache/bookkeeper DefaultEntryLogger (ledgers map), EntryLogMetadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pulsar_meta.codecs.bookie_files.entry_log import HEADER_SIZE, LogHeader, decode_log_header, ledgers_map
from pulsar_meta.codecs.columns.records import find_records
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.data_files import DataFiles
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

"""What lies on disks, as lines: a ledger of a bookie each, or a ledger in a log each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Literal, TypedDict

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.disk.held import by_bookie, held_ledgers, times_of
from pulsar_meta.jobs.disk.logs import EntryLog, entry_logs
from pulsar_meta.jobs.topics.topic import Report


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

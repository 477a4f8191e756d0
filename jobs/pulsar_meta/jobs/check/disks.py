"""Bookies' disks: indexes that can't be used, headers of entry logs, and the cookies of other bookies.

A bookie whose index is damaged does not start, or does not find its entries. A garbage header of an entry log
made bookies delete entries (apache/bookkeeper#4607), because the garbage collector reads its ledgers map from
there.

The ensembles of ledgers tell which bookies should have an entry. If they name another bookie for all entries
in a directory, but often not the one in its VERSION (the cookie), the VERSION is in the wrong directory.

Sources: apache/bookkeeper EntryLogManagerBase, DefaultEntryLogger, GarbageCollectorThread, Cookie.java,
RoundRobinDistributionSchedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from pulsar_meta.codecs.bookie_files.entry_log import (
    HEADER_SIZE,
    Record,
    decode_log_header,
    ledgers_map,
    scan_records,
)
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.base import EntrySource, RawEntry, outcome_of
from pulsar_meta.entries.bookie_client import Ensembles
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.check.ledger_index import LedgerIndex
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of
from pulsar_meta.jobs.topics.completeness import Completeness, MissingLog, missing_logs
from pulsar_meta.jobs.topics.evidence import EvidenceReader

_VERSIONS: Final = (0, 1)
# The number of ledgers of a directory whose entries are compared with their ensembles.
_COMPARED: Final = 64
# With fewer entries, no directory is accused.
_ENOUGH: Final = 20
# At most this share of the entries of a wrong bookie fits, and at least this share of the right bookie's.
_WRONG: Final = 0.9
_RIGHT: Final = 0.99


def index_findings(complete: Completeness) -> Iterator[Finding]:
    """Yield the indexes and journals of bookies that can't be used."""
    for gap in complete.every_gap:
        if gap.part in ("index", "journal") and gap.why != "not given":
            whose = "a bookie" if gap.bookie is None else f"bookie {gap.bookie}"
            yield finding(
                "bookie-index-damaged",
                f"the {gap.part} of {whose} {gap.why}",
                path=gap.place,
                evidence={"bookie": gap.bookie, "part": gap.part},
            )


def header_findings(source: EntrySource) -> Iterator[Finding]:
    """Yield the entry logs with a header that no bookie should have written."""
    for part in source.parts:
        logs = part.entry_logs
        if logs is None:
            continue
        for number in sorted(logs.paths):
            fault = _header_fault(logs, number)
            if fault is not None:
                severity, reason = fault
                yield finding(
                    "entry-log-header",
                    f"the header of entry log {number:x}.log is invalid, because {reason}",
                    severity=severity,
                    path=logs.name(number),
                    evidence={"bookie": next(iter(part.bookies or ()), None), "log": number},
                )


def _header_fault(logs: DataFiles, number: int) -> tuple[Severity, str] | None:
    try:
        view = logs.view(number)
        if not len(view):
            # A bookie that stops right after it created the file leaves it empty.
            return None
        header = decode_log_header(view[:HEADER_SIZE])
    except DecodeError as error:
        return Severity.ERROR, error.message
    offset = header.ledgers_map_offset
    if header.version not in _VERSIONS:
        return Severity.ERROR, f"its version is {header.version}"
    # Both are 0 until the log is closed.
    if (offset, header.ledgers_count) == (0, 0):
        return None
    if not 0 < offset <= len(view):
        reason = f"its ledgers map is at offset {offset}, and the file has {len(view)} bytes"
        return Severity.NOTE, f"{reason}; the garbage collector then reads the complete log"
    if offset < len(view) and ledgers_map(view, header) is None:
        return Severity.ERROR, f"there is no ledgers map at offset {offset}"
    return None


class Unindexed(NamedTuple):
    """An entry log with entries to which the bookie's index does not lead.

    `instead_of` is the log in which the index places them, if they are there at the same offsets.
    """

    bookie: str | None
    file: str
    instead_of: str | None = None

    @property
    def directory(self) -> str:
        """The directory of the log."""
        return self.file.rpartition("/")[0]


def unindexed(source: EntrySource, ledger_id: int) -> list[Unindexed]:
    """Return the entry logs with entries of a ledger that bookies' indexes don't lead to.

    Reads the logs that may have entries of the ledger.
    """
    found = []
    for part in source.parts:
        logs = part.entry_logs
        if logs is None or part.index_fault is not None:
            continue
        missing = list(missing_logs(part, ledger_id))
        known = set(part.entry_ids(ledger_id)) - {each for log in missing for each in log.entry_ids}
        bookie = next(iter(part.bookies or ()), None)
        for number in sorted(logs.paths):
            if _has_more(logs, number, ledger_id, known):
                instead_of = next((log.file for log in missing if _is_renamed(part, log, number)), None)
                found.append(Unindexed(bookie, logs.name(number), instead_of))
    return found


def _is_renamed(part: EntrySource, log: MissingLog, number: int) -> bool:
    """Return True if another log has all entries where the index places them in this log."""
    from pulsar_meta.entries.locations import has_records

    return any(
        bool(has_records(files, number, table).all()) for files, table in part.located(log.ledger_id) or ()
    )


def _has_more(logs: DataFiles, number: int, ledger_id: int, known: set[int]) -> bool:
    """Return True if a log has an entry of a ledger that is not known."""
    try:
        view = logs.view(number)
        sizes = ledgers_map(view, decode_log_header(view[:HEADER_SIZE]))
    except DecodeError:
        return False
    if sizes is not None and ledger_id not in sizes:
        return False
    records = (record for record in scan_records(view) if isinstance(record, Record))
    return any(record.ledger_id == ledger_id and record.entry_id not in known for record in records)


def states_missing(source: EntrySource, index: LedgerIndex) -> Iterator[Finding]:
    """Yield the bookies' directories with entries of ledgers that have metadata, but no state.

    A state that was not flushed yet is in a journal.
    """
    for part in source.parts:
        bookie = next(iter(part.bookies or ()), None)
        ledgers = [each for each in _without_state(part) if index.facts(each).metadata == "known"]
        if not ledgers or part.is_stale:
            continue
        own = [other for other in source.parts if other.bookies == part.bookies and other.entry_logs is None]
        ledgers = [each for each in ledgers if all(other.ledger_state(each) is None for other in own)]
        if ledgers:
            whose = "a bookie" if bookie is None else f"bookie {bookie}"
            yield finding(
                "bookie-index-damaged",
                f"the index of {whose} has no state of {len(ledgers)} ledgers that have entries there, so the"
                f" bookie does not serve them; the first is {ledgers[0]}",
                path=directory_of(part),
                evidence={"bookie": bookie, "part": "index", "ledgers": len(ledgers)},
            )


def _without_state(part: EntrySource) -> Sequence[int]:
    """Return the ledgers of a directory that have entries and no state."""
    try:
        return part.ledgers_without_state()
    except DecodeError:
        # The damaged database is reported on its own.
        return ()


@dataclass(frozen=True, slots=True)
class MisplacedCookie:
    """A directory whose VERSION names `bookie`, but whose entries are those that `owner` should have.

    `other` is the directory with the VERSION of `owner` and the entries of `bookie`, None if there is none.
    """

    directory: str
    bookie: str
    owner: str
    other: str | None = None


def misplaced_cookies(reader: EvidenceReader) -> list[MisplacedCookie]:
    """Compare the entries of each directory with the ensembles. Raises UnreachableError.

    Old disks of a bookie that was replaced look the same. So a directory is only accused if the other
    bookie's VERSION is in a directory with this bookie's entries, or if another directory fits the VERSION.
    """
    parts = [] if reader.source is None else [part for part in reader.source.parts if part.entry_logs]
    if len({directory_of(part) for part in parts}) < 2:
        return []
    owners = {
        directory_of(part): (bookie, _owner(reader, part)) for part in parts for bookie in part.bookies or ()
    }
    wrong = {at: pair for at, pair in owners.items() if pair[1] not in (None, pair[0])}
    right = {pair[0] for pair in owners.values() if pair[0] == pair[1]}
    return list(_confirmed(wrong, right))


def _confirmed(wrong: dict[str, tuple[str, str | None]], right: set[str]) -> Iterator[MisplacedCookie]:
    stated = set[str]()
    for directory, (bookie, owner) in wrong.items():
        other = next((at for at, pair in wrong.items() if pair == (owner, bookie)), None)
        if owner is not None and directory not in stated and (other is not None or bookie in right):
            stated.update([directory, other or directory])
            yield MisplacedCookie(directory, bookie, owner, other)


def directory_of(part: EntrySource) -> str:
    """Return the directory of a part's entry logs, or its URL."""
    logs = part.entry_logs
    return str(next(iter(logs.directories), part.url)) if logs else part.url


def _owner(reader: EvidenceReader, part: EntrySource) -> str | None:
    """Return the bookie that should have the entries of a directory, None if several or none could be it."""
    fitting, total = Counter[str](), 0
    for ledger_id, ensembles in _ensembles(reader, _some(part.ledgers())):
        for entry_id in (part.last_entry(ledger_id), next(part.entry_ids(ledger_id), None)):
            # An index that is another bookie's leads to no entry.
            if entry_id is not None and isinstance(outcome_of(part, ledger_id, entry_id), RawEntry):
                total += 1
                fitting.update(set(ensembles.replicas(entry_id)))
    own = next(iter(part.bookies or ()), "")
    if total < _ENOUGH or fitting[own] > _WRONG * total:
        return own
    able = [bookie for bookie, count in fitting.items() if count >= _RIGHT * total]
    return able[0] if len(able) == 1 else None


def _some(ledgers: Sequence[int]) -> Sequence[int]:
    return ledgers[:: max(1, len(ledgers) // _COMPARED)]


def _ensembles(reader: EvidenceReader, ledger_ids: Sequence[int]) -> Iterator[tuple[int, Ensembles]]:
    """Yield the ensembles of the ledgers that have readable metadata."""
    records = reader.store.read_many([ledger_path(ledger_id) for ledger_id in ledger_ids])
    for ledger_id, record in zip(ledger_ids, records, strict=True):
        if record is not None:
            with suppress(DecodeError):
                yield ledger_id, bookkeeper_ledger_of(ledger_id, record).ensembles()

"""Leave out entries that the disks should have and that can't be read. Needs NumPy.

An index places an entry in a log that is missing or cut, or that has other bytes there. Or the digest of the
entry does not fit. A ledger keeps its other entries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from itertools import filterfalse

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_disk import LocatedEntries
from pulsar_meta.entries.sources import JoinedEntries
from pulsar_meta.entries.unindexed import complete_index
from pulsar_meta.jobs.entries.copy_check import CopyReport, WithoutEntries, place_of, read_faults
from pulsar_meta.jobs.entries.entry_blocks import Patience
from pulsar_meta.jobs.entries.entry_choice import Range
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.completeness import MissingLog, missing_logs
from pulsar_meta.jobs.topics.topic import Ledger, Report

# The numbers of first and of last entries that are tried to find the digest type.
_TRIED = 8
# Entries by the position of a part in its source.
_Hidden = Mapping[int, Set[int]]


def complete_indexes(source: EntrySource) -> int:
    """Find the entries to which the indexes of disks don't lead, and return their number.

    Reads all entry logs. Raises UnreachableError.
    """
    return sum(complete_index(part) for part in source.parts if isinstance(part, LocatedEntries))


def emptied_ledgers(source: EntrySource) -> list[int]:
    """Return the ledgers of which a bookie has stored an entry, and of which no disk has any, sorted.

    A bookie records the state of a ledger with its first entry there. If it has only fenced the ledger, the
    ledger may have been empty.
    """
    present, emptied = set(source.ledgers()), set[int]()
    for part in source.parts:
        if isinstance(part, LocatedEntries):
            with suppress(DecodeError):
                for ledger_id in filterfalse(present.__contains__, part.ledger_states.ledgers()):
                    state = source.ledger_state(ledger_id)
                    if state is not None and not state.fenced:
                        emptied.add(ledger_id)
    return sorted(emptied)


def readable(
    source: EntrySource, ledger_id: int, password: bytes, report: Report
) -> tuple[EntrySource, list[int]]:
    """Return the source without the unreadable entries of a ledger, and those that no disk has readable.

    Each damaged log goes to `report`, and each entry whose log is intact. Raises UnreachableError.
    """
    hidden = defaultdict[int, set[int]](set)
    for at, part in enumerate(source.parts):
        for log in missing_logs(part, ledger_id):
            hidden[at].update(log.entry_ids)
            report(_damage(log))
    digest_type = _digest_type(_without(source, ledger_id, hidden), ledger_id, password)
    if digest_type is not None:
        form = EntryFormat(digest_type, password)
        for at, part in enumerate(source.parts):
            for entry_id, fault in _damaged(part, ledger_id, form):
                if entry_id not in hidden[at]:
                    hidden[at].add(entry_id)
                    file, offset = place_of(part, ledger_id, entry_id)
                    text = f"entry {ledger_id}:{entry_id} can't be read here: {fault}"
                    report(DecodeError(text, source=file, offset=offset))
    unreadable = set[int]().union(*hidden.values())
    if not unreadable:
        return source, []
    left = _without(source, ledger_id, hidden)
    return left, sorted(unreadable.difference(left.entry_ids(ledger_id)))


def _damage(log: MissingLog) -> DecodeError:
    why = log.why or "does not exist"
    return DecodeError(f"entries can't be read here, because the entry log {why}", source=log.file)


def _damaged(part: EntrySource, ledger_id: int, form: EntryFormat) -> Iterator[tuple[int, str]]:
    """Yield the entries of a part with a wrong record, header or digest, and what is wrong."""
    last = part.last_entry(ledger_id)
    if last is None:
        return
    everything = Range(Ledger(ledger_id, last + 1), 0, last)
    for entry_id, fault in read_faults(everything, part, form, Patience(0), CopyReport()):
        if fault is not None:
            yield entry_id, fault


def _digest_type(source: EntrySource, ledger_id: int, password: bytes) -> DigestType | None:
    """Return the digest type that fits one of the first or last entries, None if none does."""
    entry_ids = list(source.entry_ids(ledger_id))
    for entry_id in dict.fromkeys([*entry_ids[: -_TRIED - 1 : -1], *entry_ids[:_TRIED]]):
        try:
            entry = decode_bookie_entry(source.read(ledger_id, entry_id).data, password=password)
        except (DecodeError, NotFoundError):
            continue
        if entry.digest == "ok" and (entry.ledger_id, entry.entry_id) == (ledger_id, entry_id):
            return entry.digest_type
    return None


def _without(source: EntrySource, ledger_id: int, hidden: _Hidden) -> EntrySource:
    if not any(hidden.values()):
        return source
    parts = [
        WithoutEntries(part, ledger_id, hidden[at]) if hidden.get(at) else part
        for at, part in enumerate(source.parts)
    ]
    return JoinedEntries(parts, source.url)

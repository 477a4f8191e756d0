"""Find bookies' directories whose file VERSION is another bookie's.

The ensembles of ledgers tell which bookies should have an entry. If they name another bookie for all entries
in a directory, but often not the one in its VERSION, the VERSION is in the wrong directory.

Sources: apache/bookkeeper Cookie.java, RoundRobinDistributionSchedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.base import EntrySource, RawEntry, outcome_of
from pulsar_meta.entries.bookie_client import Ensembles
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of
from pulsar_meta.jobs.topics.evidence import EvidenceReader

# The number of ledgers of a directory whose entries are compared with their ensembles.
_COMPARED: Final = 64
# With fewer entries, no directory is accused.
_ENOUGH: Final = 20
# At most this share of the entries of a wrong bookie fits, and at least this share of the right bookie's.
_WRONG: Final = 0.9
_RIGHT: Final = 0.99


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
    return next((str(path.parent) for path in logs.paths.values()), part.url) if logs else part.url


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

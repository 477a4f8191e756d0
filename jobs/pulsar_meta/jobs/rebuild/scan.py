"""What each ledger on the disks is, and what it says: all that is read of entries, one ledger at a time.

The results are plain values: they can be made by many workers, and be kept. Needs NumPy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeVar

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rebuild.clues import DataClues, Mention, data_clues
from pulsar_meta.jobs.rebuild.compaction import CompactedClues, compacted_clues
from pulsar_meta.jobs.rebuild.cursor_ledgers import CursorClues, cursor_clues
from pulsar_meta.jobs.rebuild.kinds import Kind, kind_of
from pulsar_meta.jobs.rebuild.ledgers import Disks, Examined, FoundLedger, disks_of, examine, judged
from pulsar_meta.jobs.rebuild.replication import CopiedFrom
from pulsar_meta.jobs.rebuild.schemas import SchemaClues, schema_clues
from pulsar_meta.jobs.rebuild.transactions import LogClues, log_clues
from pulsar_meta.jobs.topics.topic import Report

Clues = DataClues | CompactedClues | CursorClues | SchemaClues | LogClues
OfKind = TypeVar("OfKind", bound=Clues)


@dataclass(frozen=True, slots=True)
class LedgerScan:
    """One ledger: what its entries show, what it holds, what it says (None: nothing), what was damaged."""

    examined: Examined
    kind: Kind
    clues: Clues | None = None
    faults: tuple[PulsarMetaError, ...] = ()


@dataclass(frozen=True)
class Scanned:
    """All ledgers that are on the disks, by their ids, in order."""

    found: Mapping[int, FoundLedger]
    kinds: Mapping[int, Kind]
    clues: Mapping[int, Clues] = field(repr=False)

    @classmethod
    def of(cls, scans: Sequence[LedgerScan], password: bytes) -> Scanned:
        """Judge ledgers together: which quorums are usual decides for those that fit several."""
        found = {one.ledger_id: one for one in judged([scan.examined for scan in scans], password)}
        kinds = {scan.examined.ledger_id: scan.kind for scan in scans}
        clues = {scan.examined.ledger_id: scan.clues for scan in scans if scan.clues is not None}
        return cls(found, kinds, clues)

    def said(self, kind: type[OfKind]) -> dict[int, OfKind]:
        """Return what the ledgers of one kind say."""
        return {at: clues for at, clues in self.clues.items() if isinstance(clues, kind)}

    @cached_property
    def kept(self) -> frozenset[int]:
        """The ledgers that BookKeeper is to know."""
        return frozenset(at for at, found in self.found.items() if found.refused is None)

    @cached_property
    def torn(self) -> frozenset[int]:
        """The ledgers whose first or last entries may be on disks that are not here.

        Those that lack entries; all, where so many do that whole disks are missing.
        """
        torn = frozenset(at for at, found in self.found.items() if found.missing)
        return frozenset(self.found) if len(torn) > len(self.found) * TORN_SHARE else torn

    def mentions(self) -> Iterator[Mention]:
        """Yield which ledgers name data ledgers of their topic."""
        for at, clues in self.clues.items():
            if isinstance(clues, CompactedClues | CursorClues | LogClues) and clues.named:
                says = COMPACTED if isinstance(clues, CompactedClues) else MENTIONED
                yield Mention(at, self.kinds[at], clues.named, says)
        yield from self._by_replication()

    def _by_replication(self) -> Iterator[Mention]:
        """Yield what markers and copies say: a ledger that was copied from is one topic's here, too."""
        copies = defaultdict[CopiedFrom, set[int]](set)
        for at, clues in self.said(DataClues).items():
            if clues.replicated.named:
                yield Mention(at, "data", clues.replicated.named | {at}, MARKED)
            for origin in clues.replicated.copied_from:
                copies[origin].add(at)
        for origin, ledgers in sorted(copies.items()):
            if len(ledgers) > 1:
                cluster = origin.cluster.replace("{", "{{").replace("}", "}}")
                says = COPIED.format(cluster, origin.ledger_id)
                yield Mention(min(ledgers), "data", frozenset(ledgers), says)


# Why data ledgers are one topic's, by a ledger and two that it names.
MENTIONED: Final = "the cursor in ledger {} names {} and {}"
COMPACTED: Final = "the compacted data in ledger {} is that of {} and {}"
MARKED: Final = "a marker in ledger {} names {} and {}"
COPIED: Final = "messages of cluster {}, ledger {}, are copied to {{1}} and {{2}}"
# Where more than this share of ledgers lacks entries, disks are missing.
TORN_SHARE: Final = 0.02
# Looks at ledgers, in order.
Scanner = Callable[[Iterable[int]], Iterator[LedgerScan]]


def scan_here(source: EntrySource, report: Report, *, password: bytes, lost: Sequence[str]) -> Scanner:
    """Return what looks at ledgers in this process; damage goes to `report`. It raises UnreachableError."""
    disks = disks_of(source)

    def scanned(ledger_ids: Iterable[int]) -> Iterator[LedgerScan]:
        for ledger_id in ledger_ids:
            scan = scan_ledger(source, disks, ledger_id, password=password, lost=lost)
            for fault in scan.faults:
                report(fault)
            yield scan

    return scanned


def scan_ledger(
    source: EntrySource, disks: Disks, ledger_id: int, *, password: bytes, lost: Sequence[str]
) -> LedgerScan:
    """Return what one ledger is and says. UnreachableError."""
    faults: list[PulsarMetaError] = []
    examined = examine(source, disks, ledger_id, faults.append, password=password, lost=lost)
    kind = kind_of(source, ledger_id, examined.last_entry, examined.digest_type)
    return LedgerScan(examined, kind, _clues(source, examined, kind), tuple(faults))


def _clues(source: EntrySource, examined: Examined, kind: Kind) -> Clues | None:
    ledger_id, digest = examined.ledger_id, examined.digest_type
    match kind:
        case "data":
            return data_clues(source, ledger_id, digest)
        case "compacted":
            return compacted_clues(source, ledger_id, digest)
        case "cursor":
            return cursor_clues(source, ledger_id)
        case "transaction-log" | "pending-acks":
            return log_clues(source, ledger_id, kind, digest)
        case "schema":
            return _schema(source, examined)
        case _:
            return None


def _schema(source: EntrySource, examined: Examined) -> SchemaClues | None:
    ledger_id, last = examined.ledger_id, examined.last_entry
    try:
        entry = decode_bookie_entry(source.read(ledger_id, last).data, examined.digest_type)
    except (DecodeError, NotFoundError):
        return None
    return schema_clues(ledger_id, last, entry.data)

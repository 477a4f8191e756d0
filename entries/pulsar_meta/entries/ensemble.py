"""Which bookies hold an entry of a ledger.

Source: apache/bookkeeper client/RoundRobinDistributionSchedule.java.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pulsar_meta.codecs.frames.bookie_entry import DigestType


@dataclass(frozen=True, slots=True)
class Segment:
    """From `first_entry` on the ledger's entries go to `members`, ids of bookies in their order."""

    first_entry: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ensembles:
    """What LedgerMetadata says about where a ledger's entries lie.

    `last_entry` is None while the ledger is open, and -1 for a closed ledger without entries.
    """

    ledger_id: int
    write_quorum: int
    ack_quorum: int
    segments: tuple[Segment, ...]
    last_entry: int | None
    digest_type: DigestType
    password: bytes | None = None

    def segment(self, entry_id: int) -> Segment:
        """Return the segment that an entry belongs to."""
        at = bisect_right([segment.first_entry for segment in self.segments], entry_id)
        return self.segments[max(0, at - 1)]

    def replicas(self, entry_id: int) -> Sequence[str]:
        """Return the bookies that an entry was written to, in the order in which they are asked."""
        members = self.segment(entry_id).members
        return [members[(entry_id + copy) % len(members)] for copy in range(self.write_quorum)]

    @property
    def striped(self) -> bool:
        """Whether a bookie holds only some of the entries of its segment."""
        return any(len(segment.members) > self.write_quorum for segment in self.segments)


class BookieCluster(Protocol):
    """What a metadata store knows about ledgers and bookies, as the source of live entries asks it."""

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers, in order."""
        ...

    def ensembles(self, ledger_id: int) -> Ensembles:
        """Return where a ledger's entries lie; NotFoundError where there is no such ledger."""
        ...

    def address(self, bookie_id: str) -> tuple[str, int]:
        """Return host and port of a bookie; UnreachableError where it is not known."""
        ...

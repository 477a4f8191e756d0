"""Entry sources that lose or change entries of a capture, and simulated tiered storage."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.entries.base import BookieLedgerState, EntrySource, RawEntry
from pulsar_meta.entries.locations import Located
from pulsar_meta.entries.sources import JoinedEntries

Lost = Callable[[int], bool]
TIERED = "offload:memory"


@dataclass
class EntryDamage:
    """Which entries are missing or changed, and what tiered storage has.

    `lost` decides by (bookie, ledger) which entries are missing; the bookie None means all bookies. `changed`
    maps (ledger, entry) to other bytes. `objects` are the (ledger, UUID of the offload) pairs in tiered
    storage.
    """

    lost: dict[tuple[str | None, int], Lost] = field(default_factory=dict)
    changed: dict[tuple[int, int], bytes] = field(default_factory=dict)
    objects: set[tuple[int, str]] = field(default_factory=set)

    def apply_to(self, source: EntrySource) -> EntrySource:
        """Return the source without the lost entries, joined with the tiered storage."""
        return JoinedEntries([self.remaining(source), Tiered(self)], source.url)

    def remaining(self, source: EntrySource) -> EntrySource:
        """Return the source without the lost entries."""
        return JoinedEntries([Disk(part, self) for part in source.parts], source.url)


class Disk(EntrySource):
    """A disk that has lost or changed entries."""

    def __init__(self, part: EntrySource, damage: EntryDamage) -> None:
        self.url, self.bookies, self._part, self._damage = part.url, part.bookies, part, damage
        self.whole_ledgers, self.cookies = part.whole_ledgers, part.cookies

    def _lost(self, ledger_id: int) -> Lost | None:
        lost = self._damage.lost
        owners = [None, *(self.bookies or ())]
        return next((lost[owner, ledger_id] for owner in owners if (owner, ledger_id) in lost), None)

    def ledgers(self) -> list[int]:
        return [ledger for ledger in self._part.ledgers() if self.last_entry(ledger) is not None]

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        lost = self._lost(ledger_id)
        entry_ids = self._part.entry_ids(ledger_id, first, last)
        return entry_ids if lost is None else (entry_id for entry_id in entry_ids if not lost(entry_id))

    def last_entry(self, ledger_id: int) -> int | None:
        if self._lost(ledger_id) is None:
            return self._part.last_entry(ledger_id)
        return max(self.entry_ids(ledger_id), default=None)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        lost = self._lost(ledger_id)
        if lost is not None and lost(entry_id):
            raise NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url)
        raw = self._part.read(ledger_id, entry_id)
        changed = self._damage.changed.get((ledger_id, entry_id))
        return raw if changed is None else RawEntry(ledger_id, entry_id, changed, raw.bookie)

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        locations, lost = self._part.located(ledger_id, first, last), self._lost(ledger_id)
        if locations is None or lost is None:
            return locations
        gone = array(
            "q", (entry_id for entry_id in self._part.entry_ids(ledger_id, first, last) if lost(entry_id))
        )
        return ((files, table.without(gone)) for files, table in locations)

    def ledger_state(self, ledger_id: int) -> BookieLedgerState | None:
        return self._part.ledger_state(ledger_id)


class Tiered(EntrySource):
    """Tiered storage that lists its objects and has no readable entries."""

    url = TIERED

    def __init__(self, damage: EntryDamage) -> None:
        self._damage = damage

    def ledgers(self) -> list[int]:
        return sorted({ledger_id for ledger_id, _ in self._damage.objects})

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        return iter(())

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        raise NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url)

    def objects(self, *, again: bool = False) -> Iterator[tuple[int, str]]:
        return iter(sorted(self._damage.objects))

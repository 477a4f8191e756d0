"""A test source of entries, some of which cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.entries.base import EntrySource, RawEntry


class Worn(EntrySource):
    """Has `count` entries in every ledger, `lost` of which raise these errors, and counts the requests."""

    url = "worn:"

    def __init__(
        self, count: int, lost: Mapping[int, Exception], data: Callable[[int], bytes] = b"%d".__mod__
    ) -> None:
        """`data` returns the bytes of an entry id."""
        self.count, self.lost, self.data, self.requests = count, lost, data, 0

    def ledgers(self) -> list[int]:
        return [7]

    def last_entry(self, ledger_id: int) -> int | None:
        return self.count - 1

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        return iter(range(first, self.count if last is None else min(last + 1, self.count)))

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        self.requests += 1
        return self._entry(ledger_id, entry_id)

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        self.requests += 1
        for entry_id in self.entry_ids(ledger_id, first, last):
            if not isinstance(self.lost.get(entry_id), NotFoundError):
                yield self._entry(ledger_id, entry_id)

    def _entry(self, ledger_id: int, entry_id: int) -> RawEntry:
        if entry_id in self.lost:
            raise self.lost[entry_id]
        return RawEntry(ledger_id, entry_id, self.data(entry_id))

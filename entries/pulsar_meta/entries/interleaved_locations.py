"""The location index of interleaved and sorted storage: one `.idx` file for each ledger."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pulsar_meta.access.mapped import MappedFile
from pulsar_meta.codecs.bookie_files.interleaved_index import (
    IndexHeader,
    decode_index_header,
    location_of,
    locations,
)
from pulsar_meta.codecs.errors import decoding
from pulsar_meta.entries.locations import LedgerLocations

PATTERN: Final = "*/*/*.idx"

_index_re = re.compile(r"^[0-9a-f]{1,2}/[0-9a-f]{1,2}/([0-9a-f]{1,16})\.idx$")


class InterleavedLocations:
    """The locations of a bookie's ledgers, in whichever of its index directories each lies."""

    def __init__(self, directories: Iterable[Path]) -> None:
        """Find the index files below `current` directories; they are read when asked for."""
        self._paths: dict[int, Path] = {}
        for directory in directories:
            for path in directory.glob(PATTERN):
                match = _index_re.match(path.relative_to(directory).as_posix())
                if match:
                    self._paths[int(match[1], 16)] = path

    def ledgers(self) -> list[int]:
        """Return all ledgers that have an entry, in ascending order."""
        return [ledger_id for ledger_id in sorted(self._paths) if self.last_entry(ledger_id) is not None]

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry of a ledger."""
        entry_ids = self.ledger(ledger_id).entry_ids
        return entry_ids[-1] if entry_ids else None

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return where one entry lies."""
        with self._view(ledger_id) as view:
            location = location_of(view, entry_id)
        return location if location > 0 else None

    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""
        with self._view(ledger_id) as view:
            return LedgerLocations(ledger_id, *locations(view)).between(first, last)

    def header(self, ledger_id: int) -> IndexHeader | None:
        """Return the head of a ledger's index, None where it has none; DecodeError where it is broken."""
        if ledger_id not in self._paths:
            return None
        with self._view(ledger_id) as view:
            return decode_index_header(view)

    def close(self) -> None:
        """Nothing stays open."""

    @contextmanager
    def _view(self, ledger_id: int) -> Iterator[memoryview]:
        """Lend a ledger's index; UnreachableError where a part of it could not be read."""
        path = self._paths.get(ledger_id)
        if path is None:
            yield memoryview(b"")
            return
        mapped = MappedFile(path)
        try:
            with decoding(str(path)):
                decode_index_header(mapped.view)
            yield mapped.view
        finally:
            mapped.check()

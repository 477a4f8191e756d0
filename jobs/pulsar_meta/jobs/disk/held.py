"""What a source holds of each ledger: how many entries and bytes, in which files. Needs NumPy.

Bytes are those of records in entry logs: the bookie entry and the size before it, as BookKeeper's ledgers
maps count them. Of a source that is no disk they are those of the entries themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pulsar_meta.codecs.columns.words import Positions
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.joined import JoinedEntries
from pulsar_meta.entries.locations import Located
from pulsar_meta.entries.record_sizes import record_sizes
from pulsar_meta.jobs.seek.readings import State, examine
from pulsar_meta.jobs.topics.topic import Report


@dataclass(slots=True)
class Held:
    """What is held of a ledger. `files` has (entries, bytes) by the path of the file they lie in.

    `unsized` counts entries whose record does not fit into its file: their bytes are in no sum.
    """

    ledger_id: int
    entries: int = 0
    size: int = 0
    first_entry: int | None = None
    last_entry: int | None = None
    unsized: int = 0
    files: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, entry_ids: Positions, sizes: Positions, file: str) -> None:
        """Add entries of one file; a size of 0 is one that is not known."""
        count, total = len(entry_ids), int(sizes.sum())
        self.entries += count
        self.size += total
        self.unsized += int((sizes == 0).sum())
        low, high = int(entry_ids.min()), int(entry_ids.max())
        self.first_entry = low if self.first_entry is None else min(self.first_entry, low)
        self.last_entry = high if self.last_entry is None else max(self.last_entry, high)
        known = self.files.get(file, (0, 0))
        self.files[file] = known[0] + count, known[1] + total


def by_bookie(source: EntrySource) -> list[tuple[str | None, EntrySource]]:
    """Return the source of each bookie's disks, logs and journals together, and the bookie's id.

    The id is None where the disks have no cookie, and for what is no disk.
    """
    groups: dict[tuple[str, frozenset[str] | None], list[EntrySource]] = {}
    for part in source.parts:
        groups.setdefault((part.url, part.bookies), []).append(part)
    return [
        (
            next(iter(bookies), None) if bookies else None,
            parts[0] if len(parts) == 1 else JoinedEntries(parts),
        )
        for (_, bookies), parts in groups.items()
    ]


def held_ledgers(source: EntrySource, report: Report) -> Iterator[Held]:
    """Yield what `source` holds of each ledger, in order, each entry counted once.

    A file that cannot be read is reported. UnreachableError from the source.
    """
    for ledger_id in source.ledgers():
        held = held_of(source, ledger_id, report)
        if held.entries:
            yield held


def held_of(source: EntrySource, ledger_id: int, report: Report) -> Held:
    """Return what `source` holds of one ledger; 0 entries where it has none."""
    held = Held(ledger_id)
    located = source.located(ledger_id)
    if located is None:
        _add_read(held, source, report)
    else:
        for one in located:
            _add_located(held, one, report)
    return held


def times_of(source: EntrySource, held: Held) -> tuple[int | None, int | None]:
    """Return the times of the first and last entry that is held, by the broker's clock, else the producer's.

    None where the entry is no message, or cannot be read.
    """
    ends = held.first_entry, held.last_entry
    first, last = (_time(source, held.ledger_id, entry_id) for entry_id in ends)
    return first, last


def _add_located(held: Held, located: Located, report: Report) -> None:
    files, table = located
    entry_ids = np.frombuffer(table.entry_ids, np.int64)
    locations = np.frombuffer(table.locations, np.int64)
    numbers = locations >> 32
    for number in np.unique(numbers).tolist():
        here = numbers == number
        try:
            sizes = record_sizes(files, number, locations[here] & 0xFFFFFFFF)
            name = files.name(number)
        except DecodeError as error:
            report(error)
            sizes, name = np.zeros(int(here.sum()), np.int64), f"{number:x}.log"
        held.add(entry_ids[here], sizes, name)


def _add_read(held: Held, source: EntrySource, report: Report) -> None:
    """Add entries that are not in files: they are read."""
    ids, sizes = [], []
    try:
        for raw in source.read_many(held.ledger_id):
            ids.append(raw.entry_id)
            sizes.append(len(raw.data))
    except DecodeError as error:
        report(error)
    if ids:
        held.add(np.array(ids, np.int64), np.array(sizes, np.int64), source.url)


def _time(source: EntrySource, ledger_id: int, entry_id: int | None) -> int | None:
    if entry_id is None:
        return None
    try:
        reading = examine(source.read(ledger_id, entry_id))
    except (DecodeError, NotFoundError):
        return None
    if reading.state is not State.READ:
        return None
    return reading.publish_time if reading.broker_timestamp is None else reading.broker_timestamp

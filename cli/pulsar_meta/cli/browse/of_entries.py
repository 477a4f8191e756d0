"""The entries of a topic or a ledger, a page at a time, as `dump-entries` shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from rich.text import Text

from pulsar_meta.cli.browse.drawing import fault_line, line, lines
from pulsar_meta.cli.browse.of_topics import topics_at
from pulsar_meta.cli.browse.opened import Opened, Spot
from pulsar_meta.cli.render.entries import (
    ENTRY_COLUMNS,
    MESSAGE_COLUMNS,
    NONE,
    each_message,
    entry_view,
    message_view,
)
from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.names import ledger_of_path
from pulsar_meta.jobs.entries.entry_choice import Bound, Coverage, Limits, choice_of, choose
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe
from pulsar_meta.jobs.entries.entry_reading import Readable, read_entries

PAGE: Final = 50
COLUMNS: Final = ("position", "time", "index", "messages", "size (bytes)", "note")
NO_ENTRIES: Final = "no entries were given: start with --entries URL"
NEITHER: Final = "neither a topic nor a ledger is here: choose one in the tree"


@dataclass(frozen=True, slots=True)
class Row:
    """An entry, and what is shown of it."""

    entry: Readable
    cells: dict[str, str]


class EntryPages:
    """Entries in reading order; `faults` are those met so far, `coverage` counts what was looked at."""

    def __init__(self, opened: Opened, spot: Spot, first: Bound | None = None) -> None:
        """Begin with the entry `first`; raises what opening the entries does."""
        self.faults: list[PulsarMetaError] = []
        self.coverage = Coverage()
        self.note = ""
        self._rows = self._of(opened, spot, Limits(first))

    def next(self) -> list[Row]:
        """Return the next page, empty at the end; UnreachableError."""
        return list(islice(self._rows, PAGE))

    def _of(self, opened: Opened, spot: Spot, limits: Limits) -> Iterator[Row]:
        ledger_id, source, report = ledger_of_path(spot.path), opened.entries, self.faults.append
        if source is None or (ledger_id is None and spot.topic is None):
            self.note = NO_ENTRIES if source is None else NEITHER
            return
        choices = (
            map(choice_of, topics_at(opened.store, spot, report))
            if ledger_id is None
            else choose([str(ledger_id)], opened.store, source, report)
        )
        places = ((choice, limits) for choice in choices)
        for entry in read_entries(places, source, opened.store, report, self.coverage):
            document = describe(*entry, DumpOptions(), report)
            yield Row(entry, dict(zip(ENTRY_COLUMNS, entry_view().row(document), strict=True)))


def messages_of(row: Row) -> list[Text]:
    """Return everything about an entry and the messages in it, payloads as text."""
    faults: list[PulsarMetaError] = []
    document = describe(*row.entry, DumpOptions(deep=True, form="text"), faults.append)
    shown = _named(row.cells)
    for number, one in enumerate(each_message([dict(document)])):
        cells = dict(zip(MESSAGE_COLUMNS, message_view().row(one), strict=True))
        own = {name: cell for name, cell in cells.items() if row.cells.get(name) != cell}
        shown += [line(f"message {number}", "head"), *_named(own)]
    return [*shown, *map(fault_line, faults)]


def _named(cells: dict[str, str]) -> list[Text]:
    return lines(f"  {name}: {cell}" for name, cell in cells.items() if cell != NONE)

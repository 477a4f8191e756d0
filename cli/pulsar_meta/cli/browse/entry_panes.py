"""The pane with the entries of a topic or a ledger, one page at a time, as `dump-entries` shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Static

from pulsar_meta.cli.browse.drawing import LinesScreen, fault_line, line, lines
from pulsar_meta.cli.browse.topic_panes import topics_at
from pulsar_meta.cli.browse.tree import Ask, Opened, Spot
from pulsar_meta.cli.render.entries import (
    ENTRY_COLUMNS,
    MESSAGE_COLUMNS,
    NONE,
    each_message,
    entry_view,
    message_view,
)
from pulsar_meta.cli.render.text import cell_width, checked_text, counted
from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.names import ledger_of_path
from pulsar_meta.jobs.entries.entry_choice import Bound, Coverage, Limits, choice_of, choose
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe
from pulsar_meta.jobs.entries.entry_reading import Readable, read_entries

PAGE: Final = 50
COLUMNS: Final = ("position", "time", "index", "messages", "size (bytes)", "note")
NO_ENTRIES: Final = "no entries to show: start browse with --entries URL"
NEITHER: Final = "neither a topic nor a ledger: choose one in the tree"


@dataclass(frozen=True, slots=True)
class Row:
    """An entry and its cells."""

    entry: Readable
    cells: dict[str, str]


class EntryPages:
    """Entries in reading order; `faults` and `coverage` grow while they are read."""

    def __init__(self, opened: Opened, spot: Spot, first: Bound | None = None) -> None:
        """Start at the entry `first`. Raises the errors of opening the entries."""
        self.faults: list[PulsarMetaError] = []
        self.coverage = Coverage()
        self.note = ""
        self._rows = self._of(opened, spot, Limits(first))

    def next(self) -> list[Row]:
        """Return the next page, empty at the end. Raises UnreachableError."""
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
    """Describe an entry and its messages, with payloads as text."""
    faults: list[PulsarMetaError] = []
    document = describe(*row.entry, DumpOptions(deep=True, form="text"), faults.append)
    shown = _named(row.cells)
    for number, message in enumerate(each_message([dict(document)])):
        cells = dict(zip(MESSAGE_COLUMNS, message_view().row(message), strict=True))
        own = {name: cell for name, cell in cells.items() if row.cells.get(name) != cell}
        shown += [line(f"message {number}", "head"), *_named(own)]
    return [*shown, *map(fault_line, faults)]


def _named(cells: dict[str, str]) -> list[Text]:
    return lines(f"  {name}: {cell}" for name, cell in cells.items() if cell != NONE)


KEYS: Final = "n next  p previous  b first  e last  Enter opens"


class EntriesPane(Vertical):
    """Shows a page of entries; further pages are read on request."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "turn(1)", "Next page", show=False),
        Binding("p", "turn(-1)", "Previous page", show=False),
        Binding("b", "begin", "First page", show=False),
        Binding("e", "last", "Last page", show=False),
    ]
    DEFAULT_CSS = """
        EntriesPane { height: 1fr; }
        EntriesPane DataTable { height: 1fr; }
        EntriesPane Static { height: auto; max-height: 6; padding: 0 1; }
    """

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask
        self._spot = Spot("/")
        self._source: EntryPages | None = None
        self._pages: list[list[Row]] = []
        self._at = 0
        self._table = DataTable[Text](cursor_type="row")
        self.note = Static(id="entries-note", markup=False)

    def compose(self) -> ComposeResult:
        """Build the table and the note below it."""
        yield self._table
        yield self.note

    async def show(self, spot: Spot, first: Bound | None = None) -> None:
        """Show the first page of a place's entries, or the page that starts at `first`."""
        self._spot, self._source, self._pages = spot, None, []
        self._fill([])
        self._say(line("reading…", "dim"))
        try:
            source = await self._ask(lambda opened: EntryPages(opened, spot, first))
        except PulsarMetaError as error:
            self._say(fault_line(error))
            return
        self._source = source
        await self._show_page(0)

    async def _show_page(self, number: int) -> None:
        source = self._source
        if source is None or number < 0:
            return
        rows: list[Row] | None = None
        if number == len(self._pages):
            try:
                rows = await self._ask(lambda opened: source.next())
            except PulsarMetaError as error:
                # Reading can't continue after an error, and this is not the end of the entries.
                self._source = None
                self._say(fault_line(error), line("b reads again from the first page", "dim"))
                return
            if source is not self._source:
                return
            if rows or not self._pages:
                self._pages.append(rows)
        self._at = min(number, len(self._pages) - 1)
        self._fill(self._pages[self._at])
        self._say(*self._about(source, ended=rows is not None and len(rows) < PAGE))

    def _fill(self, rows: list[Row]) -> None:
        self._table.clear(columns=True)
        for name in COLUMNS:
            # DataTable sometimes computes its widths from the headings alone.
            width = max(cell_width(text) for text in (name, *(row.cells[name] for row in rows)))
            self._table.add_column(name, width=width)
        for row in rows:
            self._table.add_row(*(line(row.cells[name]) for name in COLUMNS))

    def _about(self, source: EntryPages, *, ended: bool) -> list[Text]:
        if source.note:
            return [line(source.note, "dim")]
        shown = counted(len(self._pages[self._at]), "entries")
        about = [line(f"page {self._at + 1}, {shown}  {KEYS}", "dim")]
        about += map(fault_line, source.faults[:2])
        if len(source.faults) > 2:
            about.append(line(f"… and {len(source.faults) - 2} more faults", "error"))
        if ended:
            about.append(line(checked_text(source.coverage.checked, source.coverage.left_out), "dim"))
        return about

    def _say(self, *lines: Text) -> None:
        self.note.update(Text("\n").join(lines))

    @work(exclusive=True, group="entries")
    async def action_turn(self, by: int) -> None:
        """Show the next or the previous page."""
        await self._show_page(self._at + by)

    @work(exclusive=True, group="entries")
    async def action_begin(self) -> None:
        """Show the first page."""
        await self.show(self._spot)

    @work(exclusive=True, group="entries")
    async def action_last(self) -> None:
        """Show the last page."""
        await self.show(self._spot, Bound(-PAGE))

    @work(exclusive=True, group="entries")
    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show all details of an entry."""
        row = self._pages[self._at][event.cursor_row]
        try:
            lines = await self._ask(lambda opened: messages_of(row))
        except PulsarMetaError as error:
            lines = [fault_line(error)]
        self.app.push_screen(LinesScreen(f"entry {row.cells['position']}", lines))

"""Screens on top of the main one: lines to read, and the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from pulsar_meta.cli.browse.drawing import Lines, line

HINT = "part of a name, /a/path, topic NAME, cursor TOPIC NAME, ledger ID, LEDGER:ENTRY"
HELP = (
    "arrows        move in the tree; right opens a place, left closes it",
    "Enter         open a place, or load more of a long list",
    "Tab           move between the tree and the right side",
    "1 2 3 4 5     show the value, ledgers, cursors, entries or findings of a place",
    "z             give the right side the whole width, and back",
    f"/             find {HINT}",
    "c             check the topic or namespace under the cursor, or the whole store",
    "f             go to the next finding; pulsar-meta explain CODE explains it",
    "s             add up the values at and below the place under the cursor",
    "r             read the place under the cursor again",
    "Escape        stop a check, a search or a sum; close a window",
    "q             quit",
    "",
    "In entries: n and p turn pages, b and e go to the first and last page, Enter opens an entry.",
    "To copy text, hold Shift (Option on a Mac) while you select it.",
)
_BOX = """
    {name} {{ align: center middle; }}
    {name} > Vertical {{ width: 94%; height: 90%; border: round $primary; background: $surface; }}
    {name} Static {{ height: auto; padding: 0 1; }}
"""
_OPTIONS = """
    FindScreen OptionList { height: 1fr; border: none; }
    FindScreen OptionList:focus { border: none; }
"""


class LinesScreen(ModalScreen[None]):
    """Lines with a heading; Escape closes the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Back")]
    DEFAULT_CSS = _BOX.format(name="LinesScreen")

    def __init__(self, heading: str, lines: Sequence[Text]) -> None:
        super().__init__()
        self._heading, self._lines = heading, lines

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Vertical():
            yield Static(line(f"{self._heading}  (Escape goes back)", "head"), markup=False)
            yield Lines()

    def on_mount(self) -> None:
        """Show the lines."""
        lines = self.query_one(Lines)
        lines.show(self._lines)
        lines.focus()


class FindScreen(ModalScreen[str | None]):
    """Asks for a text, lists the paths found, and returns the chosen one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]
    DEFAULT_CSS = _BOX.format(name="FindScreen") + _OPTIONS

    def __init__(self, find: Callable[[FindScreen, str], None]) -> None:
        """`find` starts a search, which calls `found` and `say`."""
        super().__init__()
        self._find = find
        self._paths: list[str] = []

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Vertical():
            yield Input(placeholder=HINT)
            yield OptionList()
            yield Static(line(HINT, "dim"), markup=False, id="find-note")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Start a search."""
        self._paths.clear()
        self.query_one(OptionList).clear_options()
        if event.value.strip():
            self._find(self, event.value.strip())

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the chosen path."""
        self.dismiss(self._paths[event.option_index])

    def found(self, path: str) -> None:
        """List a path; does nothing if the screen was closed."""
        for options in self.query(OptionList):
            self._paths.append(path)
            options.add_option(line(path))
            if len(self._paths) == 1:
                options.highlighted = 0
                options.focus()

    def say(self, text: Text) -> None:
        """Show the progress or an error of the search; does nothing if the screen was closed."""
        for note in self.query("#find-note").results(Static):
            note.update(text)

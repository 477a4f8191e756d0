"""Documents as blocks of lines: folded to the terminal's width, and coloured unless NO_COLOR is set."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import IO, Final

from pulsar_meta.cli.render.text import in_a_cell

# Longer lines are hard to read.
WIDEST: Final = 100
LABEL_WIDTH: Final = 12
_COLOURS: Final = {"error": "1;31", "warning": "1;33", "note": "1;36", "bold": "1"}


@dataclass(frozen=True, slots=True)
class Screen:
    """What blocks are printed on. `width` is None and `colours` False if it is not a terminal."""

    width: int | None = None
    colours: bool = False

    @classmethod
    def of(cls, out: IO[str]) -> Screen:
        """Describe an output stream; see no-color.org for NO_COLOR."""
        if not out.isatty():
            return cls()
        colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(min(shutil.get_terminal_size().columns - 1, WIDEST), colours)

    def paint(self, text: str, colour: str) -> str:
        """Return a text in a colour, named by a severity, or in bold."""
        text = in_a_cell(text)
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.colours else text

    def prose(self, text: str, label: str = "", indent: str = "  ") -> Iterator[str]:
        """Yield Markdown text as folded lines, with a label before the first one."""
        first = indent + (f"{label}:".ljust(LABEL_WIDTH) if label else "")
        text = in_a_cell(text.replace("**", ""))
        if self.width is None:
            yield first + text
            return
        yield from wrap(
            text,
            max(self.width, 2 * len(first)),
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        )

    def command(self, text: str, label: str, indent: str = "  ") -> str:
        """Return a command on one line, never shortened or folded, so that it can be copied."""
        return indent + (f"{label}:" if label else "").ljust(LABEL_WIDTH) + in_a_cell(text)

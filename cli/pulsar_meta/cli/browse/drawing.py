"""Lines for the screen: harmless text, and parts of a whole drawn as a strip of characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.style import Style
from rich.text import Text

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.render.pages import Part
from pulsar_meta.cli.render.text import in_a_cell
from pulsar_meta.codecs.errors import PulsarMetaError

# Columns of a strip.
STRIP: Final = 20
# Characters of a line that are shown; what is longer says so.
LONGEST: Final = 10_000
NOTHING, SOME, ALL = "·", "▒", "█"
STYLES: Final = {
    "error": Style(color="red", bold=True),
    "warning": Style(color="yellow"),
    "note": Style(dim=True),
    "dim": Style(dim=True),
    "head": Style(bold=True),
}
# What stands in the tree where something was found.
SIGNS: Final = {"error": "✖", "warning": "▲", "note": "●"}
LEGEND: Final = f"{ALL} all, {SOME} some, {NOTHING} none"


def line(text: str, look: str = "") -> Text:
    """Return a line of text from outside: nothing in it is markup, or steers a terminal."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … {len(text) - LONGEST} characters more"
    return Text(in_a_cell(text), STYLES.get(look, Style.null()))


def lines(texts: Iterable[str], look: str = "") -> list[Text]:
    """Return several."""
    return [line(text, look) for text in texts]


def fault_line(error: PulsarMetaError) -> Text:
    """Return an error as one line."""
    return line(redact(str(error)), "error")


def buttons(named: Sequence[tuple[str, str]], chosen: int | None = None) -> Text:
    """Return a line of names, each of which does something (an action of textual) where it is clicked."""
    shown = Text()
    for number, (name, action) in enumerate(named):
        look = Style(reverse=number == chosen, meta={"@click": action})
        shown.append(f" {name} ", look)
    return shown


def strip(parts: Sequence[Part], width: int = STRIP) -> str:
    """Return the parts that are no background drawn in so many columns: all of a column, some of it, none."""
    shares = [0.0] * width
    for part in parts:
        if part.look != "pale":
            _add(shares, part.start * width, (part.start + part.width) * width)
    return "".join(ALL if share > 0.999 else SOME if share > 0 else NOTHING for share in shares)


def _add(shares: list[float], start: float, end: float) -> None:
    """Add to each column how much of it lies between two places, counted in columns."""
    first = min(int(start), len(shares) - 1)
    for column in range(first, min(int(end), len(shares) - 1) + 1):
        shares[column] += max(0.0, min(end, column + 1) - max(start, column))

"""Text for people: control characters escaped, lines folded, numbers with units and nouns, colours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import IO, Any, Final
from unicodedata import combining, east_asian_width

from pulsar_meta.codecs.json_text import dumps
from pulsar_meta.codecs.patterns import lazy_pattern

UNITS: Final = ("KiB", "MiB", "GiB", "TiB")

# Characters that control a terminal, change the order of text (Unicode's bidirectional controls, UAX #9), or
# start a new line (U+2028, U+2029).
_CONTROLS: Final = (*range(32), *range(127, 160))
_OTHERS: Final = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in _CONTROLS} | {
    code: f"\\u{code:04x}" for code in _OTHERS
}
_IN_A_LINE: Final = {code: text for code, text in _ESCAPES.items() if code not in (9, 10)}
_FOR_EYES: Final = _ESCAPES | {9: "\\t", 10: "\\n", 13: "\\r"}
_IN_A_CELL: Final = _ESCAPES | {9: "\\t", 10: "\\n", 13: "\\r", 92: "\\\\"}
IN_JSON: Final = {code: f"\\u{code:04x}" for code in _ESCAPES if code >= 127}


_iso_time_re: Final = lazy_pattern(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2}T)([0-9]{2}:[0-9:.]+Z)")
# The lookbehind keeps the time linear, because a long run of spaces is tried only at its beginning.
_line_end_re = lazy_pattern(r"(?<!\s)\s*[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\s*")


def harmless(text: str, escapes: Mapping[int, str] = _IN_A_LINE) -> str:
    """Escape characters that control a terminal, except tabs and line ends."""
    return text if text.isprintable() else text.translate(escapes)


def one_line(cell: str) -> str:
    """Escape characters that control a terminal or break a line or column, and backslashes."""
    return cell.translate(_IN_A_CELL) if "\\" in cell else harmless(cell, _IN_A_CELL)


def in_a_cell(text: str) -> str:
    """Escape characters that control a terminal or break a line, but not backslashes (for people only)."""
    return harmless(text, _FOR_EYES)


def cell_width(text: str) -> int:
    """Return the width of a text on a terminal: wide characters take two columns, marks none (UAX #11)."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def folded(text: str, width: int) -> list[str]:
    """Fold a text between words into lines of at most `width` columns; long words lose their middle.

    A time may be folded between date and hour.
    """
    if cell_width(text) <= width:
        return [text]
    lines = [""]
    for word in _iso_time_re.sub(r"\1 \2", text).split(" "):
        word = without_middle(word, width)
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_width(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def is_time(text: str) -> bool:
    """Return True if a text is a time in the form that this program writes."""
    return _iso_time_re.fullmatch(text) is not None


def without_middle(text: str, width: int) -> str:
    """Shorten a text to `width` columns by replacing its middle; the end keeps twice as much as the start."""
    if cell_width(text) <= width:
        return text
    kept = width - 1
    while True:
        head, tail = kept // 3, kept - kept // 3
        shorter = f"{text[:head]}…{text[len(text) - tail :]}"
        if cell_width(shorter) <= width or kept <= 1:
            return shorter
        kept -= 1


def message_line(text: str) -> str:
    """Return a message as a single line without control characters."""
    return harmless(_line_end_re.sub(" ", text).rstrip())


def json_line(document: Any) -> str:
    """Return a document as one line of JSON, with characters that control a terminal escaped."""
    return harmless_json(dumps(document))


def harmless_json(text: str) -> str:
    """Escape the characters in JSON that control a terminal."""
    return text if text.isascii() and "\x7f" not in text else harmless(text, IN_JSON)


def size(count: int) -> str:
    """Format a number of bytes in units of 1024 with at most one decimal."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(UNITS))
    return f"{count / 1024**power:.1f}".removesuffix(".0") + f" {UNITS[power - 1]}"


def checked_text(checked: Mapping[str, int], not_checked: Mapping[str, str]) -> str:
    """Return a line with what was checked, without zeros, and what was not, with the reasons."""
    counts = ", ".join(counted(number, noun) for noun, number in checked.items() if number) or "nothing"
    reasons = ", ".join(f"{name} ({why})" for name, why in not_checked.items())
    return f"checked: {counts}" + (f"; not checked: {reasons}" if reasons else "")


def counted(number: int, nouns: str) -> str:
    """Return a number with its noun, given in the plural: "1 entry", "2 entries", "1 batch"."""
    if number != 1:
        return f"{number} {nouns}"
    for plural, singular in (("ies", "y"), ("ches", "ch"), ("xes", "x"), ("s", "")):
        if nouns.endswith(plural):
            return f"1 {nouns.removesuffix(plural)}{singular}"
    return f"1 {nouns}"


def unsized(entries: int) -> dict[str, str]:
    """Return the unchecked part, and the reason, for entries whose index points to no record."""
    if not entries:
        return {}
    return {f"the bytes of {counted(entries, 'entries')}": "the index points to no record"}


# Longer lines are hard to read.
WIDEST: Final = 100
LABEL_WIDTH: Final = 12
_COLOURS: Final = {"error": "1;31", "warning": "1;33", "note": "1;36", "bold": "1"}


@dataclass(frozen=True, slots=True)
class Screen:
    """The output of blocks. `width` is None and `colours` is False unless it is a terminal."""

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

    def prose(self, text: str, label: str = "") -> Iterator[str]:
        """Yield Markdown text as folded lines, with a label before the first one."""
        first = "  " + (f"{label}:".ljust(LABEL_WIDTH) if label else "")
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

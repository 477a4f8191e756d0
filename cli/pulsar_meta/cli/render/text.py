"""Text as a person reads it: numbers of bytes, and other people's characters made harmless."""

from __future__ import annotations

from typing import Final

UNITS: Final = ("KiB", "MiB", "GiB", "TiB")

# Control characters as escapes: bytes of others shall not steer a terminal.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_IN_A_CELL = str.maketrans(_CONTROLS | {9: "\\t", 10: "\\n", 13: "\\r", 92: "\\\\"})
_IN_A_LINE = str.maketrans({code: text for code, text in _CONTROLS.items() if code not in (9, 10)})


def one_line(cell: str) -> str:
    """Return `cell` without the characters that would break a line or a column, or steer a terminal."""
    return cell if cell.isprintable() and "\\" not in cell else cell.translate(_IN_A_CELL)


def harmless(text: str) -> str:
    """Return `text` with every control character but tabs and line ends as an escape."""
    return text if text.isprintable() else text.translate(_IN_A_LINE)


def size(count: int) -> str:
    """Return a number of bytes, 1024-based, with at most one decimal."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(UNITS))
    return f"{count / 1024**power:.1f}".removesuffix(".0") + f" {UNITS[power - 1]}"


def counted(number: int, nouns: str) -> str:
    """Return a number with its noun, which is given in the plural: "1 entry", "2 entries", "1 batch"."""
    if number != 1:
        return f"{number} {nouns}"
    for plural, singular in (("ies", "y"), ("ches", "ch"), ("xes", "x"), ("s", "")):
        if nouns.endswith(plural):
            return f"1 {nouns.removesuffix(plural)}{singular}"
    return f"1 {nouns}"

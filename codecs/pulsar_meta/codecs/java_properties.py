"""Java's `.properties` text, as brokers read broker.conf and client tools read client.conf.

Source: the documentation of java.util.Properties.load (lines, comments, separators, escapes);
apache/pulsar PulsarConfigurationLoader.create, which loads a byte stream, hence ISO-8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError

_WHITE: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_line_end_re = re.compile(r"(\r\n|\r|\n)")
_escape_re = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_key_re = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Property:
    """One setting and the number of the line (from 1) on which it begins."""

    key: str
    value: str
    line: int


def decode_properties(data: bytes) -> list[Property]:
    """Return the settings in the order of the file, a repeated key each time (Java keeps the last).

    DecodeError for a `\\u` without four hexadecimal digits, where Java refuses the whole file.
    """
    return [_property(text, line) for line, text in _logical_lines(data.decode("iso-8859-1"))]


def last_values(properties: list[Property]) -> dict[str, str]:
    """Return what Java's Properties holds in the end: of a repeated key the last value."""
    return {one.key: one.value for one in properties}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) with continuations joined, comments and blank lines left out."""
    joined, began = "", 0
    parts = _line_end_re.split(text)
    lines, ends = parts[::2], [*parts[1::2], ""]
    last = len(lines) if lines[-1] else len(lines) - 1
    for number, (natural, end) in enumerate(zip(lines, ends, strict=True), start=1):
        line = natural.lstrip(_WHITE)
        if not joined and (not line or line[0] in "#!"):
            continue
        began = began if joined else number
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if continued else line
        # Java takes a backslash at the very end of the file for a setting, be it an empty one; but not one
        # before CR and LF, since it has not seen the end when it comes to the CR.
        if not continued or (number == last and end != "\r\n"):
            yield began, joined
            joined = ""
    if joined:
        yield began, joined


def _property(text: str, line: int) -> Property:
    match = _key_re.match(text)
    key = match[0] if match else ""
    rest = text[len(key) :].lstrip(_WHITE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITE)
    return Property(_unescape(key, line), _unescape(rest, line), line)


def _unescape(text: str, line: int) -> str:
    def plain(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] == "u":
            if len(escape) != 5:
                raise DecodeError(f"line {line}: \\u needs four hexadecimal digits")
            return chr(int(escape[1:], 16))
        return _ESCAPES.get(escape, escape)

    joined = _escape_re.sub(plain, text)
    # Java's strings are UTF-16: two escapes of a surrogate pair are one character.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

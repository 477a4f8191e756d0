"""Parse Java's `.properties` format, the format of broker.conf and client.conf.

Sources: java.util.Properties.load (lines, comments, separators, escapes); apache/pulsar
PulsarConfigurationLoader.create, which loads a byte stream and therefore ISO-8859-1.
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
    """One setting, and the number (from 1) of the line on which it begins."""

    key: str
    value: str
    line: int


def decode_properties(data: bytes) -> list[Property]:
    """Return all settings in file order, including repeated keys.

    Raises DecodeError if a `\\u` has no four hexadecimal digits; Java then rejects the file, too.
    """
    return [_property(text, line) for line, text in _logical_lines(data.decode("iso-8859-1"))]


def last_values(properties: list[Property]) -> dict[str, str]:
    """Return the values by key. The last value of a repeated key wins, as in Java."""
    return {setting.key: setting.value for setting in properties}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of each setting, with continuation lines joined."""
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
        # Java reads a backslash at the end of the file as the end of a setting, even of an empty one. It does
        # not if CR and LF follow, because it has not reached the end when it reads the CR.
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
    # Java's strings are UTF-16, so two escapes can form a surrogate pair.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

"""Numbers of JSON that keep the letters they were written in, and JSON written with them.

A double holds neither 1795292202.248324148 nor whether somebody wrote 1E5 or 100000.0 (RFC 8259, section 6).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pulsar_meta.codecs.errors import DecodeError


@dataclass(frozen=True, slots=True, repr=False)
class Number:
    """A number that Python would print otherwise than it was written. `text` is its literal."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def plain(self) -> int | float:
        """Return the number that a double holds, or an int; DecodeError where it is too large for both."""
        try:
            return int(self.text)
        except ValueError:
            return finite(self.text)


def finite(text: str) -> float:
    """Return the number as a double; DecodeError where it is beyond all of them."""
    number = float(text)
    if number - number != 0:
        raise DecodeError(f"the number {text if len(text) <= 60 else text[:57] + '…'} is too large")
    return number


def _float(text: str) -> float | Number:
    number = float(text)
    return number if repr(number) == text else Number(text)


def _int(text: str) -> int | Number:
    # Python turns no more than 4300 digits into an int.
    return Number(text) if text == "-0" or len(text) > 4000 else int(text)


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's parser takes."""
    raise DecodeError(f"{name} is no number of JSON")


# Reads every number so that it is written as it was.
LITERALS: Final = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=no_constant)


@dataclass(frozen=True, slots=True)
class Style:
    """How JSON is written: what is between members, how a double looks, whether all is ASCII."""

    comma: str = ", "
    colon: str = ": "
    double: Callable[[float], str] = json.dumps
    ascii: bool = False
    indent: str = ""

    def text(self, value: Any, depth: int = 0) -> str:
        """Return the JSON of a value; TypeError for what has none."""
        if isinstance(value, dict):
            members = [
                f"{self._string(name)}{self.colon}{self.text(one, depth + 1)}" for name, one in value.items()
            ]
            return self._enclosed("{", members, "}", depth)
        if isinstance(value, (list, tuple)):
            return self._enclosed("[", [self.text(one, depth + 1) for one in value], "]", depth)
        if isinstance(value, Number):
            return value.text
        if isinstance(value, float):
            return self.double(value)
        return self._string(value) if isinstance(value, str) else json.dumps(value)

    def _string(self, text: str) -> str:
        written = json.dumps(text, ensure_ascii=self.ascii)
        try:
            written.encode()
        except UnicodeEncodeError:
            # Half of a surrogate pair, which JSON can escape and UTF-8 cannot hold.
            return json.dumps(text)
        return written

    def _enclosed(self, opening: str, parts: list[str], closing: str, depth: int) -> str:
        if not self.indent or not parts:
            return f"{opening}{self.comma.join(parts)}{closing}"
        line = "\n" + self.indent * depth
        return f"{opening}{line}{self.indent}{f',{line}{self.indent}'.join(parts)}{line}{closing}"

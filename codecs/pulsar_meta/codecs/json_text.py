"""Read and write JSON: checked values, exact numbers, and JSON as Pulsar's brokers write it.

Integers that a double cannot hold are written as strings of digits, and bytes as base64, because jq 1.6 and
JavaScript read every number as a double (RFC 8259, section 6). A number can keep its spelling, since a double
distinguishes neither 1795292202.248324148 from its neighbours nor 1E5 from 100000.0. Brokers write JSON with
Jackson:
no spaces, doubles as Java prints them.

Sources: java.lang.Double.toString; apache/pulsar ObjectMapperFactory.java.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from math import isfinite
from typing import Any, Final, NoReturn

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.secrets import is_redacted


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


# A JSON object: what commands print and read back. What they print has types of its own (TypedDict).
Document = Mapping[str, Any]

MAX_SAFE_INTEGER: Final = 2**53 - 1
# Protobuf takes 100 messages inside each other, which are 200 lists and objects here.
MAX_DEPTH: Final = 256

# Where a number of 16 digits and more can stand in what json.dumps writes. Text in quotes may match too;
# that only costs the walk that a real one needs. Each begins with a letter that `re` can search for.
_long_number_res = (
    re.compile(r" -?[0-9]{16}"),
    re.compile(r"\[-?[0-9]{16}"),
    re.compile(r"^-?[0-9]{16}"),
)


def dumps(document: object) -> str:
    """Return `document` as one line of JSON; bytes in it become base64."""
    text = _dumped(document)
    return _dumped(safe(document)) if _is_suspect(text) else text


def _is_suspect(text: str) -> bool:
    """Return whether a number in `text` may be too long for a double, or be NaN or Infinity."""
    return "NaN" in text or "Infinity" in text or any(pattern.search(text) for pattern in _long_number_res)


def _dumped(document: object) -> str:
    try:
        text = _encode(document)
    except _HasNumberError:
        return _LINE.text(_without_bytes(document))
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can escape and UTF-8 cannot hold.
        return json.dumps(document, default=_as_base64)
    return text


class _HasNumberError(Exception):
    """There is a `Number`, which json.dumps cannot write as it is."""


_LINE: Final = Style()


def _without_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_bytes(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_bytes(member) for member in value]
    return _as_base64(value) if isinstance(value, (bytes, bytearray, memoryview)) else value


def safe_integer(number: int) -> int | str:
    """Return `number`, or its digits where a double would round it."""
    return number if -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER else str(number)


def safe(value: Any) -> Any:
    """Return `value` with every integer made safe, and with floats that JSON does not have as their names."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return safe_integer(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Number):
        return _safe_number(value)
    if isinstance(value, dict):
        return {key: safe(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [safe(member) for member in value]
    return value


def _safe_number(number: Number) -> Number | str:
    """Return a number, or its digits where it is an integer or of a size that no double holds."""
    digits = number.text.removeprefix("-")
    beyond = digits.isdecimal() and digits != "0"
    return number.text if beyond or not isfinite(float(number.text)) else number


def read_json(
    data: str | bytes, *, source: str | None = None, deepest: int = MAX_DEPTH, literal: bool = False
) -> Any:
    """Return what a JSON text from outside says; DecodeError (offset in characters) where it is none.

    Refused too are lists and objects over `deepest` inside each other, numbers that neither a double nor
    Python's int can hold, NaN and Infinity: what comes back can be walked, compared and written. With
    `literal` a number that Python would print otherwise is a `Number`, of whatever size.
    """
    decoder = LITERALS if literal else _decoder
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
        found = decoder.decode(text)
        # What opens few lists and objects is not deep: most texts are let through without a walk.
        if text.count("[") + text.count("{") > deepest:
            check_depth(found, deepest)
    except (DecodeError, ValueError, RecursionError) as error:
        raise _refused(error, source) from error
    return found


def read_json_object(data: str | bytes, *, source: str | None = None) -> dict[str, Any]:
    """Return the JSON object in `data`; DecodeError as `read_json`, and for everything that is no object."""
    found = read_json(data, source=source)
    if not isinstance(found, dict):
        raise DecodeError(f"expected a JSON object, found {shown(found)}", source=source)
    return found


def read_json_sequence(text: str, *, source: str | None = None, literal: bool = False) -> Iterator[Any]:
    """Yield the JSON texts that stand one after the other in `text`, on lines or not; else as `read_json`."""
    decoder = LITERALS if literal else _decoder
    at = _skip_space(text, 0)
    while at < len(text):
        try:
            found, at = decoder.raw_decode(text, at)
            check_depth(found)
        except (DecodeError, ValueError, RecursionError) as error:
            raise _refused(error, source) from error
        yield found
        at = _skip_space(text, at)


def check_depth(value: Any, deepest: int = MAX_DEPTH) -> None:
    """Raise DecodeError where over `deepest` lists and objects stand inside each other."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(deepest):
        members = chain.from_iterable(held.values() if isinstance(held, dict) else held for held in level)
        level = [member for member in members if isinstance(member, (dict, list))]
        if not level:
            return
    raise DecodeError(f"nested over {deepest} deep")


def _refused(error: Exception, source: str | None) -> DecodeError:
    """Return the reason why a text was not taken, by what the parser raised."""
    if isinstance(error, DecodeError):
        return error.within(source, what="not JSON that can be read")
    if isinstance(error, json.JSONDecodeError):
        return DecodeError(f"not JSON: {error.msg}", offset=error.pos, source=source)
    if isinstance(error, UnicodeDecodeError):
        return DecodeError("not JSON: not UTF-8", offset=error.start, source=source)
    reason = "nested too deep" if isinstance(error, RecursionError) else "a number is too long"
    return DecodeError(f"not JSON that can be read: {reason}", source=source)


# Made once: `json.loads` makes one at each call that asks for anything.
_decoder: Final = json.JSONDecoder(parse_float=finite, parse_constant=no_constant)


def _skip_space(text: str, at: int) -> int:
    # RS (0x1e) begins each text of a JSON sequence (RFC 7464).
    while at < len(text) and text[at] in " \t\r\n\x1e":
        at += 1
    return at


def _as_base64(value: object) -> str:
    if isinstance(value, Number):
        raise _HasNumberError
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    raise TypeError(f"no JSON form for {type(value).__name__}")


# Made once: `json.dumps` makes one at each call that asks for anything.
_encode: Final = json.JSONEncoder(ensure_ascii=False, default=_as_base64).encode


def integer(value: Any, path: str, low: int, high: int) -> int:
    """Return a number given as a number or as digits; DecodeError if it is none, or outside low…high."""
    if type(value) is not int:
        value = _parsed_integer(value, path)
    if low <= value <= high:
        return int(value)
    raise DecodeError(f"{path}: {shown(value)} is not between {low} and {high}")


def _parsed_integer(value: Any, path: str) -> int:
    if isinstance(value, Number):
        value = value.plain()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)  # jq 1.5 writes 1e3 for 1000.
    if (
        isinstance(value, str)
        and len(value) <= 20
        and value.removeprefix("-").isdecimal()
        and value.isascii()
    ):
        return int(value)
    raise DecodeError(f"{path}: expected an integer, found {shown(value)}")


def from_base64(value: Any, path: str) -> bytes:
    """Return the bytes of a base64 text, or raise DecodeError."""
    try:
        return base64.b64decode(value.encode(), validate=True)
    except (AttributeError, binascii.Error, UnicodeEncodeError) as error:
        raise DecodeError(f"{path}: expected base64, found {shown(value)}") from error


def shown(value: Any) -> str:
    """Return a JSON value for an error message, cut where it is long."""
    if is_redacted(value):
        return "a redacted secret (decode it with --show-secrets)"
    try:
        text = repr(value)
    except ValueError:
        return "a number that is too long"
    return text if len(text) <= 60 else text[:57] + "…"


def java_double(number: float) -> str:
    """Return a double as Java prints it: plain from 1e-3 to 1e7, else like 4.37E-5."""
    if number != number or number in (float("inf"), float("-inf")):
        return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}[repr(number)]
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, _ = Decimal(repr(number)).normalize().as_tuple()
    exponent = Decimal(repr(number)).adjusted()
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent}"


_JACKSON: Final = Style(",", ":", java_double)


def java_json(value: Any) -> str:
    """Return parsed JSON as the text that Jackson would write for it; a `Number` stays as it is."""
    return _JACKSON.text(value)

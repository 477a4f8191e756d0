"""Read and write JSON: validated values, exact numbers, and JSON in the format of Pulsar's brokers.

Integers that a double can't represent are written as strings of digits, because jq 1.6 and JavaScript read
every number as a double (RFC 8259, section 6). Bytes are written as base64. Numbers can keep their spelling
(`Number`), because 1E5 and 100000.0 are the same double. Brokers write JSON with Jackson: without spaces, and
with doubles as Java prints them.

Sources: java.lang.Double.toString; apache/pulsar ObjectMapperFactory.java.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Any, Final, NoReturn

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.secrets import is_redacted
from pulsar_meta.codecs.text_bytes import any_base64


@dataclass(frozen=True, slots=True, repr=False)
class Number:
    """A number with a spelling that Python would change. `text` is its literal."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def plain(self) -> int | float:
        """Return the number as an int or float. Raises DecodeError if it is too large for both."""
        try:
            return int(self.text)
        except ValueError:
            return finite(self.text)


def finite(text: str) -> float:
    """Parse a number as a float. Raises DecodeError if it is too large for a double."""
    number = float(text)
    if number - number != 0:
        raise DecodeError(f"the number {text if len(text) <= 60 else text[:57] + '…'} is too large")
    return number


def _float(text: str) -> float | Number:
    number = float(text)
    return number if repr(number) == text else Number(text)


def _int(text: str) -> int | Number:
    # Python converts at most 4300 digits into an int.
    return Number(text) if text == "-0" or len(text) > 4000 else int(text)


def no_constant(name: str) -> NoReturn:
    """Raise DecodeError for NaN and Infinity, which Python's parser accepts."""
    raise DecodeError(f"{name} is not a JSON number")


# Parses numbers so that they keep their spelling.
LITERALS: Final = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=no_constant)


@dataclass(frozen=True, slots=True)
class Style:
    """A JSON format: separators, the format of doubles, ASCII only or not, and indentation."""

    comma: str = ", "
    colon: str = ": "
    double: Callable[[float], str] = json.dumps
    ascii: bool = False
    indent: str = ""

    def text(self, value: Any, depth: int = 0) -> str:
        """Return a value as JSON. Raises TypeError for types that JSON does not have."""
        if isinstance(value, dict):
            members = [
                f"{self._string(name)}{self.colon}{self.text(member, depth + 1)}"
                for name, member in value.items()
            ]
            return self._enclosed("{", members, "}", depth)
        if isinstance(value, (list, tuple)):
            return self._enclosed("[", [self.text(item, depth + 1) for item in value], "]", depth)
        if isinstance(value, Number):
            return value.text
        if isinstance(value, float):
            return self.double(value)
        return self._string(value) if isinstance(value, str) else json.dumps(value)

    def _string(self, text: str) -> str:
        quoted = json.dumps(text, ensure_ascii=self.ascii)
        try:
            quoted.encode()
        except UnicodeEncodeError:
            # Half of a surrogate pair must be escaped, because UTF-8 can't encode it.
            return json.dumps(text)
        return quoted

    def _enclosed(self, opening: str, parts: list[str], closing: str, depth: int) -> str:
        if not self.indent or not parts:
            return f"{opening}{self.comma.join(parts)}{closing}"
        line = "\n" + self.indent * depth
        return f"{opening}{line}{self.indent}{f',{line}{self.indent}'.join(parts)}{line}{closing}"


# Any JSON object that commands print or read. Most outputs have a TypedDict of their own.
Document = Mapping[str, Any]

MAX_SAFE_INTEGER: Final = 2**53 - 1
# Protobuf allows 100 nested messages, which become 200 nested lists and objects.
MAX_DEPTH: Final = 256

# Match numbers of 16 and more digits in the output of json.dumps. A match inside a string is harmless,
# because `safe` decides. Each pattern begins with a literal character, which makes the search fast.
_long_number_res = (
    re.compile(r" -?[0-9]{16}"),
    re.compile(r"\[-?[0-9]{16}"),
    re.compile(r"^-?[0-9]{16}"),
)


def dumps(document: object) -> str:
    """Return `document` as one line of JSON. Bytes become base64, and large integers become strings."""
    text = _dumped(document)
    return _dumped(safe(document)) if _is_suspect(text) else text


def _is_suspect(text: str) -> bool:
    """Return True if `text` may contain NaN, Infinity, or a number that is too long for a double."""
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
        # Half of a surrogate pair must be escaped, because UTF-8 can't encode it.
        return json.dumps(document, default=_as_base64)
    return text


class _HasNumberError(Exception):
    """The document contains a `Number`, which json.dumps can't write."""


_LINE: Final = Style()


def _without_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_bytes(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_bytes(member) for member in value]
    return _as_base64(value) if isinstance(value, (bytes, bytearray, memoryview)) else value


def safe_integer(number: int) -> int | str:
    """Return `number`, or its digits as a string if a double would round it."""
    return number if -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER else str(number)


def safe(value: Any) -> Any:
    """Copy `value` with `safe_integer` applied to all integers, and NaN and infinities as strings."""
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
    """Return a number, or its literal as a string if it is an integer or too large for a double."""
    digits = number.text.removeprefix("-")
    is_integer = digits.isdecimal() and digits != "0"
    return number.text if is_integer or not isfinite(float(number.text)) else number


def read_json(
    data: str | bytes, *, source: str | None = None, deepest: int = MAX_DEPTH, literal: bool = False
) -> Any:
    """Parse JSON from an untrusted source.

    With `literal`, numbers keep their spelling (`Number`). Raises DecodeError (offset in characters) if the
    text is not JSON, is nested more than `deepest` levels deep, contains NaN or Infinity, or contains a
    number that is too large for Python's int and float (unless `literal`).
    """
    decoder = LITERALS if literal else _decoder
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
        value = decoder.decode(text)
        # Texts with few brackets can't be deep, which spares most of them the check.
        if text.count("[") + text.count("{") > deepest:
            check_depth(value, deepest)
    except (DecodeError, ValueError, RecursionError) as error:
        raise _parse_error(error, source) from error
    return value


def read_json_object(data: str | bytes, *, source: str | None = None) -> dict[str, Any]:
    """Parse a JSON object. Raises DecodeError like `read_json`, or if the value is not an object."""
    value = read_json(data, source=source)
    if not isinstance(value, dict):
        raise DecodeError(f"expected a JSON object, found {shown(value)}", source=source)
    return value


def read_json_sequence(text: str, *, source: str | None = None) -> Iterator[Any]:
    """Yield the values of concatenated JSON texts, with or without line feeds between them.

    Raises DecodeError like `read_json`.
    """
    at = _skip_space(text, 0)
    while at < len(text):
        try:
            value, at = LITERALS.raw_decode(text, at)
            check_depth(value)
        except (DecodeError, ValueError, RecursionError) as error:
            raise _parse_error(error, source) from error
        yield value
        at = _skip_space(text, at)


def check_depth(value: Any, deepest: int = MAX_DEPTH) -> None:
    """Raise DecodeError if more than `deepest` lists and objects are nested."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(deepest):
        members = chain.from_iterable(node.values() if isinstance(node, dict) else node for node in level)
        level = [member for member in members if isinstance(member, (dict, list))]
        if not level:
            return
    raise DecodeError(f"nested more than {deepest} levels deep")


def _parse_error(error: Exception, source: str | None) -> DecodeError:
    """Convert the parser's error."""
    if isinstance(error, DecodeError):
        return error.within(source, what="unsupported JSON")
    if isinstance(error, json.JSONDecodeError):
        return DecodeError(f"not JSON: {error.msg}", offset=error.pos, source=source)
    if isinstance(error, UnicodeDecodeError):
        return DecodeError("not JSON: not UTF-8", offset=error.start, source=source)
    reason = "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
    return DecodeError(f"unsupported JSON: {reason}", source=source)


# Created once, because `json.loads` with options creates a decoder for every call.
_decoder: Final = json.JSONDecoder(parse_float=finite, parse_constant=no_constant)


def _skip_space(text: str, at: int) -> int:
    # RS (0x1e) precedes each text of a JSON sequence (RFC 7464).
    while at < len(text) and text[at] in " \t\r\n\x1e":
        at += 1
    return at


def _as_base64(value: object) -> str:
    if isinstance(value, Number):
        raise _HasNumberError
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    raise TypeError(f"no JSON form for {type(value).__name__}")


# Created once, because `json.dumps` with options creates an encoder for every call.
_encode: Final = json.JSONEncoder(ensure_ascii=False, default=_as_base64).encode


def integer(value: Any, path: str, low: int, high: int) -> int:
    """Return an integer given as a number or as a string of digits.

    Raises DecodeError, naming `path`, if it is not an integer or not between `low` and `high` (inclusive).
    """
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
    """Decode base64 in any alphabet and padding. Raises DecodeError, naming `path`, for another value."""
    try:
        return any_base64(value.encode())
    except (AttributeError, ValueError) as error:
        raise DecodeError(f"{path}: expected base64, found {shown(value)}") from error


def shown(value: Any) -> str:
    """Format a JSON value for an error message, truncated to 60 characters."""
    if is_redacted(value):
        return "a redacted secret (decode the value with --show-secrets)"
    try:
        text = repr(value)
    except ValueError:
        return "a number that is too long"
    return text if len(text) <= 60 else text[:57] + "…"


def java_double(number: float) -> str:
    """Format a double like Java: plain between 1e-3 and 1e7, otherwise like 4.37E-5."""
    if number != number or number in (float("inf"), float("-inf")):
        return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}[repr(number)]
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    from decimal import Decimal

    sign, digits, _ = Decimal(repr(number)).normalize().as_tuple()
    exponent = Decimal(repr(number)).adjusted()
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent}"


_JACKSON: Final = Style(",", ":", java_double)


def java_json(value: Any) -> str:
    """Format a JSON value like Jackson. A `Number` keeps its spelling."""
    return _JACKSON.text(value)

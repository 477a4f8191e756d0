"""JSON: read from outside, written for every reader, and its single values checked.

Integers that a double cannot hold are written as strings of digits, bytes as base64.

jq 1.6 and JavaScript read every number as a double (RFC 8259, section 6); an id must survive that.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.secrets import REDACTED

# A JSON object: what commands print and read back.
Document = dict[str, Any]

MAX_SAFE_INTEGER: Final = 2**53 - 1

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
    """Tell whether a number in `text` may be too long for a double, or be NaN or Infinity."""
    return "NaN" in text or "Infinity" in text or any(pattern.search(text) for pattern in _long_number_res)


def _dumped(document: object) -> str:
    text = json.dumps(document, ensure_ascii=False, default=_as_base64)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can escape and UTF-8 cannot hold.
        return json.dumps(document, default=_as_base64)
    return text


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
    if isinstance(value, dict):
        return {key: safe(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [safe(member) for member in value]
    return value


def loads(text: str | bytes) -> Any:
    """Return what a JSON text says; DecodeError, with the offset in characters, where it is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DecodeError(f"not JSON: {error.msg}", offset=error.pos) from error
    except UnicodeDecodeError as error:
        raise DecodeError("not JSON: not UTF-8", offset=error.start) from error
    except (RecursionError, ValueError) as error:
        raise DecodeError("not JSON that can be read: nested too deep, or a number too long") from error


def _as_base64(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    raise TypeError(f"no JSON form for {type(value).__name__}")


def integer(value: Any, path: str, low: int, high: int) -> int:
    """Return a number given as a number or as digits; DecodeError if it is none, or outside low…high."""
    if type(value) is not int:
        value = _parsed_integer(value, path)
    if low <= value <= high:
        return int(value)
    raise DecodeError(f"{path}: {value} is not between {low} and {high}")


def _parsed_integer(value: Any, path: str) -> int:
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
    if value == REDACTED:
        return "a redacted secret (decode it with --show-passwords)"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"

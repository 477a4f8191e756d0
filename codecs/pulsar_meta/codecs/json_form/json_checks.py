"""Single values of parsed JSON, checked: one that is not as it should be is a DecodeError with its place."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.secrets import REDACTED


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

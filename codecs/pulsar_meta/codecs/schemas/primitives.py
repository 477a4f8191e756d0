"""Values of Pulsar's primitive schemas, as JSON has them: numbers, texts, ISO 8601 for dates and times.

All numbers are big-endian. Source: apache/pulsar pulsar-client/…/impl/schema/*Schema.java (IntSchema,
DateSchema, InstantSchema, LocalDateTimeSchema, …).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError

_DAY: Final = 86_400
_BILLION: Final = 10**9
_EPOCH: Final = date(1970, 1, 1)


def decode_primitive(kind: str, data: bytes) -> Any:
    """Return the value of a primitive schema; DecodeError for another size than its type has."""
    if kind == "STRING":
        return _text(data)
    shape, make = _SHAPES[kind]
    if len(data) != shape.size:
        raise DecodeError(f"{kind} takes {shape.size} bytes, found {len(data)}")
    return make(*shape.unpack(data))


def is_primitive(kind: str) -> bool:
    """Return whether `decode_primitive` knows a type."""
    return kind == "STRING" or kind in _SHAPES


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("STRING: not UTF-8", offset=error.start) from error


def _boolean(value: int) -> bool:
    return value != 0


def _same(value: Any) -> Any:
    return value


def _moment(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_date_time(seconds)}.{rest:03d}Z"


def _instant(seconds: int, nanos: int) -> str:
    return f"{_date_time(seconds)}{_fraction(nanos)}Z"


def _date_time(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY)
    return f"{_date(days)}T{_clock(rest)}"


def _local_date_time(days: int, nanos: int) -> str:
    return f"{_date(days)}T{_local_time(nanos)}"


def _local_time(nanos: int) -> str:
    seconds, rest = divmod(nanos, _BILLION)
    if not 0 <= seconds < _DAY:
        raise DecodeError(f"no time of a day has {nanos} nanoseconds")
    return f"{_clock(seconds)}{_fraction(rest)}"


def _date(days: int) -> str:
    try:
        return (_EPOCH + timedelta(days=days)).isoformat()
    except OverflowError as error:
        raise DecodeError(f"day {days} is outside the years 1 to 9999") from error


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _fraction(nanos: int) -> str:
    if not 0 <= nanos < _BILLION:
        raise DecodeError(f"{nanos} nanoseconds are no part of a second")
    return f".{nanos:09d}".rstrip("0").rstrip(".")


_SHAPES: Final[dict[str, tuple[struct.Struct, Callable[..., Any]]]] = {
    "BOOLEAN": (struct.Struct(">b"), _boolean),
    "INT8": (struct.Struct(">b"), _same),
    "INT16": (struct.Struct(">h"), _same),
    "INT32": (struct.Struct(">i"), _same),
    "INT64": (struct.Struct(">q"), _same),
    "FLOAT": (struct.Struct(">f"), _same),
    "DOUBLE": (struct.Struct(">d"), _same),
    "DATE": (struct.Struct(">q"), _moment),
    "TIME": (struct.Struct(">q"), _moment),
    "TIMESTAMP": (struct.Struct(">q"), _moment),
    "INSTANT": (struct.Struct(">qi"), _instant),
    "LOCALDATE": (struct.Struct(">q"), _date),
    "LOCALTIME": (struct.Struct(">q"), _local_time),
    "LOCALDATETIME": (struct.Struct(">qq"), _local_date_time),
}

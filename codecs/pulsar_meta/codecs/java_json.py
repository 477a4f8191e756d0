"""JSON as brokers write it with Jackson: no spaces, doubles as Java prints them.

Source: java.lang.Double.toString; apache/pulsar ObjectMapperFactory.java.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from pulsar_meta.codecs.json_literals import Style


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

"""Times and durations as people read and write them; those of Pulsar are milliseconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import shown

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Below are no milliseconds that Pulsar wrote (it is March 1973), but what may well be seconds or a year.
LEAST_MILLISECONDS: Final = 10**11
_units: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_duration_re = re.compile(r"(\d{1,12})([smhdw]?)")


def iso_time(milliseconds: int) -> str | None:
    """Return an ISO 8601 time in UTC with milliseconds, None for a number outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Return milliseconds since the epoch: a number of them, or an ISO 8601 time (UTC unless it says so).

    UsageError for a number that is more likely something else: seconds, or a year.
    """
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        if 0 < int(text) < LEAST_MILLISECONDS:
            raise UsageError(_ambiguous(text))
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"a time is milliseconds or 2026-08-20T12:00:00Z, not {shown(text)}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Rounded up: "not before" a fraction of a millisecond is the millisecond after it.
    return -((datetime.fromtimestamp(0, UTC) - moment) // timedelta(milliseconds=1))


def _ambiguous(text: str) -> str:
    """Say what a short number is as milliseconds, and how to write what was more likely meant."""
    if len(text) == 4:
        meant = f"for the year write {text}-01-01"
    elif len(text) == 8:
        meant = f"for a day write {text[:4]}-{text[4:6]}-{text[6:]}"
    else:
        meant = f"for seconds write {int(text)}000"
    return f"{text} milliseconds are {iso_time(int(text))}: {meant}, for times so early ISO 8601"


def parse_duration(text: str) -> int:
    """Return seconds: a number of them, or one with s, m, h, d or w behind it."""
    match = _duration_re.fullmatch(text)
    if not match or int(match[1]) == 0:
        raise UsageError(f"a duration is seconds, or like 90s, 15m, 12h, 7d, not {shown(text)}")
    return int(match[1]) * _units[match[2]]

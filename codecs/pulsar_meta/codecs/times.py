"""Convert times and durations between text and Pulsar's milliseconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import shown

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Smaller numbers (before March 1973) are no times of Pulsar, and probably seconds or a year.
LEAST_MILLISECONDS: Final = 10**11
_units: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_duration_re = re.compile(r"(\d{1,12})([smhdw]?)")


def iso_time(milliseconds: int) -> str | None:
    """Return an ISO 8601 time in UTC with milliseconds, or None outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Parse milliseconds or an ISO 8601 time (UTC by default) into milliseconds since the epoch.

    Raises UsageError if the text is neither, or a number that is more likely seconds or a year.
    """
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        if 0 < int(text) < LEAST_MILLISECONDS:
            raise UsageError(_ambiguous(text))
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"invalid time {shown(text)}: use milliseconds or 2026-08-20T12:00:00Z") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Rounded up, because no message has a fraction of a millisecond: at or after 0.5 ms means at or after 1
    # ms.
    return -((datetime.fromtimestamp(0, UTC) - moment) // timedelta(milliseconds=1))


def _ambiguous(text: str) -> str:
    """Explain a number that is small for milliseconds, and suggest how to write the likely meaning."""
    if len(text) == 4:
        advice = f"for the year write {text}-01-01"
    elif len(text) == 8:
        advice = f"for a day write {text[:4]}-{text[4:6]}-{text[6:]}"
    else:
        advice = f"for seconds write {int(text)}000"
    return f"{text} milliseconds are {iso_time(int(text))}; {advice}, for a time before 1973 write ISO 8601"


def parse_duration(text: str) -> int:
    """Parse a duration such as 90s, 15m, 12h, 7d or 2w, or a number of seconds, into seconds.

    Raises UsageError if the text is neither, or zero.
    """
    match = _duration_re.fullmatch(text)
    if not match or int(match[1]) == 0:
        raise UsageError(f"invalid duration {shown(text)}: use seconds, or a unit as in 90s, 15m, 12h, 7d")
    return int(match[1]) * _units[match[2]]

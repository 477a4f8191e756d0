"""Milliseconds since the epoch as the times that people read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(milliseconds: int) -> str | None:
    """Return an ISO 8601 time in UTC with milliseconds, None for a number outside the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Times and durations as users write them."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.times import parse_duration, parse_time


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1795240940194", 1795240940194),
        ("-5", -5),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:00.001001Z", 2),
        ("1969-12-31T23:59:59.9995Z", 0),
    ],
)
def test_times_are_parsed(text: str, milliseconds: int) -> None:
    assert parse_time(text) == milliseconds


@pytest.mark.parametrize(("text", "seconds"), [("3600", 3600), ("90s", 90), ("15m", 900), ("7d", 604_800)])
def test_durations_are_parsed(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01"])
def test_invalid_times_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time(text)


@pytest.mark.parametrize("text", ["0", "5y", "-5"])
def test_invalid_durations_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)

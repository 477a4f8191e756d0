"""Questions as people write them."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.seek.questions import (
    Question,
    parse_duration,
    parse_index,
    parse_time,
    read_questions,
)
from pulsar_meta.jobs.topics.topic import Position, parse_position


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
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time(text) == milliseconds


@pytest.mark.parametrize(("text", "seconds"), [("3600", 3600), ("90s", 90), ("15m", 900), ("7d", 604_800)])
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


def test_positions() -> None:
    assert parse_position("12:5") == parse_position("12:5:-1") == parse_position("12:5:3") == Position(12, 5)
    assert parse_position("12:-1") == Position(12, -1)


@pytest.mark.parametrize("text", ["", "x", "1:2", "-1", "١", "18446744073709551616", "1" * 40])
def test_an_index_is_an_unsigned_64_bit_number(text: str) -> None:
    with pytest.raises(UsageError):
        parse_index(text)
    assert parse_index("18446744073709551615") == 2**64 - 1


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_time, "yesterday"),
        (parse_time, ""),
        (parse_time, "2026-13-01"),
        (parse_duration, "0"),
        (parse_duration, "5y"),
        (parse_duration, "-5"),
        (parse_position, "5"),
        (parse_position, "a:b"),
        (parse_position, "5:6:7:8"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(parse: object, text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)  # type: ignore[operator]


def test_a_file_of_questions() -> None:
    lines = [
        "orders\t5\n",
        "\n",
        '{"topic": "a/b/c", "index": "7"}\n',
        '{"topic": "t", "time": "1970-01-01T00:00:01Z"}',
        "we ird:näme\t1\r\n",
    ]
    assert list(read_questions(lines, "file")) == [
        Question("orders", "index", 5),
        Question("a/b/c", "index", 7),
        Question("t", "time", 1000),
        Question("we ird:näme", "index", 1),
    ]
    assert list(read_questions(["5", '{"time": 3}'], "file", "t")) == [
        Question("t", "index", 5),
        Question("t", "time", 3),
    ]


@pytest.mark.parametrize(
    "line",
    ["5", "t\tx", "t\t1\t2", "\t1", "{", '{"index": 1}', '{"topic": "t"}', '{"topic": 5, "index": 1}',
     '{"topic": "t", "index": 1, "time": 2}', '{"topic": "t", "index": null}',
     '{"topic": "t", "index": 1.5}'],
)  # fmt: skip
def test_a_bad_line_is_told_with_its_number(line: str) -> None:
    with pytest.raises(UsageError, match="line 2"):
        list(read_questions(["t\t1", line], "file"))

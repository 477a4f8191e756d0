"""Parsing of positions, indexes and files of questions."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.seek.questions import (
    Question,
    parse_index,
    read_questions,
)
from pulsar_meta.jobs.topics.topic import Position, parse_position


def test_positions_are_parsed() -> None:
    assert parse_position("12:5") == parse_position("12:5:-1") == parse_position("12:5:3") == Position(12, 5)
    assert parse_position("12:-1") == Position(12, -1)


@pytest.mark.parametrize("text", ["", "x", "1:2", "-1", "١", "18446744073709551616", "1" * 40])
def test_an_index_is_an_unsigned_64_bit_number(text: str) -> None:
    with pytest.raises(UsageError):
        parse_index(text)
    assert parse_index("18446744073709551615") == 2**64 - 1


@pytest.mark.parametrize("text", ["5", "a:b", "5:6:7:8"])
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_position(text)


def test_a_file_has_a_question_per_line() -> None:
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
def test_a_bad_line_is_reported_with_its_number(line: str) -> None:
    with pytest.raises(UsageError, match="line 2"):
        list(read_questions(["t\t1", line], "file"))

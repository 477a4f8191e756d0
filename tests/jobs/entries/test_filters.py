"""The filter language: its meaning, and its error messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.entries.filters import parse_filter

EU = {"region": "eu", "type": "order", "odd name": "a=b", "empty": "", "and": "1"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("region=eu", True),
        ("region=EU", False),
        (" region = 'eu' ", True),
        ("region", True),
        ("nowhere", False),
        ("region!=us", True),
        ("region!=eu", False),
        ("nowhere!=us", False),
        ("region^=e", True),
        ("region^=u", False),
        ("nowhere^=''", False),
        ("empty=''", True),
        ("empty^=''", True),
        ("not nowhere", True),
        ("not not region", True),
        ("not region=us and type", True),
        ("region=us or type=order", True),
        ("region=us or region=eu and type=other", False),
        ("(region=us or region=eu) and type=order", True),
        ("not (region=eu and type=order)", False),
        ("region=eu AND NOT type^=x", True),
        ("'odd name'='a=b'", True),
        ('"odd name"^="a="', True),
        ("'and'=1", True),
        (r"'odd name'='a\=b'", True),
        ("region=eu and(type=order)", True),
    ],
)
def test_a_filter_has_its_meaning(text: str, holds: bool) -> None:
    assert parse_filter(text).holds(EU) is holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "character 1: expected a property's name, found the end"),
        ("region=", "character 8: expected a value behind ="),
        ("=eu", "character 1: expected a property's name, found '='"),
        ("region=eu type", "character 11: expected and, or, or the end, found 'type'"),
        ("(region", "character 8: expected ), found the end"),
        ("region)", "character 7: expected and, or, or the end, found ')'"),
        ("region and", "character 11: expected a property's name"),
        ("region=eu=us", "character 10: expected and, or"),
        ("region='eu", 'character 8: "\'" is not closed'),
        ("region!eu", "character 7: '!' is not closed or stands for nothing"),
        ("(" * 200 + "a" + ")" * 200, "nested deeper than 100"),
        ("not " * 200 + "a", "nested deeper than 100"),
    ],
)
def test_an_invalid_filter_is_explained(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert message in str(caught.value)


def test_a_filter_knows_its_names() -> None:
    assert parse_filter("a=1 and (b or not c^=x) or d!=2").names() == {"a", "b", "c", "d"}


@given(st.text(max_size=40))
def test_any_text_is_a_filter_or_a_usage_error(text: str) -> None:
    try:
        parse_filter(text).holds(EU)
    except UsageError:
        return


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text()))
def test_quoted_names_and_values_are_unchanged(name: str, value: str, properties: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    properties = {**properties, name: value}
    assert parse_filter(f"{quoted(name)}={quoted(value)}").holds(properties)

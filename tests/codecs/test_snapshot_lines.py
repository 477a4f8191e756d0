from __future__ import annotations

import json
import random
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.snapshot_lines import (
    Sums,
    check_footer,
    footer_line,
    header_line,
    is_footer,
    is_header,
)


def term(path: str, value: bytes) -> int:
    name = path.encode()
    data = len(name).to_bytes(4, "big") + name + len(value).to_bytes(4, "big") + value
    return int.from_bytes(sha256(data).digest(), "big")


def sums_of(values: dict[str, bytes], ephemeral: tuple[str, ...] = ()) -> Sums:
    sums = Sums()
    for path, value in values.items():
        sums.add(path, value, ephemeral=path in ephemeral)
    return sums


def test_the_sums_follow_the_contract() -> None:
    values = {"/a": b"", "/a/b": b"x", "/a/e": b"session", "/c": b""}
    sums = sums_of(values, ephemeral=("/a/e",))
    terms = {path: term(path, value) for path, value in values.items()}
    assert sums.values == 4
    assert sums.everything == f"{sum(terms.values()) % 2**256:064x}"
    # The sum of lasting values has no empty parents, but it has empty values without children.
    assert sums.lasting == f"{(terms['/a/b'] + terms['/c']) % 2**256:064x}"


def test_children_may_come_long_after_their_parent() -> None:
    values = {"/a": b"", "/b": b"1", "/c/d": b"2", "/a/x/y": b"3"}
    assert sums_of(values).lasting == sums_of({path: values[path] for path in values if path != "/a"}).lasting


@given(st.dictionaries(st.from_regex(r"(/[a-c]{1,2}){1,4}", fullmatch=True), st.binary(max_size=3)))
def test_the_order_does_not_matter(values: dict[str, bytes]) -> None:
    ordered = dict(sorted(values.items()))
    # Any order with parents before their children.
    shuffled = sorted(values, key=lambda path: (path.count("/"), random.random()))
    in_order, in_other_order = sums_of(ordered), sums_of({path: values[path] for path in shuffled})
    assert (in_order.everything, in_order.lasting) == (in_other_order.everything, in_other_order.lasting)


def test_header_and_footer_are_recognized() -> None:
    head, foot = json.loads(header_line({"tool": "x"})), json.loads(footer_line(sums_of({"/a": b"1"}), {}))
    assert is_header(head)
    assert is_footer(foot)
    assert not is_footer(head)
    assert not is_header(foot)
    assert not is_header({"path": "/a", "snapshot": 1})
    with pytest.raises(DecodeError, match="format 2"):
        is_header({"snapshot": 2})


def test_a_wrong_footer_is_an_error() -> None:
    sums = sums_of({"/a": b"1"})
    footer = json.loads(footer_line(sums, {}))
    check_footer(footer, 1, sums)
    with pytest.raises(DecodeError, match="counts 1 values, but the file has 2"):
        check_footer(footer, 2)
    with pytest.raises(DecodeError, match="sums"):
        check_footer(footer, 1, sums_of({"/a": b"2"}))

"""broker.conf and client.conf, read like Java reads them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.java_properties import Property, decode_properties, last_values
from tests.servers.jvm import Jvm, why_no_libjvm
from tests.servers.restartable import skip_or_fail

# The expected settings are those of java.util.Properties in Java 17.
CASES = [
    (b"a=b", {"a": "b"}),
    (b"a = b ", {"a": "b "}),
    (b"a : b", {"a": "b"}),
    (b"a\tb c", {"a": "b c"}),
    (b"  a=b", {"a": "b"}),
    (b"a", {"a": ""}),
    (b"a=", {"a": ""}),
    (b"=b", {"": "b"}),
    (b"a==b", {"a": "=b"}),
    (b"a = = b", {"a": "= b"}),
    (b"#a=b\n!c=d\n\n  # e=f", {}),
    (b"a=b\\\n   c", {"a": "bc"}),
    (b"a=b\\\r\n\tc\\\rd", {"a": "bcd"}),
    (b"a=b\\\n#c", {"a": "b#c"}),
    (b"a=b\\\n\nc=d", {"a": "b", "c": "d"}),
    (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    (b"a\\=b=c", {"a=b": "c"}),
    (b"a\\ b c", {"a b": "c"}),
    (b"a\\:b:c", {"a:b": "c"}),
    (b"a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
    (b"a=\\u00e9\\ud83d\\ude00", {"a": "\u00e9\U0001f600"}),
    (b"\\u0061=b", {"a": "b"}),
    (b"a=\xe9", {"a": "\u00e9"}),
    (b"a=\xc3\xa9", {"a": "\u00c3\u00a9"}),
    (b"a=1\nb=2\na=3", {"a": "3", "b": "2"}),
    (b"a=b\\", {"a": "b"}),
    (b"\\", {"": ""}),
    (b"\\\n", {"": ""}),
    (b"\\\r", {"": ""}),
    (b"\\\r\n", {}),
    (b"a=b\\\r\n", {"a": "b"}),
    (b"a=1\r\n\\\r\n", {"a": "1"}),
    (b"\\\n#c\nb", {"b": ""}),
]


@pytest.mark.parametrize(("data", "expected"), CASES)
def test_properties_are_read_like_java_reads_them(data: bytes, expected: dict[str, str]) -> None:
    assert last_values(decode_properties(data)) == expected


def test_duplicate_keys_keep_their_line_numbers() -> None:
    assert decode_properties(b"# x\na=1\\\n2\na=3") == [Property("a", "12", 2), Property("a", "3", 4)]


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\uzzzz", b"\\u=1"])
def test_a_broken_escape_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="line 1: \\\\u needs four"):
        decode_properties(data)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_settings_or_a_decode_error(data: bytes) -> None:
    try:
        decode_properties(data)
    except DecodeError:
        return


@pytest.mark.java
def test_java_reads_random_files_the_same() -> None:
    skip_or_fail("libjvm", why_no_libjvm())
    pieces = [
        b"a",
        b"b",
        b"=",
        b":",
        b" ",
        b"\\",
        b"\n",
        b"\t",
        b"#",
        b"!",
        b"\\u0041",
        b"\xe9",
        b"\f",
        b"\\\n",
        b"u",
        b"\r",
        b"\r\n",
        b"\\\r\n",
        b"\0",
    ]
    chosen = random.Random(1)
    files = [data for data, _ in CASES]
    files += [b"".join(chosen.choices(pieces, k=chosen.randrange(1, 14))) for _ in range(20_000)]
    with Jvm(None, heap="256m") as jvm:
        loaded = jvm.call("tests.codecs.load_properties:load_each", files)
    for data, theirs in zip(files, loaded, strict=True):
        assert (data, _settings_or_none(data)) == (data, theirs)


def _settings_or_none(data: bytes) -> dict[str, str] | None:
    try:
        return last_values(decode_properties(data))
    except DecodeError:
        return None

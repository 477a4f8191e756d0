"""Pulsar's TopicName and Codec and ours make the same of names."""

from __future__ import annotations

import random

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName, decode_name, encode_name
from tests.interop.generated import SEED, text
from tests.servers.jvm import Jvm
from tests.servers.pulsar import release
from tests.servers.versions import size

pytestmark = pytest.mark.interop

MODULE = "tests.interop.oracle.names"
ODD = [
    "",
    " ",
    "+",
    "%",
    "%2F",
    "a b",
    "we ird:näme",
    "odd/name with %2F & ü",
    "~",
    "*",
    "-_.",
    "🚀",
    "\0",
    "a\nb",
    "é",
    "é",
]


def names(count: int) -> list[str]:
    source = random.Random(SEED)
    return ODD + [text(source, 24) for _ in range(count)] + [chr(code) for code in range(1, 0x800)]


def test_names_are_encoded_alike(oracle: Jvm) -> None:
    given = names(size(5000, 20_000))
    assert oracle.call(f"{MODULE}:encode", given) == [encode_name(name) for name in given]


def test_names_are_decoded_alike(oracle: Jvm) -> None:
    given = names(size(5000, 20_000))
    encoded = [encode_name(name) for name in given]
    assert oracle.call(f"{MODULE}:decode", encoded) == given
    assert [decode_name(name) for name in encoded] == given


def test_names_that_nobody_encoded_are_decoded_alike_or_refused(oracle: Jvm) -> None:
    """No broker stores such names. A lone percent sign we keep, Java refuses; broken UTF-8 we refuse, Java
    replaces; a sign in an escape (`%+F`) Java takes for a number.
    """
    source = random.Random(SEED)
    given = ["".join(source.choice("%2fFaC3 ä%e9") for _ in range(8)) for _ in range(size(3000, 20_000))]
    compared = 0
    for name, their in zip(given, oracle.call(f"{MODULE}:decode", given), strict=True):
        try:
            ours = decode_name(name)
        except DecodeError:
            assert "\ufffd" in their or "Exception" in their
            continue
        if "IllegalArgumentException" not in their:
            assert ours == their, name
            compared += 1
    assert compared > len(given) / 10


def test_topics_are_stored_in_the_same_place(oracle: Jvm) -> None:
    source = random.Random(SEED)
    topics = []
    for number in range(size(3000, 20_000)):
        local = (text(source, 20) or "t").replace("/", "-") + ("-partition-3" if number % 7 == 0 else "")
        middle = "/cluster" if number % 11 == 0 else ""
        topics.append(f"persistent://ten.ant-1{middle}/na_me=space/{local}")
    theirs = oracle.call(f"{MODULE}:persistence_paths", topics)
    for topic, their in zip(topics, theirs, strict=True):
        if "Exception" in their:
            assert "org.apache.pulsar" in their or "java.lang" in their
            continue
        ours = TopicName.parse(topic)
        assert ours.path == f"{MANAGED_LEDGERS}/{their}", topic
        assert TopicName.from_path(ours.path) == ours
    assert sum("Exception" in their for their in theirs) < len(theirs) / 2


@pytest.mark.parametrize("local", ["t", "with/slash", "a/b/c-partition-1"])
def test_v1_names_are_read_as_long_as_pulsar_reads_them(local: str, oracle: Jvm) -> None:
    topic = f"persistent://tenant/cluster/namespace/{local}"
    (theirs,) = oracle.call(f"{MODULE}:persistence_paths", [topic])
    if release(oracle.version) < (4, 2):
        assert f"{MANAGED_LEDGERS}/{theirs}" == TopicName.parse(topic).path
    else:
        assert "V1 topic names (with cluster component) are no longer supported" in theirs


@pytest.mark.parametrize("short", ["t", "public/default/t", "a/b/c", "persistent://a/b/c"])
def test_short_names_mean_the_same_topic(short: str, oracle: Jvm) -> None:
    assert oracle.call(f"{MODULE}:full_names", [short]) == [str(TopicName.parse(short))]

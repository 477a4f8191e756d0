"""Any bytes and names survive a round trip, or raise one of our errors."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.access.urls import ServerUrl
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.stores.base import ABSENT, is_within
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.oxia import children_range, next_key, order, subtree_range
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb import MetaValue
from tests.nightly import examples

longs = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6)
parts = names.filter(lambda name: name not in (".", "..", ".value", ".value.new"))
paths = st.lists(parts, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))


@given(longs, longs, longs, longs, st.booleans(), st.binary(max_size=99), st.binary(max_size=9))
def test_headers_survive_a_round_trip(
    version: int, owner: int, created: int, modified: int, ephemeral: bool, data: bytes, extra: bytes
) -> None:
    value = MetaValue(version, owner, created, modified, ephemeral, data, extra)
    assert MetaValue.decode(value.encode()) == value


@given(st.binary(max_size=80))
def test_any_bytes_decode_or_raise_a_decode_error(raw: bytes) -> None:
    with contextlib.suppress(DecodeError):
        MetaValue.decode(raw)


@given(st.text(max_size=60))
def test_any_url_is_parsed_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        ServerUrl.parse(f"zk:{text}", default_port=2181)


@settings(deadline=None, max_examples=examples(60))
@given(st.binary(max_size=300), st.booleans())
def test_any_file_is_a_snapshot_or_a_decode_error(data: bytes, compressed: bool) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(zstandard.compress(data) if compressed else data)
        file.flush()
        with open_store(f"snapshot:{file.name}") as store:
            with contextlib.suppress(DecodeError):
                list(store.scan())
            with contextlib.suppress(DecodeError):
                store.children("/")


@settings(deadline=None, max_examples=examples(40))
@given(st.dictionaries(paths, st.binary(max_size=20), max_size=12))
def test_a_directory_store_equals_a_memory_store(values: dict[str, bytes]) -> None:
    memory = MemoryStore()
    with tempfile.TemporaryDirectory() as base, open_store(f"dir:{Path(base)}", read_only=False) as tree:
        for path, value in values.items():
            memory.put(path, value, ABSENT)
            tree.put(path, value, ABSENT)
        for path in ["/", *values]:
            assert tree.children(path) == memory.children(path)
        assert sorted((value.path, value.value) for value in tree.scan()) == sorted(values.items())


@given(st.lists(paths, max_size=12, unique=True), paths)
def test_oxias_ranges_are_subtrees(keys: list[str], root: str) -> None:
    def within(key: str, bounds: tuple[str, str]) -> bool:
        return order(bounds[0]) <= order(key) < order(bounds[1])

    for key in [*keys, *(root + other for other in keys)]:
        below = key != root and is_within(key, root)
        assert within(key, subtree_range(root)) == below
        directly = below and key.count("/") == root.count("/") + 1
        assert within(key, children_range(root)) == directly
        assert within(key, subtree_range("/"))
        assert order(key) < order(next_key(key))

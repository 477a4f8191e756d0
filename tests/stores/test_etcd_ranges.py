"""The ranges of a scan over generated keys. `test_etcd` tests them on a real etcd."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.stores import etcd_requests
from pulsar_meta.stores.etcd_requests import Reach


def scan(keys: list[bytes], below: bytes, page: int) -> Iterator[tuple[list[bytes], int]]:
    """Yield the pages of a scan, and the number of keys that etcd would count for each request."""
    start, reach = below, Reach(below, below[:-1] + b"0")
    while True:
        assert start < reach.end <= reach.last
        at, end = bisect_left(keys, start), bisect_left(keys, reach.end)
        page_keys = keys[at : min(end, at + page)]
        yield page_keys, end - at
        if end - at > page:
            start = page_keys[-1] + b"\0"
            reach.narrow(end - at, page_keys[0], page_keys[-1])
        elif reach.end == reach.last:
            return
        else:
            start = reach.end
            reach.widen()


@pytest.fixture(autouse=True)
def few_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_requests, "COUNTED", 80)


# Also bytes beyond UTF-8, which no path contains.
_names = st.binary(min_size=1, max_size=4).map(lambda text: text.replace(b"0", b"\xff"))
_keys = st.sets(
    st.lists(_names, min_size=1, max_size=4).map(lambda names: b"/a/" + b"/".join(names)), max_size=200
)


@given(_keys, st.integers(1, 9))
def test_every_key_is_scanned_once_and_in_order(keys: set[bytes], page: int) -> None:
    scanned = [key for page_keys, _ in scan(sorted(keys), b"/a/", page) for key in page_keys]
    assert scanned == sorted(keys)


@pytest.mark.parametrize(
    "keys",
    [
        [b"/ledgers/L%010d" % at for at in range(30_000)],
        [b"/m/ns-%d/persistent/topic-%d/c-%d" % (at // 1000, at // 10, at) for at in range(30_000)],
        [b"/m/%d/topic" % at for at in range(15_000)] + [b"/m/x/y/z/%d" % at for at in range(15_000)],
    ],
)
def test_few_keys_are_counted_and_few_requests_are_empty(keys: list[bytes]) -> None:
    pages = list(scan(sorted(keys), b"/", 10))
    assert [key for page_keys, _ in pages for key in page_keys] == sorted(keys)
    assert sum(counted for _, counted in pages) < 60 * len(keys)
    assert len(pages) < 3 * len(keys) / 10

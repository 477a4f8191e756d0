from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.stores.snapshot_file import PathIndex

PATHS = ["/a", "/a/b", "/a-b", "/a0", "/\ud800", "/\uffff", "/\U00010000", "/ä"]


def test_paths_are_in_the_order_of_their_code_points() -> None:
    index = PathIndex("here")
    for number, path in enumerate(PATHS):
        index.add(path, number)
    assert [index.start_of(path) for path in PATHS] == list(range(len(PATHS)))
    assert index.start_of("/b") is None
    in_order, following = [], index.first_from("")
    while following is not None:
        in_order.append(following)
        following = index.first_from(f"{following}\0")
    assert in_order == sorted(PATHS)
    index.close()


def test_adding_a_path_twice_is_an_error() -> None:
    index = PathIndex("here")
    index.add("/a", 0)
    with pytest.raises(DecodeError, match="/a occurs twice"):
        index.add("/a", 1)
    assert index.start_of("/a") == 0
    index.close()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Keep this process from writing larger files, which simulates a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_an_error_unless_the_index_fits_in_memory() -> None:
    small, large = PathIndex("here", cache=1024), PathIndex("here", cache=64)
    with file_size_limit(1 << 16):
        for number in range(2000):
            small.add(f"/managed-ledgers/public/default/persistent/topic-{number}", number)
        with pytest.raises(UnreachableError, match="here: cannot store its index in temporary files: "):
            for number in range(20_000):
                large.add(f"/managed-ledgers/public/default/persistent/topic-{number}", number)
    assert small.start_of("/managed-ledgers/public/default/persistent/topic-7") == 7
    small.close()
    large.close()

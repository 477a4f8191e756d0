"""Damaged snapshots and logs of ZooKeeper raise DecodeError, and a log is read up to its damage."""

from __future__ import annotations

from struct import pack
from zlib import adler32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs import compression
from pulsar_meta.codecs.errors import DecodeError, LimitError
from pulsar_meta.codecs.zookeeper_files.log import Create, LogEnd, Transaction, changes_of, read_log
from pulsar_meta.codecs.zookeeper_files.snapshot import Node, Tree, read_snapshot, unpack_snappy
from tests.peak_memory import snappy_stream, zookeeper_snapshot

HEADER = b"ZKLG" + pack(">iq", 2, 0)


def text(value: str) -> bytes:
    return pack(">i", len(value)) + value.encode()


def create(zxid: int, path: str) -> bytes:
    body = pack(">qiqqi", 1, 0, zxid, 1000 + zxid, 1)
    body += text(path) + text("data") + pack(">i", 0) + b"\0" + pack(">i", 1)
    return pack(">qi", adler32(body), len(body)) + body + b"B"


LOG = HEADER + create(1, "/a") + create(2, "/a/b") + bytes(100)


def test_a_log_is_read_up_to_its_zeros() -> None:
    *transactions, end = read_log(LOG)
    assert [t.zxid for t in transactions if isinstance(t, Transaction)] == [1, 2]
    assert isinstance(transactions[0], Transaction)
    assert list(changes_of(transactions[0])) == [Create("/a", b"data", 0, 1)]
    assert end == LogEnd(len(LOG) - 100, None)
    tree = Tree()
    for transaction in transactions:
        assert isinstance(transaction, Transaction)
        tree.apply(transaction)
    assert tree.nodes["/a/b"].data == b"data"
    assert tree.nodes["/a"].creations == 1


@settings(deadline=None)
@given(st.integers(0, len(LOG) - 101), st.integers(1, 255))
def test_a_changed_byte_ends_the_log_or_is_an_error(at: int, change: int) -> None:
    damaged = bytearray(LOG)
    damaged[at] ^= change
    try:
        items = list(read_log(bytes(damaged)))
    except DecodeError:
        assert at < len(HEADER)
        return
    assert isinstance(items[-1], LogEnd)
    assert len(items) < 3 or 8 <= at < len(HEADER)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_raise_a_decode_error(data: bytes) -> None:
    for read in (lambda: read_snapshot(data, 0), lambda: unpack_snappy(data), lambda: list(read_log(data))):
        try:
            read()
        except DecodeError:
            continue


@settings(deadline=None)
@given(st.binary(max_size=120), st.sampled_from([1, 2, 5, 7, 14, 15, 16, 19, 20, 21, -11, 99]))
def test_any_transaction_is_applied_or_a_decode_error(body: bytes, kind: int) -> None:
    transaction = Transaction(1, 1, 1, kind, memoryview(body))
    try:
        Tree().apply(transaction)
    except DecodeError:
        return


def test_an_unknown_transaction_type_is_refused() -> None:
    with pytest.raises(DecodeError, match="type 99"):
        list(changes_of(Transaction(1, 1, 1, 99, memoryview(b""))))


@pytest.mark.parametrize("path", ["//", "", "/a/", "a"])
def test_a_node_with_an_impossible_path_is_a_decode_error(path: str) -> None:
    if path:
        with pytest.raises(DecodeError, match="invalid path of a node"):
            read_snapshot(zookeeper_snapshot(path), 1)
    *transactions, _ = read_log(HEADER + create(1, path))
    tree = Tree()
    tree.add("/a", Node(b"", 1, 1))
    with pytest.raises(DecodeError, match="invalid path of a node"):
        tree.apply(transactions[0])  # type: ignore[arg-type]


def test_snappy_blocks_that_unpack_beyond_the_limit_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = snappy_stream(bytes(1 << 20))
    assert len(unpack_snappy(stream)) == 1 << 20
    monkeypatch.setattr(compression.LIMITS, "max_unpacked", 1 << 19)
    with pytest.raises(LimitError, match=r"unpack to more than \d+ bytes"):
        unpack_snappy(stream)

"""Servers that give wrong answers, stall, drip, repeat or are down cause a one-line error in bounded time."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError, UnreachableError
from pulsar_meta.proto import Etcd_pb2 as etcd
from pulsar_meta.proto import Oxia_pb2 as oxia
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.registry import open_store
from tests.cli.program import pulsar_meta_here
from tests.servers.limits import must_end
from tests.servers.scripted import STRANGE_SERVERS, closed_port, grpc_server, tcp_server, zookeeper

SCHEMES = ("zk", "etcd", "oxia")
Calls = dict[str, Callable[[Any], Any]]


def in_time(call: Callable[[], object], *kinds: type[PulsarMetaError]) -> str:
    with pytest.raises(kinds or (UnreachableError, DecodeError)) as caught, must_end():
        call()
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert caught.value.exit_code in (4, 6)
    for leaked in ("kazoo", "KazooTimeoutError", "ipv4:", "grpc", "UNAVAILABLE", "StatusCode", "IndexError"):
        assert leaked not in text
    return text


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_closed_port_is_named(scheme: str) -> None:
    port = closed_port()
    text = in_time(lambda: open_store(f"{scheme}://127.0.0.1:{port}"))
    assert text.endswith(f"cannot connect to 127.0.0.1:{port}: Connection refused")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_unknown_host_is_named(scheme: str) -> None:
    text = in_time(lambda: open_store(f"{scheme}://no-such-host.invalid:1,127.0.0.1:{closed_port()}"))
    assert "no-such-host.invalid:1: host name not found" in text
    assert ": Connection refused" in text


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", STRANGE_SERVERS)
def test_a_server_of_another_kind_is_named(scheme: str, name: str) -> None:
    with tcp_server(STRANGE_SERVERS[name]) as port:
        text = in_time(lambda: open_store(f"{scheme}://127.0.0.1:{port}?timeout=1"), UnreachableError)
    assert f"127.0.0.1:{port}" in text
    if name in ("stalls", "drips") and scheme != "zk":
        assert "no answer within 1 second (raise the limit with ?timeout=SECONDS in the URL)" in text


# ---- ZooKeeper


def ask_zookeeper(answer: bytes | None, call: Callable[[Store], object]) -> str:
    with (
        tcp_server(zookeeper(lambda operation, request: answer)) as port,
        open_store(f"zk://127.0.0.1:{port}?timeout=1", read_only=False) as store,
    ):
        return in_time(lambda: call(store))


ZOOKEEPER_CALLS: dict[str, Callable[[Store], object]] = {
    "read": lambda store: store.read("/a"),
    "children": lambda store: store.children("/a"),
    "read_many": lambda store: store.read_many(["/a", "/b"]),
    "scan": lambda store: list(store.scan("/a")),
    "put": lambda store: store.put("/a", b"x", 3),
}


@pytest.mark.parametrize("call", ZOOKEEPER_CALLS)
def test_a_zookeeper_that_stops_answering_times_out(call: str) -> None:
    assert "no answer within 1 second (raise the limit with ?timeout=SECONDS in the URL)" in ask_zookeeper(
        None, ZOOKEEPER_CALLS[call]
    )


@pytest.mark.parametrize("call", ["read", "children", "read_many", "scan", "put"])
@pytest.mark.parametrize("answer", [b"", b"\x7f\xff\xff\xff", b"\0\0\0\2\xff\xfe" * 3])
def test_nonsense_from_a_zookeeper_is_an_error(call: str, answer: bytes) -> None:
    ask_zookeeper(answer, ZOOKEEPER_CALLS[call])


def test_too_few_answers_from_a_zookeeper_are_an_error() -> None:
    end = struct.pack(">i?i", -1, True, -1)
    text = ask_zookeeper(end, lambda store: store.read_many(["/a", "/b"]))
    assert "expected 2 nodes in the server's answer, found 0" in text


# ---- etcd


def etcd_range(request: bytes) -> etcd.RangeRequest:
    return etcd.RangeRequest.FromString(request)


def ask_etcd(
    answer: Callable[[etcd.RangeRequest], etcd.RangeResponse], call: Callable[[Store], object]
) -> str:
    def script(request: bytes) -> bytes:
        range_request = etcd_range(request)
        opening = range_request.key == b"/" and not range_request.range_end
        return (etcd.RangeResponse() if opening else answer(range_request)).SerializeToString()

    with grpc_server({"Range": script}) as port, open_store(f"etcd://127.0.0.1:{port}?timeout=2") as store:
        return in_time(lambda: call(store), DecodeError)


def range_of(*keys: str, more: bool = False) -> etcd.RangeResponse:
    return etcd.RangeResponse(
        kvs=[etcd.KeyValue(key=key.encode(), value=b"x", mod_revision=1) for key in keys], more=more
    )


def test_an_etcd_that_answers_another_key_is_an_error() -> None:
    text = ask_etcd(lambda _: range_of("/other"), lambda store: store.read("/a"))
    assert "requested /a, but the server returned another key" in text
    ask_etcd(lambda _: range_of("/a", "/a"), lambda store: store.read("/a"))
    ask_etcd(lambda _: range_of("/other"), lambda store: list(store.scan("/a")))


@pytest.mark.parametrize("call", [lambda store: store.children("/a"), lambda store: list(store.scan("/a"))])
def test_an_etcd_whose_pages_make_no_progress_is_an_error(call: Callable[[Store], object]) -> None:
    def paged(response: etcd.RangeResponse) -> Callable[[etcd.RangeRequest], etcd.RangeResponse]:
        return lambda request: response if request.range_end else etcd.RangeResponse()

    assert "announced more keys, but returned none" in ask_etcd(paged(range_of(more=True)), call)
    assert "the server returned keys that were not requested" in ask_etcd(
        paged(range_of("/a/b", more=True)), call
    )
    assert "the server returned keys that were not requested" in ask_etcd(
        paged(range_of("/a/c", "/a/b")), call
    )
    assert "the server returned keys that were not requested" in ask_etcd(paged(range_of("/z")), call)


# ---- Oxia

SHARD = oxia.ShardAssignment(shard=1, hash_range=oxia.HashRange(first=0, last=2**32 - 1))


def oxia_calls(port: list[int], **calls: Callable[[Any], Any]) -> Calls:
    def shards(_: bytes) -> Iterator[bytes]:
        shard = oxia.ShardAssignment()
        shard.CopyFrom(SHARD)
        shard.leader = f"127.0.0.1:{port[0]}"
        answer = oxia.ShardAssignments()
        answer.namespaces["default"].assignments.append(shard)
        yield answer.SerializeToString()

    return {"GetShardAssignments": shards, **calls}


def ask_oxia(
    call: Callable[[Store], object], *kinds: type[PulsarMetaError], **calls: Callable[[Any], Any]
) -> str:
    port: list[int] = []
    with grpc_server(oxia_calls(port, **calls)) as number:
        port.append(number)
        with open_store(f"oxia://127.0.0.1:{number}?timeout=2", read_only=False) as store:
            return in_time(lambda: call(store), *kinds)


def record(key: str | None, status: oxia.Status = oxia.OK) -> oxia.GetResponse:
    return oxia.GetResponse(status=status, value=b"x", key=key)


READS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "nothing": lambda _: iter(()),
    "empty": lambda _: iter([b""]),
    "two": lambda _: iter([oxia.ReadResponse(gets=[record(None), record(None)]).SerializeToString()]),
    "another": lambda _: iter([oxia.ReadResponse(gets=[record("/other")]).SerializeToString()]),
}


@pytest.mark.parametrize("name", READS)
def test_a_wrong_answer_from_an_oxia_is_an_error(name: str) -> None:
    text = ask_oxia(lambda store: store.read("/a"), Read=READS[name])
    assert re.search("the server returned another key|answers from the server", text)
    ask_oxia(lambda store: store.read_many(["/a"]), Read=READS[name])


def test_an_oxia_that_repeats_a_key_is_an_error() -> None:
    def scan(_: bytes) -> Iterator[bytes]:
        page = oxia.RangeScanResponse(records=[record("/a/b") for _ in range(1000)])
        while True:
            yield page.SerializeToString()

    def names(_: bytes) -> Iterator[bytes]:
        return iter([oxia.ListResponse(keys=["/a/b", "/a/b"]).SerializeToString()])

    absent = oxia.ReadResponse(gets=[record(None, oxia.KEY_NOT_FOUND)]).SerializeToString()
    calls: Calls = {"Read": lambda _: iter([absent]), "RangeScan": scan, "List": names}
    text = ask_oxia(lambda store: list(store.scan("/a")), DecodeError, **calls)
    assert "the server returned keys that were not requested" in text
    ask_oxia(lambda store: store.children("/a"), DecodeError, **calls)


def test_an_endless_list_from_an_oxia_is_an_error() -> None:
    def names(_: bytes) -> Iterator[bytes]:
        for at in count():
            time.sleep(0.001)
            yield oxia.ListResponse(keys=[f"/a/{at}"]).SerializeToString()

    ask_oxia(lambda store: store.children("/a"), List=names)


def test_an_oxia_shard_that_disappears_is_an_error() -> None:
    port: list[int] = []
    requests = count()

    def shards(_: bytes) -> Iterator[bytes]:
        answer = oxia.ShardAssignments()
        shard = answer.namespaces["default"].assignments.add()
        shard.CopyFrom(SHARD)
        shard.leader = f"127.0.0.1:{port[0]}"
        shard.shard = next(requests) + 1
        yield answer.SerializeToString()

    with grpc_server({"GetShardAssignments": shards}) as number:
        port.append(number)
        with open_store(f"oxia://127.0.0.1:{number}?timeout=2") as store:
            text = in_time(lambda: list(store.scan("/")), UnreachableError)
    assert "shard 1 no longer exists" in text


def test_an_oxia_write_without_an_answer_is_an_error() -> None:
    absent = oxia.ReadResponse(gets=[record(None, oxia.KEY_NOT_FOUND)]).SerializeToString()
    calls: Calls = {"Read": lambda _: iter([absent])}
    put: Callable[[Store], object] = lambda store: store.put("/a", b"x", ABSENT)  # noqa: E731
    text = ask_oxia(put, UnreachableError, WriteStream=lambda _: iter(()), **calls)
    assert "without an answer" in text
    ask_oxia(put, DecodeError, WriteStream=lambda _: iter([b""]), **calls)


def test_an_oxia_without_shards_is_an_error() -> None:
    answer = oxia.ShardAssignments()
    answer.namespaces["default"].SetInParent()
    with grpc_server({"GetShardAssignments": lambda _: iter([answer.SerializeToString()])}) as port:
        text = in_time(lambda: open_store(f"oxia://127.0.0.1:{port}?timeout=2"), UnreachableError)
    assert "has no shards" in text


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", [*STRANGE_SERVERS, "closed port"])
def test_the_program_ends_with_a_one_line_error(scheme: str, name: str) -> None:
    with tcp_server(STRANGE_SERVERS.get(name, STRANGE_SERVERS["stalls"])) as port:
        target = closed_port() if name == "closed port" else port
        done = pulsar_meta_here("ls", "/", "--store", f"{scheme}://127.0.0.1:{target}?timeout=0.7")
    assert (done.returncode, done.stdout) == (6, b"")
    assert len(done.stderr.splitlines()) == 1
    assert b"Traceback" not in done.stderr

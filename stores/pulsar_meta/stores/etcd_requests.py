"""Requests to etcd: bounded ranges for scans, the history of one key, and groups of writes.

etcd counts the keys of a whole range however few it returns, so ranges that reach to the end would make a
scan
quadratic. A range ends at a prefix instead: a longer one if too many keys were counted, a shorter one if all
were
read. This only affects speed, because each range begins where the last one ended.

etcd keeps revisions of a key until they are compacted, without times or authors. A watch from an old revision
returns
them in order.

Several values are written in one request: as one transaction (all or nothing), or as a transaction of
transactions in
which each value is compared and set independently for a single proposal. The first costs two thirds less on
both
sides. etcd accepts a key only once per request, limits the size of a request, and counts the operations of
outer and
inner transactions together (`--max-txn-ops`, 128).

Sources: etcd server/storage/mvcc/index.go (Revisions), watchable_store.go, api/etcdserverpb/rpc.proto
(Watch),
server/etcdserver/api/v3rpc/key.go (checkTxnRequest).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.proto import Etcd_pb2 as api
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.grpc_client import GrpcClient

# As many keys are counted in a fraction of the time that a page of them takes.
COUNTED: Final = 1 << 15
# Behind every key that begins alike: no byte of UTF-8 is as large.
LAST: Final = b"\xff"


class Reach:
    """The end of the next range of a scan, excluded."""

    def __init__(self, below: bytes, end: bytes) -> None:
        """All keys to come begin with `below`; `end` is the end of the scan."""
        self.end = self.last = end
        self._below = below
        self._prefix = below

    def narrow(self, count: int, first: bytes, last: bytes) -> None:
        """So many keys were in the range, and there are more behind this page of them."""
        if count > COUNTED:
            self._end_behind(last[: _alike(first, last) + 1], last)

    def widen(self) -> None:
        """All keys of the range were read. A byte less: an empty range costs little, one too wide much."""
        self._end_behind(self._prefix[:-1], self.end)

    def _end_behind(self, prefix: bytes, read: bytes) -> None:
        self._prefix = prefix if len(prefix) > len(self._below) else self._below
        self.end = self.last if self._prefix == self._below else prefix + LAST
        if self.end <= read:
            self.end = self.last


def _alike(first: bytes, last: bytes) -> int:
    """Return how many bytes both begin with."""
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(last)))


WATCH: Final = "/etcdserverpb.Watch/Watch"
# Before 3.5.8 etcd reports progress at once, also ahead of changes that it has still to send, which it looks
# for ten times a second: so many reports in a row mean that there are none.
SILENCE: Final = 5


class CompactedError(Exception):
    """The past up to `revision` is gone."""

    def __init__(self, revision: int) -> None:
        """Take the first revision that can be read."""
        super().__init__(revision)
        self.revision = revision


@dataclass(slots=True)
class Changes:
    """Collects the changes of a key from `first` on up to the revision `last`.

    `newest` is the revision of the key's value at `last`, 0 where it has none then.
    """

    key: bytes
    first: int
    last: int
    newest: int
    url: str
    events: list[api.Event] = field(default_factory=list)
    _silent: int = 0

    def read(self, client: GrpcClient) -> list[api.Event]:
        """Return the changes, the oldest first. CompactedError where some of them are gone."""
        if self.newest and self.newest < self.first:
            return []
        create = api.WatchCreateRequest(key=self.key, start_revision=self.first)
        request = api.WatchRequest(create_request=create)
        nudge = api.WatchRequest(progress_request=api.WatchProgressRequest())
        answers = client.converse(WATCH, request, nudge, api.WatchResponse, self._take)
        if not answers or not self._all_there(answers[-1]):
            raise UnreachableError("it ended the watch before it had sent every change", source=self.url)
        return [event for event in self.events if event.kv.mod_revision <= self.last]

    def _take(self, answer: api.WatchResponse, size: int) -> bool:
        """Take an answer; return whether it is the last one."""
        if answer.compact_revision:
            raise CompactedError(answer.compact_revision)
        if answer.canceled:
            raise UnreachableError(f"it refuses: {answer.cancel_reason}", source=self.url)
        if any(event.kv.key != self.key for event in answer.events):
            raise DecodeError("the server answered with another key than the one asked for", source=self.url)
        self.events += answer.events
        self._silent = 0 if answer.events or answer.created else self._silent + 1
        return self._all_there(answer)

    def _all_there(self, answer: api.WatchResponse) -> bool:
        reached = self.events[-1].kv.mod_revision if self.events else 0
        if self.newest:
            return reached >= self.newest
        ended = not self.events or self.events[-1].type == api.Event.DELETE
        return reached > self.last or (ended and self._silent >= SILENCE)


# With the comparison of an inner one still half of what a server takes.
OPERATIONS: Final = 63
TOO_MANY: Final = "too many operations in txn request"


class Compared(NamedTuple):
    """What happens to a key where its mod_revision is the expected one; `size` in bytes of a request."""

    path: str
    expected: int
    operation: api.RequestOp
    size: int

    def request(self) -> api.TxnRequest:
        """Return it as a transaction of its own."""
        return api.TxnRequest(compare=[comparison(self.path, self.expected)], success=[self.operation])


def comparison(path: str, expected: int) -> api.Compare:
    """Return what holds as long as the key has that mod_revision; ABSENT: as long as there is none."""
    key = path.encode()
    if expected == ABSENT:
        return api.Compare(key=key, target=api.Compare.CREATE, create_revision=0)
    return api.Compare(key=key, target=api.Compare.MOD, mod_revision=expected)


def written(path: str, value: bytes, expected: int, size: int) -> Compared:
    """Return a compare-and-set; the lease of a key that is there stays."""
    put = api.PutRequest(key=path.encode(), value=bytes(value), ignore_lease=expected != ABSENT)
    return Compared(path, expected, api.RequestOp(request_put=put), size)


def deleted(path: str, expected: int, size: int) -> Compared:
    """Return a compare-and-delete."""
    gone = api.DeleteRangeRequest(key=path.encode())
    return Compared(path, expected, api.RequestOp(request_delete_range=gone), size)


def all_or_none(group: Sequence[Compared]) -> api.TxnRequest:
    """Return the request that does nothing where one of the comparisons does not hold."""
    compare = [comparison(one.path, one.expected) for one in group]
    return api.TxnRequest(compare=compare, success=[one.operation for one in group])


def each_by_itself(group: Sequence[Compared]) -> api.TxnRequest:
    """Return the request that does whatever has a comparison that holds."""
    return api.TxnRequest(success=[api.RequestOp(request_txn=one.request()) for one in group])


def read(ranges: Iterable[api.RangeRequest]) -> api.TxnRequest:
    """Return the request that reads several ranges as they are at one moment."""
    return api.TxnRequest(success=[api.RequestOp(request_range=one) for one in ranges])


def split(operations: Sequence[Compared], limit: int) -> Iterator[list[Compared]]:
    """Yield the operations in groups that a server takes: few enough, below `limit` bytes, no key twice."""
    group: list[Compared] = []
    keys: set[str] = set()
    size = 0
    for one in operations:
        if group and (len(group) == OPERATIONS or size + one.size > limit or one.path in keys):
            yield group
            group, keys, size = [], set(), 0
        group.append(one)
        keys.add(one.path)
        size += one.size
    if group:
        yield group

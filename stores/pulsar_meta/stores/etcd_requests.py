"""Requests to etcd: bounded ranges for scans, the history of one key, and groups of writes.

etcd counts all keys of the requested range, even if it returns only a few, so a scan with ranges that reach
to the end would be quadratic. A range ends at a prefix instead: a longer prefix if too many keys were
counted, a shorter one if all keys were read. This only affects speed, because each range begins where the
last one ended.

etcd keeps the revisions of a key until they are compacted, without times or authors. A watch from an old
revision returns them in order.

Several values are written in one request: either as one transaction (all or nothing), or as a transaction of
transactions, in which each value is compared and set independently with a single proposal. The first costs
two thirds less on both sides. etcd accepts a key only once per request, limits the size of a request, and
counts the operations of outer and inner transactions together (`--max-txn-ops`, 128).

Sources: etcd server/storage/mvcc/index.go (Revisions), watchable_store.go, api/etcdserverpb/rpc.proto
(Watch), server/etcdserver/api/v3rpc/key.go (checkTxnRequest).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.proto import Etcd_pb2 as api
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.grpc_client import GrpcClient

# Counting this many keys takes a fraction of the time that reading a page takes.
COUNTED: Final = 1 << 15
# After a prefix, this sorts after every key with that prefix, because no byte of UTF-8 is as large.
LAST: Final = b"\xff"


class Reach:
    """Chooses the (exclusive) end of each range of a scan."""

    def __init__(self, below: bytes, end: bytes) -> None:
        """Begin a scan that ends at `end`. All its keys begin with `below`."""
        self.end = self.last = end
        self._below = below
        self._prefix = below

    def narrow(self, count: int, first: bytes, last: bytes) -> None:
        """Shorten the range if it had too many keys (`count`). The page had keys from `first` to `last`."""
        if count > COUNTED:
            self._end_after(last[: _common_length(first, last) + 1], last)

    def widen(self) -> None:
        """Widen the prefix by one byte. An empty range costs little, a range that is too wide costs much."""
        self._end_after(self._prefix[:-1], self.end)

    def _end_after(self, prefix: bytes, read: bytes) -> None:
        self._prefix = prefix if len(prefix) > len(self._below) else self._below
        self.end = self.last if self._prefix == self._below else prefix + LAST
        if self.end <= read:
            self.end = self.last


def _common_length(first: bytes, last: bytes) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(first), len(last)))


WATCH: Final = "/etcdserverpb.Watch/Watch"
# Before 3.5.8, etcd reports progress immediately, even ahead of changes that it has yet to send. It collects
# changes ten times per second, so this many reports in a row mean that there are no more changes.
SILENCE: Final = 5


class CompactedError(Exception):
    """etcd has compacted the revisions before `revision`."""

    def __init__(self, revision: int) -> None:
        """Create the error with the first revision that can still be read."""
        super().__init__(revision)
        self.revision = revision


@dataclass(slots=True)
class Changes:
    """Collects the changes of a key from the revision `first` to the revision `last`.

    `newest` is the revision of the key's value as of `last`, or 0 if it has no value then.
    """

    key: bytes
    first: int
    last: int
    newest: int
    url: str
    events: list[api.Event] = field(default_factory=list)
    _silent: int = 0

    def read(self, client: GrpcClient) -> list[api.Event]:
        """Return the changes, oldest first. Raises CompactedError if some have been compacted."""
        if self.newest and self.newest < self.first:
            return []
        create = api.WatchCreateRequest(key=self.key, start_revision=self.first)
        request = api.WatchRequest(create_request=create)
        nudge = api.WatchRequest(progress_request=api.WatchProgressRequest())
        answers = client.converse(WATCH, request, nudge, api.WatchResponse, self._take)
        if not answers or not self._all_there():
            raise UnreachableError(
                "the server ended the watch before it had sent every change", source=self.url
            )
        return [event for event in self.events if event.kv.mod_revision <= self.last]

    def _take(self, answer: api.WatchResponse, size: int) -> bool:
        """Record an answer, and return True if it is the last one."""
        if answer.compact_revision:
            raise CompactedError(answer.compact_revision)
        if answer.canceled:
            raise UnreachableError(f"the server refused the request: {answer.cancel_reason}", source=self.url)
        if any(event.kv.key != self.key for event in answer.events):
            raise DecodeError("the server returned a key that was not requested", source=self.url)
        self.events += answer.events
        self._silent = 0 if answer.events or answer.created else self._silent + 1
        return self._all_there()

    def _all_there(self) -> bool:
        reached = self.events[-1].kv.mod_revision if self.events else 0
        if self.newest:
            return reached >= self.newest
        ended = not self.events or self.events[-1].type == api.Event.DELETE
        return reached > self.last or (ended and self._silent >= SILENCE)


# Together with one comparison per inner transaction, this is below the server's default limit.
OPERATIONS: Final = 63
TOO_MANY: Final = "too many operations in txn request"


class Compared(NamedTuple):
    """An operation on a key if its mod_revision is `expected`. `size` is its share of a request, in bytes."""

    path: str
    expected: int
    operation: api.RequestOp
    size: int

    def request(self) -> api.TxnRequest:
        """Return a transaction with only this operation."""
        return api.TxnRequest(compare=[comparison(self.path, self.expected)], success=[self.operation])


def comparison(path: str, expected: int) -> api.Compare:
    """Return the condition that the key has that mod_revision, or for ABSENT that it doesn't exist."""
    key = path.encode()
    if expected == ABSENT:
        return api.Compare(key=key, target=api.Compare.CREATE, create_revision=0)
    return api.Compare(key=key, target=api.Compare.MOD, mod_revision=expected)


def written(path: str, value: bytes, expected: int, size: int) -> Compared:
    """Return a compare-and-set. An existing key keeps its lease."""
    put = api.PutRequest(key=path.encode(), value=bytes(value), ignore_lease=expected != ABSENT)
    return Compared(path, expected, api.RequestOp(request_put=put), size)


def deleted(path: str, expected: int, size: int) -> Compared:
    """Return a compare-and-delete."""
    delete = api.DeleteRangeRequest(key=path.encode())
    return Compared(path, expected, api.RequestOp(request_delete_range=delete), size)


def all_or_none(group: Sequence[Compared]) -> api.TxnRequest:
    """Return a request that does nothing if one of the comparisons fails."""
    compare = [comparison(compared.path, compared.expected) for compared in group]
    return api.TxnRequest(compare=compare, success=[compared.operation for compared in group])


def independently(group: Sequence[Compared]) -> api.TxnRequest:
    """Return a request that performs every operation whose own comparison succeeds."""
    return api.TxnRequest(success=[api.RequestOp(request_txn=compared.request()) for compared in group])


def read(ranges: Iterable[api.RangeRequest]) -> api.TxnRequest:
    """Return a request that reads several ranges as of one revision."""
    return api.TxnRequest(success=[api.RequestOp(request_range=keys) for keys in ranges])


def split(operations: Sequence[Compared], limit: int) -> Iterator[list[Compared]]:
    """Yield groups of up to OPERATIONS operations and `limit` bytes, without repeated keys."""
    group: list[Compared] = []
    keys: set[str] = set()
    size = 0
    for operation in operations:
        full = len(group) == OPERATIONS or size + operation.size > limit
        if group and (full or operation.path in keys):
            yield group
            group, keys, size = [], set(), 0
        group.append(operation)
        keys.add(operation.path)
        size += operation.size
    if group:
        yield group

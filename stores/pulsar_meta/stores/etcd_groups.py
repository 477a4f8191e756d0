"""Many values of etcd in one request: all of them or none, or a transaction of transactions.

In the latter each value has a comparison of its own, so that it is compared and set by itself, and all of
them cost one proposal. The former costs both sides two thirds of that. etcd takes no key twice in a
request, bounds its size, and counts its operations (`--max-txn-ops`, 128): the outer ones and those of an
inner transaction together. Source: etcd-io/etcd server/etcdserver/api/v3rpc/key.go (checkTxnRequest).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pulsar_meta.proto import Etcd_pb2 as api
from pulsar_meta.stores.base import ABSENT

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

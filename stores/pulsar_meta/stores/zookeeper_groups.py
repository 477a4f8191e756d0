"""Groups of writes to ZooKeeper: several in one transaction, several transactions under way at once.

A transaction (`multi`) is one request and one proposal of the ensemble, so a thousand values cost little
more than ten. It is all or nothing: where one value of it moved, its values are written one by one.
Source: ZooKeeper's MultiOperationRecord; kazoo.client.TransactionRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pulsar_meta.stores.base import Write

OPERATIONS: Final = 64
# What an operation of a transaction holds beside path and value.
OPERATION_OVERHEAD: Final = 32


def split_writes(writes: Sequence[Write], limit: int, prefix: int) -> Iterator[list[Write]]:
    """Yield the writes in groups whose requests stay below `limit` bytes; `prefix` is the chroot's size."""
    group: list[Write] = []
    size = 0
    for write in writes:
        own = prefix + len(write[0].encode()) + len(write[1]) + OPERATION_OVERHEAD
        if group and (len(group) == OPERATIONS or size + own > limit):
            yield group
            group, size = [], 0
        group.append(write)
        size += own
    if group:
        yield group


def send_transaction(client: Any, group: Sequence[Write]) -> Any:
    """Send compare-and-sets of existing nodes as one transaction; return what will have the answers."""
    transaction = client.transaction()
    for path, value, version in group:
        transaction.set_data(path, value, version)
    return transaction.commit_async()


def versions_of(answers: Sequence[Any]) -> list[int] | None:
    """Return the new versions, None where the transaction did not happen."""
    if any(isinstance(answer, Exception) for answer in answers):
        return None
    return [int(answer.version) for answer in answers]


def put_groups(
    client: Any,
    groups: Sequence[Sequence[Write]],
    wait: Callable[[Any], Any],
    put: Callable[[str, bytes, int], int | None],
) -> list[int | None]:
    """Send all groups at once and return the new version of each write, None for a conflict.

    `wait` returns what a pending request answers, `put` makes a single write.
    """
    sent = [send_transaction(client, group) if len(group) > 1 else None for group in groups]
    # All answers first: nothing more is sent while requests of ours are still under way.
    answers = [None if pending is None else versions_of(wait(pending)) for pending in sent]
    done: list[int | None] = []
    for group, versions in zip(groups, answers, strict=True):
        done += versions if versions is not None else [put(*write) for write in group]
    return done

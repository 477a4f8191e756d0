"""The counters of a store: which number comes next where brokers give out numbers that must never come again.

A ledger id that is given out twice overwrites entries; a producer's name that is given out twice has a new
producer's messages taken for duplicates. Ledger ids are numbers of nodes below `/ledgers/idgen`; once those
end at 2^31 - 1 there is `/ledgers/idgen-long`, and an id is the number of the highest `HOB-` below that in
its high 32 bits and the number of a node below that one in its low 31.

Sources: apache/pulsar PulsarLedgerIdGenerator.java, DistributedIdGenerator.java, BrokerService.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pulsar_meta.codecs.names import LEDGERS
from pulsar_meta.stores.base import Store

IDGEN: Final = f"{LEDGERS}/idgen"
IDGEN_LONG: Final = f"{LEDGERS}/idgen-long"
PRODUCER_NAMES: Final = "/counters/producer-name"

_bucket_re = re.compile(rf"^{IDGEN_LONG}/HOB-(\d+)$")


def read_counters(store: Store, buckets: Iterable[int]) -> dict[str, int]:
    """Return by path which number comes next, for the counters that a store has, or that its copy noted.

    `buckets` are the numbers of its `HOB-` nodes.
    """
    long = [bucket_path(number) for number in buckets]
    found = {path: store.next_sequence(path) for path in (IDGEN, *long, PRODUCER_NAMES)}
    return {path: number for path, number in found.items() if number is not None}


def long_buckets(store: Store) -> list[int]:
    """Return the numbers of the `HOB-` nodes, empty where ledger ids are those of `/ledgers/idgen`."""
    paths = (f"{IDGEN_LONG}/{name}" for name in store.children(IDGEN_LONG))
    return sorted(number for path in paths if (number := bucket_of(path)) is not None)


def bucket_of(path: str) -> int | None:
    """Return the number of the `HOB-` node at `path`, None for any other."""
    match = _bucket_re.match(path)
    return None if match is None else int(match[1])


def bucket_path(number: int) -> str:
    """Return the path of the `HOB-` node of that number."""
    return f"{IDGEN_LONG}/HOB-{number:010d}"

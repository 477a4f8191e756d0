"""For notebooks and scripts: what brokers wrote into a metadata store, and bookies onto disks, read.

    from pulsar_meta import api

    with api.Cluster("zk://zk1:2181", ["bookie:"]) as cluster:
        topic = cluster.topic("public/default/orders")
        topic.seek(index=1_000_000)
        topic.messages(["key", "publish_time", "payload"]).read_all()

Entries and messages are readers of Arrow batches, which polars (`pl.DataFrame(topic.messages())`), DuckDB and
pandas take as they are; however many there are, a batch at a time is in memory.

What stands here is public and keeps its names and meanings until the next major version; other modules of
pulsar_meta may change at any time. Nothing here writes. Times are milliseconds since the epoch.

What was asked for by name and cannot be had is raised, as one of the errors below. What a longer answer had
to leave out (a topic whose record is broken, entries that no disk has) is an `Incomplete` warning, each:
Python shows it, `warnings.simplefilter("error", api.Incomplete)` makes it an error.
"""

from pulsar_meta.api.cluster import Cluster, Value, decode, encode
from pulsar_meta.api.topics import Incomplete, Ledger, Topic
from pulsar_meta.codecs.documents.decoded import DecodedDocument
from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    GuardError,
    NotFoundError,
    PulsarMetaError,
    UnreachableError,
    UsageError,
)
from pulsar_meta.jobs.cursors.documents import SubscriptionDetail, SubscriptionLine
from pulsar_meta.jobs.seek.seek import SeekAnswer

# Everything that is public; tests/api/test_public.py has how it looks.
__all__ = [
    "Cluster",
    "ConflictError",
    "DecodeError",
    "DecodedDocument",
    "GuardError",
    "Incomplete",
    "Ledger",
    "NotFoundError",
    "PulsarMetaError",
    "SeekAnswer",
    "SubscriptionDetail",
    "SubscriptionLine",
    "Topic",
    "UnreachableError",
    "UsageError",
    "Value",
    "decode",
    "encode",
]

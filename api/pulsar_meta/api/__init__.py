"""Read Pulsar's metadata store and the entries on bookies' disks from notebooks and scripts.

    from pulsar_meta import api

    with api.Cluster("zk://zk1:2181", ["bookie:"]) as cluster:
        topic = cluster.topic("public/default/orders")
        topic.seek(index=1_000_000)
        topic.messages(["key", "publish_time", "payload"]).read_all()

Entries and messages are readers of Arrow batches, which polars (`pl.DataFrame(topic.messages())`), DuckDB and
pandas accept directly. Only one batch at a time is in memory.

The names in this module keep their meanings until the next major version. Other modules of pulsar_meta may
change at any time. Nothing here writes. Times are milliseconds since the epoch.

If something that you name is missing or unreadable, the call raises one of the errors below. If part of a
longer result is missing (a topic whose record is corrupt, entries that no disk has), the call issues an
`Incomplete` warning for each part. To turn these warnings into errors, call `warnings.simplefilter("error",
api.Incomplete)`.
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

# The public names; tests/api/public.txt has their signatures.
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

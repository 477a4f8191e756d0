"""What an upgrade's verdict says about each format, and the sources of its reasons."""

from __future__ import annotations

import re
from typing import Final

from pulsar_meta.jobs.rewrite.readable import Form

_source_re = re.compile(r"PIP-\d+|apache/(?:pulsar|bookkeeper)#\d+")
_TRIED: Final = "our tests with real brokers"
# The sources of reasons whose message names none.
SOURCES: Final = {
    str(Form.LEDGER): "apache/pulsar#11490",
    str(Form.CURSOR): "PIP-146",
    str(Form.CURSOR_WITH_PROPERTIES): f"apache/pulsar#25336, {_TRIED}",
    str(Form.LEDGER_PROPERTIES): "PIP-404",
    str(Form.TRANSACTION_RECORDS): "PIP-473",
    "cursor-states-unseen": "apache/pulsar#9292",
    "ledgers-in-recovery": "BookKeeper's protocol",
    "partition-without-parent": "PIP-414",
    "release-step": "Pulsar's release policy",
    "replication-unfinished": "BookKeeper's auto-recovery",
    "store-migration": "PIP-454",
}

# A description of each format, and the command or action before the change of release.
FORMS: Final[dict[Form, tuple[str, str]]] = {
    Form.LEDGER: ("compressed records of topics", "compress-ledgers --compression none"),
    Form.CURSOR: ("compressed cursors", "compress-cursors --compression none"),
    Form.CURSOR_WITH_PROPERTIES: (
        "compressed cursors with properties",
        "compress-cursors --compression none --only-with-properties, and no managedCursorInfoCompressionType",
    ),
    Form.BIT_SETS: (
        "single acknowledgements as bit sets in cursors' ledgers",
        "convert-cursor --to ranges, once the brokers are stopped",
    ),
    Form.LEDGER_PROPERTIES: (
        "properties of ledgers (PIP-404), which may be dropped at the next write of the record",
        "save them (properties --all); build-index creates an index again",
    ),
    Form.SEGMENTED_SNAPSHOTS: (
        "segmented snapshots of transaction buffers: aborted transactions would count as committed",
        "set transactionBufferSegmentedSnapshotEnabled=false, and wait for new snapshots",
    ),
    Form.BATCHED_LOG: (
        "logs of transactions, which may have batched records",
        "long before, set transactionLogBatchedWriteEnabled=false and"
        " transactionPendingAckBatchedWriteEnabled=false",
    ),
    Form.BUCKETS: (
        "indexes of delayed messages in ledgers: the messages are delivered, but the ledgers stay",
        "",
    ),
    Form.SHADOW: (
        "shadow topics, which would own their sources' ledgers and trim them",
        "delete the shadows",
    ),
    Form.SCALABLE: ("scalable topics and their segments, which no client could reach", "no fix is known"),
    Form.TRANSACTION_RECORDS: (
        "records of open transactions",
        "end them",
    ),
    Form.V1_NAME: (
        "topics with V1 names (tenant/cluster/namespace)",
        "copy them to topics with V2 names",
    ),
    Form.BOOKKEEPER_3: ("metadata of ledgers in BookKeeper's third format", "no fix is known"),
    Form.ROCKSDB_6: (
        "RocksDB tables in a format that the release's RocksDB can't open",
        "take a snapshot, and restore it into a database that the release created",
    ),
}


def source_of(name: str, message: str) -> str:
    """Return the sources that a message names, or the one of its reason."""
    named = dict.fromkeys(_source_re.findall(message))
    return SOURCES.get(name) or ", ".join(named) or _TRIED

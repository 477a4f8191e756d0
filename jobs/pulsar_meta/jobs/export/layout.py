"""The directories of an export, which Hive, Spark and DuckDB read as columns.

Sources: Apache Hive (`name=value` directories, values percent-encoded); apache/pulsar PulsarApi.proto
(MessageIdData.partition).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from pulsar_meta.codecs.names import TopicName

# As in message ids: the topic has no partitions. (Arrow cannot infer the type of a column without values.)
NO_PARTITION: Final = "-1"


def directory_of(topic: str) -> str:
    """Return the directory of a topic's files, relative to the export (namespace, name, partition).

    The partition is the number of a partition, of a segment its range and number, else -1.
    """
    name = TopicName.parse(topic)
    local, partition = name.local, NO_PARTITION
    if name.domain == "segment":
        local, _, partition = name.local.rpartition("/")
    elif name.partitioned is not None:
        local, partition = name.partitioned.local, str(name.partition)
    return f"namespace={_quoted(name.namespace_name)}/name={_quoted(local)}/partition={partition}"


def _quoted(value: str) -> str:
    return quote(value, safe="")

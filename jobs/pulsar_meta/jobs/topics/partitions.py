"""Which topics a name stands for: a partitioned topic's name for all its partitions."""

from __future__ import annotations

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object, shown
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.stores.base import Store


def named_topics(store: Store, name: TopicName) -> list[TopicName]:
    """Return the topic itself, or its partitions in order; whether they exist is not looked at.

    DecodeError where the metadata of a partitioned topic (PartitionedTopicMetadata, JSON) makes no sense.
    """
    count = partition_count(store, name)
    return [name.with_partition(number) for number in range(count)] if count else [name]


def partition_count(store: Store, name: TopicName) -> int:
    """Return the number of partitions, 0 for a topic that has none."""
    path = name.partitioned_path
    try:
        value = store.read(path).value
    except NotFoundError:
        return 0
    count = read_json_object(value, source=path).get("partitions")
    if type(count) is not int or not 0 <= count <= 1_000_000:
        raise DecodeError(f"expected a number of partitions, found {shown(count)}", source=path)
    return count

"""Which topics a name stands for: a partitioned topic's name for all its partitions."""

from __future__ import annotations

from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object, shown
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.stores.base import Store

# From so many on, what there is gets listed instead of each of them being asked for.
MANY: Final = 1000
# Pulsar itself refuses fewer by default; more is a mistake, or meant to keep somebody busy.
MOST: Final = 1_000_000


def named_topics(store: Store, name: TopicName) -> list[TopicName]:
    """Return the topic itself, or its partitions in order, whether or not they have a record.

    Of very many those that have one, and the first that has none. DecodeError where the metadata of a
    partitioned topic (PartitionedTopicMetadata, JSON) makes no sense.
    """
    count = partition_count(store, name)
    if count > MANY:
        found = _with_record(store, name, count)
        missing = next(
            (number for number, topic in enumerate(found) if topic.partition != number), len(found)
        )
        return [*found, *([name.with_partition(missing)] if missing < count else [])]
    return [name.with_partition(number) for number in range(count)] if count else [name]


def partition_count(store: Store, name: TopicName) -> int:
    """Return the number of partitions, 0 for a topic that has none."""
    path = name.partitioned_path
    try:
        value = store.read(path).value
    except NotFoundError:
        return 0
    count = read_json_object(value, source=path).get("partitions")
    if type(count) is not int or not 0 <= count <= MOST:
        raise DecodeError(f"expected a number of partitions, found {shown(count)}", source=path)
    return count


def held_partitions(store: Store, name: TopicName) -> tuple[list[TopicName], int]:
    """Return the partitions to ask for, in order, and how many more have no record.

    Of few all are returned, so that each that is missing can be named. Without partitions the topic itself.
    DecodeError as `partition_count`.
    """
    count = partition_count(store, name)
    if count <= MANY:
        return named_topics(store, name), 0
    found = _with_record(store, name, count)
    return found, count - len(found)


def _with_record(store: Store, name: TopicName, count: int) -> list[TopicName]:
    parent, _, first = name.with_partition(0).path.rpartition("/")
    prefix = first.removesuffix("0")
    ends = (child.removeprefix(prefix) for child in store.children(parent) if child.startswith(prefix))
    numbers = sorted(int(end) for end in ends if end.isdecimal() and str(int(end)) == end)
    return [name.with_partition(number) for number in numbers if number < count]

"""Which topics a name stands for: a partitioned topic's for partitions, a scalable topic's for segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import read_json_object, shown
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic
from pulsar_meta.codecs.names import TopicName, encode_name
from pulsar_meta.jobs.topics.segments import read_scalable
from pulsar_meta.stores.base import Store

# From so many on, what there is gets listed instead of each of them being asked for.
MANY: Final = 1000
# Pulsar itself refuses fewer by default; more is a mistake, or meant to keep somebody busy.
MOST: Final = 1_000_000


def named_topics(store: Store, name: TopicName) -> list[TopicName]:
    """Return the topic itself, its partitions or its segments in order, whether or not they have a record.

    Of very many partitions those that have one, and the first that has none. DecodeError where the metadata
    of a partitioned topic (PartitionedTopicMetadata, JSON) or of a scalable one makes no sense, UsageError
    where a name without its domain is that of two topics.
    """
    scalable = named_scalable(store, name)
    if scalable is not None:
        return [segment.topic for segment in scalable.segments]
    count = partition_count(store, name)
    if count > MANY:
        found = partitions_with_record(store, name, count)
        missing = next(
            (number for number, topic in enumerate(found) if topic.partition != number), len(found)
        )
        return [*found, *([name.with_partition(missing)] if missing < count else [])]
    return _each(name, count)


def _each(name: TopicName, count: int) -> list[TopicName]:
    return [name.with_partition(number) for number in range(count)] if count else [name]


def named_scalable(store: Store, name: TopicName) -> ScalableTopic | None:
    """Return the scalable topic that a name stands for, None where it is another topic's.

    UsageError where it says no domain, and a persistent topic that was not migrated has it too.
    """
    if name.domain != "topic" and not name.short:
        return None
    scalable = read_scalable(store, name)
    if scalable is None or name.domain == "topic":
        return scalable
    migrated = {segment.topic for segment in scalable.segments if segment.is_migrated}
    count = partition_count(store, name)
    olds = {name.with_partition(number) for number in range(count)} or {name}
    if not olds <= migrated and (count or _is_there(store, name)):
        raise UsageError(f"two topics have this name: say {name} or {scalable.name}", source=store.url)
    return scalable


def with_cursor(store: Store, topics: Sequence[TopicName], cursor: str) -> list[TopicName]:
    """Return those of some topics that have a subscription of this name."""
    cursors = store.children_many([topic.path for topic in topics])
    return [topic for topic, names in zip(topics, cursors, strict=True) if encode_name(cursor) in names]


def _is_there(store: Store, topic: TopicName) -> bool:
    return store.read_many([topic.path])[0] is not None


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

    Of few all are returned, so that each that is missing can be named. Without partitions the topic itself,
    of a scalable topic its segments. Raises what `named_topics` does.
    """
    scalable = named_scalable(store, name)
    if scalable is not None:
        return [segment.topic for segment in scalable.segments], 0
    count = partition_count(store, name)
    if count <= MANY:
        return _each(name, count), 0
    found = partitions_with_record(store, name, count)
    return found, count - len(found)


def partitions_with_record(store: Store, name: TopicName, count: int) -> list[TopicName]:
    """Return the partitions below that number that have a record, in order, by one listing."""
    parent, _, first = name.with_partition(0).path.rpartition("/")
    prefix = first.removesuffix("0")
    ends = (child.removeprefix(prefix) for child in store.children(parent) if child.startswith(prefix))
    numbers = sorted(int(end) for end in ends if end.isdecimal() and str(int(end)) == end)
    return [name.with_partition(number) for number in numbers if number < count]

"""What a locator needs of Spark, in this process: for tests that ask many questions and need no Java."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any


class LocalBroadcast:
    """A value that every task sees."""

    def __init__(self, value: Any) -> None:
        self.value = pickle.loads(pickle.dumps(value))


class LocalRdd:
    """Partitions of values, computed at once. Values that change partitions are pickled, as Spark does."""

    def __init__(self, partitions: Iterable[Iterable[Any]]) -> None:
        self.partitions = [list(partition) for partition in partitions]

    def mapPartitions(self, function: Callable[[Iterator[Any]], Iterable[Any]]) -> LocalRdd:
        return LocalRdd(function(iter(partition)) for partition in self.partitions)

    def map(self, function: Callable[[Any], Any]) -> LocalRdd:
        return self.mapPartitions(lambda values: map(function, values))

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> LocalRdd:
        return self.mapPartitions(lambda values: chain.from_iterable(map(function, values)))

    def filter(self, function: Callable[[Any], bool]) -> LocalRdd:
        return self.mapPartitions(lambda values: filter(function, values))

    def keyBy(self, function: Callable[[Any], Any]) -> LocalRdd:
        return self.map(lambda value: (function(value), value))

    def values(self) -> LocalRdd:
        return self.map(lambda pair: pair[1])

    def cache(self) -> LocalRdd:
        return self

    def union(self, other: LocalRdd) -> LocalRdd:
        return LocalRdd(self.partitions + other.partitions)

    def collect(self) -> list[Any]:
        return list(chain.from_iterable(self.partitions))

    def isEmpty(self) -> bool:
        return not self.collect()

    def partitionBy(self, count: int, partitioner: Callable[[Any], int]) -> LocalRdd:
        partitions: list[list[Any]] = [[] for _ in range(count)]
        for key, value in self.collect():
            partitions[partitioner(key)].append(pickle.loads(pickle.dumps((key, value))))
        return LocalRdd(partitions)

    def groupByKey(self, count: int) -> LocalRdd:
        groups: dict[Any, list[Any]] = {}
        for key, value in self.partitionBy(count, lambda key: hash(key) % count).collect():
            groups.setdefault(key, []).append(value)
        return LocalRdd([list(groups.items())])


class LocalSession:
    """A session of `cores` cores; it is its own context."""

    def __init__(self, cores: int = 2) -> None:
        self.defaultParallelism = cores
        self.sparkContext = self

    def broadcast(self, value: Any) -> LocalBroadcast:
        return LocalBroadcast(value)

    def parallelize(self, values: Iterable[Any], count: int) -> LocalRdd:
        listed = list(values)
        return LocalRdd(listed[at::count] for at in range(count))

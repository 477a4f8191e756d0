"""Totals that can only be judged once every part of the store has been scanned."""

from __future__ import annotations

from array import array
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.codes import PARTITIONED
from pulsar_meta.jobs.check.ledger_facts import owner_hash
from pulsar_meta.jobs.check.namespaces import Namespaces, partitions_of
from pulsar_meta.jobs.topics.related import names_source
from pulsar_meta.stores.base import Versioned

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PartitionCounts:
    """The numbers of partitions of topics, 16 bytes each.

    `shadows` are the records of partitioned topics that may be shadows, by path.
    """

    def __init__(
        self, counts: NDArray[np.int64] | None = None, shadows: dict[str, bytes] | None = None
    ) -> None:
        self._hashes, self._numbers = array("q"), array("q")
        self._counts = counts
        self.shadows = {} if shadows is None else shadows

    def add_record(self, record: Versioned) -> None:
        """Add a partitioned topic's record, with 0 partitions if it can't be read; ignore other records."""
        if not record.value or not record.path.startswith(PARTITIONED):
            return
        if names_source(record.value):
            self.shadows[record.path] = record.value
        count = None
        with suppress(DecodeError):
            count = partitions_of(read_json_object(record.value))
        if count != 0:
            self._hashes.append(_path_hash(record.path))
            self._numbers.append(count or 0)

    def merge(self, other: PartitionCounts) -> None:
        """Add another part's counts; not possible after `ordered` or `of` was called."""
        self._hashes += other._hashes
        self._numbers += other._numbers
        self.shadows |= other.shadows

    def of(self, name: TopicName) -> int | None:
        """Return the partitions of the topic that `name` is a partition of, None if it has no record."""
        base = name.partitioned
        if base is None:
            return None
        hashes, numbers = self.ordered()
        hashed = _path_hash(base.partitioned_path)
        at = int(hashes.searchsorted(hashed))
        return int(numbers[at]) if at < len(hashes) and hashes[at] == hashed else None

    def ordered(self) -> NDArray[np.int64]:
        """Return a row of path hashes in order and a row of their counts; nothing can be added any more."""
        import numpy as np

        if self._counts is None:
            rows = np.array([self._hashes, self._numbers], np.int64)
            self._counts = rows[:, np.argsort(rows[0], kind="stable")]
            self._hashes, self._numbers = array("q"), array("q")
        return self._counts


def _path_hash(path: str) -> int:
    return owner_hash("data", path)


@dataclass(slots=True)
class ScanTotals:
    """Totals of a scan; ids and hashes are in arrays of 8 bytes each, because there can be millions.

    `checked` counts records by plural nouns, `not_checked` has reasons. `referenced` are the ledgers that
    records refer to, `topics` the owner hashes of topics with a record, `offloaded` those of offloads.
    `reported` are the owner hashes of topics that were read completely, `attributed` the broken ledgers that
    these refer to, `explained` unreferenced ledgers that another finding explains, `segments` those of
    scalable topics. The others count topics whose record can't be read, subscriptions without a recorded last
    activity, and topics and cursors whose bookies did not answer (`unreachable` is the first error).
    """

    checked: Counter[str] = field(default_factory=Counter)
    not_checked: dict[str, str] = field(default_factory=dict)
    referenced: array[int] = field(default_factory=lambda: array("q"))
    topics: array[int] = field(default_factory=lambda: array("q"))
    offloaded: array[int] = field(default_factory=lambda: array("q"))
    reported: set[int] = field(default_factory=set)
    attributed: set[int] = field(default_factory=set)
    explained: set[int] = field(default_factory=set)
    segments: list[TopicName] = field(default_factory=list)
    namespaces: Namespaces = field(default_factory=Namespaces)
    unread_topics: int = 0
    without_activity: int = 0
    without_answer: int = 0
    unreachable: UnreachableError | None = None

    def merge(self, other: ScanTotals) -> None:
        """Add the totals of another part of the store."""
        self.checked.update(other.checked)
        self.not_checked |= other.not_checked
        self.referenced += other.referenced
        self.topics += other.topics
        self.offloaded += other.offloaded
        self.reported |= other.reported
        self.attributed |= other.attributed
        self.explained |= other.explained
        self.segments += other.segments
        self.namespaces.merge(other.namespaces)
        self.unread_topics += other.unread_topics
        self.without_activity += other.without_activity
        self.without_answer += other.without_answer
        self.unreachable = self.unreachable or other.unreachable

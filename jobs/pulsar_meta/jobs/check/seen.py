"""What passes over parts of a store saw, as far as only all of it together says something."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.cluster import Namespaces


@dataclass(slots=True)
class Seen:
    """Notes of a pass, in numbers where there are many.

    `checked` counts by plural nouns, `not_checked` has a reason each. `named` are the ledgers that records
    name, `topics` the marks of the topics that have a record, `offloaded` those of offloads. `reported` are
    the marks of the topics that were looked at a second time, `attributed` the broken ledgers that these
    name, `explained` ledgers that nobody names and it is known why. `segments` are those of scalable topics.
    The others count: topics whose record cannot be read, subscriptions of which nobody noted when they were
    active, topics and cursors whose bookies did not answer (`unreachable` is the first answer that did not
    come).
    """

    checked: Counter[str] = field(default_factory=Counter)
    not_checked: dict[str, str] = field(default_factory=dict)
    named: array[int] = field(default_factory=lambda: array("q"))
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

    def merge(self, other: Seen) -> None:
        """Take the notes of another part."""
        self.checked.update(other.checked)
        self.not_checked |= other.not_checked
        self.named += other.named
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

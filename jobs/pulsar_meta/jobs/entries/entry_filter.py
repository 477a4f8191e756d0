"""Decide for each entry whether a filter on properties matches, from its metadata or by opening it.

The properties of a single message are in the entry's metadata. Those of a batch are with each message
inside. The metadata of a batch has no properties (stock Java and C++ producers), those of the first message
(Go), or the properties that all messages share (a producer as proposed in issue #16680).

Sources: apache/pulsar EntryFilter, FilterContext (PIP-105 gives a filter only the entry's metadata);
BatchMessageContainerImpl; apache/pulsar-client-go batch_builder.go; issue #16680.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.batch import DEFAULT_MAX_SIZE, open_entry
from pulsar_meta.codecs.frames.entry_json import properties_of
from pulsar_meta.codecs.frames.frame import Frame
from pulsar_meta.jobs.entries.filters import Filter

Level = Literal["entry", "message", "any"]


class WhereDocument(TypedDict):
    """The verdict of a filter on an entry; `decided_at` is null if it could not be decided."""

    matches: bool
    decided_at: Literal["entry", "message"] | None
    messages: NotRequired[list[int]]
    why: NotRequired[str]


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The verdict of a filter on an entry, and which messages of a batch match.

    `decided_at` is "entry", "message", or None if it could not be decided; `why` is the reason.
    """

    matches: bool
    decided_at: Literal["entry", "message"] | None
    messages: tuple[int, ...] | None = None
    why: str | None = None

    def document(self) -> WhereDocument:
        """Convert to the JSON of `dump-entries --where`."""
        document: WhereDocument = {"matches": self.matches, "decided_at": self.decided_at}
        if self.messages is not None:
            document["messages"] = list(self.messages)
        if self.why:
            document["why"] = self.why
        return document


@dataclass(slots=True)
class FilterCounts:
    """Counts of entries: read, matching, decided at each level, undecided."""

    entries: int = 0
    matched: int = 0
    decided_at_entry: int = 0
    decided_at_message: int = 0
    undecided: int = 0
    undecided_why: dict[str, int] = field(default_factory=dict)

    def add(self, verdict: FilterVerdict) -> None:
        """Count one verdict."""
        self.entries += 1
        self.matched += verdict.matches
        self.decided_at_entry += verdict.decided_at == "entry" and verdict.why is None
        self.decided_at_message += verdict.decided_at == "message"
        if verdict.why is not None:
            self.undecided += 1
            self.undecided_why[verdict.why] = self.undecided_why.get(verdict.why, 0) + 1

    def merge(self, other: FilterCounts) -> None:
        """Add the counts of another process."""
        self.entries += other.entries
        self.matched += other.matched
        self.decided_at_entry += other.decided_at_entry
        self.decided_at_message += other.decided_at_message
        self.undecided += other.undecided
        for why, count in other.undecided_why.items():
            self.undecided_why[why] = self.undecided_why.get(why, 0) + count

    def summary(self) -> str:
        """Format the counts as one line."""
        text = (
            f"{self.entries} entries: {self.matched} match; {self.decided_at_entry} decided by their own"
            f" metadata, {self.decided_at_message} by opening them"
        )
        whys = "; ".join(f"{count} {why}" for why, count in sorted(self.undecided_why.items()))
        return f"{text}, {self.undecided} could not be decided" + (f" ({whys})" if whys else "")


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """A filter and how it is decided.

    `entry` uses only the entry's metadata, as a broker's EntryFilter would, and counts undecided batches in
    `why`. `message` opens every entry. `any` opens an entry only if its metadata can't decide. `hoisted` are
    properties that producers share in a batch.
    """

    filter: Filter
    level: Level = "any"
    hoisted: Collection[str] = ()
    max_size: int = DEFAULT_MAX_SIZE

    def decide(self, frame: Frame) -> FilterVerdict:
        """Decide whether an entry matches. If its payload can't be opened, the verdict is undecided.

        If a batch is damaged, a match among the messages before the damage decides.
        """
        if self.level == "entry":
            holds = self.filter.holds(properties_of(frame.metadata.properties))
            return FilterVerdict(
                holds, "entry", why=None if self.speaks(frame) else "batches, only opening tells"
            )
        if frame.metadata.HasField("marker_type"):
            return FilterVerdict(False, "entry")
        if self.level == "any" and self.speaks(frame):
            return FilterVerdict(self.filter.holds(properties_of(frame.metadata.properties)), "entry")
        return self._opened(frame)

    def speaks(self, frame: Frame) -> bool:
        """True if the entry's metadata has the filter's properties for all messages in it."""
        if not frame.metadata.HasField("num_messages_in_batch"):
            return True
        return self.filter.names() <= frozenset(self.hoisted)

    def _opened(self, frame: Frame) -> FilterVerdict:
        try:
            opened = open_entry(frame, max_size=self.max_size, partly=True)
        except DecodeError:
            return FilterVerdict(False, None, why="cannot be opened")
        if opened.unopened is not None and not frame.metadata.HasField("num_messages_in_batch"):
            # The properties of a chunk or an encrypted message are readable.
            return FilterVerdict(self.filter.holds(properties_of(frame.metadata.properties)), "entry")
        if opened.unopened is not None:
            return FilterVerdict(False, None, why=f"are {opened.unopened}")
        matching = tuple(
            message.batch_index or 0
            for message in opened.messages
            if not message.compacted_out and self.filter.holds(properties_of(message.metadata.properties))
        )
        if opened.fault is not None and not matching:
            # Unreadable messages might have matched.
            return FilterVerdict(False, None, why="cannot be opened")
        batch = frame.metadata.HasField("num_messages_in_batch")
        return FilterVerdict(bool(matching), "message", matching if batch else None)

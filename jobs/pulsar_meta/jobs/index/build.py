"""Build the index: the first index of each ledger, stored as a property of the ledger (PIP-404).

Pulsar does not write such a property, so a search by index has to read entries to find the ledger. With the
property, the topic's record is enough. All properties of a topic are written at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.ledger_metadata import Edit, ledger_ids
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.index.check import index_number
from pulsar_meta.jobs.index.properties import message_of, property_rule
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, by_rule, skip
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.seek.readings import State, read_one
from pulsar_meta.jobs.spill import Dedup
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.jobs.topics.topic import Ledger, topic_of
from pulsar_meta.stores.base import Versioned

# The first entries of this many topics are read before the first of these topics is written.
TOPICS_AT_ONCE: Final = 500

NO_INDEX: Final = "the first entry has no index"
UNREADABLE: Final = "the first entry cannot be read"
MISSING: Final = "no source has the first entry"
SHADOW: Final = "shadow"
EMPTY: Final = "open, and no entry is known yet"

# Takes ledger ids, and returns the first index of each ledger or the reason why there is none.
FirstIndexes = Callable[[Sequence[int]], Sequence[int | str]]


def first_index(source: EntrySource, ledger_id: int) -> int | str:
    """Return the index of a ledger's first message, or why there is none. Raises UnreachableError."""
    reading = read_one(source, ledger_id, 0)
    if reading.state is State.UNREADABLE:
        return UNREADABLE
    if reading.state is State.MISSING:
        return MISSING
    # An index smaller than its batch makes the first one negative, which no property can hold.
    return NO_INDEX if reading.first_index is None else max(0, reading.first_index)


@dataclass(slots=True)
class IndexBuild:
    """One run of `build-index`: its settings, and its counts.

    With `repair`, existing properties are compared with the first entries and corrected. If the first entry
    has no index, the property is removed. `undone` counts ledgers that get no property, by reason, and
    `unchecked` counts ledgers whose property could not be compared. `last_ledgers` are topics' last ledgers
    that get a property, which released brokers may drop again. `shadows` are the paths of shadow topics;
    their properties belong in the records of their source topics, which `sources` knows.
    """

    key: str
    read: FirstIndexes
    sources: ShadowSources
    repair: bool = False
    undone: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    last_ledgers: set[int] = field(default_factory=set)
    shadows: set[str] = field(default_factory=set)
    _looked_at: Dedup = field(default_factory=Dedup)
    _edits: dict[str, dict[int, list[Edit]]] = field(default_factory=dict)

    def rewrite(self, topics: Callable[[], Iterable[Versioned]]) -> Rewrite:
        """Return the rewrite that stores the property in the records that `topics` reads."""
        return Rewrite(
            "build-index", lambda batches: self.decided(topics()), by_rule(self.decide), with_new=True
        )

    def decided(self, topics: Iterable[Versioned]) -> Generator[Decided]:
        """Yield each record with the decision about it. Reads first entries for TOPICS_AT_ONCE topics."""
        waiting = iter(topics)
        self.last_ledgers.clear()
        while some := list(islice(waiting, TOPICS_AT_ONCE)):
            self._find(some)
            for seen in some:
                yield seen, self.decide(seen)

    def decide(self, seen: Versioned) -> Decision:
        """Return the decision about one record in its present state, without ledgers that are gone."""
        edits = self._edits.get(seen.path, {})
        if seen.path in self.shadows:
            return skip(seen, SHADOW)
        try:
            payload, _ = message_of(seen)
            listed = ledger_ids(payload)
        except DecodeError:
            return property_rule({})(seen)
        chosen = {ledger: edits[ledger] for ledger in listed if ledger in edits}
        if listed and max(listed) in chosen:
            self.last_ledgers.add(max(listed))
        return property_rule(chosen)(seen)

    def _find(self, records: Sequence[Versioned]) -> None:
        """Read the first entries of ledgers without a known index, and note the edits. Reads a topic once."""
        new = [record for record in records if self._looked_at.is_new(record.path)]
        wanted = [(record.path, ledger) for record in new for ledger in self._in_question(record)]
        indexes = self.read([ledger.ledger_id for _, ledger in wanted])
        for (path, ledger), index in zip(wanted, indexes, strict=True):
            values = ledger.values(self.key)
            if isinstance(index, int):
                if len(values) != 1 or index_number(values[0]) != index:
                    self._edit(path, ledger.ledger_id, str(index))
            elif values and index == NO_INDEX:
                # No value of the property can be right.
                self._edit(path, ledger.ledger_id, None)
            elif values:
                self.unchecked[index] += 1
            else:
                self.undone[EMPTY if ledger.entries is None and index == MISSING else index] += 1

    def _edit(self, path: str, ledger_id: int, value: str | None) -> None:
        self._edits.setdefault(path, {})[ledger_id] = [Edit(self.key, value)]

    def _in_question(self, seen: Versioned) -> list[Ledger]:
        """Return the ledgers that may have entries and whose property is missing or must be checked."""
        name = TopicName.from_path(seen.path)
        try:
            topic = topic_of(seen)
            shadow = name is not None and self.sources.of(name, topic.properties) is not None
        except DecodeError:
            return []
        if shadow:
            self.shadows.add(seen.path)
            return []
        return [
            ledger
            for ledger in topic.ledgers
            if ledger.entries != 0 and (self.repair or not ledger.values(self.key))
        ]

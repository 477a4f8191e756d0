"""First indexes of ledgers as their properties (PIP-404): read from the first entries, written at once.

Nothing in Pulsar writes such a property, so that a search by index has to read its way through a topic;
with it, one look at the metadata finds the ledger.
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
from pulsar_meta.jobs.index.properties import is_last, message_of, property_rule
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, by_rule, skip
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.seek.readings import State, read_one
from pulsar_meta.jobs.topics.once import Once
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.jobs.topics.topic import Ledger, topic_of
from pulsar_meta.stores.base import Versioned

# Topics whose first entries are read before the first of them is written.
TOPICS_AT_ONCE: Final = 500

NO_INDEX: Final = "the first entry has no index"
UNREADABLE: Final = "the first entry cannot be read"
MISSING: Final = "no source has the first entry"
SHADOW: Final = "shadow"
EMPTY: Final = "open, and no entry is known yet"

# Reads the first entries of ledgers: (ledger ids) → the first index of each, or why there is none.
FirstIndexes = Callable[[Sequence[int]], Sequence[int | str]]


def first_index(source: EntrySource, ledger_id: int) -> int | str:
    """Return the index of a ledger's first message, or why there is none; UnreachableError."""
    reading = read_one(source, ledger_id, 0)
    if reading.state is State.UNREADABLE:
        return UNREADABLE
    if reading.state is State.MISSING:
        return MISSING
    # An index smaller than its batch makes the first one negative, which no property can hold.
    return NO_INDEX if reading.first_index is None else max(0, reading.first_index)


@dataclass(slots=True)
class IndexBuild:
    """One run: which property, how first entries are read, and what was found out.

    `repair`: properties that are there are compared with the first entries, and corrected; one of a first
    entry that has no index is removed. `undone` counts
    ledgers that get no property, by reason, `unchecked` those whose property could not be compared;
    `last_ledgers` are the topics' last ones that get one, which released brokers may drop again; `shadows`
    the paths of topics whose ledgers are another's, by `sources`: the property belongs into its record.
    """

    key: str
    read: FirstIndexes
    sources: ShadowSources
    repair: bool = False
    undone: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    last_ledgers: set[int] = field(default_factory=set)
    shadows: set[str] = field(default_factory=set)
    _looked_at: Once = field(default_factory=Once)
    _edits: dict[str, dict[int, list[Edit]]] = field(default_factory=dict)

    def rewrite(self, topics: Callable[[], Iterable[Versioned]]) -> Rewrite:
        """Return what stores the property in the records that `topics` reads."""
        return Rewrite(
            "build-index", lambda batches: self.decided(topics()), by_rule(self.decide), with_new=True
        )

    def decided(self, topics: Iterable[Versioned]) -> Generator[Decided]:
        """Yield what becomes of each topic's record; first entries are read some topics at a time."""
        waiting = iter(topics)
        self.last_ledgers.clear()
        while some := list(islice(waiting, TOPICS_AT_ONCE)):
            self._find(some)
            for seen in some:
                yield seen, self.decide(seen)

    def decide(self, seen: Versioned) -> Decision:
        """Return the decision about one record as it is now: ledgers that are gone are left out."""
        edits = self._edits.get(seen.path, {})
        if seen.path in self.shadows:
            return skip(seen, SHADOW)
        try:
            payload, _ = message_of(seen)
            held = set(ledger_ids(payload))
        except DecodeError:
            return property_rule({})(seen)
        chosen = {ledger: changes for ledger, changes in edits.items() if ledger in held}
        self.last_ledgers.update(ledger for ledger in chosen if is_last(payload, ledger))
        return property_rule(chosen)(seen)

    def _find(self, records: Sequence[Versioned]) -> None:
        """Read the first entries that the records leave open; what is known from before is not read again."""
        new = [seen for seen in records if self._looked_at.is_new(seen.path)]
        wanted = [(seen.path, ledger) for seen in new for ledger in self._in_question(seen)]
        found = self.read([ledger.ledger_id for _, ledger in wanted])
        for (path, ledger), index in zip(wanted, found, strict=True):
            held = ledger.values(self.key)
            if isinstance(index, int):
                if len(held) != 1 or index_number(held[0]) != index:
                    self._edit(path, ledger.ledger_id, str(index))
            elif held and index == NO_INDEX:
                # There is no index that it could be.
                self._edit(path, ledger.ledger_id, None)
            elif held:
                self.unchecked[index] += 1
            else:
                self.undone[EMPTY if ledger.entries is None and index == MISSING else index] += 1

    def _edit(self, path: str, ledger_id: int, value: str | None) -> None:
        self._edits.setdefault(path, {})[ledger_id] = [Edit(self.key, value)]

    def _in_question(self, seen: Versioned) -> list[Ledger]:
        """Return the ledgers of a topic that may have entries, and whose property is missing or looked at."""
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
            one for one in topic.ledgers if one.entries != 0 and (self.repair or not one.values(self.key))
        ]

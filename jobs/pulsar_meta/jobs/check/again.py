"""Later looks, where disks of bookies that write, or a RocksDB under a broker, are read as of their opening.

Each look opens both again, and reads what the store says before it opens the disks: what the metadata of a
closed ledger counts was written before. What it finds only since a ledger was made, trimmed or deleted
between the two is not there at the next look; what two in a row find is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.catalogue import GROUPS
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.check.cursors import IDLE
from pulsar_meta.jobs.check.ledgers import COUNTS_ZERO, END_HIGH, NOT_LISTED, WITHOUT_METADATA
from pulsar_meta.jobs.check.records import LOST
from pulsar_meta.jobs.check.topic_pass import OF_ENTRIES, TopicPass
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store

# What entries prove, those of cursors' ledgers among them.
SEEN_ON_BOOKIES: Final = OF_ENTRIES | {code.name for code in GROUPS["cursors"].codes}
# What compares things of two moments, and may be no more than that.
OF_TWO_MOMENTS: Final = (SEEN_ON_BOOKIES - {IDLE.name}) | {
    code.name for code in (WITHOUT_METADATA, COUNTS_ZERO, END_HIGH, NOT_LISTED, LOST)
}
# A topic that changes so fast that no two of these agree is left undecided.
LOOKS: Final = 5
TOPICS_AT_ONCE: Final = 512
Place = tuple[object, ...]


@dataclass(slots=True)
class LaterLooks:
    """Looks at some topics; `urls` are those of `source`, `passing` makes the pass over a store with entries.

    `undecided` counts the findings that one look had and the next had not, up to the last.
    """

    store: Store
    source: EntrySource | None
    urls: Sequence[str]
    passing: Callable[[Store, EntrySource | None], TopicPass]
    undecided: int = 0

    def findings(self, names: Sequence[TopicName]) -> Iterator[Finding]:
        """Yield what is so; UnreachableError, NotFoundError, DecodeError where the disks cannot be opened."""
        for at in range(0, len(names), TOPICS_AT_ONCE):
            yield from self._of_some(names[at : at + TOPICS_AT_ONCE])

    def _of_some(self, names: Sequence[TopicName]) -> Iterator[Finding]:
        suspected = self._look(names)
        certain = set[Place]()
        for _ in range(LOOKS - 1):
            if not suspected:
                return
            found = self._look(_topics(suspected.values()))
            for place in [one for one in found if one in suspected]:
                certain.add(place)
                yield found[place]
            suspected = {place: one for place, one in found.items() if place not in certain}
        self.undecided += len(suspected)

    def _look(self, names: Iterable[TopicName]) -> dict[Place, Finding]:
        with ExitStack() as stack:
            store = stack.enter_context(open_store(self.store.url)) if self.store.behind else self.store
            reader = self.passing(store, self.source).reader
            sights = [reader.whole(name) for name in names]
            source = stack.enter_context(open_entry_sources(self.urls, store)) if self.urls else None
            topics = self.passing(store, source)
            found: dict[Place, Finding] = {}
            for sight in sights:
                for finding in topics.of_whole(sight.with_entries(topics.cluster)):
                    if finding.code in OF_TWO_MOMENTS:
                        found.setdefault(finding.place, finding)
            return found


def _topics(findings: Iterable[Finding]) -> list[TopicName]:
    return [TopicName.parse(name) for name in sorted({one.topic for one in findings if one.topic})]

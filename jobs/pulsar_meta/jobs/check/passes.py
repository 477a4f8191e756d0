"""The passes over a whole store, in this process; `jobs.spark.check` has them done by Spark's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.check.known import with_sources
from pulsar_meta.jobs.check.listing import Listing, list_ledgers
from pulsar_meta.jobs.check.scope import CheckScope
from pulsar_meta.jobs.check.seen import Seen
from pulsar_meta.jobs.check.sight import Cluster
from pulsar_meta.jobs.check.topic_pass import TopicPass
from pulsar_meta.jobs.check.value_pass import ADMIN, Partitions, ValuePass
from pulsar_meta.jobs.topics.owners import SCHEMAS
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.stores.base import Store


@dataclass(frozen=True, slots=True)
class Known:
    """What passes over topics know: the cluster without its sources, all ledgers, all partitioned topics."""

    cluster: Cluster
    listing: Listing
    partitions: Partitions
    wanted: frozenset[str]


class Passes(Protocol):
    """What goes over all of a store; `seen` takes the notes. UnreachableError."""

    def values(self, cluster: Cluster, partitions: Partitions, seen: Seen) -> Iterator[Finding]:
        """Yield what is wrong below /admin; `partitions` takes what that says of them."""
        ...

    def ledgers(self) -> Listing:
        """Return all that `/ledgers` has."""
        ...

    def topics(self, known: Known, seen: Seen) -> Iterator[Finding]:
        """Yield what is wrong with schemas, topics and cursors."""
        ...


@dataclass(frozen=True, slots=True)
class Here:
    """The passes made by this process, one after the other."""

    store: Store
    source: EntrySource | None
    advance: Callable[[int], None] = lambda count: None

    def values(self, cluster: Cluster, partitions: Partitions, seen: Seen) -> Iterator[Finding]:
        """Yield what is wrong below /admin."""
        yield from ValuePass(self.store, cluster, seen, partitions=partitions, advance=self.advance).findings(
            self.store.scan(ADMIN)
        )

    def ledgers(self) -> Listing:
        """Return all that `/ledgers` has."""
        return list_ledgers(self.store.scan(LEDGERS), self.advance)

    def topics(self, known: Known, seen: Seen) -> Iterator[Finding]:
        """Yield what is wrong with schemas, topics and cursors."""
        schemas, topics = passes_over(self.store, self.source, known, seen, self.advance)
        yield from schemas.findings(self.store.scan(SCHEMAS))
        yield from topics.findings(self.store.scan(MANAGED_LEDGERS))


def passes_over(
    store: Store,
    source: EntrySource | None,
    known: Known,
    seen: Seen,
    advance: Callable[[int], None] = lambda count: None,
) -> tuple[ValuePass, TopicPass]:
    """Return what goes over schemas, and what goes over topics."""
    shadows = ShadowSources(store, known=known.partitions.shadows)
    cluster, listing = with_sources(known.cluster, store, source, shadows), known.listing
    partitions = known.partitions.of
    return (
        ValuePass(store, cluster, seen, listing, advance=advance),
        TopicPass(store, cluster, listing, CheckScope(), known.wanted, seen, partitions, advance),
    )

"""Everything that rules know besides the topic that they check: options, releases, bookies, entry sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import time
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.times import iso_time, parse_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import LIVE, JoinedEntries
from pulsar_meta.jobs.cursors.subscriptions import Limits
from pulsar_meta.jobs.entries.entry_sources import TIERED, on_bookies
from pulsar_meta.jobs.rewrite.readable import is_release, registered_versions
from pulsar_meta.jobs.topics.completeness import COMPLETE, Completeness, completeness_of
from pulsar_meta.jobs.topics.owners import SCHEMAS
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pulsar_meta.jobs.check.ledger_index import BookieRecords

ADMIN: Final = "/admin"
DAY: Final = 24 * 3_600_000
# ZooKeeper's default jute.maxbuffer, used if the store doesn't know its server's limit.
DEFAULT_LIMIT: Final = 0xFFFFF
# Limits of a broker.conf that sets none.
DEFAULT_LIMITS: Final = Limits.of(None)


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of a run; times are in milliseconds.

    `wanted` are the codes to report, None for all. `min_age` is the age from which an unreferenced ledger is
    reported, `idle` the time after which a subscription counts as idle. `releases` have to load every record;
    without any, the registered brokers' releases do. `every_ledger` indexes all ledgers even for single
    topics, so that ledgers that no record refers to are found. `consequences` also yields the findings that a
    root cause explains.
    topics, so that ledgers that no record refers to are found. `limits` are those of the brokers for
    acknowledgements.
    """

    wanted: frozenset[str] | None = None
    min_age: int = DAY
    releases: tuple[str, ...] = ()
    idle: int = 30 * DAY
    every_ledger: bool = False
    consequences: bool = False
    limits: Limits = DEFAULT_LIMITS

    def wants(self, *codes: str) -> bool:
        """Return True if at least one of these codes is to be reported."""
        return self.wanted is None or not self.wanted.isdisjoint(codes)


@dataclass(frozen=True, slots=True)
class Context:
    """Facts about a store and its entries that do not depend on a topic.

    `has_configuration` is False if policies and partitioned topics may be in a separate configuration store.
    `source` reads entries (None if none was given), `asks_bookies` if they are running bookies. `live` is
    True if the store can change during the run. `now` is the store's time in milliseconds, None if unknown.
    `releases` have to load every record; `certain` is True if you named them, or their brokers are running.
    `value_limit` is the largest value in bytes that the server accepts. `has_offload` is True if a source is
    tiered storage, and `stored` are its ledgers. `complete` tells what of the bookies' disks was not given.
    `shadows` tells which topics are shadows. `schemas` returns the versions of a topic's schema, None if
    unknown.
    """

    source: EntrySource | None = None
    asks_bookies: bool = False
    bookkeeper: bool = True
    has_configuration: bool = True
    live: bool = False
    now: int | None = None
    min_age: int = 0
    releases: tuple[str, ...] = ()
    certain: bool = False
    value_limit: int | None = None
    cookies: frozenset[str] = frozenset()
    registered: frozenset[str] = frozenset()
    has_offload: bool = False
    stored: frozenset[int] = frozenset()
    complete: Completeness = COMPLETE
    idle: int = 30 * DAY
    limits: Limits = DEFAULT_LIMITS
    shadows: ShadowSources = field(default_factory=lambda: ShadowSources(MemoryStore()))
    schemas: Callable[[TopicName], frozenset[int] | None] = lambda name: None

    @property
    def on_bookies(self) -> EntrySource | None:
        """The sources without tiered storage, which has copies that bookies may not have."""
        if not self.has_offload:
            return self.source
        parts = on_bookies(self.source)
        return JoinedEntries(parts) if parts else None

    def sees_all(self, members: Iterable[str]) -> bool:
        """Return True if an entry that no source has is on none of these bookies.

        Without members, which a missing ledger does not name, the disks of all bookies have to be complete.
        """
        if self.source is None:
            return False
        wanted = list(members)
        return not (self.complete.of(wanted) if wanted else self.complete.every_gap)

    def is_old(self, time: int | None) -> bool:
        """Return True if a time (ms) is at least `min_age` ago, or unknown."""
        return time is None or self.now is None or self.now - time >= self.min_age


def read_context(
    store: Store, urls: Sequence[str], options: CheckOptions, around: BookieRecords, *, bookkeeper: bool
) -> Context:
    """Return the context without open sources, so that it can be sent to another process.

    `urls` are the entry sources; `bookkeeper` is True if the store has metadata of ledgers. Raises
    UnreachableError.
    """
    releases = options.releases or tuple(filter(is_release, registered_versions(store)))
    return Context(
        asks_bookies=any(url.startswith(f"{LIVE}:") for url in urls),
        has_offload=any(url.startswith(TIERED) for url in urls),
        idle=options.idle,
        limits=options.limits,
        bookkeeper=bookkeeper,
        has_configuration=bool(set(store.children(ADMIN)) - {"local-policies"}),
        live=store.networked,
        now=int(time() * 1000) if store.networked else _time_of(store, around),
        min_age=options.min_age,
        releases=releases,
        certain=bool(options.releases) or store.networked,
        value_limit=store.max_value_size or (DEFAULT_LIMIT if store.url.startswith("zk-files:") else None),
        cookies=around.cookies,
        registered=around.registered,
    )


def with_sources(
    context: Context, store: Store, source: EntrySource | None, shadows: ShadowSources | None = None
) -> Context:
    """Return the context with everything that reads on demand: entries, shadows' sources, schema versions."""
    return replace(
        context,
        source=source,
        stored=_stored(source),
        complete=completeness_of(source),
        shadows=shadows or ShadowSources(store),
        schemas=SchemaVersions(store).of,
    )


def not_visible(store: Store, context: Context, source: EntrySource | None) -> dict[str, str]:
    """Return what a run over this store and these entries can't see, with the reasons."""
    missing = {} if context.bookkeeper else {"ledgers": "this store has no metadata of ledgers"}
    if not context.has_configuration:
        missing["partitioned topics"] = "this store has none, they may be in a separate configuration store"
    if not on_bookies(source):
        missing["entries"] = "no --entries" if source is None else "no --entries of bookies"
    others = _bookies_not_given(context, source)
    if others:
        names = f"{len(others)} bookies" if len(others) > 3 else f"bookies {', '.join(others)}"
        missing[f"entries on {names}"] = "their disks were not given"
    return missing if store.networked else missing | _later_changes(context.now)


def _bookies_not_given(context: Context, source: EntrySource | None) -> list[str]:
    """Return the bookies of the cluster whose disks were not given, if only disks were given."""
    parts = on_bookies(source)
    given = {bookie for part in parts for bookie in part.bookies or ()}
    if context.asks_bookies or not given or any(part.bookies is None for part in parts):
        return []
    return sorted(context.cookies - given)


def is_stream(store: Store) -> bool:
    """Return True if the store is always read from its beginning: a snapshot that is not sorted."""
    return "snapshot:" in store.url and not store.is_indexed


def _stored(source: EntrySource | None) -> frozenset[int]:
    """Return the ledgers in tiered storage."""
    parts = () if source is None else source.parts
    return frozenset(ledger for part in parts if part.url.startswith(TIERED) for ledger in part.ledgers())


def _time_of(store: Store, around: BookieRecords) -> int | None:
    """Return the time of a copy in ms: when it was taken, else the newest time in it, None if it has none."""
    with suppress(UsageError, TypeError):
        return parse_time(store.origin["taken"]) if "taken" in store.origin else around.newest
    return around.newest


def _later_changes(now: int | None) -> dict[str, str]:
    """Return the reason for which changes after a copy was taken are unknown."""
    if now is None:
        return {"later changes": "this is a copy without a date"}
    hours = max(0, int(time() * 1000) - now) // 3_600_000
    age = f"{hours // 24} days" if hours >= 48 else f"{hours} hours" if hours > 1 else "less than two hours"
    return {f"changes since {iso_time(now)}": f"this is a copy, {age} old"}


class SchemaVersions:
    """The versions that the schemas of topics have; unknown if the store has no schemas at all."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: tuple[str, frozenset[int] | None] = "", None

    @cached_property
    def _store_has_schemas(self) -> bool:
        return next((True for record in self._store.scan(SCHEMAS) if record.value), False)

    def of(self, name: TopicName) -> frozenset[int] | None:
        """Return the versions of a topic's schema: none if it has no record, None if they are unknown.

        Versions before the first in the record are in that version's ledger, so they count as present.
        """
        path = name.schema_path
        if self._last[0] != path:
            self._last = path, self._read(path)
        return self._last[1]

    def _read(self, path: str) -> frozenset[int] | None:
        if not self._store_has_schemas:
            return None
        try:
            locator = parse_message(SchemaLocator, self._store.read(path).value)
        except NotFoundError:
            return frozenset()
        except DecodeError:
            return None
        listed = [entry.version for entry in (*locator.index, locator.info)]
        return frozenset((*listed, *range(min(listed))))

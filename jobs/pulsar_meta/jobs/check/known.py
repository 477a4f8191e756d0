"""What a run of `check` knows of a store and its entries before it looks at topics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import time
from typing import TYPE_CHECKING

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.times import iso_time, parse_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.catalogue import CODES
from pulsar_meta.jobs.check.records import DEFAULT_LIMIT
from pulsar_meta.jobs.check.schemas import SchemaVersions
from pulsar_meta.jobs.check.sight import Cluster
from pulsar_meta.jobs.entries.entry_sources import LIVE, on_bookies
from pulsar_meta.jobs.rewrite.readable import registered_versions
from pulsar_meta.jobs.rewrite.releases import is_release
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    from pulsar_meta.jobs.check.listing import Surroundings


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What a run looks for: the codes, and how old (ms) an orphan is at least.

    `releases` have to load what is there; none: those of the registered brokers. `idle` is how long (ms) a
    subscription may go unused. `every_ledger`: also for some topics all ledgers are listed, so that those
    are seen that no record names.
    """

    wanted: frozenset[str] = frozenset(CODES)
    min_age: int = 24 * 3600 * 1000
    releases: tuple[str, ...] = ()
    idle: int = 30 * 24 * 3_600_000
    every_ledger: bool = False


def known_of(
    store: Store, urls: Sequence[str], options: CheckOptions, around: Surroundings, *, bookkeeper: bool
) -> Cluster:
    """Return what is known without store and entries themselves: it can travel.

    `urls` are those of the entries; `bookkeeper`: the store has ledgers' metadata. UnreachableError.
    """
    releases = options.releases or tuple(one for one in registered_versions(store) if is_release(one))
    return Cluster(
        asks_bookies=any(url.startswith(f"{LIVE}:") for url in urls),
        has_offload=any(url.startswith("offload:") for url in urls),
        idle=options.idle,
        bookkeeper=bookkeeper,
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
    known: Cluster, store: Store, source: EntrySource | None, shadows: ShadowSources | None = None
) -> Cluster:
    """Return what is known with what reads on: the entries, the shadows' sources, the versions of schemas."""
    return replace(
        known,
        source=source,
        stored=_stored(source),
        shadows=shadows or ShadowSources(store),
        schemas=SchemaVersions(store).of,
    )


def not_seen(store: Store, cluster: Cluster, source: EntrySource | None) -> dict[str, str]:
    """Return what a look at this store and these entries cannot see, and why."""
    found = {} if cluster.bookkeeper else {"ledgers": "this store has no ledger's metadata"}
    if not on_bookies(source):
        found["entries"] = "no --entries" if source is None else "no --entries of bookies"
    return found if store.networked else found | _since(cluster.now)


def is_stream(store: Store) -> bool:
    """Return whether a store is read from its beginning whatever is asked for: a snapshot without order."""
    return "snapshot:" in store.url and not store.finds_parts


def _stored(source: EntrySource | None) -> frozenset[int]:
    """Return the ledgers that tiered storage has."""
    parts = () if source is None else source.parts
    return frozenset(one for part in parts if part.url.startswith("offload:") for one in part.ledgers())


def _time_of(store: Store, around: Surroundings) -> int | None:
    """Return as of when a copy is: when it was taken, else the newest time in it; None where it has none."""
    with suppress(UsageError, TypeError):
        return parse_time(store.origin["taken"]) if "taken" in store.origin else around.newest
    return around.newest


def _since(now: int | None) -> dict[str, str]:
    """Return that what happened after a copy was taken is not known."""
    if now is None:
        return {"what changed since": "this is a copy, and nothing in it says how old"}
    hours = max(0, int(time() * 1000) - now) // 3_600_000
    age = f"{hours // 24} days" if hours >= 48 else f"{hours} hours"
    return {f"what changed since {iso_time(now)}": f"this is a copy, {age} old"}

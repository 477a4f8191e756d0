"""Open entry sources by URL, including those that need the metadata store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import LIVE, JoinedEntries, open_entries
from pulsar_meta.jobs.topics.bookkeeper import open_live_bookies
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store

TIERED: Final = "offload:"


def open_entry_sources(urls: Sequence[str], store: Store | None = None) -> EntrySource:
    """Open the source of each URL, and join several. `bookie:` reads the bookies that `store` knows.

    Raises UsageError for `bookie:` without a store, and the errors of `open_entries`. Doesn't close the
    store.
    """
    return open_entries(urls, partial(_open_live, store))


class EntriesOnDemand(ExitStack):
    """Entry sources that are opened when they are first used, and closed at the end of a `with` block."""

    def __init__(self, urls: Sequence[str], store: Store | None = None) -> None:
        """The arguments are those of `open_entry_sources`."""
        super().__init__()
        self._urls, self._store = urls, store

    @cached_property
    def source(self) -> EntrySource:
        """The source. Raises like `open_entry_sources`."""
        return self.enter_context(open_entry_sources(self._urls, self._store))


def _open_live(store: Store | None, url: str) -> EntrySource:
    if url.partition(":")[2]:
        raise UsageError("bookie: takes nothing after it, the bookies come from --store", source=redact(url))
    if store is None:
        raise UsageError("bookie: finds its bookies through the store: give --store URL", source=url)
    return open_live_bookies(store, url=url)


@dataclass(frozen=True, slots=True)
class Sources:
    """URLs that another process opens; `store` is None if there is no store."""

    store: str | None
    urls: tuple[str, ...]

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        """Open the entries. Raises UsageError for wrong URLs, and the errors of opening."""
        with ExitStack() as stack:
            yield Opened(self, stack)


class Opened:
    """The open entries, and the store, which is opened when it is first used."""

    def __init__(self, sources: Sources, stack: ExitStack) -> None:
        self._sources, self._stack = sources, stack
        live = any(url.startswith(f"{LIVE}:") for url in sources.urls)
        self.entries = stack.enter_context(_entries(sources.urls, self.store if live else None))

    @cached_property
    def store(self) -> Store | None:
        """The store; None if no URL was given."""
        url = self._sources.store
        return self._stack.enter_context(open_store(url)) if url else None


def _entries(urls: Sequence[str], store: Store | None) -> EntrySource:
    """Open the entries; without URLs the source is empty."""
    return open_entry_sources(urls, store) if urls else JoinedEntries([])


def in_tiered_storage(source: EntrySource | None) -> list[EntrySource]:
    """The parts of a source that are offloaded ledgers in tiered storage."""
    return [] if source is None else [part for part in source.parts if part.url.startswith(TIERED)]


def on_bookies(source: EntrySource | None) -> list[EntrySource]:
    """The parts of a source that are bookies or files."""
    return [] if source is None else [part for part in source.parts if not part.url.startswith(TIERED)]

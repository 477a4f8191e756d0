"""What is browsed: where it lies, and the same opened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from pulsar_meta.access.urls import redact
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store

if TYPE_CHECKING:
    from pulsar_meta.entries.base import EntrySource

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Places:
    """The URLs of a store and of entries, and whether secrets are shown."""

    store: str
    entries: tuple[str, ...] = ()
    show_secrets: bool = False

    @property
    def title(self) -> str:
        """Where they are, without passwords."""
        return "  ".join(map(redact, (self.store, *self.entries)))


@dataclass(frozen=True, slots=True)
class Spot:
    """A path of a store, and whose it is: `topic` by its full name, and one of its cursors."""

    path: str
    topic: str | None = None
    cursor: str | None = None


class Opened(ExitStack):
    """A store opened for reading; its entries are opened when they are first asked for."""

    def __init__(self, places: Places) -> None:
        """Raise what `open_store` does."""
        super().__init__()
        self.places = places
        self.store: Store = self.enter_context(open_store(places.store))
        self._entries: Callable[[], EntrySource] | None = None

    @property
    def entries(self) -> EntrySource | None:
        """The entries, None where none were given; raises what `open_entry_sources` does."""
        opening = self.opening_entries
        return None if opening is None else opening()

    @property
    def opening_entries(self) -> Callable[[], EntrySource] | None:
        """What opens the entries, None where none were given."""
        if self._entries is None and self.places.entries:
            from pulsar_meta.jobs.entries.entry_sources import EntriesOnDemand

            held = self.enter_context(EntriesOnDemand(self.places.entries, self.store))
            self._entries = lambda: held.source
        return self._entries


class Ask(Protocol):
    """Asks what was opened, in a thread of its own; raises PulsarMetaError."""

    async def __call__(self, call: Callable[[Opened], T]) -> T:
        """Return what `call` returns."""
        ...

"""What is refused because it could harm a live cluster, each with the option that overrides it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError
from pulsar_meta.codecs.names import TopicName, split_managed_ledger_path
from pulsar_meta.jobs.rewrite.bundles import Bundle, bundle_of, bundles_named, owner_of, owners_path
from pulsar_meta.jobs.rewrite.decision import Change
from pulsar_meta.jobs.rewrite.readable import BROKERS, Readers, form_of
from pulsar_meta.stores.base import Store

COORDINATOR: Final = "/pulsar/migration-coordinator"
FLAG: Final = "migration"
MIGRATION: Final = f"{COORDINATOR}/{FLAG}"
# Lists the children of several paths, best all at once.
Children = Callable[[Sequence[str]], list[list[str]]]
RUNNING: Final = ("PREPARATION", "COPYING", "COMPLETED")
EXTENSIBLE: Final = "Extensible"

LOADED_TOPIC: Final = (
    "the broker that has a topic loaded keeps its records and their versions in memory: its next write of a "
    "ledger record meets a version that moved, which fences the managed ledger (producers and consumers are "
    "thrown off, the topic is loaded again); its next write of a cursor fails once, then overwrites this one"
)


@dataclass(frozen=True, slots=True)
class Overrides:
    """Which guards the caller takes the responsibility for."""

    migration: bool = False
    loaded: bool = False
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value is not written: the name under which it is counted, and the sentence for people."""

    reason: str
    told: str


@dataclass(slots=True)
class Guards:
    """Looks at a store before each group of writes.

    `locked`: the store is a database whose own lock we hold, which proves that no broker lives; owners
    that a killed broker left in it do not count.
    """

    store: Store
    overrides: Overrides = field(default_factory=Overrides)
    readers: Readers = field(default_factory=Readers)
    locked: bool = False
    _managers: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, overrides: Overrides, readers: Readers) -> Guards:
        """Return the guards of a store; only a standalone's database has a lock that proves anything."""
        return cls(store, overrides, readers, locked=store.url.startswith("rocksdb:"))

    def check_migration(self) -> None:
        """Raise GuardError while the brokers move to another store, and when they have moved."""
        if self.overrides.migration:
            return
        try:
            value = self.store.read(MIGRATION).value
        except NotFoundError:
            return
        phase, target = _phase(value)
        if phase in RUNNING:
            done = "was migrated" if phase == "COMPLETED" else "is being migrated"
            raise GuardError(
                f"this store {done} to {target} (phase {phase}): what is written here may be lost"
                " (--allow-migration to go on)",
                source=MIGRATION,
            )

    def refusals(self, changes: Sequence[Change]) -> dict[str, Refusal]:
        """Return, by path, why changes must not be made as the store is now, a migration left aside."""
        topics = self._topics(changes)
        return self._of_loaded(topics, self._children(_where(topics))) | self.of_values(changes)

    def look(self, changes: Sequence[Change], children: Children) -> dict[str, Refusal]:
        """Return, by path, which changes are of topics that a broker may have loaded by now.

        GuardError as of `check_migration`. All is asked for at once.
        """
        topics = self._topics(changes)
        coordinator, *found = children([COORDINATOR, *_where(topics)])
        if FLAG in coordinator:
            self.check_migration()
        return self._of_loaded(topics, found)

    def of_values(self, changes: Sequence[Change]) -> dict[str, Refusal]:
        """Return, by path, which changes the server would not take or the brokers could not read."""
        refusals = {change.path: self._of_value(change) for change in changes}
        return {path: refusal for path, refusal in refusals.items() if refusal is not None}

    def _topics(self, changes: Sequence[Change]) -> dict[str, TopicName]:
        if self.locked or self.overrides.loaded:
            return {}
        places = {change.path: split_managed_ledger_path(change.path) for change in changes}
        return {path: place[0] for path, place in places.items() if place is not None}

    def _of_loaded(self, topics: dict[str, TopicName], found: Sequence[Sequence[str]]) -> dict[str, Refusal]:
        if not topics:
            return {}
        brokers, *owned = found
        if self._blind(brokers):
            return {path: _hidden(topic) for path, topic in topics.items()}
        bundles = {name: bundles_named(names) for name, names in zip(_namespaces(topics), owned, strict=True)}
        return self._of_owners(topics, bundles)

    def _of_value(self, change: Change) -> Refusal | None:
        if change.new is None:
            return None
        large = self._too_large(change.path, change.new)
        if large is not None:
            return Refusal("over-limit", f"{large} (--value-limit BYTES if the server takes more)")
        if change.readable or self.overrides.unreadable:
            return None
        try:
            form = form_of(change.path, change.new)
        except DecodeError as error:
            return Refusal("unreadable", f"no broker can load it: {error} (--allow-unreadable to go on)")
        why = None if form is None else self.readers.why_not(form)
        if why is None:
            return None
        told = f"a {form}: {why} (--for-version V tells who reads it, --allow-unreadable to go on)"
        return Refusal("unreadable", told)

    def _too_large(self, path: str, value: bytes) -> str | None:
        limit = self.store.max_value_size
        if limit is not None and len(value) > limit:
            return f"{len(value)} bytes, the server takes {limit}"
        # A server's limit is one of whole requests, of which only the store knows the size.
        check = getattr(self.store, "check_write", None)
        if check is None or not self.store.writable:
            return None
        try:
            check(path, value)
        except GuardError as error:
            return error.message
        return None

    def _of_owners(
        self, topics: dict[str, TopicName], bundles: dict[str, list[Bundle]]
    ) -> dict[str, Refusal]:
        owners: dict[tuple[str, Bundle], str] = {}
        refused = {}
        for path, topic in topics.items():
            namespace = topic.namespace_name
            bundle = bundle_of(bundles[namespace], topic)
            if bundle is None:
                continue
            if (namespace, bundle) not in owners:
                owners[namespace, bundle] = owner_of(self.store, namespace, bundle)
            owner = owners[namespace, bundle]
            told = f"{topic} may be loaded: {owner} owns its bundle {bundle.name}; unload it first"
            refused[path] = Refusal("loaded", f"{told} (--allow-loaded to go on)")
        return refused

    def _children(self, paths: Sequence[str]) -> list[list[str]]:
        return [self.store.children(path) for path in paths]

    def _blind(self, brokers: Sequence[str]) -> bool:
        """Tell whether a live broker's load manager keeps the owners elsewhere than in the store."""
        for name in brokers:
            if name not in self._managers:
                self._managers[name] = self._is_extensible(name)
        return any(self._managers[name] for name in brokers)

    def _is_extensible(self, broker: str) -> bool:
        try:
            told = json.loads(self.store.read(f"{BROKERS}/{broker}").value)
            return EXTENSIBLE in str(told.get("loadManagerClassName", ""))
        except (NotFoundError, ValueError, AttributeError):
            return False


def _namespaces(topics: dict[str, TopicName]) -> list[str]:
    return sorted({topic.namespace_name for topic in topics.values()})


def _where(topics: dict[str, TopicName]) -> list[str]:
    """Return below which paths it is told who may have the topics loaded."""
    return [BROKERS, *map(owners_path, _namespaces(topics))] if topics else []


def _hidden(topic: TopicName) -> Refusal:
    told = "the brokers' load manager keeps the owners of topics out of the store"
    return Refusal("loaded", f"{topic} may be loaded: {told} (--allow-loaded to go on)")


def _phase(value: bytes) -> tuple[str, str]:
    try:
        told = json.loads(value)
        return str(told["phase"]), str(told.get("targetUrl") or "another store")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GuardError(
            "cannot tell whether the store is being migrated: the flag is not the JSON that it should be"
            " (--allow-migration to go on)",
            source=MIGRATION,
        ) from error

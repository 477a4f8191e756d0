"""Guards: writes that are refused because they could harm a live cluster, and the overriding options.

Which broker serves a topic: a namespace's topics are divided into bundles, ranges of the CRC-32 of the
topic's full name; the owner of a bundle registers itself, ephemeral, at
`/namespace/TENANT/NAMESPACE/0xLOWER_0xUPPER`. The upper end is excluded, but for 0xffffffff. Source:
apache/pulsar NamespaceBundleFactory.java, NamespaceBundles.java, OwnershipCache.java.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.envelope import managed_place
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.rewrite.decision import Change
from pulsar_meta.jobs.rewrite.readable import BROKERS, Readers, form_of
from pulsar_meta.stores.base import ABSENT, Store, parents_of

COORDINATOR: Final = "/pulsar/migration-coordinator"
FLAG: Final = "migration"
MIGRATION: Final = f"{COORDINATOR}/{FLAG}"
# Lists the children of several paths, best all at once.
Children = Callable[[Sequence[str]], list[list[str]]]
# Topics by the path of a change.
Topics = Mapping[str, TopicName]
RUNNING: Final = ("PREPARATION", "COPYING", "COMPLETED")
EXTENSIBLE: Final = "Extensible"
OWNERS: Final = "/namespace"
LAST_HASH: Final = 0xFFFFFFFF

_bundle_re = re.compile(r"^0x([0-9a-fA-F]{8})_0x([0-9a-fA-F]{8})$")

LOADED_TOPIC: Final = (
    "the broker that has a topic loaded keeps its records and their versions in memory: its next write of a "
    "ledger record meets a version that moved, which fences the managed ledger (producers and consumers are "
    "thrown off, the topic is loaded again); its next write of a cursor fails once, then overwrites this one"
)


@dataclass(frozen=True, slots=True)
class Overrides:
    """Which guards the caller overrides, on their own responsibility."""

    migration: bool = False
    loaded: bool = False
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value is not written: the name under which it is counted, and the sentence for people."""

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A range of hashes of one namespace, by its name in the store."""

    name: str
    lower: int
    upper: int

    def holds(self, number: int) -> bool:
        """Return whether a topic of that hash belongs to it."""
        return self.lower <= number and (number < self.upper or number == self.upper == LAST_HASH)


@dataclass(slots=True)
class Guards:
    """Checks a store before each group of writes.

    `locked`: the store is a database whose own lock we hold, which proves that no broker lives; owners
    that a killed broker left in it do not count. What a look found is kept until the next one, for `recall`.
    """

    store: Store
    overrides: Overrides = field(default_factory=Overrides)
    readers: Readers = field(default_factory=Readers)
    locked: bool = False
    _managers: dict[str, bool] = field(default_factory=dict)
    # Paths whose creation was refused.
    _uncreated: set[str] = field(default_factory=set)
    # The children that the last look listed, by path.
    _listed: Mapping[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, overrides: Overrides, readers: Readers) -> Guards:
        """Return the guards of a store; only a standalone's database has a lock that proves anything."""
        return cls(store, overrides, readers, locked=store.locks_out_brokers)

    def check_migration(self) -> None:
        """Raise GuardError while the brokers move to another store, and when they have moved."""
        if self.overrides.migration:
            return
        with suppress(NotFoundError):
            check_flag(self.store.read(MIGRATION).value, "this store", "what is written here may be lost")

    def refusals(self, changes: Sequence[Change]) -> dict[str, Refusal]:
        """Return, by path, why changes must not be made as the store is now, a migration left aside."""
        topics = self.topics_of(changes)
        return self._of_loaded(topics, self._children(_where(topics))) | self.of_values(changes)

    def topics_of(self, changes: Sequence[Change]) -> Topics:
        """Map paths to the topics that the changes belong to, if a broker may have loaded them."""
        if self.locked or self.overrides.loaded:
            return {}
        places = {
            change.path: managed_place(change.path, change.new or change.old or b"") for change in changes
        }
        return {path: place[0] for path, place in places.items() if place is not None}

    def look(self, topics: Topics, children: Children) -> dict[str, Refusal]:
        """Return, by path, which changes are of topics that a broker may have loaded by now.

        GuardError as of `check_migration`. All is asked for at once.
        """
        where = [COORDINATOR, *_where(topics)]
        self._listed = dict(zip(where, children(where), strict=True))
        return self._judge(topics, self._listed)

    def recall(self, topics: Topics, children: Children) -> dict[str, Refusal]:
        """Return the result of `look`; {} without a request if the last look covered all and refused none.

        Used if the changes are checked again before they are sent.
        """
        known = self._listed
        if any(path not in known for path in [COORDINATOR, *_where(topics)]) or self._judge(topics, known):
            return self.look(topics, children)
        return {}

    def of_values(self, changes: Sequence[Change]) -> dict[str, Refusal]:
        """Return, by path, which changes the server would not take or the brokers could not read."""
        refusals = {change.path: self._of_value(change) for change in changes}
        return {path: refusal for path, refusal in refusals.items() if refusal is not None}

    def of_parents(self, changes: Sequence[Change], refused: Mapping[str, Refusal]) -> dict[str, Refusal]:
        """Refuse values below a path whose creation was refused.

        Some stores create missing parents, which would be an empty record of a topic without ledgers.
        """
        new = {change.path for change in changes if change.version == ABSENT}
        self._uncreated |= new.intersection(refused)
        if not self._uncreated:
            return {}
        return {
            path: Refusal("parent-refused", f"{above} above it was not written")
            for path in sorted(new.difference(refused))
            if (above := next((one for one in parents_of(path) if one in self._uncreated), None)) is not None
        }

    def _judge(self, topics: Topics, listed: Mapping[str, list[str]]) -> dict[str, Refusal]:
        if FLAG in listed[COORDINATOR]:
            self.check_migration()
        return self._of_loaded(topics, [listed[path] for path in _where(topics)])

    def _of_loaded(self, topics: Topics, found: Sequence[Sequence[str]]) -> dict[str, Refusal]:
        if not topics:
            return {}
        brokers, *owned = found
        why = self._why_blind(brokers)
        if why is not None:
            return {path: _hidden(topic, why) for path, topic in topics.items()}
        bundles = {name: bundles_named(names) for name, names in zip(_namespaces(topics), owned, strict=True)}
        return self._of_owners(topics, bundles) if any(bundles.values()) else {}

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
            return Refusal(
                "unreadable", f"no broker can load it: {error} (to write it anyway, add --allow-unreadable)"
            )
        why = None if form is None else self.readers.why_not(form)
        if why is None:
            return None
        override = "name the release that will read it with --for-version, or add --allow-unreadable"
        return Refusal("unreadable", f"a {form}: {why} ({override})")

    def _too_large(self, path: str, value: bytes) -> str | None:
        limit = self.store.max_value_size
        if limit is not None and len(value) > limit:
            return f"{len(value)} bytes, the server takes {limit}"
        # A server's limit is one of whole requests, of which only the store knows the size.
        if not self.store.writable:
            return None
        try:
            self.store.check_write(path, value)
        except GuardError as error:
            return error.message
        return None

    def _of_owners(self, topics: Topics, bundles: dict[str, list[Bundle]]) -> dict[str, Refusal]:
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
            text = f"{topic} may be loaded: {owner} owns its bundle {bundle.name}; unload it first"
            refused[path] = Refusal("loaded", f"{text} (to write anyway, add --allow-loaded)")
        return refused

    def _children(self, paths: Sequence[str]) -> list[list[str]]:
        return [self.store.children(path) for path in paths]

    def _why_blind(self, brokers: Sequence[str]) -> str | None:
        """Say why the store may not show the owners of topics: a broker's load manager keeps them elsewhere.

        A registration that can't be read may be of such a broker.
        """
        for name in brokers:
            if name not in self._managers:
                manager = self._load_manager(name)
                if manager is None:
                    return f"the registration of the broker {name} can't be read"
                self._managers[name] = EXTENSIBLE in manager
            if self._managers[name]:
                return "the brokers' load manager keeps the owners of topics out of the store"
        return None

    def _load_manager(self, broker: str) -> str | None:
        """Return the class of a broker's load manager, None if the registration can't be read."""
        try:
            found = read_json_object(self.store.read(f"{BROKERS}/{broker}").value)
        except NotFoundError:
            # It has stopped since the brokers were listed.
            return ""
        except DecodeError:
            return None
        return str(found.get("loadManagerClassName", ""))


def _namespaces(topics: Topics) -> list[str]:
    return sorted({topic.namespace_name for topic in topics.values()})


def _where(topics: Topics) -> list[str]:
    """Return the paths below which the owners of these topics are registered."""
    return [BROKERS, *map(owners_path, _namespaces(topics))] if topics else []


def _hidden(topic: TopicName, why: str) -> Refusal:
    return Refusal("loaded", f"{topic} may be loaded: {why} (to write anyway, add --allow-loaded)")


def check_flag(value: bytes, store: str, why: str) -> None:
    """Raise GuardError if brokers have moved to another store or are about to, by the flag of a migration."""
    phase, target = _phase(value)
    if phase in RUNNING:
        done = "was migrated" if phase == "COMPLETED" else "is being migrated"
        text = f"{store} {done} to {target} (phase {phase}): {why} (to write anyway, add --allow-migration)"
        raise GuardError(text, source=MIGRATION)


def _phase(value: bytes) -> tuple[str, str]:
    try:
        found = read_json_object(value)
        return str(found["phase"]), str(found.get("targetUrl") or "another store")
    except (DecodeError, KeyError) as error:
        raise GuardError(
            "whether the store is being migrated is unknown: the flag is not the JSON that it should be"
            " (to write anyway, add --allow-migration)",
            source=MIGRATION,
        ) from error


def topic_hash(topic: TopicName) -> int:
    """Return the hash by which a topic (a single partition) is given to a bundle."""
    return zlib.crc32(str(topic).encode())


def owners_path(namespace: str) -> str:
    """Return below which path the owned bundles of `tenant/namespace` are registered."""
    return f"{OWNERS}/{namespace}"


def bundles_named(names: Iterable[str]) -> list[Bundle]:
    """Return the bundles among the names that are registered as owned."""
    found = []
    for name in names:
        match = _bundle_re.match(name)
        if match:
            found.append(Bundle(name, int(match[1], 16), int(match[2], 16)))
    return found


def bundle_of(bundles: list[Bundle], topic: TopicName) -> Bundle | None:
    """Return which of the owned bundles serves `topic`; for domains of unknown hash, any of them."""
    if topic.domain != "persistent":
        return bundles[0] if bundles else None
    number = topic_hash(topic)
    return next((bundle for bundle in bundles if bundle.holds(number)), None)


def owner_of(store: Store, namespace: str, bundle: Bundle) -> str:
    """Return the address of the broker that owns a bundle, for people."""
    try:
        found = read_json_object(store.read(f"{owners_path(namespace)}/{bundle.name}").value)
        return str(found.get("nativeUrl") or found.get("nativeUrlTls") or "a broker")
    except (NotFoundError, DecodeError):
        return "a broker"

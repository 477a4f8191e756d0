"""Find other clusters that use the same BookKeeper, and the ledgers that they refer to.

Clusters share a BookKeeper if each has its metadata under a separate root in the same store, such as
`/west/managed-ledgers` next to `/managed-ledgers`, or in a separate store. The ledgers of other clusters look
like orphans, or like ledgers that a topic of the same name has lost.

Source: Pulsar's documentation of `metadataStoreUrl` (a root path after the servers) and
`bookkeeperMetadataServiceUri`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS
from pulsar_meta.jobs.topics.owners import SCHEMAS, Owner, named_by
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.registry import RoutedStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Nodes of Pulsar, BookKeeper and ZooKeeper, below which no other cluster has its root.
_OWN: Final = frozenset(
    {
        *("managed-ledgers", "ledgers", "admin", "schemas", "namespace", "loadbalance"),
        *("zookeeper", "counters", "topics"),
    }
)
# Roots have at most three names, such as /clusters/eu/west. Nodes with more children than this are no roots.
_DEPTH: Final = 3
_WIDEST: Final = 200
# Two addresses lead to the same store if this many records have the same values and versions.
_COMPARED: Final = 16


@dataclass(frozen=True, slots=True)
class Tree:
    """The root of another cluster's metadata: a path in a store, or "" for the root of the store."""

    store: Store
    root: str

    @property
    def label(self) -> str:
        """The name in messages: the path in the same store, or the URL of the other store."""
        return self.root or redact(self.store.url)

    def records(self) -> Iterator[Versioned]:
        """Yield the records that may refer to ledgers, with the paths that the other cluster uses."""
        for parent in (MANAGED_LEDGERS, SCHEMAS):
            for record in self.store.scan(f"{self.root}{parent}"):
                yield record._replace(path=record.path.removeprefix(self.root))


@dataclass(frozen=True, slots=True)
class OtherOwner:
    """A record of another cluster that refers to a ledger. `cluster` is the label of its tree."""

    cluster: str
    owner: Owner

    def __str__(self) -> str:
        subscription = f", subscription {self.owner.cursor}" if self.owner.cursor else ""
        return f"{self.owner.name}{subscription} of {self.cluster}"


@dataclass(slots=True)
class OtherClusters:
    """The ledgers of other clusters. The trees are read when they are first needed.

    Memory: 8 bytes per ledger of another cluster. `report` is called with each corrupt record, and `broken`
    counts them, because they may refer to any ledger.
    """

    store: Store
    others: Sequence[Store] = ()
    report: Callable[[DecodeError], None] = lambda error: None
    broken: int = 0
    _trees: list[Tree] | None = None
    _named: NDArray[np.int64] | None = None
    _owners: dict[int, list[OtherOwner]] = field(default_factory=dict)

    @property
    def trees(self) -> list[Tree]:
        """The roots of the other clusters."""
        if self._trees is None:
            self._trees = list(self._find_trees())
        return self._trees

    @property
    def named(self) -> NDArray[np.int64]:
        """The ids of all ledgers that other clusters refer to, ascending, each once. Needs NumPy."""
        import numpy as np

        if self._named is None:
            ids = array("q")
            for tree in self.trees:
                ids.extend(owner.ledger_id for owner in self._owners_in(tree))
            self._named = np.unique(np.frombuffer(ids, np.int64)) if ids else np.empty(0, np.int64)
        return self._named

    def names(self, ledger_id: int) -> bool:
        """True if another cluster refers to a ledger."""
        if not self.trees:
            return False
        at = int(self.named.searchsorted(ledger_id))
        return at < len(self.named) and int(self.named[at]) == ledger_id

    def owners(self, ledger_ids: Iterable[int]) -> dict[int, list[OtherOwner]]:
        """Find the records of other clusters that refer to these ledgers. Other ledgers are omitted.

        Reads the trees again if any of the ledgers is among those that they refer to.
        """
        wanted = {ledger_id for ledger_id in ledger_ids if self.names(ledger_id)}
        unread = wanted - self._owners.keys()
        if unread:
            self._owners |= {ledger_id: [] for ledger_id in unread}
            for tree in self.trees:
                for owner in self._owners_in(tree):
                    if owner.ledger_id in unread:
                        self._owners[owner.ledger_id].append(OtherOwner(tree.label, owner))
        return {ledger_id: self._owners[ledger_id] for ledger_id in sorted(wanted)}

    def owner(self, ledger_id: int) -> OtherOwner | None:
        """The first record of another cluster that refers to a ledger; None if there is none."""
        return next(iter(self.owners([ledger_id]).get(ledger_id, ())), None)

    def _find_trees(self) -> Iterator[Tree]:
        """Yield the trees of other clusters, each once, without those that have a separate BookKeeper."""
        known = [Tree(self.store, ""), *(each for each in _trees_below(self.store) if not has_ledgers(each))]
        yield from known[1:]
        bookkeeper = self.store.ledgers if isinstance(self.store, RoutedStore) else None
        for other in (*([] if bookkeeper is None else [bookkeeper]), *self.others):
            below = (tree for tree in _trees_below(other) if not has_ledgers(tree))
            for tree in (Tree(other, ""), *below):
                if not any(_is_same(tree, each) for each in known):
                    known.append(tree)
                    yield tree

    def _owners_in(self, tree: Tree) -> Iterator[Owner]:
        for record in tree.records():
            try:
                yield from named_by(record, None, lambda path, why: None)
            except DecodeError as error:
                self.broken += 1
                self.report(error)


def cluster_roots(store: Store) -> list[str]:
    """List the paths below which other clusters have their metadata, such as `/west`."""
    all_roots: list[str] = []
    level = [""]
    for _ in range(_DEPTH):
        below = [
            f"{parent}/{name}"
            for parent, names in zip(level, _children(store, level), strict=True)
            for name in names
            if parent or name not in _OWN
        ]
        roots = [
            path
            for path, names in zip(below, _children(store, below), strict=True)
            if MANAGED_LEDGERS[1:] in names
        ]
        all_roots += roots
        level = [path for path in below if path not in roots]
        if not level:
            break
    return sorted(all_roots)


def _children(store: Store, paths: Sequence[str]) -> list[list[str]]:
    """List the children of each path; none for nodes with too many children to be a root."""
    children = store.children_many([path or "/" for path in paths]) if paths else []
    return [names if len(names) <= _WIDEST else [] for names in children]


def has_ledgers(tree: Tree) -> bool:
    """True if a tree has BookKeeper metadata, so that its ledger ids are those of another BookKeeper."""
    return any(name.isdecimal() for name in tree.store.children(f"{tree.root}{LEDGERS}"))


def _trees_below(store: Store) -> list[Tree]:
    return [Tree(store, root) for root in cluster_roots(store)]


def _is_same(tree: Tree, known: Tree) -> bool:
    """True if a tree in another store is a known one, reached by another address."""
    first = list(islice(tree.records(), _COMPARED))
    known_records = known.store.read_many([f"{known.root}{record.path}" for record in first])
    return bool(first) and all(
        other is not None and (other.value, other.version) == (record.value, record.version)
        for record, other in zip(first, known_records, strict=True)
    )

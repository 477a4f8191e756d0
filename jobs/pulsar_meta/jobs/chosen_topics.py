"""The topics that a command is about: named, all of a namespace, or all there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.jobs.rewrite.scope import Scope, select
from pulsar_meta.stores.base import Store, Versioned


def chosen_topics(store: Store, names: Sequence[str], *, everything: bool = False) -> Iterator[Versioned]:
    """Yield the record of each topic, once.

    A name is a topic's, or with one slash (`tenant/namespace`) a namespace's; globs are taken. UsageError
    for no name, NotFoundError for one that no topic has.
    """
    if everything == bool(names):
        raise UsageError("which topics? Name topics or namespaces (tenant/namespace), or give --all")
    seen: set[str] = set()
    for scope, name in [(_scope(name), name) for name in names] or [(Scope(), "")]:
        count = 0
        for record in select(store, scope, "ledger"):
            count += 1
            if record.path not in seen:
                seen.add(record.path)
                yield record
        if name and not count:
            raise NotFoundError(f"no topic {name}", source=store.url)


def _scope(name: str) -> Scope:
    if "://" not in name and name.count("/") == 1:
        return Scope(namespaces=(name,))
    return Scope(topics=(name,))

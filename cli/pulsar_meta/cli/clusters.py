"""The cluster, or the clusters, that a command reads: each a store and the entries behind it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_meta.cli.settings import read_profile
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError

if TYPE_CHECKING:
    from pulsar_meta.jobs.seek.seek import Cluster

Clusters = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="A profile, or 'NAME=STORE ENTRIES…'. Repeatable; answers name theirs.",
    ),
]
# Name, store, entries.
Place = tuple[str | None, str, Sequence[str]]


def open_clusters(
    shell: Shell, store: str | None, entries: list[str] | None, named: list[str] | None, stack: ExitStack
) -> list[Cluster]:
    """Open the named clusters, else the one of --store and --entries; `stack` closes them.

    UsageError where both are given, a name is there twice or says too little.
    """
    from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
    from pulsar_meta.jobs.seek.seek import Cluster

    places = _places(named, store, entries) if named else [(None, store or "", shell.entries_urls(entries))]
    clusters = []
    for name, store_url, urls in places:
        opened = stack.enter_context(shell.store(store_url))
        source = stack.enter_context(open_entry_sources(urls, opened))
        clusters.append(Cluster(opened, source, tuple(urls), name))
    return clusters


def _places(named: list[str], store: str | None, entries: list[str] | None) -> list[Place]:
    if store or entries:
        raise UsageError("--cluster says where its store and entries are: leave --store and --entries out")
    places = [_place(text) for text in named]
    if len({name for name, _, _ in places}) < len(places):
        raise UsageError("--cluster: the same name twice")
    return places


def _place(text: str) -> Place:
    name, equals, rest = text.partition("=")
    if equals:
        store, *entries = rest.split() or [""]
    else:
        profile = read_profile(name)
        store, entries = profile.get("store", ""), profile.get("entries", [])
        entries = entries.split() if isinstance(entries, str) else entries
    if not name or not store or not entries:
        wanted = "'NAME=STORE ENTRIES…', or a profile that has both"
        raise UsageError(f"--cluster {text!r}: a store and entries are needed: {wanted}")
    return name, store, entries

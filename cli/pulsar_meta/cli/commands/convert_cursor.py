"""`convert-cursor`: the state of cursors in a form that older releases read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated

import typer

from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.rewriting import BulkOptions, WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.cursors.conversion import Conversion
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.scope import Scope, check_selected, each_once, is_namespace, select
from pulsar_meta.stores.base import Store, Versioned

NO_BITS = (
    "--to bitset: a record has no bit sets, only brokers write them, into cursors' ledgers, and every release"
    " that knows them reads ranges too: nothing needs to be converted"
)
# So many ledgers that nobody names any more are listed.
NAMED = 10


class To(StrEnum):
    """The forms of single acknowledgements."""

    RANGES = "ranges"
    BITSET = "bitset"


def convert_cursor(
    shell: Shell,
    to: Annotated[To, typer.Option("--to", help="ranges, which every release reads.")],
    writing: WriteOptions,
    bulk: BulkOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC|NAMESPACE", help="Topics, or tenant/namespace.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics.")] = False,
    cursor: Annotated[list[str] | None, typer.Option("--cursor", help="Name or glob (repeatable).")] = None,
    whole: Annotated[
        bool, typer.Option("--every-state", help="Also states that lie in ledgers as ranges.")
    ] = False,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Move the state of cursors from their ledgers into their records, as ranges, for older releases.

    Releases before 3.0.10, 3.1 to 3.3.4 too, know no bit sets (long arrays) of single acknowledgements: they
    would deliver those messages again. What a record has is read by every release, but for partly
    acknowledged batches, which no release reads from a record: these come again whole. The cursors' ledgers
    are then named by nobody and stay in BookKeeper; undo names them again. Unload the topics first, and keep
    them unloaded until the older brokers serve them: a newer one would write bit sets again.

    Examples:
      pulsar-meta convert-cursor orders --to ranges --entries bookie: --dry-run
      pulsar-meta convert-cursor --all --to ranges --for-version 2.11.0 --yes
    """
    if to is To.BITSET:
        raise UsageError(NO_BITS)
    scopes = [_scope(name, cursor) for name in names or []] or [Scope(cursors=tuple(cursor or ()))]
    if everything == bool(names):
        raise UsageError("which topics? Name topics or namespaces (tenant/namespace), or give --all")
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        for scope in scopes:
            check_selected(opened, scope, "cursor")
            shell.warn_of_old_parts(opened, scope.topics)
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        conversion = Conversion(opened, source, readers, shell.warn, whole)
        try:
            write(shell, opened, conversion.rewrite(lambda: _values(opened, scopes)), writing, bulk)
        finally:
            if not writing.dry_run:
                _say_left(shell, conversion.converted())
    if conversion.unknown:
        raise typer.Exit(Exit.FAULT)


def _scope(name: str, cursors: list[str] | None) -> Scope:
    chosen = tuple(cursors or ())
    if is_namespace(name):
        return Scope(namespaces=(name,), cursors=chosen)
    return Scope(topics=(name,), cursors=chosen)


def _values(store: Store, scopes: list[Scope]) -> Iterator[Versioned]:
    """Yield the records of the cursors that are meant, each once."""
    return each_once([select(store, scope, "cursor") for scope in scopes])


def _say_left(shell: Shell, ledgers: list[int]) -> None:
    """Say which ledgers nobody names any more."""
    if ledgers:
        named = ", ".join(map(str, ledgers[:NAMED])) + (", …" if len(ledgers) > NAMED else "")
        left = counted(len(ledgers), "cursor ledgers")
        shell.say(f"{left} that no record names any more stay in BookKeeper: {named}")

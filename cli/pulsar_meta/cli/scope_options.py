"""Which topics a command is about, by more than their names: the options, and what they choose."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from pulsar_meta.cli.inputs import STDIN, read_lines
from pulsar_meta.cli.rewriting import WriteOptions
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.topics.scope import Kind, Scope, select, select_listed
from pulsar_meta.stores.base import Store, Versioned

SCOPE = "Which ones"


@dataclass(frozen=True)
class ScopeOptions:
    """Which topics are meant."""

    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", rich_help_panel=SCOPE, help="Name or glob (repeatable).")
    ] = None
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", rich_help_panel=SCOPE, help="tenant/namespace or glob (repeatable)."),
    ] = None
    topic: Annotated[
        list[str] | None, typer.Option("--topic", rich_help_panel=SCOPE, help="Name or glob (repeatable).")
    ] = None
    stdin: Annotated[
        bool, typer.Option("--stdin", rich_help_panel=SCOPE, help="Topics or paths from stdin, one a line.")
    ] = False

    @property
    def chosen(self) -> bool:
        """Whether anything was given."""
        return self != ScopeOptions()

    def scope(self, cursors: Sequence[str] | None = None) -> Scope:
        """Return the scope that these options and the cursors' names make."""
        return Scope(
            tuple(self.tenant or ()),
            tuple(self.namespace or ()),
            tuple(self.topic or ()),
            tuple(cursors or ()),
        )

    def check_answer(self, writing: WriteOptions) -> None:
        """Raise UsageError where a person would have to answer on the stdin that the list comes from."""
        if self.stdin and sys.stdin.isatty() and not (writing.yes or writing.dry_run):
            raise UsageError(
                "--stdin: the answer could not be read beside the list: give --yes, or --dry-run"
            )

    def values(self, store: Store, kind: Kind, cursors: Sequence[str] | None = None) -> Iterator[Versioned]:
        """Yield the cursors or the ledger records that are meant; all, where nothing was given."""
        if self.stdin:
            return select_listed(store, read_lines(STDIN), self.scope(cursors), kind)
        return select(store, self.scope(cursors), kind)

"""The options that say which entries of what was named are meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.entries.entry_choice import Bound, Limits

LIMITS = "Limits"


@dataclass(frozen=True)
class LimitOptions:
    """From, to, at most so many, only these ledgers."""

    ledger: Annotated[
        list[int] | None,
        typer.Option("--ledger", rich_help_panel=LIMITS, help="Only this ledger of the topics, repeatable."),
    ] = None
    first: Annotated[
        str | None,
        typer.Option(
            "--from", rich_help_panel=LIMITS, help="First ENTRY or LEDGER:ENTRY; -10: the last ten."
        ),
    ] = None
    last: Annotated[
        str | None,
        typer.Option("--to", rich_help_panel=LIMITS, help="Last ENTRY or LEDGER:ENTRY, included."),
    ] = None
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=0, rich_help_panel=LIMITS, help="At most so many.")
    ] = None

    @property
    def limits(self) -> Limits:
        """All but the count; UsageError for a bound that is none."""
        first, last = _bound(self.first), _bound(self.last)
        if first is not None and last is not None and first.is_behind(last):
            raise UsageError(f"--from {self.first} lies behind --to {self.last}")
        return Limits(frozenset(self.ledger or ()), first, last)


def _bound(text: str | None) -> Bound | None:
    return None if text is None else Bound.parse(text)

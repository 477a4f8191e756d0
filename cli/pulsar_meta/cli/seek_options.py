"""The options of `seek`: what is looked for, and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pulsar_meta.jobs.seek.questions import SeekOptions

SEARCH = "How to look"


class Clock(StrEnum):
    """Which time of an entry counts."""

    AUTO = "auto"
    BROKER = "broker"
    PUBLISH = "publish"


@dataclass(frozen=True)
class Wanted:
    """What is looked for, and in which topics beside the one that is named."""

    index: Annotated[list[str] | None, typer.Option("--index", help="A message's index, repeatable.")] = None
    time: Annotated[
        list[str] | None,
        typer.Option("--time", help="First entry not before it: ms, or 2026-08-20T12:00:00Z (repeatable)."),
    ] = None
    index_file: Annotated[
        str | None,
        typer.Option(
            "--index-file",
            help="Lines of topic<TAB>index, or NDJSON with topic and index or time; - is stdin.",
        ),
    ] = None
    expired: Annotated[
        str | None,
        typer.Option("--expired", help="Newest entry that this time to live has expired: 3600, 90m, 7d."),
    ] = None
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", help="All topics of tenant/namespace instead of one (repeatable)."),
    ] = None


@dataclass(frozen=True)
class Search:
    """How to look."""

    clock: Annotated[
        Clock,
        typer.Option("--clock", rich_help_panel=SEARCH, help="auto: the broker's time, else the producer's."),
    ] = Clock.AUTO
    skew: Annotated[
        float,
        typer.Option(
            "--skew",
            rich_help_panel=SEARCH,
            help="Seconds by which clocks may differ from ledgers' close times; -1: do not aim by those.",
        ),
    ] = 60.0
    after: Annotated[
        str | None, typer.Option("--after", rich_help_panel=SEARCH, help="Only after LEDGER:ENTRY.")
    ] = None
    before: Annotated[
        str | None, typer.Option("--before", rich_help_panel=SEARCH, help="Only before LEDGER:ENTRY.")
    ] = None
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", rich_help_panel=SEARCH, help="Only what this subscription has not passed."),
    ] = None
    index_property: Annotated[
        str,
        typer.Option(
            "--index-property",
            rich_help_panel=SEARCH,
            help="The ledger property that holds its first index; only aims, never answers.",
        ),
    ] = "first-index"
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive",
            rich_help_panel=SEARCH,
            help="Look everywhere before saying that it is not there; by time, at every earlier entry.",
        ),
    ] = False

    @property
    def options(self) -> SeekOptions:
        """The options for the job; UsageError for a position that is none."""
        from pulsar_meta.jobs.seek.questions import SeekOptions, parse_position

        return SeekOptions(
            clock=str(self.clock),
            skew=round(self.skew * 1000),
            after=parse_position(self.after) if self.after else None,
            before=parse_position(self.before) if self.before else None,
            cursor=self.cursor,
            index_property=self.index_property,
            exhaustive=self.exhaustive,
        )

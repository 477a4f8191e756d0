"""Which entries of what was named are meant: by place, by number, by what their messages say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_meta.cli.options import Engine, EngineOptions
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.entries.entry_choice import Bound, Limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_meta.entries.base import EntrySource
    from pulsar_meta.jobs.entries.entry_choice import Choice
    from pulsar_meta.jobs.entries.entry_dump import DataEntry, DumpOptions
    from pulsar_meta.jobs.entries.entry_filter import EntryFilter, FilterCounts
    from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
    from pulsar_meta.jobs.topics.topic import Report
    from pulsar_meta.stores.base import Store

LIMITS = "Limits"
PANEL = "Filter"


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
        int | None, typer.Option("--count", "-n", min=0, rich_help_panel=LIMITS, help="Show at most so many.")
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


class Level(StrEnum):
    """Where a filter looks for properties."""

    ENTRY = "entry"
    MESSAGE = "message"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Where:
    """Which entries to show, by the properties of their messages."""

    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            rich_help_panel=PANEL,
            metavar="FILTER",
            help="region=eu and not (type^=test or retired): =, !=, ^= (begins), a name alone (is there).",
        ),
    ] = None
    level: Annotated[
        Level,
        typer.Option(
            "--level",
            rich_help_panel=PANEL,
            help="entry: its own metadata, as a broker's EntryFilter; message: open it; any: as needed.",
        ),
    ] = Level.ANY
    hoisted: Annotated[
        str,
        typer.Option(
            "--hoisted", rich_help_panel=PANEL, help="Properties that batches of these producers share: a,b."
        ),
    ] = ""

    def filter(self, max_size: int) -> EntryFilter | None:
        """Return the filter, None without --where; UsageError where options miss it or it means nothing."""
        from pulsar_meta.jobs.entries.entry_filter import EntryFilter
        from pulsar_meta.jobs.entries.filters import parse_filter

        if self.where is None:
            if self.level is not Level.ANY or self.hoisted:
                raise UsageError("--level and --hoisted go with --where")
            return None
        names = frozenset(name.strip() for name in self.hoisted.split(",") if name.strip())
        return EntryFilter(parse_filter(self.where), self.level.value, names, max_size)


@dataclass(slots=True)
class Matches:
    """What a filter lets through of some choices, here or by Spark; counted as it is written."""

    shell: Shell
    engine: EngineOptions
    chosen: EntryFilter
    look: DumpOptions
    count: int | None
    report: Report
    counts: FilterCounts

    def documents(
        self,
        choices: Iterable[Choice],
        limits: Limits,
        source: EntrySource,
        store: Store | None,
        urls: list[str],
    ) -> Iterator[Document]:
        """Yield the documents of what matches, in reading order."""
        planned = list(choices)
        work = sum(ledger.entries or 0 for choice in planned for ledger in choice.ledgers)
        if self.engine.chosen(self.shell, work) == "spark":
            return islice(self._by_spark(planned, limits, source, store, urls), self.count)
        from pulsar_meta.jobs.entries.entry_dump import describe_matching, read_entries

        entries = read_entries(iter(planned), limits, source, store, self.report)
        return describe_matching(entries, self.chosen, self.counts, self.look, self.count, self.report)

    def entries(
        self, choices: Iterable[Choice], limits: Limits, source: EntrySource, store: Store | None
    ) -> Iterator[tuple[DataEntry, EntryFormat]]:
        """Return the entries that match, as many as are wanted; UsageError where Spark is asked for."""
        if self.engine.engine is Engine.SPARK:
            raise UsageError("-o raw goes without Spark: leave --engine out")
        from pulsar_meta.jobs.entries.entry_dump import matching_entries, read_entries

        entries = read_entries(iter(choices), limits, source, store, self.report)
        found = matching_entries(entries, self.chosen, self.counts)
        return islice(((entry, form) for entry, form, _ in found), self.count)

    def _by_spark(
        self,
        choices: Iterable[Choice],
        limits: Limits,
        source: EntrySource,
        store: Store | None,
        urls: list[str],
    ) -> Iterator[Document]:
        from pulsar_meta.jobs.entries.entry_choice import ranges
        from pulsar_meta.jobs.spark.entries import match_with_spark
        from pulsar_meta.jobs.spark.workers import Sources
        from pulsar_meta.jobs.topics.bookkeeper import entry_format

        sources = Sources(None if store is None else store.url, tuple(urls))
        parts = [
            (part, entry_format(store, part.ledger.ledger_id, self.report))
            for choice in choices
            for part in ranges(choice, limits, source)
        ]
        spark = self.engine.spark(self.shell)
        return match_with_spark(sources, parts, self.chosen, self.look, self.counts, self.report, spark)

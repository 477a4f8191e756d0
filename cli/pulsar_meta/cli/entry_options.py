"""Options that choose entries: by position, number, index, time and properties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import Engine, EngineOptions, LineTemplate
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.frames.entry_json import PAYLOAD_FORMS
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import parse_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Bound, Choice, Coverage, Limits, Place, ranges
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe_matching, matching_entries
from pulsar_meta.jobs.entries.entry_reading import DataEntry, read_entries
from pulsar_meta.jobs.entries.entry_sources import Sources
from pulsar_meta.jobs.entries.filters import EntryFilter, FilterCounts, parse_filter
from pulsar_meta.jobs.entries.sought_entries import places
from pulsar_meta.jobs.seek.questions import parse_index
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.topic import MAX_ID, parse_ledger_id, with_bookkeeper
from pulsar_meta.stores.base import Store

SIZE_UNIT = 2**20
DIRECTORY = "dir:"
LIMITS = "Limits"
PANEL = "Filter"


@dataclass(frozen=True)
class LimitOptions:
    """Limits on entries: first, last, number, ledgers."""

    ledger: Annotated[
        list[str] | None,
        typer.Option(
            "--ledger",
            rich_help_panel=LIMITS,
            metavar="ID",
            help="Only this ledger of the topics (repeatable).",
        ),
    ] = None
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            rich_help_panel=LIMITS,
            help="First ENTRY or LEDGER:ENTRY[:BATCH]; -10 is the tenth-last.",
        ),
    ] = None
    last: Annotated[
        str | None,
        typer.Option("--to", rich_help_panel=LIMITS, help="Last ENTRY or LEDGER:ENTRY[:BATCH]."),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", "--count", min=0, rich_help_panel=LIMITS, help="Most entries."),
    ] = None

    @property
    def count(self) -> int | None:
        """The largest number of entries; None for all."""
        return None if self.limit is None else min(self.limit, MAX_ID)

    @property
    def ledgers(self) -> frozenset[int]:
        """The selected ledgers, empty for all. Raises UsageError for an invalid ledger id."""
        return frozenset(map(parse_ledger_id, self.ledger or ()))

    @property
    def limits(self) -> Limits:
        """The first and last entry. Raises UsageError for an invalid bound."""
        first, last = _bound(self.first), _bound(self.last)
        if first is not None and last is not None and first.is_behind(last):
            raise UsageError(f"--from {self.first} is after --to {self.last}")
        return Limits(first, last)

    def report_coverage(self, shell: Shell, coverage: Coverage, faults: Faults, *, named: bool) -> None:
        """Print the numbers of entries read. Sets exit code 3 if entries named by the user were not read."""
        if not faults.worst or coverage.ledgers:
            shell.summary(coverage.checked, coverage.left_out)
        if named and coverage.elsewhere:
            faults.note(NotFoundError.exit_code)
        limited = self.first is not None or self.last is not None
        if limited and self.limit != 0 and not coverage.entries and not faults.worst:
            faults.report(NotFoundError("no entries between --from and --to"))


def _bound(text: str | None) -> Bound | None:
    return None if text is None else Bound.parse(text)


@dataclass(frozen=True)
class TargetOptions:
    """Entries by index or time, instead of by position."""

    index: Annotated[
        list[str] | None,
        typer.Option(
            "--index",
            rich_help_panel=LIMITS,
            metavar="N",
            help="The entry with this message index (repeatable).",
        ),
    ] = None
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            rich_help_panel=LIMITS,
            help="From the first entry at or after this time: milliseconds or ISO 8601 (UTC without a zone).",
        ),
    ] = None

    def places(
        self, choices: Iterable[Choice], bounds: LimitOptions, source: EntrySource, faults: Faults
    ) -> Iterator[Place]:
        """Return the places within the limits, or those that --index and --time find."""
        if not self.index and self.time is None:
            return ((choice, bounds.limits) for choice in choices)
        if bounds.first is not None or (self.index and bounds.last is not None):
            other = "--from" if bounds.first is not None else "--to"
            raise UsageError(f"--index and --time can't be combined with {other}: remove {other}")
        indexes = list(map(parse_index, self.index or ()))
        time = None if self.time is None else parse_time(self.time)
        return places(choices, indexes, time, bounds.limits, source, faults.report)


@dataclass(frozen=True)
class LookOptions:
    """Options for the details of entries that are shown."""

    deep: Annotated[bool, typer.Option("--deep", help="Show each message of a batch.")] = False
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload",
            metavar="FORM|dir:DIR",
            help="Show payloads as text, hex, base64 or hash, or write each to a file in DIR.",
        ),
    ] = None
    max_size: Annotated[
        int, typer.Option("--max-size", min=1, metavar="MIB", help="Largest payload to decompress.")
    ] = 256
    transactions: Annotated[
        bool,
        typer.Option(
            "--transactions",
            help="Show the outcome of each entry's transaction, and if readers get it.",
        ),
    ] = False
    template: LineTemplate = None

    def look(self) -> DumpOptions:
        """Return the options for a dump. Raises UsageError for an invalid --payload."""
        size = self.max_size * SIZE_UNIT
        if self.payload is None:
            return DumpOptions(self.deep, max_size=size)
        if self.payload in PAYLOAD_FORMS:
            return DumpOptions(True, form=self.payload, max_size=size)
        return DumpOptions(True, directory=_directory(self.payload), max_size=size)


def _directory(payload: str) -> Path:
    """Return the directory for payloads. Raises UsageError for a probably misspelled format."""
    has_prefix, directory = payload.startswith(DIRECTORY), Path(payload.removeprefix(DIRECTORY))
    if not has_prefix and "/" not in payload and not directory.is_dir():
        forms = ", ".join(PAYLOAD_FORMS)
        raise UsageError(f"invalid --payload {payload!r}: choose {forms} or {DIRECTORY}DIR")
    return directory


class Level(StrEnum):
    """The level at which a filter decides."""

    ENTRY = "entry"
    MESSAGE = "message"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class PropertyFilter:
    """A filter on the properties of messages."""

    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            rich_help_panel=PANEL,
            metavar="FILTER",
            help="region=eu and not (type^=test or retired), with =, !=, ^= (prefix), or a name (exists).",
        ),
    ] = None
    level: Annotated[
        Level,
        typer.Option(
            "--level",
            rich_help_panel=PANEL,
            help="Properties of the entry (as in a broker's EntryFilter), of each message, or both.",
        ),
    ] = Level.ANY
    hoisted: Annotated[
        str,
        typer.Option(
            "--hoisted", rich_help_panel=PANEL, help="Properties that each batch shares, such as a,b."
        ),
    ] = ""

    def filter(self, max_size: int) -> EntryFilter | None:
        """Return the filter of --where, if given. Raises UsageError for an invalid filter."""
        if self.where is None:
            if self.level is not Level.ANY or self.hoisted:
                raise UsageError("--level and --hoisted need --where")
            return None
        names = frozenset(name.strip() for name in self.hoisted.split(",") if name.strip())
        return EntryFilter(parse_filter(self.where), self.level.value, names, max_size)


@dataclass(slots=True)
class Matches:
    """Finds and counts the entries that match a filter, in this process or with Spark."""

    faults: Faults
    engine: EngineOptions
    entry_filter: EntryFilter
    look: DumpOptions
    count: int | None
    counts: FilterCounts
    coverage: Coverage

    def documents(
        self,
        places: Iterable[Place],
        source: EntrySource,
        store: Store | None,
        urls: list[str],
    ) -> Iterator[Document]:
        """Yield the documents of matching entries, in reading order."""
        planned = list(places)
        ledgers = (ledger for choice, _ in planned for ledger in choice.ledgers)
        if self.engine.choose(self.faults.shell, ledgers, source) == "spark":
            return islice(self._by_spark(planned, source, store, urls), self.count)
        entries = read_entries(planned, source, store, self.faults.report, self.coverage)
        return describe_matching(
            entries, self.entry_filter, self.counts, self.look, self.count, self.faults.report
        )

    def entries(
        self, places: Iterable[Place], source: EntrySource, store: Store | None
    ) -> Iterator[tuple[DataEntry, EntryFormat]]:
        """Return the matching entries, up to the limit. Raises UsageError with --engine spark."""
        if self.engine.engine is Engine.SPARK:
            raise UsageError("-o raw can't use Spark: remove --engine")
        entries = read_entries(places, source, store, self.faults.report, self.coverage)
        matches = matching_entries(entries, self.entry_filter, self.counts, self.faults.report)
        return islice(((entry, form) for entry, form, _ in matches), self.count)

    def _by_spark(
        self,
        places: Sequence[Place],
        source: EntrySource,
        store: Store | None,
        urls: list[str],
    ) -> Iterator[Document]:
        for choice, _ in places:
            self.coverage.add(choice)
        from pulsar_meta.jobs.spark.commands import match_with_spark

        sources = Sources(None if store is None else store.url, tuple(urls))
        parts = [part for choice, limits in places for part in ranges(choice, limits, source)]
        ledgers = with_bookkeeper(store, (part.ledger for part in parts), self.faults.report)
        located = list(zip(parts, ledgers, strict=True))
        spark = self.engine.spark_settings(self.faults)
        return match_with_spark(
            sources,
            located,
            self.entry_filter,
            self.look,
            self.counts,
            self.coverage,
            self.faults.report,
            spark,
        )

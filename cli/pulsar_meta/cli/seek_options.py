"""Options of `seek`: questions, search, and clusters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import time_ns
from typing import Annotated, Final

import typer

from pulsar_meta.cli.settings import read_profile
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.streams import STDIN, atomic_file, input_name, open_input, read_lines
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.times import parse_duration, parse_time
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.seek.questions import (
    INDEX,
    TIME,
    Kind,
    Question,
    SeekOptions,
    parse_index,
    read_question_table,
    read_questions,
    topics_of_namespace,
)
from pulsar_meta.jobs.seek.ranges import KeptRanges, read_kept_ranges
from pulsar_meta.jobs.seek.seek import Cluster
from pulsar_meta.jobs.topics.topic import parse_position
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import with_ledgers

SEARCH = "Search"
# The first bytes of a Parquet file.
_PARQUET: Final = b"PAR1"


class Clock(StrEnum):
    """The clocks whose times entries have."""

    AUTO = "auto"
    BROKER = "broker"
    PUBLISH = "publish"


@dataclass(frozen=True)
class Wanted:
    """Options for the questions."""

    index: Annotated[list[str] | None, typer.Option("--index", metavar="N", help="Message index.")] = None
    time: Annotated[
        list[str] | None,
        typer.Option(
            "--time",
            help="First entry at or after this time: milliseconds or ISO 8601, default UTC (repeatable).",
        ),
    ] = None
    index_file: Annotated[
        str | None,
        typer.Option(
            "--index-file",
            metavar="FILE",
            help="Lines of topic<TAB>index, or NDJSON or Parquet with topic and index or time; - for stdin.",
        ),
    ] = None
    expired: Annotated[
        str | None,
        typer.Option("--expired", metavar="TTL", help="Newest entry expired by this TTL: 3600, 90m, 7d."),
    ] = None
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", help="All topics of tenant/namespace (repeatable)."),
    ] = None


@dataclass(frozen=True)
class Search:
    """Options for the search."""

    clock: Annotated[
        Clock,
        typer.Option(
            "--clock", rich_help_panel=SEARCH, help="auto is the broker's time, else the producer's."
        ),
    ] = Clock.AUTO
    skew: Annotated[
        float,
        typer.Option(
            "--skew",
            rich_help_panel=SEARCH,
            metavar="SECONDS",
            help="Largest difference of clocks to ledgers' close times; -1 ignores these times.",
        ),
    ] = 60.0
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="POSITION", rich_help_panel=SEARCH, help="Only after LEDGER:ENTRY[:BATCH]."
        ),
    ] = None
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="POSITION", rich_help_panel=SEARCH, help="Only before LEDGER:ENTRY[:BATCH]."
        ),
    ] = None
    cursor: Annotated[
        str | None,
        typer.Option(
            "--cursor",
            rich_help_panel=SEARCH,
            help="Only entries after this subscription's mark-delete position.",
        ),
    ] = None
    index_property: Annotated[
        str,
        typer.Option(
            "--index-property",
            rich_help_panel=SEARCH,
            help="Ledger property with its first index, used as a hint; entries decide.",
        ),
    ] = "first-index"
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive",
            rich_help_panel=SEARCH,
            help="Search every ledger before the answer is that nothing was found.",
        ),
    ] = False
    readable: Annotated[
        bool,
        typer.Option(
            "--readable",
            rich_help_panel=SEARCH,
            help="Only entries that readers get: none of aborted transactions, none after an open one.",
        ),
    ] = False

    save_ranges: Annotated[
        Path | None,
        typer.Option(
            "--save-ranges",
            metavar="FILE",
            rich_help_panel=SEARCH,
            help="Keep each ledger's first and last index in a Parquet file, and use those in it.",
        ),
    ] = None

    def kept_ranges(self) -> KeptRanges | None:
        """Read the file of --save-ranges, None without the option. Raises DecodeError and UsageError."""
        if self.save_ranges is None:
            return None
        try:
            return read_kept_ranges(self.save_ranges) if self.save_ranges.exists() else KeptRanges()
        except OSError as error:
            raise UsageError(f"cannot read --save-ranges {self.save_ranges}: {error.strerror}") from error

    def keep(self, kept: KeptRanges | None) -> None:
        """Write the file of --save-ranges. Raises UsageError if that is not possible."""
        if self.save_ranges is not None and kept is not None:
            with atomic_file(self.save_ranges, "wb") as file:
                kept.write(file)

    @property
    def options(self) -> SeekOptions:
        """The options for the job. Raises UsageError for an invalid position."""
        return SeekOptions(
            clock=str(self.clock),
            skew=round(self.skew * 1000),
            after=parse_position(self.after) if self.after else None,
            before=parse_position(self.before) if self.before else None,
            cursor=self.cursor,
            index_property=self.index_property,
            exhaustive=self.exhaustive,
            readable=self.readable,
        )


# Kind, target and time to live of a question that still lacks its topic.
Target = tuple[Kind, int, int | None]


@dataclass(frozen=True, slots=True)
class SeekQuestions:
    """Questions about a topic or about namespaces, and the questions of a file."""

    topic: str | None
    namespaces: tuple[str, ...]
    targets: tuple[Target, ...]
    listed: tuple[Question, ...]

    @property
    def names(self) -> list[str]:
        """The names of topics on the command line and in the file, each once."""
        topics = [self.topic] if self.topic else []
        return list(dict.fromkeys(topics + [question.topic for question in self.listed]))

    def of(self, store: Store, cursor: str | None) -> list[Question]:
        """Return the questions for one cluster, topic by topic. Raises NotFoundError for an empty namespace.

        With a cursor, only the topics of a namespace that have this cursor are included.
        """
        names = [self.topic] if self.topic else []
        for namespace in self.namespaces:
            names += topics_of_namespace(store, namespace, cursor)
        return [Question(name, *target) for name in names for target in self.targets] + list(self.listed)


def asked(topic: str | None, wanted: Wanted, *, readable: bool = False) -> SeekQuestions:
    """Return the questions of the command line. Raises UsageError if there are none, or no topic."""
    targets = tuple(_targets(wanted))
    if topic and wanted.namespace:
        raise UsageError("a topic and --namespace can't be combined: remove one of them")
    if targets and topic is None and not wanted.namespace:
        raise UsageError("no topic: use pulsar-meta seek TOPIC --index N")
    if wanted.namespace and not targets:
        raise UsageError("--namespace needs a question: add --index, --time or --expired")
    if wanted.expired is not None and readable:
        raise UsageError(
            "--expired and --readable can't be combined: aborted and open transactions expire, too"
        )
    if not targets and wanted.index_file is None:
        raise UsageError("no question: add --index, --time, --expired or --index-file")
    listed = _listed(wanted.index_file, topic) if wanted.index_file is not None else ()
    return SeekQuestions(topic, tuple(wanted.namespace or ()), targets, listed)


def ledger_questions(ledger: str | None, wanted: Wanted, search: Search) -> list[Question]:
    """Return the questions about ledgers without a store. Raises UsageError for one that needs a store."""
    needs_store = {
        "--namespace": wanted.namespace, "--index-file": wanted.index_file, "--cursor": search.cursor,
        "--readable": search.readable, "--save-ranges": search.save_ranges,
    }  # fmt: skip
    for option, value in needs_store.items():
        if value:
            raise UsageError(f"no store, which {option} needs: add --store URL, or set PULSAR_META_STORE")
    targets = _targets(wanted)
    if not targets:
        raise UsageError("no question: add --index, --time, --expired or --index-file")
    name = "all ledgers" if ledger is None else f"ledger {ledger}"
    return [Question(name, *target) for target in targets]


def _targets(wanted: Wanted) -> list[Target]:
    targets: list[Target] = [(INDEX, parse_index(text), None) for text in wanted.index or ()]
    targets += [(TIME, parse_time(text), None) for text in wanted.time or ()]
    if wanted.expired is not None:
        ttl = parse_duration(wanted.expired)
        targets.append((TIME, time_ns() // 1_000_000 - ttl * 1000, ttl))
    return targets


def _listed(file: str, topic: str | None) -> tuple[Question, ...]:
    if _is_parquet(file):
        return tuple(read_question_table(Path(file), topic))
    return tuple(read_questions(read_lines(file), input_name(file), topic))


def _is_parquet(file: str) -> bool:
    if file == STDIN:
        return False
    with open_input(file) as stream:
        return stream.read(len(_PARQUET)) == _PARQUET


Clusters = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="A profile, or 'NAME=STORE ENTRIES…' (repeatable). Answers contain the name.",
    ),
]
# Name, store, entries.
Place = tuple[str | None, str, Sequence[str]]


def open_clusters(
    shell: Shell, store: str | None, entries: list[str] | None, clusters: list[str] | None, stack: ExitStack
) -> list[Cluster]:
    """Open the clusters of --cluster, else the one of --store and --entries; `stack` closes them.

    Raises UsageError if both are given, or for an invalid --cluster.
    """
    if clusters:
        places = _places(clusters, store, shell.ledger_store, entries)
    else:
        places = [(None, store or "", shell.entries_urls(entries))]
    opened_clusters = []
    for name, store_url, urls in places:
        opened = stack.enter_context(shell.store(store_url))
        source = stack.enter_context(open_entry_sources(urls, opened))
        opened_clusters.append(Cluster(opened, source, tuple(urls), name))
    return opened_clusters


def _places(
    clusters: list[str], store: str | None, ledgers: str | None, entries: list[str] | None
) -> list[Place]:
    if store or entries or ledgers:
        raise UsageError(
            "--cluster has its own store and entries: remove --store, --ledger-store and --entries"
        )
    places = [_place(text) for text in clusters]
    if len({name for name, _, _ in places}) < len(places):
        raise UsageError("invalid --cluster: two clusters have the same name")
    return places


def _place(text: str) -> Place:
    name, equals, rest = text.partition("=")
    if equals:
        store, *entries = rest.split() or [""]
    else:
        profile = read_profile(name)
        store, ledgers, entries = (profile.get(key, "") for key in ("store", "ledger_store", "entries"))
        store = with_ledgers(store, ledgers) if store and ledgers else store
        entries = entries.split() if isinstance(entries, str) else entries
    if not name or not store or not entries:
        expected = "'NAME=STORE ENTRIES…', or a profile with a store and entries"
        raise UsageError(f"invalid --cluster {text!r}: expected {expected}")
    return name, store, entries

"""`seek`: where in a topic an index or a time is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_meta.cli.output import Detail, Document, Format, View
from pulsar_meta.cli.seek_lines import POSITION, line_of, parse_template
from pulsar_meta.cli.shell import EntriesUrls, Exit, Shell, StoreUrl
from pulsar_meta.codecs.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from pulsar_meta.jobs.seek import Question, SeekOptions

SEARCH = "How to look"
ENGINE = "Engine"
COLUMNS = (
    "topic", "index", "time", "status", "ledger_id", "entry_id", "batch_index", "first_index", "last_index",
    "broker_timestamp", "publish_time", "entries_read", "reason",
)  # fmt: skip


class Clock(StrEnum):
    """Which time of an entry counts."""

    AUTO = "auto"
    BROKER = "broker"
    PUBLISH = "publish"


class Engine(StrEnum):
    """What runs the search."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def seek(
    shell: Shell,
    topic: Annotated[
        str | None, typer.Argument(help="persistent://tenant/namespace/name, or shorter.", show_default=False)
    ] = None,
    index: Annotated[list[str] | None, typer.Option("--index", help="A message's index, repeatable.")] = None,
    time: Annotated[
        list[str] | None,
        typer.Option("--time", help="First entry not before it: ms, or 2026-08-20T12:00:00Z (repeatable)."),
    ] = None,
    index_file: Annotated[
        str | None,
        typer.Option(
            "--index-file",
            help="Lines of topic<TAB>index, or NDJSON with topic and index or time; - is stdin.",
        ),
    ] = None,
    expired: Annotated[
        str | None,
        typer.Option("--expired", help="Newest entry that this time to live has expired: 3600, 90m, 7d."),
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    template: Annotated[
        str | None, typer.Option("--format", help="A line an answer, like '{ledger_id}:{entry_id}'.")
    ] = None,
    clock: Annotated[
        Clock,
        typer.Option("--clock", rich_help_panel=SEARCH, help="auto: the broker's time, else the producer's."),
    ] = Clock.AUTO,
    skew: Annotated[
        float,
        typer.Option(
            "--skew",
            rich_help_panel=SEARCH,
            help="Seconds by which clocks may differ from ledgers' close times; -1: do not aim by those.",
        ),
    ] = 60.0,
    after: Annotated[
        str | None, typer.Option("--after", rich_help_panel=SEARCH, help="Only after LEDGER:ENTRY.")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", rich_help_panel=SEARCH, help="Only before LEDGER:ENTRY.")
    ] = None,
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", rich_help_panel=SEARCH, help="Only what this subscription has not passed."),
    ] = None,
    index_property: Annotated[
        str,
        typer.Option(
            "--index-property",
            rich_help_panel=SEARCH,
            help="The ledger property that holds its first index; only aims, never answers.",
        ),
    ] = "first-index",
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive",
            rich_help_panel=SEARCH,
            help="Look everywhere before saying that it is not there; by time, at every earlier entry.",
        ),
    ] = False,
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            rich_help_panel=ENGINE,
            help="auto: Spark with --master or from 50 000 questions on, if Java 17 is here; else local.",
        ),
    ] = Engine.AUTO,
    master: Annotated[
        str | None, typer.Option("--master", rich_help_panel=ENGINE, help="Spark's; default local[*].")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", rich_help_panel=ENGINE, help="KEY=VALUE for Spark, repeatable."),
    ] = None,
) -> None:
    """Find the entry that holds an index, or the first one not before a time.

    A partitioned topic's name stands for all its partitions. In a pipe a line an answer: LEDGER:ENTRY:BATCH
    (BATCH is -1 for an unbatched entry), or - where nothing was found; -o json says why. Exit code 3 where
    any question found nothing.

    Examples:
      pulsar-meta seek orders --index 1234 --entries bookie-disk:data/bookkeeper
      pulsar-meta seek my/ns/t --time 2026-08-20T12:00:00Z --cursor audit
      pulsar-meta seek orders --index 1234 --format '{ledger_id}:{entry_id}'
      pulsar-meta seek --index-file wanted.tsv --engine spark -o ndjson
    """
    from pulsar_meta.jobs.questions import parse_position
    from pulsar_meta.jobs.seek import SeekOptions

    fields = parse_template(template) if template else frozenset()
    if template and shell.output_format not in (None, Format.PLAIN):
        raise UsageError("--format is a form of output by itself: leave -o out")
    options = SeekOptions(
        clock=str(clock),
        skew=round(skew * 1000),
        after=parse_position(after) if after else None,
        before=parse_position(before) if before else None,
        cursor=cursor,
        index_property=index_property,
        exhaustive=exhaustive,
    )
    questions = gather(topic, index or [], time or [], expired, index_file)
    tally = Tally()
    answers = run(shell, store, entries, questions, options, str(engine), master, conf or [])
    lines = bool(template) or shell.format is Format.PLAIN
    plain = Detail(lambda answer: [line_of(answer, template or POSITION, fields or None)])
    found: Iterable[Document] = tally.watch(answers)
    if shell.format is Format.TABLE and not lines:
        from pulsar_meta.cli.seek_table import table_view

        found = list(found)
        shell.emit(found, table_view(found))
    else:
        shell.emit(found, plain if lines else View(COLUMNS, _row))
    if tally.exit_code:
        raise typer.Exit(tally.exit_code)


def gather(
    topic: str | None, indexes: list[str], times: list[str], expired: str | None, file: str | None
) -> list[Question]:
    """Return the questions of the command line in their order; UsageError where there are none."""
    from time import time_ns

    from pulsar_meta.jobs.questions import TIME, parse_duration, parse_index, parse_time, read_questions
    from pulsar_meta.jobs.seek import INDEX, Question

    asked: list[tuple[str, int, int | None]] = [(INDEX, parse_index(text), None) for text in indexes]
    asked += [(TIME, parse_time(text), None) for text in times]
    if expired is not None:
        ttl = parse_duration(expired)
        asked.append((TIME, time_ns() // 1_000_000 - ttl * 1000, ttl))
    if asked and topic is None:
        raise UsageError("which topic? pulsar-meta seek TOPIC --index N")
    questions = [Question(topic or "", *one) for one in asked]
    if file is not None:
        source = "stdin" if file == "-" else file
        try:
            with nullcontext(sys.stdin) if file == "-" else Path(file).open(encoding="utf-8") as lines:
                questions += read_questions(lines, source, topic)
        except FileNotFoundError as error:
            raise NotFoundError("no such file", source=source) from error
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"cannot read the questions: {why}", source=source) from error
    elif not questions:
        raise UsageError("what is looked for? Give --index, --time, --expired or --index-file")
    return questions


def run(
    shell: Shell,
    store_url: str | None,
    entries_urls: list[str] | None,
    questions: list[Question],
    options: SeekOptions,
    engine: str,
    master: str | None,
    conf: list[str],
) -> Iterator[Document]:
    """Yield the answers from the engine that was asked for, or that fits."""
    from pulsar_meta.jobs.engine import choose_engine
    from pulsar_meta.jobs.entry_sources import open_entry_sources
    from pulsar_meta.jobs.seek import seek as seek_locally

    settings = dict(pair(text) for text in conf)
    chosen, why = choose_engine(engine, len(questions), master)
    if why:
        shell.say(why)
    urls = shell.entries_urls(entries_urls)
    with shell.store(store_url) as store, open_entry_sources(urls, store) as source:
        if chosen == "local":
            answers = seek_locally(store, source, questions, options, shell.warn)
        else:
            from pulsar_meta.jobs.spark.seek import seek_with_spark

            answers = seek_with_spark(
                store, source, urls, questions, options, shell.warn,
                master=master or shell.settings.master, conf=settings, verbose=shell.verbose,
            )  # fmt: skip
        with shell.progress(len(questions), "questions") as progress:
            for answer in answers:
                progress.advance(1)
                yield answer


def pair(text: str) -> tuple[str, str]:
    """Return KEY=VALUE as a pair."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--conf is KEY=VALUE, not {text!r}")
    return key, value


class Tally:
    """What came of the questions, for the exit code."""

    def __init__(self) -> None:
        self.exit_code = 0

    def watch(self, answers: Iterable[Document]) -> Iterator[Document]:
        """Pass the answers on; a broken record weighs more than nothing found."""
        for answer in answers:
            if answer["status"] != "found":
                code = Exit.UNDECODABLE if "reason" in answer else Exit.NOT_FOUND
                self.exit_code = max(self.exit_code, int(code))
            yield answer


def _row(answer: Document) -> list[str]:
    return [str(answer.get(column, "")) for column in COLUMNS]

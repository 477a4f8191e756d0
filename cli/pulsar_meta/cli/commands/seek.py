"""`seek`: where in a topic an index or a time is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Annotated

import typer

from pulsar_meta.cli.engine_options import EngineOptions
from pulsar_meta.cli.entry_options import LineTemplate, chosen_template
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.render.seek import POSITION, TYPES, table_view
from pulsar_meta.cli.render.tables import Detail, Format, View
from pulsar_meta.cli.render.template import Template
from pulsar_meta.cli.render.text import one_line
from pulsar_meta.cli.seek_options import Clusters, Search, Wanted, asked, open_clusters
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.engine import choose_engine
from pulsar_meta.jobs.seek.questions import Question, SeekOptions
from pulsar_meta.jobs.seek.readable import UNKNOWN
from pulsar_meta.jobs.seek.search import FOUND, MISSING, UNREADABLE
from pulsar_meta.jobs.seek.seek import Cluster, seek_clusters
from pulsar_meta.jobs.seek.seeker import NO_TOPIC, SeekAnswer
from pulsar_meta.jobs.spark.seek import seek_with_spark
from pulsar_meta.jobs.topics.nearest import missing


def seek(
    shell: Shell,
    wanted: Wanted,
    search: Search,
    engine: EngineOptions,
    topic: Annotated[
        str | None, typer.Argument(help="persistent://tenant/namespace/name, or shorter.", show_default=False)
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    cluster: Clusters = None,
    template: LineTemplate = None,
) -> None:
    """Find the entry that holds an index, or the first one not before a time.

    A partitioned topic's name stands for all its partitions. Of a scalable topic each segment answers about
    an index, since each counts for itself, and all of them together about a time. In a pipe each answer is a
    line: LEDGER:ENTRY:BATCH (BATCH is -1 for an unbatched entry), or - where nothing was found; -o json says
    why. With --cluster the cluster stands before it, with --namespace the topic, and always a segment. Exit
    code 3 where any question found nothing, of a scalable topic in none of its segments; 4 where that is for
    something unreadable, or a source is damaged.

    Examples:
      pulsar-meta seek orders --index 1234 --entries bookie-disk:data/bookkeeper
      pulsar-meta seek my/ns/t --time 2026-08-20T12:00:00Z --cursor audit
      pulsar-meta seek orders --index 1234 --format '{ledger_id}:{entry_id}'
      pulsar-meta seek --index-file wanted.tsv --engine spark -o ndjson
      pulsar-meta seek --namespace my/ns --time 1787227200000 --cluster east
      pulsar-meta seek orders --time 2026-08-20 --readable
    """
    line = chosen_template(shell, template, TYPES)
    options, tally = search.options, Tally(Faults(shell))
    questions = asked(topic, wanted, readable=options.readable)
    prefix = ("cluster",) * bool(cluster) + ("topic",) * bool(wanted.namespace)
    with ExitStack() as stack:
        clusters = open_clusters(shell, store, entries, cluster, stack)
        for one in clusters:
            shell.warn_of_old_parts(one.store, questions.names)
        asking = [(one, questions.of(one.store, options.cursor)) for one in clusters]
        answers = tally.watch(answered(tally.faults, asking, options, engine))
        show(shell, answers, line, prefix)
        named = [TopicName.parse(name) for name in questions.names if not cluster]
        if [str(name) for name in named] == [tally.absent]:
            # It may be mistyped on the command line.
            shell.warn(str(missing(clusters[0].store, named[0].path)))
        shell.account({"questions": tally.answered, "entries": tally.entries}, tally.without_answer)
    tally.faults.end()


def show(
    shell: Shell, answers: Iterable[Document], template: Template | None, prefix: tuple[str, ...]
) -> None:
    """Write the answers in the form asked for.

    A plain line begins with the fields of `prefix`: what the command line leaves open about the answer.
    """
    if template is not None:
        shell.emit(answers, template.view())
    elif shell.format is Format.PLAIN:
        shell.emit(
            answers, Detail(lambda answer: ["\t".join([*_head(answer, prefix), POSITION.line(answer)])])
        )
    elif shell.format is Format.TABLE:
        found = list(answers)
        shell.emit(found, table_view(found))
    else:
        shell.emit(answers, View((), lambda answer: (), types=TYPES, fields=tuple(TYPES)))


def _head(answer: Document, prefix: tuple[str, ...]) -> list[str]:
    """Return what stands before a position: the fields of `prefix`, and which segment it is in."""
    segment = ("topic",) if "scalable_topic" in answer and "topic" not in prefix else ()
    fields = prefix + segment
    return [one_line(str(answer.get(field, ""))) for field in fields]


def answered(
    faults: Faults, asking: list[tuple[Cluster, list[Question]]], options: SeekOptions, how: EngineOptions
) -> Iterator[SeekAnswer]:
    """Yield the answers from the engine that was asked for, or that fits."""
    shell, count = faults.shell, sum(len(questions) for _, questions in asking)
    spark = how.spark(faults)
    chosen, why = choose_engine(str(how.engine), count, how.master)
    if why:
        shell.say(why)
    if chosen == "local":
        answers = seek_clusters(asking, options, shell.warn)
    else:
        answers = seek_with_spark(asking, options, shell.warn, spark)
    with shell.progress(count, "questions") as progress:
        for answer in answers:
            progress.advance(1)
            yield answer
    if chosen == "local":
        for cluster, _ in asking:
            faults.ask(cluster.source)


# Cluster, scalable topic, index and time of a question.
Segments = tuple[str | None, str, int | None, int | None]


class Tally:
    """What came of the questions: how many there were, what they cost, and what was wrong."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.answered = 0
        self.entries = 0
        self.without_answer: dict[str, str] = {}
        # The last topic that is not there.
        self.absent = ""
        # Of a scalable topic one segment has what is looked for, the others need not.
        self._found: dict[Segments, bool] = {}

    def watch(self, answers: Iterable[Document]) -> Iterator[Document]:
        """Pass the answers on; what cannot be read weighs more than nothing found."""
        for answer in answers:
            self.answered += 1
            self.entries += answer["entries_read"]
            self._note(answer)
            if "snapshot" in answer:
                self._only_snapshot(answer)
            yield answer
        if not all(self._found.values()):
            self.faults.note(Exit.NOT_FOUND)

    def _note(self, answer: Document) -> None:
        if answer["status"] in (MISSING, UNREADABLE, UNKNOWN):
            self.without_answer[answer["topic"]] = answer["status"]
        if answer["status"] == NO_TOPIC:
            self.absent = answer["topic"]
        if answer["status"] == UNREADABLE:
            self.faults.note(Exit.UNDECODABLE)
        elif "scalable_topic" in answer and answer["status"] not in (MISSING, UNKNOWN):
            question = (
                answer.get("cluster"),
                answer["scalable_topic"],
                answer.get("index"),
                answer.get("time"),
            )
            self._found[question] = self._found.get(question, False) or answer["status"] == FOUND
        elif answer["status"] != FOUND:
            self.faults.note(Exit.NOT_FOUND)

    def _only_snapshot(self, answer: Document) -> None:
        """Note that there may be more to look at: what is found is right, unless the newest was asked for."""
        self.without_answer[answer["topic"]] = answer["snapshot"]
        if "oldest_expired" in answer:
            self.faults.note(Exit.NOT_FOUND)

"""`seek`: find an index or a time in a topic. Answers are lines, rows and columns for scripts, or a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EngineOptions, EntriesUrls, LineTemplate, StoreUrl, chosen_template
from pulsar_meta.cli.render.tables import Detail, Format, Template, View, parse_template
from pulsar_meta.cli.render.text import one_line
from pulsar_meta.cli.seek_options import Clusters, Search, Wanted, asked, ledger_questions, open_clusters
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.engine import choose_engine_to_seek
from pulsar_meta.jobs.entries.entry_choice import choose
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.seek.questions import Question, SeekOptions
from pulsar_meta.jobs.seek.ranges import KeptRanges
from pulsar_meta.jobs.seek.readings import FOUND, MISSING, NO_TOPIC, UNKNOWN, UNREADABLE
from pulsar_meta.jobs.seek.seek import Cluster, SeekAnswer, Seeker, plan_of_ledgers, seek_clusters
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.topic import Ledger, all_named


def seek(
    shell: Shell,
    wanted: Wanted,
    search: Search,
    engine: EngineOptions,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC|LEDGER",
            help="persistent://tenant/namespace/name, or shorter. Without a store, a ledger id.",
            show_default=False,
        ),
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    cluster: Clusters = None,
    template: LineTemplate = None,
) -> None:
    """Find the position of a message index or of a time.

    Use it to turn an index from a log or a metric, or a time, into a position that pulsar-admin accepts. It
    finds the entry with the index, or the first entry at or after the time.

    The name of a partitioned topic searches all partitions, and prints one answer for each. A scalable topic
    has one answer per segment for an index, because each segment has its own indexes, but only one for a
    time. In a pipe, each answer is a line with LEDGER:ENTRY:BATCH (BATCH is -1 if the entry is not a batch),
    or - if nothing was found. The name of the partition or segment precedes the position, as does the cluster
    with --cluster and the topic with --namespace. stderr and -o json contain the reason if nothing was found.

    Without a store, it searches a ledger, or all ledgers of the entry sources in the order of their ids.

    Exits with 3 if a question has no answer (for a scalable topic, in none of its segments), and with 4 if
    that is because something can't be read, or if a source is damaged.

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
    if not (cluster or store or shell.settings.store) and (topic is None or topic.isdecimal()):
        if engine != EngineOptions():
            raise UsageError("--engine, --master and --conf need a store: add --store URL")
        _seek_ledgers(tally, topic, ledger_questions(topic, wanted, search), options, entries, line)
        return
    questions = asked(topic, wanted, readable=options.readable)
    prefix = ("cluster",) * bool(cluster) + ("topic",) * bool(wanted.namespace)
    with ExitStack() as stack:
        clusters = open_clusters(shell, store, entries, cluster, stack)
        for place in clusters:
            shell.warn_of_old_parts(place.store, questions.names)
        asking = [(place, questions.of(place.store, options.cursor)) for place in clusters]
        kept = search.kept_ranges()
        answers = tally.watch(answered(tally.faults, asking, options, engine, kept))
        names = [str(TopicName.parse(name)) for name in questions.names]
        show(shell, answers, line, prefix, names)
        search.keep(kept)
        if not cluster and names == [tally.absent]:
            # It may be mistyped on the command line.
            shell.warn(str(missing(clusters[0].store, TopicName.parse(tally.absent).path)))
        elif shell.format is Format.PLAIN:
            tally.explain()
        shell.summary({"questions": tally.answered, "entries": tally.entries}, tally.without_answer)
    tally.faults.finish()


def _seek_ledgers(
    tally: Tally,
    ledger: str | None,
    questions: Sequence[Question],
    options: SeekOptions,
    entries: list[str] | None,
    line: Template | None,
) -> None:
    """Search one ledger, or all ledgers of the sources, without a store."""
    faults, shell = tally.faults, tally.faults.shell
    with open_entry_sources(shell.entries_urls(entries)) as source:
        for choice in choose([ledger] if ledger else [], None, source, faults.report):
            plan = plan_of_ledgers(choice.name, choice.ledgers, options.index_property)
            seeker = Seeker(replace(plan, after=options.after, before=options.before), source, options)
            show(shell, tally.watch(map(seeker.ask, questions)), line, (), [])
        faults.report_source(source)
    if shell.format is Format.PLAIN:
        tally.explain()
    shell.summary({"questions": tally.answered, "entries": tally.entries}, tally.without_answer)
    faults.finish()


def show(
    shell: Shell,
    answers: Iterable[Document],
    template: Template | None,
    prefix: tuple[str, ...],
    names: Sequence[str],
) -> None:
    """Write the answers in the chosen format.

    A plain line begins with the fields of `prefix`, which the command line leaves open, and with the topic if
    the question named a topic of several parts. `names` are the full names of the topics that were named.
    """
    if template is not None:
        shell.emit(answers, template.view())
    elif shell.format is Format.PLAIN:
        shell.emit(answers, PositionLines(prefix, names).view())
    elif shell.format is Format.TABLE:
        rows = list(answers)
        shell.emit(rows, table_view(rows))
    else:
        shell.emit(answers, View((), lambda answer: (), types=TYPES, fields=tuple(TYPES)))


def answered(
    faults: Faults,
    asking: list[tuple[Cluster, list[Question]]],
    options: SeekOptions,
    how: EngineOptions,
    kept: KeptRanges | None,
) -> Iterator[SeekAnswer]:
    """Yield the answers from the engine that was chosen, or that fits the number of questions."""
    shell, count = faults.shell, sum(len(questions) for _, questions in asking)
    spark = how.spark_settings(faults)
    chosen, why = choose_engine_to_seek(str(how.engine), count, _ledgers_asked(asking), how.master)
    if why:
        shell.note(why)
    if chosen == "local":
        answers = seek_clusters(asking, options, shell.warn, kept)
    else:
        from pulsar_meta.jobs.spark.seek import seek_with_spark

        answers = seek_with_spark(asking, options, shell.warn, spark, kept)
    with shell.progress(count, "questions") as progress:
        for answer in answers:
            progress.advance(1)
            yield answer
    if chosen == "local":
        for cluster, _ in asking:
            faults.report_source(cluster.source)


def _ledgers_asked(asking: list[tuple[Cluster, list[Question]]]) -> Iterator[Ledger]:
    """Yield the ledgers of the topics that the questions name. Topics that can't be read have none."""
    for cluster, questions in asking:
        names = dict.fromkeys(question.topic for question in questions)
        for topic in all_named(cluster.store, names, lambda error: None):
            yield from topic.ledgers


# Cluster, scalable topic, index and time of a question.
Segments = tuple[Any, ...]
# The number of questions without an answer that are explained on stderr.
MOST_REASONS: Final = 10


class Tally:
    """Counts answers and entries read, and collects the reasons for missing answers."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.answered = 0
        self.entries = 0
        self.without_answer: dict[str, str] = {}
        # The last topic that doesn't exist in the store.
        self.absent = ""
        # Only one segment of a scalable topic needs to have an index.
        self._segments: dict[Segments, bool] = {}
        self._reasons: dict[Segments | None, list[str]] = {}

    def watch(self, answers: Iterable[Document]) -> Iterator[Document]:
        """Yield the answers and count them. Sets exit code 3 at the end if an answer is missing."""
        for answer in answers:
            self.answered += 1
            self.entries += answer["entries_read"]
            self._note(answer)
            if "snapshot" in answer:
                self._note_snapshot(answer)
            yield answer
        if not all(self._segments.values()):
            self.faults.note(Exit.NOT_FOUND)

    def explain(self) -> None:
        """Print the reasons for missing answers to stderr, at most MOST_REASONS lines."""
        reasons = [
            reason
            for question, lines in self._reasons.items()
            if question is None or not self._segments.get(question)
            for reason in lines
        ]
        for reason in reasons[:MOST_REASONS]:
            self.faults.shell.note(reason)
        if len(reasons) > MOST_REASONS:
            more = len(reasons) - MOST_REASONS
            self.faults.shell.note(f"{more} more questions have no answer (see the reasons with -o json)")

    def _note(self, answer: Document) -> None:
        status, segments = answer["status"], None
        if status in (MISSING, UNREADABLE, UNKNOWN):
            self.without_answer[answer["topic"]] = status
        if status == NO_TOPIC:
            self.absent = answer["topic"]
        if status == UNREADABLE:
            self.faults.note(Exit.UNDECODABLE)
        elif "scalable_topic" in answer and status not in (MISSING, UNKNOWN):
            segments = tuple(answer.get(key) for key in ("cluster", "scalable_topic", "index", "time"))
            self._segments[segments] = self._segments.get(segments, False) or status == FOUND
        elif status != FOUND:
            self.faults.note(Exit.NOT_FOUND)
        if status != FOUND:
            lines = self._reasons.setdefault(segments, [])
            lines.append(why_nothing(answer) if len(lines) < MOST_REASONS else "")

    def _note_snapshot(self, answer: Document) -> None:
        """Note that a topic may have newer entries, which matters only for the newest expired entry."""
        self.without_answer[answer["topic"]] = answer["snapshot"]
        if "oldest_expired" in answer:
            self.faults.note(Exit.NOT_FOUND)


# The fields of an answer and, for Parquet, their types.
TYPES: Final = {
    "cluster": "string", "topic": "string", "index": "int64", "time": "int64", "status": "string",
    "ledger_id": "int64", "entry_id": "int64", "batch_index": "int32", "first_index": "int64",
    "last_index": "int64", "broker_timestamp": "int64", "publish_time": "int64", "clock": "string",
    "oldest_expired": "bool", "transaction": "string", "entries_read": "int64", "reason": "string",
    "snapshot": "string", "scalable_topic": "string",
}  # fmt: skip
FIELDS: Final = frozenset(TYPES)
POSITION: Final = parse_template("{ledger_id}:{entry_id}:{batch_index}", TYPES)


# Why nothing was found, by status, unless the answer itself has a reason.
_INDEX_REASONS: Final = {
    "before-first": "it is before the first entry that the topic still has",
    "after-last": "it is after the last entry",
    "gap": "the two entries around it leave it out",
    "no-index": "the entries that could hold it have no broker metadata",
    "missing-ledger": "no source has the entries that could hold it",
    "unreadable": "an entry that could hold it is corrupt",
    "aborted": "its transaction was aborted",
    "marker": "its entry is a transaction marker",
    "open": "its transaction, or an earlier one, is still open",
    "unknown": "entries are missing that may end its transaction, or an earlier one",
}
_TIME_REASONS: Final = {
    "before-first": "nothing has expired",
    "after-last": "the last entry is earlier",
    "no-index": "no later entry has a broker time",
    "missing-ledger": "no source has the entries that could be the first",
    "unreadable": "an entry that could be the first is corrupt",
    "open": "no later entry can be read before an open transaction ends",
    "unknown": "entries are missing that may end a transaction",
}


def why_nothing(answer: Document) -> str:
    """Say in one line why an answer has no entry."""
    kind = "index" if "index" in answer else "time"
    reasons = _INDEX_REASONS if kind == "index" else _TIME_REASONS
    status = answer["status"]
    why = answer.get("reason") or reasons.get(status) or "the store has no such topic"
    cluster = f"{answer['cluster']}: " if "cluster" in answer else ""
    return f"{cluster}{answer['topic']}: nothing found for {kind} {answer[kind]}: {status}: {why}"


@dataclass(frozen=True)
class PositionLines:
    """Lines for scripts: the fields of `prefix`, and the position or `-`, with tabs between them.

    The topic comes first if the question named a partitioned or a scalable topic. `names` has all topics
    that were named.
    """

    prefix: tuple[str, ...]
    names: Sequence[str]

    def view(self) -> Detail:
        """Return the view of answers as such lines."""
        return Detail(self._lines)

    def _lines(self, answer: Document) -> Iterator[str]:
        fields = self.prefix
        if "topic" not in fields and ("scalable_topic" in answer or self._is_partition(answer["topic"])):
            fields = (*fields, "topic")
        head = [one_line(str(answer.get(field, ""))) for field in fields]
        yield "\t".join([*head, POSITION.line(answer)])

    def _is_partition(self, topic: str) -> bool:
        return str(TopicName.parse(topic).partitioned) in self.names


def table_view(answers: Sequence[Document]) -> View:
    """Return a view of the columns in which any of the answers has something."""
    shown = {name: cell for name, cell in TABLE.items() if any(map(cell, answers))}
    return View(tuple(shown), lambda answer: [cell(answer) for cell in shown.values()], NUMBERS)


def _text(field: str) -> Callable[[Document], str]:
    return lambda answer: str(answer.get(field, ""))


def _time(field: str) -> Callable[[Document], str]:
    return lambda answer: (
        (iso_time(int(answer[field])) or str(answer[field])) if answer.get(field) is not None else ""
    )


def _position(answer: Document) -> str:
    if "ledger_id" not in answer:
        return ""
    place = f":{answer['batch_index']}" if answer.get("batch_index", -1) >= 0 else ""
    return f"{answer['ledger_id']}:{answer['entry_id']}{place}"


def _indexes(answer: Document) -> str:
    if "last_index" not in answer:
        return ""
    first, last = answer["first_index"], answer["last_index"]
    return str(last) if first == last else f"{first}-{last}"


TABLE: Final[dict[str, Callable[[Document], str]]] = {
    "cluster": _text("cluster"),
    "topic": _text("topic"),
    "index": _text("index"),
    "time": _time("time"),
    "status": _text("status"),
    "position": _position,
    "indexes": _indexes,
    "broker time": _time("broker_timestamp"),
    "publish time": _time("publish_time"),
    "transaction": _text("transaction"),
    "entries read": _text("entries_read"),
    "reason": _text("reason"),
}
NUMBERS: Final = frozenset({"index", "indexes", "entries read"})

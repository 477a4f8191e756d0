"""`properties`, `set-property`, `unset-property` (PIP-404), `build-index` and `check-index`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Annotated

import typer

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import (
    EngineOptions,
    EntriesUrls,
    IndexProperty,
    ScopeOptions,
    ShowSecrets,
    StoreUrl,
)
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.rewriting import BulkOptions, WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.ledger_metadata import Edit
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.secrets import mask
from pulsar_meta.jobs.engine import choose_engine
from pulsar_meta.jobs.entries.entry_choice import METADATA, NO_METADATA, Coverage, without_trimmed
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.index.build import MISSING, UNREADABLE, FirstIndexes, IndexBuild, first_index
from pulsar_meta.jobs.index.check import check_indexes
from pulsar_meta.jobs.index.properties import (
    LAST_LEDGER,
    parse_sets,
    properties_of,
    refuse_shadow,
    remove_properties,
    set_properties,
    topic_of_ledgers,
)
from pulsar_meta.jobs.spark.commands import check_indexes_with_spark, first_indexes_with_spark
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spill import Spool
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.scope import check_named, check_selected, chosen_topics, is_glob, is_namespace
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.jobs.topics.topic import LEDGERS_AT_ONCE, Topic, chosen_by_name, with_bookkeeper
from pulsar_meta.stores.base import Store

TopicWord = Annotated[
    str, typer.Argument(help="persistent://tenant/namespace/name, tenant/namespace/name or name.")
]
Ledgers = Annotated[str, typer.Argument(help="A ledger's number; several separated by commas.")]


def properties(
    shell: Shell,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC|NAMESPACE", help="Topics, or tenant/namespace.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics.")] = False,
    store: StoreUrl = None,
    ledger: Annotated[int | None, typer.Option("--ledger", help="Show only this ledger.")] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", help="Show only this property, and ledgers that have it (repeatable)."),
    ] = None,
    show_secrets: ShowSecrets = False,
) -> None:
    """Show the properties of topics' ledgers (PIP-404).

    The ledgers of a shadow topic are those of its source, and so are their properties: shadow_of names it.

    Examples:
      pulsar-meta properties public/default/orders --store zk://zk1:2181
      pulsar-meta properties public/default --key first-index -o csv
    """
    faults, checked = Faults(shell), Counter[str]()
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, names or [])
        found = chosen_by_name(opened, names or [], faults.report, everything=everything)
        topics = list(islice(found, 2))
        one = _is_one(names or [], topics)
        rows = list(_rows(chain(topics, found), ledger, keys or [], checked))
        if not rows:
            _check_found(topics, names or [], ledger, faults, opened)
        if not show_secrets:
            rows = [mask(row) for row in rows]
        shell.emit(rows, _view(rows, one=one))
    shell.summary(checked)
    faults.finish()


def _rows(
    topics: Iterable[Topic], ledger: int | None, keys: Sequence[str], checked: Counter[str]
) -> Iterator[Document]:
    for topic in topics:
        checked["topics"] += 1
        checked["ledgers"] += len(topic.ledgers)
        yield from (row for row in properties_of(topic, keys) if ledger in (None, row["ledger_id"]))


def _is_one(names: Sequence[str], topics: Sequence[Topic]) -> bool:
    """Return whether a single topic was asked for by its name."""
    return len(names) == 1 and len(topics) < 2 and not is_glob(names[0]) and not is_namespace(names[0])


def _check_found(
    topics: Sequence[Topic], names: Sequence[str], ledger: int | None, faults: Faults, store: Store
) -> None:
    """Leave where there is no topic, or none with the ledger that was asked for."""
    if not topics:
        faults.finish()
    if ledger is not None:
        raise NotFoundError(f"no ledger {ledger} in {', '.join(names) or 'any topic'}", source=store.url)


def set_property(
    shell: Shell,
    topic: TopicWord,
    ledger: Ledgers,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE")],
    writing: WriteOptions,
    store: StoreUrl = None,
) -> None:
    """Set properties of ledgers, in one write; everything else in the record stays byte for byte.

    As Pulsar's asyncAddLedgerProperty, but unknown fields and double keys are kept. Released brokers drop
    the properties of a topic's last ledger when they close it or load the topic again.

    Examples:
      pulsar-meta set-property orders 1234 first-index=56789 --store zk://zk1:2181
    """
    _change(shell, store, topic, ledger, parse_sets(pairs), writing, "set-property")


def unset_property(
    shell: Shell,
    where: ScopeOptions,
    bulk: BulkOptions,
    writing: WriteOptions,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TOPIC LEDGER] KEY", help="Whose properties, and their keys; with options KEY alone."
        ),
    ],
    everything: Annotated[bool, typer.Option("--all", help="Of all topics.")] = False,
    store: StoreUrl = None,
) -> None:
    """Remove properties of ledgers: of some of one topic, or of all ledgers of the topics chosen.

    One write a topic, and none where there is nothing to remove; with a plan and an undo file.

    Examples:
      pulsar-meta unset-property orders 1234 first-index --store zk://zk1:2181
      pulsar-meta unset-property first-index --namespace public/default --dry-run
      pulsar-meta unset-property first-index --all --yes
    """
    if everything and where.is_given:
        raise UsageError("--all and a choice of topics exclude each other")
    if not everything and not where.is_given:
        topic, ledger, keys = _one_topic(words)
        if bulk != BulkOptions():
            raise UsageError("--resume, --rate and --concurrency are for many topics")
        _change(shell, store, topic, ledger, [Edit(key, None) for key in keys], writing, "unset-property")
        return
    where.ensure_can_ask(writing)
    with open_for_writing(shell, store, writing) as opened:
        if where.stdin:
            check_named(opened, where.scope())
        else:
            check_selected(opened, where.scope(), "ledger")
        shell.warn_of_old_parts(opened, where.scope().topics)
        rewrite = remove_properties(opened, lambda: where.values(opened, "ledger"), words)
        write(shell, opened, rewrite, writing, bulk)


def _one_topic(words: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """Return topic, ledgers and keys; UsageError where one of them is missing."""
    if len(words) < 3:
        raise UsageError("TOPIC LEDGER KEY; for many topics --namespace, --topic, --tenant, --stdin or --all")
    return words[0], words[1], words[2:]


def _change(
    shell: Shell,
    url: str | None,
    topic: str,
    ledgers: str,
    edits: list[Edit],
    writing: WriteOptions,
    command: str,
) -> None:

    wanted = dict.fromkeys(_numbers(ledgers.split(",")), edits)
    with open_for_writing(shell, url, writing) as store:
        refuse_shadow(store, TopicName.parse(topic))
        name = topic_of_ledgers(store, TopicName.parse(topic), wanted)
        rewrite = set_properties(command, store, name, wanted, shell.warn)
        write(shell, store, rewrite, writing)


def _numbers(words: Iterable[str]) -> list[int]:
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise UsageError("a ledger is its number; several are separated by commas") from error


def _text(ledger: Document) -> str:
    return ", ".join(f"{key}={value}" for key, value in ledger["properties"].items())


# What each column shows; `shadow_of` is only there where a topic is a shadow.
CELLS: dict[str, Callable[[Document], str]] = {
    "topic": lambda ledger: str(ledger["topic"]),
    "shadow of": lambda ledger: str(ledger.get("shadow_of") or ""),
    "ledger": lambda ledger: str(ledger["ledger_id"]),
    "properties": _text,
}
FIELDS = ("topic", "shadow_of", "ledger_id", "properties", "scalable_topic")


def _view(ledgers: list[Document], *, one: bool) -> View:
    """Return the columns that say something; of one topic its name is known."""
    left_out = {"topic"} if one else set()
    if not any("shadow_of" in ledger for ledger in ledgers):
        left_out.add("shadow of")
    cells = {name: cell for name, cell in CELLS.items() if name not in left_out}
    return View(
        tuple(cells),
        lambda ledger: [cell(ledger) for cell in cells.values()],
        frozenset({"ledger"}),
        fields=FIELDS,
    )


def build_index(
    shell: Shell,
    writing: WriteOptions,
    bulk: BulkOptions,
    engine: EngineOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC|NAMESPACE", help="Topics, or tenant/namespace.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics.")] = False,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    index_property: IndexProperty = "first-index",
    repair: Annotated[
        bool, typer.Option("--repair", help="Also compare the properties that are there, and correct them.")
    ] = False,
) -> None:
    """Read the first entry of every ledger without the property and store its first index there.

    `seek --index` then finds the ledger in the metadata alone. One write a topic, with a plan and an undo
    file; properties that are there stay as they are (check-index finds false ones, --repair corrects them).
    Pulsar itself reserves no name for it (PIP-404): first-index is ours. Released brokers drop the properties
    of a topic's last ledger when they close it or load the topic again; run build-index again for those.
    Shadow topics are left out, and refused where one is named: their ledgers are those of their sources.

    Examples:
      pulsar-meta build-index public/default --dry-run --entries bookie:
      pulsar-meta build-index --all --yes --engine spark --entries bookie:
    """
    urls = shell.entries_urls(entries)
    faults = Faults(shell)
    with open_for_writing(shell, store, writing) as opened, _reader(faults, opened, urls, engine) as read:
        shell.warn_of_old_parts(opened, names or [])
        for name in names or []:
            if not is_namespace(name) and not is_glob(name):
                refuse_shadow(opened, TopicName.parse(name))
        build = IndexBuild(index_property, read, ShadowSources(opened, many=True), repair)
        rewrite = build.rewrite(lambda: chosen_topics(opened, names or [], everything=everything))
        with faults.note_exit():
            write(shell, opened, rewrite, writing, bulk)
    _report(shell, build)
    if (build.undone + build.unchecked).keys() & {MISSING, UNREADABLE}:
        faults.note(Exit.FAULT)
    faults.finish()


@contextmanager
def _reader(faults: Faults, store: Store, urls: Sequence[str], how: EngineOptions) -> Iterator[FirstIndexes]:
    """Give what reads first entries: this process, or one Spark for the whole run."""
    chosen, why = choose_engine(str(how.engine), 0, how.master)
    if why:
        faults.shell.note(why)
    if chosen == "local":
        with open_entry_sources(urls, store) as source:
            yield lambda ledgers: [first_index(source, ledger) for ledger in ledgers]
            faults.report_source(source)
        return
    sources, spark = Sources(store.url, tuple(urls)), how.spark_settings(faults)
    with spark_session(spark) as session:
        yield lambda ledgers: first_indexes_with_spark(session, sources, ledgers, spark)


def _report(shell: Shell, build: IndexBuild) -> None:
    if build.last_ledgers:
        shell.warn(f"{len(build.last_ledgers)} of the ledgers are {LAST_LEDGER}")
    if build.shadows:
        shell.note(
            f"{counted(len(build.shadows), 'shadow topics')} left out: their ledgers are another topic's"
        )
    for reason, count in sorted(build.undone.items()):
        shell.note(f"{counted(count, 'ledgers')} without the property: {reason}")
    for reason, count in sorted(build.unchecked.items()):
        shell.warn(f"{counted(count, 'ledgers')} whose property was not compared: {reason}")


ABSENT = "absent"
COUNTS = ("gaps", "overlaps", "steps_back", "without_index", "unreadable", "missing")
COLUMNS = (
    "topic",
    "ledger_id",
    "ok",
    "entries",
    "first_index",
    "last_index",
    *COUNTS,
    "property",
)


def check_index(
    shell: Shell,
    engine: EngineOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC|NAMESPACE", help="Topics, or tenant/namespace.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics.")] = False,
    faulty: Annotated[bool, typer.Option("--faulty", help="Show only ledgers with faults.")] = False,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    index_property: IndexProperty = "first-index",
) -> None:
    """Read the headers of whole topics and report where their indexes are not continuous.

    A line a ledger: gaps, overlaps, steps back (a topic that was created anew), entries without index,
    entries that are missing or cannot be read, and whether the ledger's first-index property is
    right. A ledger that BookKeeper does not know, or with another number of entries, is a fault too.
    Exit code 1 where any ledger has a fault; -o json names the entries (ten of each kind). Entries that
    only bookies have whose disks were not given are not checked: exit code 3.

    Examples:
      pulsar-meta check-index public/default/orders --entries bookie:
      pulsar-meta check-index --all --faulty --engine spark -o ndjson
    """
    urls, faults, coverage = shell.entries_urls(entries), Faults(shell), Coverage()
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, names or [])
        found = _topics(opened, names or [], everything, faults, coverage)
        with Spool(found, lambda topic: 1 + len(topic.ledgers)) as topics:
            checked = _checked(faults, opened, urls, topics, index_property, engine)
            documents = _counted(shell, checked, coverage, faults)
            wanted = (document for document in documents if not (faulty and document["ok"]))
            shell.emit(wanted, VIEW)
    if not faults.worst or coverage.ledgers:
        shell.summary(coverage.checked, coverage.left_out)
    if coverage.elsewhere:
        faults.note(Exit.NOT_FOUND)
    faults.finish()


def _topics(
    store: Store, names: Sequence[str], everything: bool, faults: Faults, coverage: Coverage
) -> Iterator[Topic]:
    """Yield the topics, each ledger with what BookKeeper says of it where the store has that."""
    found = chosen_by_name(store, names, faults.report, everything=everything)
    known = has_metadata(store)
    if not known:
        coverage.not_checked[METADATA] = NO_METADATA
    while topics := list(islice(found, LEDGERS_AT_ONCE)):
        named = (ledger for topic in topics for ledger in topic.ledgers)
        ledgers = with_bookkeeper(store if known else None, named, faults.report)
        for topic in topics:
            coverage.add(topic)
            own = list(islice(ledgers, len(topic.ledgers)))
            yield topic.with_ledgers(without_trimmed(store, topic.name, own, coverage))


def _checked(
    faults: Faults, store: Store, urls: Sequence[str], topics: Spool[Topic], key: str, how: EngineOptions
) -> Iterator[Document]:
    shell = faults.shell
    ledgers = (ledger for topic in topics for ledger in topic.ledgers)
    entries = sum(ledger.entries or 0 for topic in topics for ledger in topic.ledgers)
    with open_entry_sources(urls, store) as source:
        if how.choose(shell, ledgers, source, entries) == "local":
            with shell.progress(sum(len(topic.ledgers) for topic in topics), "ledgers") as progress:
                yield from check_indexes(source, topics, key, progress.advance)
            faults.report_source(source)
            return
    yield from check_indexes_with_spark(
        Sources(store.url, tuple(urls)), list(topics), key, how.spark_settings(faults)
    )


def _counted(
    shell: Shell, documents: Iterable[Document], coverage: Coverage, faults: Faults
) -> Iterator[Document]:
    for document in documents:
        coverage.ledgers += 1
        coverage.entries += document["entries"]
        coverage.elsewhere += document.get("not_checked", 0)
        if not document["ok"]:
            faults.note(Exit.FAULT)
        for fault in document["faults"]:
            if fault["fault"] == "ledger" and not shell.is_json:
                shell.warn(f"ledger {document['ledger_id']} of {document['topic']}: {fault['why']}")
        yield document


def _row(document: Document) -> list[str]:
    shown = {**document, "ok": "ok" if document["ok"] else "FAULT"}
    return [str(shown.get(column, "")) for column in COLUMNS]


def _heading(field: str) -> str:
    return "ledger" if field == "ledger_id" else field.replace("_", " ")


VIEW = View(
    tuple(map(_heading, COLUMNS)),
    _row,
    frozenset(map(_heading, ("ledger_id", *COLUMNS[3:-1]))),
    fields=(*COLUMNS, "scalable_topic"),
    rare=frozenset(map(_heading, COUNTS)),
)

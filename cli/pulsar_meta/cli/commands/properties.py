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
    AllTopics,
    EngineOptions,
    EntriesUrls,
    IndexProperty,
    ScopeOptions,
    ShowSecrets,
    StoreUrl,
    TopicNames,
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
from pulsar_meta.jobs.entries.entry_choice import METADATA, NO_METADATA, Coverage
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.entries.live_changes import DELETED, LiveChanges
from pulsar_meta.jobs.index.check import check_indexes
from pulsar_meta.jobs.index.properties import (
    LAST_LEDGER,
    MISSING,
    UNREADABLE,
    FirstIndexes,
    IndexBuild,
    first_index,
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
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.scope import check_named, check_selected, chosen_topics, is_glob, is_namespace
from pulsar_meta.jobs.topics.topic import LEDGERS_AT_ONCE, Topic, chosen_by_name, with_bookkeeper
from pulsar_meta.stores.base import Store

TopicWord = Annotated[
    str, typer.Argument(help="persistent://tenant/namespace/name, tenant/namespace/name or name.")
]
Ledgers = Annotated[str, typer.Argument(help="Ledger ids, separated by commas.")]


def properties(
    shell: Shell,
    names: TopicNames = None,
    everything: AllTopics = False,
    store: StoreUrl = None,
    ledger: Annotated[int | None, typer.Option("--ledger", help="Show only this ledger.")] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", help="Show only this property, and ledgers that have it (repeatable)."),
    ] = None,
    show_secrets: ShowSecrets = False,
) -> None:
    """Show the properties of topics' ledgers (PIP-404).

    Use it to see custom metadata of ledgers, such as the first index that build-index writes. A shadow topic
    uses the ledgers of its source and shows their properties; shadow_of is the source.

    Examples:
      pulsar-meta properties public/default/orders --store zk://zk1:2181
      pulsar-meta properties public/default --key first-index -o csv
    """
    faults, checked = Faults(shell), Counter[str]()
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, names or [])
        selected = chosen_by_name(opened, names or [], faults.report, everything=everything)
        topics = list(islice(selected, 2))
        rows = list(_rows(chain(topics, selected), ledger, keys or [], checked))
        if not rows:
            _ensure_topics(topics, names or [], ledger, faults, opened)
        if not show_secrets:
            rows = [mask(row) for row in rows]
        shell.emit(rows, _view(rows, single=_is_single(names or [], topics)))
    shell.summary(checked)
    faults.finish()


def _rows(
    topics: Iterable[Topic], ledger: int | None, keys: Sequence[str], checked: Counter[str]
) -> Iterator[Document]:
    for topic in topics:
        checked["topics"] += 1
        checked["ledgers"] += len(topic.ledgers)
        yield from (row for row in properties_of(topic, keys) if ledger in (None, row["ledger_id"]))


def _is_single(names: Sequence[str], topics: Sequence[Topic]) -> bool:
    """Return True if a single topic was selected by its name."""
    return len(names) == 1 and len(topics) < 2 and not is_glob(names[0]) and not is_namespace(names[0])


def _ensure_topics(
    topics: Sequence[Topic], names: Sequence[str], ledger: int | None, faults: Faults, store: Store
) -> None:
    """Exit if there are no topics. Raises NotFoundError if none has the selected ledger."""
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
    """Set properties of a topic's ledgers in one write.

    Use it to attach metadata to ledgers (PIP-404), as Pulsar's asyncAddLedgerProperty does, but without a
    broker. All other bytes of the record are kept, including unknown fields and duplicate keys. Released
    brokers remove the properties of a topic's last ledger when they close it or load the topic again.

    Examples:
      pulsar-meta set-property orders 1234 first-index=56789 --store zk://zk1:2181
      pulsar-meta set-property orders 1234,1235 archived=yes --dry-run
    """
    _change(shell, store, topic, ledger, parse_sets(pairs), writing, "set-property")


def unset_property(
    shell: Shell,
    scope: ScopeOptions,
    bulk: BulkOptions,
    writing: WriteOptions,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TOPIC LEDGER] KEY", help="Topic, ledgers and keys; only keys with --topic or --all."
        ),
    ],
    everything: AllTopics = False,
    store: StoreUrl = None,
) -> None:
    """Remove properties from ledgers of one or many topics.

    Use it to remove properties that are wrong or no longer needed, from some ledgers of a topic, or from all
    ledgers of the selected topics. It writes once per topic, and only if there is something to remove.

    Examples:
      pulsar-meta unset-property orders 1234 first-index --store zk://zk1:2181
      pulsar-meta unset-property first-index --namespace public/default --dry-run
      pulsar-meta unset-property first-index --all --yes
    """
    if everything and scope.is_given:
        raise UsageError("--all selects all topics: remove it, or the options that select topics")
    if not everything and not scope.is_given:
        topic, ledger, keys = _one_topic(words)
        if bulk != BulkOptions():
            raise UsageError("--resume, --rate and --concurrency need more than one topic: remove them")
        _change(shell, store, topic, ledger, [Edit(key, None) for key in keys], writing, "unset-property")
        return
    scope.ensure_can_ask(writing)
    with open_for_writing(shell, store, writing) as opened:
        if scope.stdin:
            check_named(opened, scope.scope())
        else:
            check_selected(opened, scope.scope(), "ledger")
        shell.warn_of_old_parts(opened, scope.scope().topics)
        rewrite = remove_properties(opened, lambda: scope.values(opened, "ledger"), words)
        write(shell, opened, rewrite, writing, bulk)


def _one_topic(words: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """Split the arguments into topic, ledgers and keys. Raises UsageError if one is missing."""
    if len(words) < 3:
        raise UsageError("expected TOPIC LEDGER KEY; to select topics, add --topic, --namespace or --all")
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
    edits_by_ledger = dict.fromkeys(_ledger_ids(ledgers), edits)
    with open_for_writing(shell, url, writing) as store:
        refuse_shadow(store, TopicName.parse(topic))
        name = topic_of_ledgers(store, TopicName.parse(topic), edits_by_ledger)
        rewrite = set_properties(command, store, name, edits_by_ledger, shell.warn)
        write(shell, store, rewrite, writing)


def _ledger_ids(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise UsageError(f"invalid ledgers {text!r}: expected ledger ids, separated by commas") from error


def _text(ledger: Document) -> str:
    return ", ".join(f"{key}={value}" for key, value in ledger["properties"].items())


# Text of each column. Only a shadow topic has `shadow_of`.
CELLS: dict[str, Callable[[Document], str]] = {
    "topic": lambda ledger: str(ledger["topic"]),
    "shadow of": lambda ledger: str(ledger.get("shadow_of") or ""),
    "ledger": lambda ledger: str(ledger["ledger_id"]),
    "properties": _text,
}
FIELDS = ("topic", "shadow_of", "ledger_id", "properties", "scalable_topic")


def _view(ledgers: list[Document], *, single: bool) -> View:
    """Return a view without the topic's name if it is the same for all, and without empty columns."""
    left_out = {"topic"} if single else set()
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
    names: TopicNames = None,
    everything: AllTopics = False,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    index_property: IndexProperty = "first-index",
    repair: Annotated[
        bool, typer.Option("--repair", help="Also check existing properties, and correct them.")
    ] = False,
) -> None:
    """Store each ledger's first index as a ledger property.

    Use it to make seek --index fast: seek then finds the ledger without reading entries. It reads the first
    entry of every ledger that lacks the property, and writes once per topic. Existing properties are kept;
    check-index finds wrong ones, and --repair corrects them. Pulsar reserves no name for such a property
    (PIP-404), so first-index is a name of pulsar-meta.

    Released brokers remove the properties of a topic's last ledger when they close it or load the topic
    again; run build-index again after that. Shadow topics are skipped, because their sources own the ledgers;
    if you name one, the command refuses it.

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
def _reader(
    faults: Faults, store: Store, urls: Sequence[str], engine: EngineOptions
) -> Iterator[FirstIndexes]:
    """Yield a function that reads the first indexes of ledgers, in this process or with Spark."""
    chosen, reason = choose_engine(str(engine.engine), 0, engine.master)
    if reason:
        faults.shell.note(reason)
    if chosen == "local":
        with open_entry_sources(urls, store) as source:
            yield lambda ledgers: [first_index(source, ledger) for ledger in ledgers]
            faults.report_source(source)
        return
    sources, spark = Sources(store.url, tuple(urls)), engine.spark_settings(faults)
    with spark_session(spark) as session:
        yield lambda ledgers: first_indexes_with_spark(session, sources, ledgers, spark)


def _report(shell: Shell, build: IndexBuild) -> None:
    if build.last_ledgers:
        shell.warn(f"{len(build.last_ledgers)} of the ledgers are {LAST_LEDGER}")
    if build.shadows:
        shell.note(
            f"{counted(len(build.shadows), 'shadow topics')} skipped, because their sources own the ledgers"
        )
    for reason, count in sorted(build.undone.items()):
        shell.note(f"{counted(count, 'ledgers')} without the property: {reason}")
    for reason, count in sorted(build.unchecked.items()):
        shell.warn(f"{counted(count, 'ledgers')} with a property that was not checked: {reason}")


ABSENT = "absent"
COUNTS = ("gaps", "overlaps", "steps_back", "without_index", "unreadable", "missing")
COLUMNS = ("topic", "ledger_id", "ok", "entries", "first_index", "last_index", *COUNTS, "property")


def check_index(
    shell: Shell,
    engine: EngineOptions,
    names: TopicNames = None,
    everything: AllTopics = False,
    faulty: Annotated[bool, typer.Option("--faulty", help="Show only ledgers with faults.")] = False,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    index_property: IndexProperty = "first-index",
) -> None:
    """Find gaps and overlaps in the message indexes of topics.

    Use it when an index from a broker finds the wrong message. It reads the headers of all entries and prints
    one line per ledger: gaps, overlaps, steps back (the topic was created again), entries without index,
    missing and unreadable entries, and if the ledger's first-index property is correct. It also reports a
    ledger that BookKeeper doesn't know, or whose entry count differs. -o json lists ten entries of each kind.
    Exits with 1 if a ledger has a fault, and with 3 if entries were not checked because the disks of their
    bookies are not in --entries.

    Examples:
      pulsar-meta check-index public/default/orders --entries bookie:
      pulsar-meta check-index --all --faulty --engine spark -o ndjson
    """
    urls, faults, coverage = shell.entries_urls(entries), Faults(shell), Coverage()
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, names or [])
        changes = LiveChanges(opened, urls)
        selected = _topics(opened, names or [], everything, faults, coverage, changes)
        with Spool(selected, lambda topic: 1 + len(topic.ledgers)) as topics:
            checked = _checked(faults, opened, urls, topics, index_property, engine)
            there = _without_deleted(checked, topics, coverage, changes)
            documents = _counted(shell, there, coverage, faults)
            shell.emit((each for each in documents if not (faulty and each["ok"])), VIEW)
    if not faults.worst or coverage.ledgers:
        shell.summary(coverage.checked, coverage.left_out)
    if coverage.elsewhere:
        faults.note(Exit.NOT_FOUND)
    faults.finish()


def _topics(
    store: Store,
    names: Sequence[str],
    everything: bool,
    faults: Faults,
    coverage: Coverage,
    changes: LiveChanges,
) -> Iterator[Topic]:
    """Yield the selected topics. Their ledgers have BookKeeper's metadata if the store has it."""
    selected = chosen_by_name(store, names, faults.report, everything=everything)
    bookkeeper = store if has_metadata(store) else None
    if bookkeeper is None:
        coverage.not_checked[METADATA] = NO_METADATA
    while topics := list(islice(selected, LEDGERS_AT_ONCE)):
        listed = (ledger for topic in topics for ledger in topic.ledgers)
        ledgers = with_bookkeeper(bookkeeper, listed, faults.report)
        for topic in topics:
            coverage.add(topic)
            own = list(islice(ledgers, len(topic.ledgers)))
            yield topic.with_ledgers(changes.without_deleted(own, coverage.not_checked))


def _checked(
    faults: Faults, store: Store, urls: Sequence[str], topics: Spool[Topic], key: str, engine: EngineOptions
) -> Iterator[Document]:
    shell = faults.shell
    ledgers = (ledger for topic in topics for ledger in topic.ledgers)
    entries = sum(ledger.entries or 0 for topic in topics for ledger in topic.ledgers)
    with open_entry_sources(urls, store) as source:
        if engine.choose(shell, ledgers, source, entries) == "local":
            with shell.progress(sum(len(topic.ledgers) for topic in topics), "ledgers") as progress:
                yield from check_indexes(source, topics, key, progress.advance)
            faults.report_source(source)
            return
    yield from check_indexes_with_spark(
        Sources(store.url, tuple(urls)), list(topics), key, engine.spark_settings(faults)
    )


def _without_deleted(
    documents: Iterable[Document], topics: Spool[Topic], coverage: Coverage, changes: LiveChanges
) -> Iterator[Document]:
    """Yield the reports without faulty ledgers that were deleted while they were read.

    The reports are in the order of the topics' ledgers.
    """
    ledgers = (ledger for topic in topics for ledger in topic.ledgers)
    for document, ledger in zip(documents, ledgers, strict=True):
        if not document["ok"] and changes.is_deleted(ledger):
            coverage.not_checked[f"ledger {ledger.ledger_id}"] = DELETED
        else:
            yield document


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

"""`check-index`: whether the indexes of topics go on, ledger by ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Annotated

import typer

from pulsar_meta.cli.engine_options import EngineOptions
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, IndexProperty, StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.entries.entry_choice import METADATA, NO_METADATA, Coverage, without_trimmed
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.index.check import check_indexes
from pulsar_meta.jobs.spark.indexes import check_indexes_with_spark
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.kept import KeptTopics, kept_topics
from pulsar_meta.jobs.topics.topic import LEDGERS_AT_ONCE, Topic, chosen_by_name, with_bookkeeper
from pulsar_meta.stores.base import Store

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
        with kept_topics(found) as topics:
            checked = _checked(faults, opened, urls, topics, index_property, engine)
            documents = _counted(shell, checked, coverage, faults)
            wanted = (document for document in documents if not (faulty and document["ok"]))
            shell.emit(wanted, VIEW)
    if not faults.worst or coverage.ledgers:
        shell.account(coverage.checked, coverage.left_out)
    if coverage.elsewhere:
        faults.note(Exit.NOT_FOUND)
    faults.end()


def _topics(
    store: Store, names: Sequence[str], everything: bool, faults: Faults, coverage: Coverage
) -> Iterator[Topic]:
    """Yield the topics, each ledger with what BookKeeper says of it where the store has that."""
    found = chosen_by_name(store, names, faults, everything=everything)
    known = has_metadata(store)
    if not known:
        coverage.not_checked[METADATA] = NO_METADATA
    while topics := list(islice(found, LEDGERS_AT_ONCE)):
        named = (ledger for topic in topics for ledger in topic.ledgers)
        ledgers = with_bookkeeper(store if known else None, named, faults)
        for topic in topics:
            coverage.add(topic)
            own = list(islice(ledgers, len(topic.ledgers)))
            yield topic.with_ledgers(without_trimmed(store, topic.name, own, coverage))


def _checked(
    faults: Faults, store: Store, urls: Sequence[str], topics: KeptTopics, key: str, how: EngineOptions
) -> Iterator[Document]:
    shell = faults.shell
    ledgers = (ledger for topic in topics for ledger in topic.ledgers)
    with open_entry_sources(urls, store) as source:
        if how.chosen(shell, ledgers, source, topics.entries) == "local":
            with shell.progress(topics.ledgers, "ledgers") as progress:
                yield from check_indexes(source, topics, key, progress.advance)
            faults.ask(source)
            return
    yield from check_indexes_with_spark(Sources(store.url, tuple(urls)), list(topics), key, how.spark(faults))


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
            if fault["fault"] == "ledger" and not shell.speaks_json:
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

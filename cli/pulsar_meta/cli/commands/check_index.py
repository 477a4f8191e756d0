"""`check-index`: whether the indexes of topics go on, ledger by ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulsar_meta.cli.options import EngineOptions, EntriesUrls, IndexProperty, StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.shell import Exit, Shell

if TYPE_CHECKING:
    from pulsar_meta.codecs.json_text import Document
    from pulsar_meta.jobs.topics.topic import Topic
    from pulsar_meta.stores.base import Store

COUNTS = ("gaps", "overlaps", "steps_back", "without_index", "unreadable", "missing")
COLUMNS = ("topic", "ledger_id", "ok", "entries", "first_index", "last_index", *COUNTS, "property")


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
    right. Exit code 1 where any ledger has a fault; -o json names the entries (ten of each kind).

    Examples:
      pulsar-meta check-index public/default/orders --entries bookie:
      pulsar-meta check-index --all --faulty --engine spark -o ndjson
    """
    from pulsar_meta.jobs.topics.scope import chosen_topics
    from pulsar_meta.jobs.topics.topic import topic_of

    urls = shell.entries_urls(entries)
    with shell.store(store) as opened:
        topics = list(map(topic_of, chosen_topics(opened, names or [], everything=everything)))
        faults = _Faults()
        documents = faults.counted(_checked(shell, opened, urls, topics, index_property, engine))
        wanted = (document for document in documents if not (faulty and document["ok"]))
        shell.emit(wanted, VIEW)
    if faults.count:
        raise typer.Exit(Exit.FAULT)


def _checked(
    shell: Shell, store: Store, urls: Sequence[str], topics: Sequence[Topic], key: str, how: EngineOptions
) -> Iterator[Document]:
    from pulsar_meta.jobs.entries.entry_sources import open_entry_sources

    entries = sum(ledger.entries or 0 for topic in topics for ledger in topic.ledgers)
    if how.chosen(shell, entries) == "local":
        from pulsar_meta.jobs.index.check import check_indexes

        count = sum(len(topic.ledgers) for topic in topics)
        with open_entry_sources(urls, store) as source, shell.progress(count, "ledgers") as progress:
            yield from check_indexes(source, topics, key, progress.advance)
        return
    from pulsar_meta.jobs.spark.indexes import check_indexes_with_spark
    from pulsar_meta.jobs.spark.workers import Sources

    yield from check_indexes_with_spark(Sources(store.url, tuple(urls)), topics, key, how.spark(shell))


class _Faults:
    """Counts the ledgers that are not right."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            self.count += not document["ok"]
            yield document


def _row(document: dict[str, Any]) -> list[str]:
    shown = document | {"ok": "ok" if document["ok"] else "FAULT"}
    return [str(shown.get(column, "")) for column in COLUMNS]


def _heading(field: str) -> str:
    return "ledger" if field == "ledger_id" else field.replace("_", " ")


VIEW = View(
    tuple(map(_heading, COLUMNS)),
    _row,
    frozenset(map(_heading, ("ledger_id", *COLUMNS[3:-1]))),
    fields=COLUMNS,
    rare=frozenset(map(_heading, COUNTS)),
)

"""`build-index`: the first index of every ledger as a property of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from pulsar_meta.cli.engine_options import EngineOptions
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, IndexProperty, StoreUrl
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.rewriting import BulkOptions, WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.engine import choose_engine
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.index.build import MISSING, UNREADABLE, FirstIndexes, IndexBuild, first_index
from pulsar_meta.jobs.index.properties import LAST_LEDGER, refuse_shadow
from pulsar_meta.jobs.spark.indexes import first_indexes_with_spark
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.topics.scope import chosen_topics, is_glob, is_namespace
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.stores.base import Store


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
        with faults.going_on():
            write(shell, opened, rewrite, writing, bulk)
    _report(shell, build)
    if (build.undone + build.unchecked).keys() & {MISSING, UNREADABLE}:
        faults.note(Exit.FAULT)
    faults.end()


@contextmanager
def _reader(faults: Faults, store: Store, urls: Sequence[str], how: EngineOptions) -> Iterator[FirstIndexes]:
    """Give what reads first entries: this process, or one Spark for the whole run."""
    chosen, why = choose_engine(str(how.engine), 0, how.master)
    if why:
        faults.shell.say(why)
    if chosen == "local":
        with open_entry_sources(urls, store) as source:
            yield lambda ledgers: [first_index(source, ledger) for ledger in ledgers]
            faults.ask(source)
        return
    sources, spark = Sources(store.url, tuple(urls)), how.spark(faults)
    with spark_session(spark) as session:
        yield lambda ledgers: first_indexes_with_spark(session, sources, ledgers, spark)


def _report(shell: Shell, build: IndexBuild) -> None:
    if build.last_ledgers:
        shell.warn(f"{len(build.last_ledgers)} of the ledgers are {LAST_LEDGER}")
    if build.shadows:
        shell.say(
            f"{counted(len(build.shadows), 'shadow topics')} left out: their ledgers are another topic's"
        )
    for reason, count in sorted(build.undone.items()):
        shell.say(f"{counted(count, 'ledgers')} without the property: {reason}")
    for reason, count in sorted(build.unchecked.items()):
        shell.warn(f"{counted(count, 'ledgers')} whose property was not compared: {reason}")

"""`restore`: copy values from a snapshot or another store into a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

import typer

from pulsar_meta.access.files import ScratchDirectory
from pulsar_meta.access.urls import split_scheme
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import SCOPE, EntriesUrls, ScopeOptions, StoreUrl
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.repairing import ConfirmSeveral, write_confirmed
from pulsar_meta.cli.rewriting import BulkOptions, WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.restore.survey import Survey, survey_source, survey_target
from pulsar_meta.jobs.restore.values import (
    Remains,
    State,
    TopicValues,
    UnreadableValues,
    counter_minimums,
    missing_bucket,
    restore_values,
)
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.spill import DiskMap
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.scope import check_named
from pulsar_meta.jobs.values.places import IDGEN, copied, registries
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.registry import MARK, store_url
from pulsar_meta.stores.rocksdb import database_of
from pulsar_meta.stores.rocksdb_writer import create_database, is_nowhere


@dataclass(frozen=True)
class TopicOptions:
    """Options for restoring selected topics."""

    with_policies: Annotated[
        bool,
        typer.Option("--with-policies", rich_help_panel=SCOPE, help="Restore tenant and namespace policies."),
    ] = False
    also_unindexed: Annotated[
        bool,
        typer.Option(
            "--also-unindexed",
            rich_help_panel=SCOPE,
            help="With --entries, also restore ledgers that are only in entry logs (deleted by the bookie).",
        ),
    ] = False


def restore(
    shell: Shell,
    source: Annotated[str, typer.Argument(metavar="URL", help="Store to restore from, like --store.")],
    scope: ScopeOptions,
    topic_options: TopicOptions,
    writing: WriteOptions,
    bulk: BulkOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite/--if-absent",
            help="Replace values that differ. Default: keep them, and list them.",
        ),
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept a snapshot that is truncated or damaged.")
    ] = False,
    trust_counters: Annotated[
        bool,
        typer.Option("--trust-counters", help="Accept a counter that is far above every known ledger id."),
    ] = False,
    confirm: ConfirmSeveral = None,
) -> None:
    """Restore all or some topics from a snapshot or a store.

    Use it after values were lost, or to move to another metadata store. Removes nothing, and skips values
    that sessions, brokers and bookies create themselves. Values that some brokers can't load are restored
    with a warning, because a subscription is lost without its record. If you select topics, it restores only
    these: their records, cursors, schemas, partitions and ledger metadata. With --entries, it skips ledgers
    that have no entries on the bookies.

    With --overwrite, it leaves alone what other clients change during the run. If an old value makes data
    unreachable, the command prints how much, and asks for the topic's full name (--confirm).

    First, it raises counters so that no ledger id is used twice: above the source's counter, above every
    ledger in either store, and above every ledger on the disks of --entries. Undo does not lower them.

    Examples:
      pulsar-meta restore snapshot:monday.ndjson --store zk://zk1:2181 --dry-run
      pulsar-meta restore zk://zk1:2181 --store oxia://oxia:6648 --yes
      pulsar-meta restore 'zk-files:/zk?at=2026-05-01T03:00' --topic orders
    """
    faults = Faults(shell)
    _check(scope, topic_options, writing)
    with ExitStack() as stack:
        values = stack.enter_context(shell.other_store(_source_url(source, partial=partial)))
        target = stack.enter_context(_target(shell, store, writing, stack))
        with shell.progress(unit="values") as progress:
            migrated, advance = writing.allow_migration, progress.advance
            survey = survey_source(
                values, faults.report, partial=partial, migrated=migrated, progress=advance
            )
        surveys = [survey, survey_target(target, faults.report)]
        disks, logged = _disks(shell, entries, target, stack), set[int]()
        if disks is not None:
            surveys.append(Survey())
            logged = surveys[-1].add_disks(disks, faults.report)
        if scope.is_given:
            remains = None if disks is None else Remains(disks, logged, topic_options.also_unindexed)
            restored = _topic_values(shell, values, scope, topic_options, disks, remains, stack)
        else:
            _print_summary(shell, values, survey, disks)
            restored = _all_values(values, target, surveys)
        minimums = counter_minimums(values, target, surveys, trust_counters=trust_counters)
        unreadable = UnreadableValues(Readers.of(target, tuple(writing.for_version or ())))
        rewrite = restore_values(restored, minimums, unreadable, overwrite=overwrite)
        with faults.note_exit():
            if overwrite or OtherClusters(target).trees:
                write_confirmed(shell, target, rewrite, writing, bulk, confirm)
            else:
                write(shell, target, rewrite, writing, bulk)
        faults.finish(disks)


def _source_url(source: str, *, partial: bool) -> str:
    url = store_url(source)
    return f"{url}?partial" if partial and url.startswith("snapshot:") else url


def _check(scope: ScopeOptions, topic_options: TopicOptions, writing: WriteOptions) -> None:
    """Raise UsageError for options that can't be combined."""
    scope.ensure_can_ask(writing)
    if topic_options != TopicOptions() and not scope.is_given:
        raise UsageError("--with-policies and --also-unindexed need selected topics: add --topic NAME")


def _target(shell: Shell, url: str | None, writing: WriteOptions, stack: ExitStack) -> Store:
    """Open the store to write to. Creates a missing database or directory; for a dry run, a temporary one."""
    target, mark, ledgers = shell.store_url(url).partition(MARK)
    if target.startswith("dir:") and writing.dry_run and not Path(split_scheme(target)[1]).exists():
        shell.note(f"{target} does not exist, so this is a new directory")
        scratch = ScratchDirectory()
        stack.callback(scratch.cleanup)
        return shell.other_store(f"dir:{scratch.path}{mark}{ledgers}")
    if not target.startswith("rocksdb:") or not is_nowhere(database_of(target)):
        return open_for_writing(shell, url, writing)
    shell.note(f"{target} does not exist, so this is a new database")
    if writing.yes and not writing.dry_run:
        create_database(database_of(target), target)
        return open_for_writing(shell, url, writing)
    if not writing.dry_run:
        raise UsageError("refusing to create a new database: preview it with --dry-run, then add --yes")
    scratch = ScratchDirectory()
    stack.callback(scratch.cleanup)
    create_database(scratch.path / "metadata", target)
    return shell.other_store(f"rocksdb:{scratch.path / 'metadata'}{mark}{ledgers}")


def _disks(shell: Shell, urls: list[str] | None, target: Store, stack: ExitStack) -> EntrySource | None:
    sources = list(urls or shell.settings.entries)
    return stack.enter_context(open_entry_sources(sources, target)) if sources else None


def _print_summary(shell: Shell, source: Store, survey: Survey, disks: EntrySource | None) -> None:
    """Print the number of values to restore, those that are left out, and ids that could not be checked."""
    left_out = {counted(number, "values"): reason for reason, number in sorted(survey.left_out.items())}
    if source.next_sequence(IDGEN) is None:
        left_out["ids of deleted ledgers"] = "the source has no counter of ledger ids"
    elif disks is None:
        left_out["disks"] = "no --entries"
    shell.summary({"values": survey.values}, left_out)


def _all_values(source: Store, target: Store, surveys: list[Survey]) -> Callable[[], Iterable[Versioned]]:
    """Return a function that reads all values to restore. Raises NotFoundError if there are none."""
    if not surveys[0].values:
        raise NotFoundError("no values to restore", source=source.url)
    more = registries(target) if surveys[0].bookkeeper else []
    return lambda: chain(copied(source), missing_bucket(surveys), more)


def _topic_values(
    shell: Shell,
    store: Store,
    scope: ScopeOptions,
    options: TopicOptions,
    disks: EntrySource | None,
    remains: Remains | None,
    stack: ExitStack,
) -> Callable[[], Iterable[Versioned]]:
    """Collect the values of the selected topics and print a summary of them.

    Raises NotFoundError if no topic is selected.
    """
    check_named(store, scope.scope())
    topics = TopicValues(store, scope.values(store, "ledger"), options.with_policies, disks, remains)
    # The plan and the writes both iterate over the values.
    values = stack.enter_context(DiskMap())
    values.add(topics.values())
    if not topics.counts["topics"]:
        raise NotFoundError("no such topic", source=store.url)
    _print_topic_summary(shell, topics, len(values))
    return lambda: values


def _print_topic_summary(shell: Shell, topics: TopicValues, values: int) -> None:
    counts, remains = topics.counts, topics.remains
    left_out = {}
    if topics.missing:
        left_out[counted(topics.missing, "ledgers")] = "the source has no metadata for them"
    if remains is None:
        left_out["entries"] = "no --entries"
    nouns = ("topics", "cursors", "schemas", "ledgers")
    shell.summary({"values": values, **{noun: counts[noun] for noun in nouns}}, left_out)
    if remains is None:
        return
    states = remains.counts
    parts = [f"{states[state]} {text}" for state, text in STATES.items() if states[state]]
    shell.note(f"ledgers {counts['ledgers']}: {', '.join(parts)}; cursors {counts['cursors']}")
    if states["unindexed"]:
        shell.warn(UNINDEXED)
    if states["gone"]:
        shell.warn("ledgers without any entry are not restored, and their topics' records don't list them")


STATES: Final[dict[State, str]] = {
    "whole": "complete",
    "partly": "incomplete",
    "unindexed": "only in entry logs",
    "gone": "without any entry",
}
UNINDEXED: Final = (
    "the bookie deleted the ledgers that are only in entry logs, so they are restored only with"
    " --also-unindexed; the bookie serves them again after you rebuild its indexes while it is stopped"
    " (bookkeeper shell rebuild-db-ledgers-index, then rebuild-db-ledger-locations-index)"
)

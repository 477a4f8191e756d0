"""`restore`: values of a snapshot, or of another store, brought into a store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Final

import typer

from pulsar_meta.access.files import ScratchDirectory
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import SCOPE, EntriesUrls, ScopeOptions, StoreUrl
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.rewriting import BulkOptions, WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.restore.survey import Survey, survey_source, survey_target
from pulsar_meta.jobs.restore.topics import TopicValues
from pulsar_meta.jobs.restore.values import Remains, State, counter_minimums, missing_bucket, restore_values
from pulsar_meta.jobs.topics.scope import check_named
from pulsar_meta.jobs.values.places import IDGEN, copied, registries
from pulsar_meta.jobs.values.remembered import Remembered
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.rocksdb import database_of
from pulsar_meta.stores.rocksdb_writer import create_database, is_nowhere
from pulsar_meta.stores.routed import MARK


@dataclass(frozen=True)
class TopicOptions:
    """What else comes back with topics that are chosen."""

    with_policies: Annotated[
        bool,
        typer.Option(
            "--with-policies", rich_help_panel=SCOPE, help="Also the policies of tenant and namespace."
        ),
    ] = False
    also_unindexed: Annotated[
        bool,
        typer.Option(
            "--also-unindexed",
            rich_help_panel=SCOPE,
            help="With --entries: also ledgers that are in entry logs only, since the bookie deleted them.",
        ),
    ] = False


def restore(
    shell: Shell,
    source: Annotated[str, typer.Argument(help="Where values come from: any URL that --store takes.")],
    where: ScopeOptions,
    choice: TopicOptions,
    writing: WriteOptions,
    bulk: BulkOptions,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite/--if-absent",
            help="Replace values that are there and differ, or leave and name them.",
        ),
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Also from a snapshot that was cut short or changed.")
    ] = False,
) -> None:
    """Bring the values of a snapshot, or of another store, into a store, which may have some already.

    Nothing is removed. What sessions, brokers and bookies make by themselves stays out. Before the first
    value counters go forward, so that no ledger id is given out twice: past the source's own counter, every
    ledger that either store names, and every ledger on the disks of --entries. That alone undo leaves.

    Of the topics that are chosen everything comes back and nothing else: their records, cursors, schemas,
    partitions, and BookKeeper's metadata of their ledgers. --entries then says of which ledgers bookies still
    have entries; the others stay out.

    Examples:
      pulsar-meta restore snapshot:monday.ndjson --store zk://zk1:2181 --dry-run
      pulsar-meta restore zk://zk1:2181 --store oxia://oxia:6648 --yes
      pulsar-meta restore 'zk-files:/zk?at=2026-05-01T03:00' --topic orders
    """
    faults = Faults(shell)
    _check(where, choice, writing)
    with ExitStack() as stack:
        url = f"{source}?partial" if partial and source.startswith("snapshot:") else source
        values = stack.enter_context(shell.other_store(url))
        target = stack.enter_context(_target(shell, store, writing, stack))
        with shell.progress(unit="values") as progress:
            found = survey_source(
                values,
                faults.report,
                partial=partial,
                migrated=writing.allow_migration,
                progress=progress.advance,
            )
        surveys = [found, survey_target(target, faults.report)]
        disks, logged = _disks(shell, entries, target, stack), set[int]()
        if disks is not None:
            surveys.append(Survey())
            logged = surveys[-1].add_disks(disks, faults.report)
        if where.is_given:
            remains = None if disks is None else Remains(disks, logged, choice.also_unindexed)
            check_named(values, where.scope())
            topics = where.values(values, "ledger")
            chosen = TopicValues(values, topics, choice.with_policies, disks, remains)
            held = stack.enter_context(Remembered())
            _gather(shell, chosen, held)
        else:
            _account(shell, values, found, disks)
            if not found.values:
                raise NotFoundError("no value that could be restored is here", source=values.url)

        def wanted() -> Iterable[Versioned]:
            if where.is_given:
                return held
            more = registries(target) if found.bookkeeper else []
            return chain(copied(values), missing_bucket(surveys), more)

        rewrite = restore_values(wanted, counter_minimums(values, target, surveys), overwrite=overwrite)
        with faults.note_exit():
            write(shell, target, rewrite, writing, bulk)
        faults.finish(disks)


def _check(where: ScopeOptions, choice: TopicOptions, writing: WriteOptions) -> None:
    """Raise UsageError for options that do not go together."""
    where.ensure_can_ask(writing)
    if choice != TopicOptions() and not where.is_given:
        raise UsageError("--with-policies and --also-unindexed are for topics that are chosen (--topic, …)")


def _target(shell: Shell, url: str | None, writing: WriteOptions, stack: ExitStack) -> Store:
    """Open the store that values go to; a database that is not there is made, for a plan somewhere else."""
    chosen, mark, ledgers = shell.store_url(url).partition(MARK)
    if not chosen.startswith("rocksdb:") or not is_nowhere(database_of(chosen)):
        return open_for_writing(shell, url, writing)
    shell.note(f"{chosen}: nothing there yet: a new database")
    if writing.yes and not writing.dry_run:
        create_database(database_of(chosen), chosen)
        return open_for_writing(shell, url, writing)
    if not writing.dry_run:
        raise UsageError("a new database is not made without --yes (--dry-run shows what would be in it)")
    scratch = ScratchDirectory()
    stack.callback(scratch.cleanup)
    create_database(scratch.path / "metadata", chosen)
    return shell.other_store(f"rocksdb:{scratch.path / 'metadata'}{mark}{ledgers}")


def _disks(shell: Shell, urls: list[str] | None, target: Store, stack: ExitStack) -> EntrySource | None:
    chosen = list(urls or shell.settings.entries)
    return stack.enter_context(open_entry_sources(chosen, target)) if chosen else None


def _account(shell: Shell, source: Store, found: Survey, disks: EntrySource | None) -> None:
    """Say what is restored, what stays out, and which ids nobody could ask for."""
    left_out = {counted(number, "values"): why for why, number in sorted(found.left_out.items())}
    if source.next_sequence(IDGEN) is None:
        left_out["ids of ledgers that are gone"] = "the source does not say its counter"
    elif disks is None:
        left_out["disks"] = "no --entries"
    shell.summary({"values": found.values}, left_out)


def _gather(shell: Shell, chosen: TopicValues, held: Remembered) -> None:
    """Keep what belongs to the topics for the plan and the writes; say what it is, and what of it is gone.

    NotFoundError for no topic at all.
    """
    held.add(chosen.values())
    if not chosen.counts["topics"]:
        raise NotFoundError("no such topic", source=chosen.store.url)
    counts = {"values": len(held), **{name: chosen.counts[name] for name in ("topics", "cursors", "schemas")}}
    left_out = {}
    if chosen.missing:
        left_out[counted(chosen.missing, "ledgers")] = "named, but the source has no metadata of them"
    if chosen.remains is None:
        left_out["entries"] = "no --entries"
    shell.summary({**counts, "ledgers": chosen.counts["ledgers"]}, left_out)
    if chosen.remains is None:
        return
    states = chosen.remains.counts
    parts = [f"{states[state]} {text}" for state, text in STATES.items() if states[state]]
    shell.note(f"ledgers {chosen.counts['ledgers']}: {', '.join(parts)}; cursors {chosen.counts['cursors']}")
    if states["unindexed"]:
        shell.warn(UNINDEXED)
    if states["gone"]:
        shell.warn("ledgers that are gone stay out, and out of the records of their topics")


STATES: Final[dict[State, str]] = {
    "whole": "whole",
    "partly": "in part",
    "unindexed": "in entry logs only",
    "gone": "gone",
}
UNINDEXED: Final = (
    "ledgers in entry logs only were deleted by the bookie, and stay out without --also-unindexed; it serves"
    " them again once its indexes are built anew (bookkeeper shell, on the stopped bookie:"
    " rebuild-db-ledgers-index, then rebuild-db-ledger-locations-index)"
)

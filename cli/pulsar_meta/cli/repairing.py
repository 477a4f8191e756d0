"""Shared code of the `repair` subcommands: their output, their confirmation, and how they write."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.rewriting import SAFETY, BulkOptions, WriteOptions, open_for_writing, terms_of, write
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.streams import prompt_on_stderr
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.repair.bulk_losses import BulkLosses
from pulsar_meta.jobs.repair.fix_plan import FixPlan
from pulsar_meta.jobs.repair.repair import Repair
from pulsar_meta.jobs.rewrite.decision import Decided, Summary
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.run import Rewrite, preview
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.stores.base import Store

Confirm = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="TOPIC",
        rich_help_panel=SAFETY,
        help="The full name of the topic that loses data. Needed only if data becomes unreachable.",
    ),
]


ConfirmSeveral = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="TOPIC",
        rich_help_panel=SAFETY,
        help="The full name of the topic that loses data, or 'N topics' for several. Needed only if data"
        " becomes unreachable.",
    ),
]


def report_as_warning(shell: Shell) -> Report:
    """Return a function that prints errors about other records as warnings, so that one repair can run."""
    return lambda error: shell.warn(redact(str(error)))


@contextmanager
def open_for_repair(
    shell: Shell, url: str | None, entries: Sequence[str] | None, writing: WriteOptions
) -> Iterator[tuple[Store, EntrySource | None, Readers]]:
    """Open the store as `open_for_writing` does, and the entry sources if any are configured.

    Yields both with the releases that have to load the repaired records.
    """
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        store = stack.enter_context(open_for_writing(shell, url, writing))
        source = stack.enter_context(open_entry_sources(urls, store)) if urls else None
        yield store, source, Readers.of(store, tuple(writing.for_version or ()))


def run_repair(
    shell: Shell,
    store: Store,
    repair: Repair,
    writing: WriteOptions,
    confirm: str | None = None,
    source: EntrySource | None = None,
) -> None:
    """Print the findings of a repair, have its losses confirmed, then write as `rewriting.write` does.

    Damage in `source`, from which entries were read, is printed as warnings. Raises UsageError if the repair
    discards data, and neither `confirm` nor the answer on the terminal is the name that it requires.
    """
    for text in () if source is None else (*source.notes, *map(str, source.faults)):
        shell.warn(text)
    shell.summary(repair.checked, repair.not_checked)
    for text in repair.said:
        shell.note(text)
    for text in repair.losses:
        shell.warn(text)
    if any(map(_writes, repair.decided)):
        confirm_losses(repair.confirm, confirm, writing)
    write(shell, store, repair.rewrite(), writing)


def _writes(decided: Decided) -> bool:
    return decided[1].action == "rewrite"


def confirm_losses(name: str | None, answer: str | None, writing: WriteOptions) -> None:
    """Ask for the name of the topic that loses data, unless `answer` is that name, or for a dry run.

    `name` is None if no data is lost. Raises UsageError if the names differ, or if stdin is not a terminal.
    """
    if name is None or writing.dry_run:
        return
    if answer is None and sys.stdin is not None and sys.stdin.isatty():
        with prompt_on_stderr():
            answer = typer.prompt(f"Data becomes unreachable. To continue, type {name}", err=True)
    if answer != name:
        typed = "" if answer is None else f" ({answer} is not the name)"
        raise UsageError(
            f"refusing to write because data becomes unreachable{typed}: preview it with --dry-run, then add"
            f" --confirm {shlex.quote(name)}"
        )


def write_confirmed(
    shell: Shell,
    store: Store,
    rewrite: Rewrite,
    writing: WriteOptions,
    bulk: BulkOptions,
    confirm: str | None,
) -> None:
    """Print what a run makes unreachable, have it confirmed, then write as `rewriting.write` does.

    Decides about all values once more, before the run. Raises UsageError like `confirm_losses`.
    """
    losses = BulkLosses(store, OtherClusters(store))
    with shell.progress(unit="values") as progress:
        for decided in preview(store, rewrite, terms_of(writing, bulk), Summary()):
            losses.add(decided)
            progress.advance(1)
    total = losses.total()
    for text in total.texts:
        shell.warn(text)
    confirm_losses(total.confirm, confirm, writing)
    write(shell, store, rewrite, writing, bulk)


def run_plan(
    shell: Shell, store: Store, plan: FixPlan, writing: WriteOptions, confirmed: Sequence[str] = ()
) -> None:
    """Print the findings and losses of each step of a plan, have the losses confirmed, then write everything.

    Raises UsageError if a topic that loses data is not among `confirmed`.
    """
    for step in plan.steps:
        shell.note(step.command)
        for text in step.said:
            shell.note(f"  {text}")
        for text in step.losses:
            shell.warn(f"  {text}")
    missing = [name for name in plan.names if name not in confirmed]
    if missing and not writing.dry_run:
        options = " ".join(f"--confirm {shlex.quote(name)}" for name in missing)
        raise UsageError(
            "refusing to write because data becomes unreachable: preview it with --dry-run, then add"
            f" {options}"
        )
    write(shell, store, plan.rewrite(), writing)

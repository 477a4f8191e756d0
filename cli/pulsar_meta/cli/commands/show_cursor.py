"""`show-cursor` and `convert-cursor`: show subscriptions, and rewrite cursors for older releases."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import AllTopics, EntriesUrls, ShowSecrets, StoreUrl, TopicNames
from pulsar_meta.cli.render.cursors import DETAIL, HISTORY, LINES
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.render.text import checked_text, counted
from pulsar_meta.cli.rewriting import (
    BulkOptions,
    CopyTo,
    WriteOptions,
    file_values,
    open_values,
    write,
    write_copies,
    write_overlaid,
)
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.secrets import mask
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.conversion import Conversion
from pulsar_meta.jobs.cursors.documents import MessageCounter, detail_of, history_of, left_by_ledger, line_of
from pulsar_meta.jobs.cursors.subscriptions import BacklogAges, Limits, Subscription, SubscriptionReader
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.scope import WHICH_TOPICS, Scope, check_selected, each_once, is_namespace, select
from pulsar_meta.jobs.topics.topic import named
from pulsar_meta.jobs.transactions.pending_acks import PendingAcks, pending_acks
from pulsar_meta.stores.base import Store, Versioned


def show_cursor(
    shell: Shell,
    topic: Annotated[str, typer.Argument(metavar="TOPIC|NAMESPACE", help="A topic, or tenant/namespace.")],
    cursor: Annotated[str | None, typer.Argument(metavar="SUBSCRIPTION", help="Show its details.")] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    history: Annotated[
        bool, typer.Option("--history", help="Show each state in the cursor's ledger, oldest first.")
    ] = False,
    from_conf: Annotated[
        Path | None, typer.Option("--from-conf", help="Take limits from this broker.conf.")
    ] = None,
    show_secrets: ShowSecrets = False,
) -> None:
    """Show positions, backlogs and acknowledgements of cursors.

    Use it when messages are redelivered or a backlog doesn't shrink. While a subscription is in use, its
    state is in the last entry of the cursor's ledger, and the record in the store is outdated. Add --entries
    to read the ledger. The backlog is the one that a broker would count after loading the topic; it is in
    messages if entries have broker metadata. "backlog since" is the time of the oldest unacknowledged entry;
    without --entries it is the time at which its ledger was closed, so the entry is older.

    With a subscription, shows the record next to the ledger, which of the two a broker uses and why, the
    backlog by age, the acknowledgements in open transactions, and how close the cursor is to the limits above
    which brokers don't persist acknowledgements. Non-durable readers exist only in the brokers' memory and
    are not shown.

    Examples:
      pulsar-meta show-cursor orders --store zk://zk1:2181 --entries bookie:
      pulsar-meta show-cursor orders audit --entries bookie-disk:data/bookie
      pulsar-meta show-cursor orders audit --history -o ndjson
      pulsar-meta show-cursor orders audit -o html --output audit.html
    """
    if history and cursor is None:
        raise UsageError("--history needs one subscription: add its name after the topic")
    urls = shell.entries_urls(entries) if history else list(entries or shell.settings.entries)
    limits, faults = Limits.of(from_conf), Faults(shell)
    hide = iter if show_secrets else partial(map, mask)
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store))
        shell.warn_of_old_parts(opened, [topic])
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        totals = _Totals(faults, has_source=source is not None)
        reader = SubscriptionReader.of(opened, source, faults.report)
        messages, ages = None if source is None else MessageCounter(source), BacklogAges.today(source)
        about = lambda: (redact(opened.url), checked_text(totals.checked, totals.left_out()))  # noqa: E731
        subscriptions = totals.count(_subscriptions(reader, topic, cursor, totals))
        if history and source is not None:
            shell.emit(hide(_states(subscriptions, source, faults)), HISTORY, about=about)
        elif cursor is None:
            extra = _by_ledger if shell.format is Format.HTML else _nothing_more
            lines = ({**line_of(each, messages, ages), **extra(each)} for each in subscriptions)
            shell.emit(hide(lines), LINES, about=about)
        else:
            pending = partial(totals.pending, opened, source)
            details = (detail_of(each, messages, ages, limits, pending(each)) for each in subscriptions)
            shell.emit(hide(details), DETAIL, about=about)
        totals.print_summary(shell)
        if faults.worst == DecodeError.exit_code:
            shell.note(f"see how to repair it: {shlex.join(['pulsar-meta', 'check', topic])}")
        faults.finish(source)


def _by_ledger(subscription: Subscription) -> Document:
    """Return what the heat map of an HTML page draws."""
    return {"by_ledger": left_by_ledger(subscription)}


def _nothing_more(_: Subscription) -> Document:
    return {}


@dataclass(slots=True)
class _Totals:
    """Counts subscriptions and the facts about them that are unknown; `has_source` is True with --entries."""

    faults: Faults
    has_source: bool
    topics: int = 0
    cursors: int = 0
    unknown: int = 0
    open_ended: int = 0
    pending_unknown: int = 0

    def count(self, subscriptions: Iterable[Subscription]) -> Iterator[Subscription]:
        for subscription in subscriptions:
            self.cursors += 1
            self._report(subscription)
            yield subscription

    def _report(self, subscription: Subscription) -> None:
        recovery, state = subscription.recovery, subscription.cursor_state
        source = f"cursor {subscription.name} of {subscription.topic.name}"
        if recovery.believed == "fails":
            self.faults.report(DecodeError(recovery.why, source=source))
        elif state.fault is not None:
            self.faults.report(state.fault.within(source))
        elif recovery.believed == "unknown":
            self.unknown += 1
            if self.has_source:
                missing = "an entry" if state.state is None else "the last entry"
                text = f"its state is in ledger {state.ledger_id}, but no source has {missing} of it"
                self.faults.report(NotFoundError(text, source=source))
        if subscription.backlog is not None and subscription.backlog.open_ledger is not None:
            self.open_ended += 1

    def pending(self, store: Store, source: EntrySource | None, subscription: Subscription) -> PendingAcks:
        """Return a subscription's acknowledgements in open transactions, and count it if some are unknown."""
        topic = TopicName.parse(subscription.topic.name)
        acks = pending_acks(store, source, topic, subscription.name)
        self.pending_unknown += acks.unknown is not None
        return acks

    @property
    def checked(self) -> dict[str, int]:
        return {"topics": self.topics, "cursors": self.cursors}

    def left_out(self) -> dict[str, str]:
        """Map each unknown fact to the reason."""
        left_out: dict[str, str] = {}
        if self.unknown:
            cursors = counted(self.unknown, "cursors")
            left_out[f"the state of {cursors}"] = self._reason("no source has their ledgers")
        if self.open_ended:
            cursors = counted(self.open_ended, "cursors")
            left_out[f"the end of the open ledger after {cursors}"] = self._reason("no source has all of it")
        if self.pending_unknown:
            cursors = counted(self.pending_unknown, "cursors")
            left_out[f"acknowledgements in open transactions of {cursors}"] = self._reason(
                "entries or records of their logs are missing"
            )
        return left_out

    def _reason(self, text: str) -> str:
        return text if self.has_source else "add --entries"

    def print_summary(self, shell: Shell) -> None:
        if self.cursors or not self.faults.worst:
            shell.summary(self.checked, self.left_out())


def _subscriptions(
    reader: SubscriptionReader, name: str, cursor: str | None, totals: _Totals
) -> Iterator[Subscription]:
    absent, is_found = list[NotFoundError](), False
    for topic in named(reader.store, name, totals.faults.report):
        totals.topics += 1
        if cursor is None:
            yield from reader.all(topic)
            continue
        try:
            yield reader.one(topic, cursor)
            is_found = True
        except DecodeError as error:
            totals.faults.report(error)
        except NotFoundError as error:
            # A subscription need not be in every segment of a scalable topic.
            absent.append(error) if topic.scalable_topic is not None else totals.faults.report(error)
    for missing in () if is_found else absent:
        totals.faults.report(missing)


def _states(subscriptions: Iterable[Subscription], source: EntrySource, faults: Faults) -> Iterator[Document]:
    """Yield the states in the cursors' ledgers, and report entries that can't be decoded."""
    for subscription in subscriptions:
        if subscription.ledger is None:
            name = f"{subscription.name} of {subscription.topic.name}"
            faults.shell.note(f"{name} has no ledger, because its state is in the record")
        for state in history_of(subscription, source):
            if isinstance(state, DecodeError):
                faults.report(state)
            else:
                yield state


NO_BITS = (
    "invalid --to bitset: choose ranges. Brokers write bit sets only to cursors' ledgers, and every release"
    " that reads bit sets reads ranges, too"
)
# The number of unreferenced ledgers that are listed.
MAX_LISTED = 10


class To(StrEnum):
    """The formats of individual acknowledgements."""

    RANGES = "ranges"
    BITSET = "bitset"


def convert_cursor(
    shell: Shell,
    to: Annotated[To, typer.Option("--to", help="Format: ranges, which every release reads.")],
    writing: WriteOptions,
    bulk: BulkOptions,
    names: TopicNames = None,
    everything: AllTopics = False,
    cursor: Annotated[list[str] | None, typer.Option("--cursor", help="Name or glob (repeatable).")] = None,
    whole: Annotated[
        bool, typer.Option("--every-state", help="Also move states that already have ranges.")
    ] = False,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="A file with the bytes of one cursor (repeatable)."),
    ] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    copy_to: CopyTo = None,
) -> None:
    """Rewrite cursor states so that older releases read them.

    Use it before a downgrade. Releases before 3.0.10 and 3.1 to 3.3.4 don't know bit sets (long arrays) of
    individual acknowledgements, and would redeliver these messages. The command moves the state from the
    cursor's ledger into its record as ranges, which every release reads. Partly acknowledged batches are
    redelivered completely, because no release reads them from a record. The cursors' ledgers stay in
    BookKeeper without a reference, which undo restores.

    Unload the topics first, and keep them unloaded until the older brokers serve them, because a newer broker
    would write bit sets again.

    Examples:
      pulsar-meta convert-cursor orders --to ranges --entries bookie: --dry-run
      pulsar-meta convert-cursor --all --to ranges --for-version 2.11.0 --yes
      pulsar-meta convert-cursor --file cursor.bin --to ranges --dry-run
    """
    if to is To.BITSET:
        raise UsageError(NO_BITS)
    scopes = [_scope(name, cursor) for name in names or []] or [Scope(cursors=tuple(cursor or ()))]
    if files and (names or everything or cursor):
        raise UsageError("--file can't be combined with topics, --all or --cursor")
    if not files and everything == bool(names):
        raise UsageError(WHICH_TOPICS)
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(open_values(shell, store, files or (), copy_to, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        for scope in () if files else scopes:
            check_selected(opened, scope, "cursor")
            shell.warn_of_old_parts(opened, scope.topics)
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        conversion = Conversion(opened, source, readers, shell.warn, whole)
        rewrite = conversion.rewrite(lambda: file_values(opened, files) if files else _values(opened, scopes))
        try:
            if copy_to is None:
                write(shell, opened, rewrite, writing, bulk)
            else:
                copy = partial(write_copies, shell, files=files or (), target=copy_to)
                write_overlaid(shell, opened, rewrite, writing, copy)
        finally:
            if not writing.dry_run and copy_to is None:
                _print_unreferenced(shell, conversion.converted())
    if conversion.unknown:
        raise typer.Exit(Exit.FAULT)


def _scope(name: str, cursors: list[str] | None) -> Scope:
    names = tuple(cursors or ())
    if is_namespace(name):
        return Scope(namespaces=(name,), cursors=names)
    return Scope(topics=(name,), cursors=names)


def _values(store: Store, scopes: list[Scope]) -> Iterator[Versioned]:
    """Yield the records of the selected cursors, each once."""
    return each_once([select(store, scope, "cursor") for scope in scopes])


def _print_unreferenced(shell: Shell, ledgers: list[int]) -> None:
    if ledgers:
        listed = ", ".join(map(str, ledgers[:MAX_LISTED])) + (", …" if len(ledgers) > MAX_LISTED else "")
        count = counted(len(ledgers), "cursor ledgers")
        shell.note(f"{count} without a reference stay in BookKeeper: {listed}")

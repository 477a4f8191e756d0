"""`show-cursor` and `convert-cursor`: show subscriptions, and rewrite cursors for older releases."""

from __future__ import annotations

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
from pulsar_meta.cli.options import EntriesUrls, ShowSecrets, StoreUrl
from pulsar_meta.cli.render.cursors import DETAIL, HISTORY, LINES
from pulsar_meta.cli.render.text import checked_text, counted
from pulsar_meta.cli.rewriting import BulkOptions, WriteOptions, open_for_writing, write
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.secrets import mask
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.conversion import Conversion
from pulsar_meta.jobs.cursors.documents import MessageCounter, detail_of, history_of, line_of
from pulsar_meta.jobs.cursors.subscriptions import Limits, Subscription, SubscriptionReader
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.scope import WHICH_TOPICS, Scope, check_selected, each_once, is_namespace, select
from pulsar_meta.jobs.topics.topic import named
from pulsar_meta.jobs.transactions.pending_acks import PendingAcks, pending_acks
from pulsar_meta.stores.base import Store, Versioned


def show_cursor(
    shell: Shell,
    topic: Annotated[str, typer.Argument(metavar="TOPIC|NAMESPACE", help="A topic, or tenant/namespace.")],
    cursor: Annotated[str | None, typer.Argument(help="Everything about this subscription.")] = None,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
    history: Annotated[
        bool, typer.Option("--history", help="Each state in the cursor's ledger, the oldest first.")
    ] = False,
    from_conf: Annotated[
        Path | None, typer.Option("--from-conf", help="Take the limits from this broker.conf.")
    ] = None,
    show_secrets: ShowSecrets = False,
) -> None:
    """Show the subscriptions of a topic: position, backlog, what is acknowledged, where the state lies.

    While a subscription is in use its state is the last entry of a ledger of its own, and the record in the
    store is old: --entries reads it. The backlog is that which a broker counts after loading the topic; in
    messages where entries have broker metadata. With a name: record and ledger side by side, which of the two
    a broker believes and why, what is acknowledged in transactions that have not ended, and how near the
    limits are beyond which brokers write nothing down. Readers that are not durable live in brokers' memory
    and are not here.

    Examples:
      pulsar-meta show-cursor orders --store zk://zk1:2181 --entries bookie:
      pulsar-meta show-cursor orders audit --entries bookie-disk:data/bookie
      pulsar-meta show-cursor orders audit --history -o ndjson
      pulsar-meta show-cursor orders audit -o html --output audit.html
    """
    if history and cursor is None:
        raise UsageError("--history is of one subscription: name it")
    urls = shell.entries_urls(entries) if history else list(entries or shell.settings.entries)
    limits, faults = Limits.of(from_conf), Faults(shell)
    hide = iter if show_secrets else partial(map, mask)
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store))
        shell.warn_of_old_parts(opened, [topic])
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        seen = _Seen(faults, given=source is not None)
        reader = SubscriptionReader.of(opened, source, faults.report)
        messages = None if source is None else MessageCounter(source)
        about = lambda: (redact(opened.url), checked_text(seen.checked, seen.left_out()))  # noqa: E731
        found = seen.counted(_subscriptions(reader, topic, cursor, seen))
        if history and source is not None:
            shell.emit(hide(_states(found, source, faults)), HISTORY, about=about)
        elif cursor is None:
            shell.emit(hide(line_of(one, messages) for one in found), LINES, about=about)
        else:
            details = (detail_of(one, messages, limits, seen.pending(opened, source, one)) for one in found)
            shell.emit(hide(details), DETAIL, about=about)
        seen.account(shell)
        faults.finish(source)


@dataclass(slots=True)
class _Seen:
    """What was looked at; `given`: there are entries in which states can be found."""

    faults: Faults
    given: bool
    topics: int = 0
    cursors: int = 0
    unknown: int = 0
    open_ended: int = 0
    pending_unknown: int = 0

    def counted(self, found: Iterable[Subscription]) -> Iterator[Subscription]:
        for one in found:
            self.cursors += 1
            self._judge(one)
            yield one

    def _judge(self, one: Subscription) -> None:
        recovery, where = one.recovery, f"cursor {one.name} of {one.topic.name}"
        if recovery.believed == "fails":
            self.faults.report(DecodeError(recovery.why, source=where))
        elif one.cursor_state.fault is not None:
            self.faults.report(one.cursor_state.fault.within(where))
        elif recovery.believed == "unknown":
            self.unknown += 1
            if self.given:
                lies = f"its state lies in ledger {one.cursor_state.ledger_id}, of which no source has"
                last = "an entry" if one.cursor_state.state is None else "the last entry"
                self.faults.report(NotFoundError(f"{lies} {last}", source=where))
        if one.backlog is not None and one.backlog.open_ledger is not None:
            self.open_ended += 1

    def pending(self, store: Store, source: EntrySource | None, one: Subscription) -> PendingAcks:
        """Return what a subscription acknowledged in open transactions; what of it is not known is noted."""
        found = pending_acks(store, source, TopicName.parse(one.topic.name), one.name)
        self.pending_unknown += found.unknown is not None
        return found

    @property
    def checked(self) -> dict[str, int]:
        return {"topics": self.topics, "cursors": self.cursors}

    def left_out(self) -> dict[str, str]:
        """Return what could not be seen, and why."""
        left_out: dict[str, str] = {}
        if self.unknown:
            why = "no source has their ledgers" if self.given else "give --entries"
            left_out[f"the state of {counted(self.unknown, 'cursors')}"] = why
        if self.open_ended:
            open_ledgers = f"the end of the open ledger behind {counted(self.open_ended, 'cursors')}"
            left_out[open_ledgers] = "no source has it whole" if self.given else "give --entries"
        if self.pending_unknown:
            why = "entries or records of their logs are not here" if self.given else "give --entries"
            what = counted(self.pending_unknown, "cursors")
            left_out[f"acknowledgments in open transactions of {what}"] = why
        return left_out

    def account(self, shell: Shell) -> None:
        if self.cursors or not self.faults.worst:
            shell.summary(self.checked, self.left_out())


def _subscriptions(
    reader: SubscriptionReader, name: str, cursor: str | None, seen: _Seen
) -> Iterator[Subscription]:
    absent, found = list[NotFoundError](), False
    for topic in named(reader.store, name, seen.faults.report):
        seen.topics += 1
        if cursor is None:
            yield from reader.all(topic)
            continue
        try:
            yield reader.one(topic, cursor)
            found = True
        except DecodeError as error:
            seen.faults.report(error)
        except NotFoundError as error:
            # A subscription need not be in every segment of a scalable topic.
            absent.append(error) if topic.scalable_topic is not None else seen.faults.report(error)
    for missed in () if found else absent:
        seen.faults.report(missed)


def _states(found: Iterable[Subscription], source: EntrySource, faults: Faults) -> Iterator[Document]:
    """Yield what the entries of the cursors' ledgers say; those that say nothing are faults."""
    for one in found:
        if one.ledger is None:
            faults.shell.note(f"{one.name} of {one.topic.name}: its state is in the record, it has no ledger")
        for state in history_of(one, source):
            if isinstance(state, DecodeError):
                faults.report(state)
            else:
                yield state


NO_BITS = (
    "--to bitset: a record has no bit sets, only brokers write them, into cursors' ledgers, and every release"
    " that knows them reads ranges too: nothing needs to be converted"
)
# So many ledgers that nobody names any more are listed.
NAMED = 10


class To(StrEnum):
    """The forms of single acknowledgements."""

    RANGES = "ranges"
    BITSET = "bitset"


def convert_cursor(
    shell: Shell,
    to: Annotated[To, typer.Option("--to", help="ranges, which every release reads.")],
    writing: WriteOptions,
    bulk: BulkOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC|NAMESPACE", help="Topics, or tenant/namespace.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics.")] = False,
    cursor: Annotated[list[str] | None, typer.Option("--cursor", help="Name or glob (repeatable).")] = None,
    whole: Annotated[
        bool, typer.Option("--every-state", help="Also states that lie in ledgers as ranges.")
    ] = False,
    store: StoreUrl = None,
    entries: EntriesUrls = None,
) -> None:
    """Move the state of cursors from their ledgers into their records, as ranges, for older releases.

    Releases before 3.0.10, 3.1 to 3.3.4 too, know no bit sets (long arrays) of single acknowledgements: they
    would deliver those messages again. What a record has is read by every release, but for partly
    acknowledged batches, which no release reads from a record: these come again whole. The cursors' ledgers
    are then named by nobody and stay in BookKeeper; undo names them again. Unload the topics first, and keep
    them unloaded until the older brokers serve them: a newer one would write bit sets again.

    Examples:
      pulsar-meta convert-cursor orders --to ranges --entries bookie: --dry-run
      pulsar-meta convert-cursor --all --to ranges --for-version 2.11.0 --yes
    """
    if to is To.BITSET:
        raise UsageError(NO_BITS)
    scopes = [_scope(name, cursor) for name in names or []] or [Scope(cursors=tuple(cursor or ()))]
    if everything == bool(names):
        raise UsageError(WHICH_TOPICS)
    urls = list(entries or shell.settings.entries)
    with ExitStack() as stack:
        opened = stack.enter_context(open_for_writing(shell, store, writing))
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        for scope in scopes:
            check_selected(opened, scope, "cursor")
            shell.warn_of_old_parts(opened, scope.topics)
        readers = Readers.of(opened, tuple(writing.for_version or ()))
        conversion = Conversion(opened, source, readers, shell.warn, whole)
        try:
            write(shell, opened, conversion.rewrite(lambda: _values(opened, scopes)), writing, bulk)
        finally:
            if not writing.dry_run:
                _say_left(shell, conversion.converted())
    if conversion.unknown:
        raise typer.Exit(Exit.FAULT)


def _scope(name: str, cursors: list[str] | None) -> Scope:
    chosen = tuple(cursors or ())
    if is_namespace(name):
        return Scope(namespaces=(name,), cursors=chosen)
    return Scope(topics=(name,), cursors=chosen)


def _values(store: Store, scopes: list[Scope]) -> Iterator[Versioned]:
    """Yield the records of the cursors that are meant, each once."""
    return each_once([select(store, scope, "cursor") for scope in scopes])


def _say_left(shell: Shell, ledgers: list[int]) -> None:
    """Say which ledgers nobody names any more."""
    if ledgers:
        named = ", ".join(map(str, ledgers[:NAMED])) + (", …" if len(ledgers) > NAMED else "")
        left = counted(len(ledgers), "cursor ledgers")
        shell.note(f"{left} that no record names any more stay in BookKeeper: {named}")

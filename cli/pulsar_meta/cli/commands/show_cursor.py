"""`show-cursor`: where subscriptions stand, what they have left, and where that is written down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.render.cursors import DETAIL, HISTORY, LINES
from pulsar_meta.cli.render.text import counted, looked_at
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.documents import detail_of, history_of, line_of
from pulsar_meta.jobs.cursors.limits import Limits
from pulsar_meta.jobs.cursors.messages import MessageCounter
from pulsar_meta.jobs.cursors.subscriptions import Subscription, SubscriptionReader
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.topics.topic import named
from pulsar_meta.jobs.transactions.pending_acks import PendingAcks, pending_acks
from pulsar_meta.stores.base import Store


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
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store(store))
        shell.warn_of_old_parts(opened, [topic])
        source = stack.enter_context(open_entry_sources(urls, opened)) if urls else None
        seen = _Seen(faults, given=source is not None)
        reader = SubscriptionReader.of(opened, source, faults)
        messages = None if source is None else MessageCounter(source)
        about = lambda: (redact(opened.url), looked_at(seen.checked, seen.left_out()))  # noqa: E731
        found = seen.counted(_subscriptions(reader, topic, cursor, seen))
        if history and source is not None:
            shell.emit(_states(found, source, faults), HISTORY, about=about)
        elif cursor is None:
            shell.emit((line_of(one, messages) for one in found), LINES, about=about)
        else:
            details = (detail_of(one, messages, limits, seen.pending(opened, source, one)) for one in found)
            shell.emit(details, DETAIL, about=about)
        seen.account(shell)
        faults.end(source)


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
            self.faults(DecodeError(recovery.why, source=where))
        elif one.found.fault is not None:
            self.faults(one.found.fault.within(where))
        elif recovery.believed == "unknown":
            self.unknown += 1
            if self.given:
                lies = f"its state lies in ledger {one.found.ledger_id}, of which no source has"
                last = "an entry" if one.found.state is None else "the last entry"
                self.faults(NotFoundError(f"{lies} {last}", source=where))
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
            shell.account(self.checked, self.left_out())


def _subscriptions(
    reader: SubscriptionReader, name: str, cursor: str | None, seen: _Seen
) -> Iterator[Subscription]:
    absent, found = list[NotFoundError](), False
    for topic in named(reader.store, name, seen.faults):
        seen.topics += 1
        if cursor is None:
            yield from reader.all(topic)
            continue
        try:
            yield reader.one(topic, cursor)
            found = True
        except DecodeError as error:
            seen.faults(error)
        except NotFoundError as error:
            # A subscription need not be in every segment of a scalable topic.
            absent.append(error) if topic.scalable_topic is not None else seen.faults(error)
    for missed in () if found else absent:
        seen.faults(missed)


def _states(found: Iterable[Subscription], source: EntrySource, faults: Faults) -> Iterator[Document]:
    """Yield what the entries of the cursors' ledgers say; those that say nothing are faults."""
    for one in found:
        if one.ledger is None:
            faults.shell.say(f"{one.name} of {one.topic.name}: its state is in the record, it has no ledger")
        for state in history_of(one, source):
            if isinstance(state, DecodeError):
                faults(state)
            else:
                yield state

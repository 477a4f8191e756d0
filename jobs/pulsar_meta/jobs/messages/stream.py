"""Read topics as streams of messages, range by range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Choice, Coverage, Limits, Place, Range, ranges
from pulsar_meta.jobs.messages.reading import MessageCounts, MessageOptions, MessageReader
from pulsar_meta.jobs.messages.schemas import TopicSchemas
from pulsar_meta.jobs.topics.topic import Ledger, Report, read_topic, with_bookkeeper
from pulsar_meta.jobs.transactions.outcomes import Transactions, readers_transactions
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    import pyarrow as pa


def read_messages(
    places: Iterable[Place],
    source: EntrySource,
    store: Store | None,
    options: MessageOptions,
    report: Report,
    counts: MessageCounts,
    coverage: Coverage,
    *,
    readable: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of places (topics, or ledgers by id) in reading order.

    With `readable`, only messages that consumers can see are read, which needs a store. An unreadable message
    gives a row with `error`, and is counted. Corrupt metadata is reported. Raises UnreachableError.
    """
    for choice, limits in places:
        coverage.add(choice)
        ledgers = list(with_bookkeeper(store, choice.ledgers, report))
        known = transactions_of(store, source, choice, report) if readable else None
        topic = choice.name if choice.is_topic else None
        reader = reader_of(store, source, topic, options, known, ledgers)
        for part in parts_of(replace(choice, ledgers=ledgers), limits, source, report):
            coverage.ledgers += 1
            yield from reader.read(part)
        coverage.entries += reader.counts.entries
        counts.merge(reader.counts)


def reader_of(
    store: Store | None,
    source: EntrySource,
    topic: str | None,
    options: MessageOptions,
    transactions: Transactions | None = None,
    ledgers: Sequence[Ledger] | None = None,
) -> MessageReader:
    """Make the reader of a topic's messages; `topic` is None for ledgers that were given by id.

    Schemas, and the `ledgers` of the topic if they are not given, are read when they are needed.
    """
    schemas = None if store is None or topic is None else TopicSchemas(store, source, topic)

    def known() -> Sequence[Ledger]:
        return ledgers if ledgers is not None else _ledgers_of(store, topic)

    return MessageReader(topic, source, options, known, schemas, transactions)


def transactions_of(
    store: Store | None, source: EntrySource, choice: Choice, report: Report
) -> Transactions | None:
    """The outcomes of a topic's transactions; None for ledgers by id, or without a store."""
    if store is None or not choice.is_topic:
        return None
    return readers_transactions(store, source, choice.name, choice.ledgers, report)


def parts_of(choice: Choice, limits: Limits, source: EntrySource, report: Report) -> Iterator[Range]:
    """Yield the ranges of a choice within its limits, each up to the last known entry.

    The ledgers of the choice have BookKeeper's metadata. A ledger without any entry or metadata is reported.
    """
    for part in ranges(choice, limits, source):
        try:
            end = _last_entry(part.ledger, source)
        except (DecodeError, NotFoundError) as error:
            report(error)
            continue
        last = end if part.last is None else min(end, part.last)
        if last >= part.first:
            yield replace(part, last=last)


def _last_entry(ledger: Ledger, source: EntrySource) -> int:
    """The id of a ledger's last entry; -1 if it is empty."""
    if ledger.entries is not None:
        return ledger.entries - 1
    newest = source.last_entry(ledger.ledger_id)
    if newest is None and ledger.topic is None:
        raise NotFoundError(f"ledger {ledger.ledger_id}: no source has an entry of it")
    return -1 if newest is None else newest


def _ledgers_of(store: Store | None, topic: str | None) -> Sequence[Ledger]:
    if store is None or topic is None:
        return ()
    try:
        ledgers = read_topic(store, TopicName.parse(topic)).ledgers
    except (NotFoundError, DecodeError):
        return ()
    return list(with_bookkeeper(store, ledgers, _nowhere))


def _nowhere(error: PulsarMetaError) -> None:
    """Ignore a fault that was reported before."""

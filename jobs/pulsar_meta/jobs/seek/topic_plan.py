"""What the metadata says about where a topic's entries are: plain values that can travel to the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger, ledgers_by_id
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.seek.cursor_position import mark_delete
from pulsar_meta.jobs.seek.outline import LedgerSpan, Outline, Position
from pulsar_meta.jobs.seek.questions import INDEX, SeekOptions
from pulsar_meta.jobs.seek.search import UNREADABLE
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import Store

NO_TOPIC: Final = "no-topic"
# How many entries the metadata does not tell: the source is asked.
OPEN: Final = -1

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What the metadata says of a topic, as plain values; `status` where there is nothing to search."""

    topic: str
    ledgers: tuple[LedgerSpan, ...] = ()
    last_index: int | None = None
    after: Position | None = None
    before: Position | None = None
    status: str | None = None
    reason: str | None = None


def plan_topic(
    store: Store, source: EntrySource, topic: TopicName, options: SeekOptions, note: Note
) -> TopicPlan:
    """Read a topic's metadata; a missing or broken record becomes the plan's status."""
    try:
        info = decode_managed_ledger(store.read(topic.path).value)
    except NotFoundError:
        return TopicPlan(str(topic), status=NO_TOPIC)
    except DecodeError as error:
        return TopicPlan(str(topic), status=UNREADABLE, reason=str(error))
    after = options.after
    if options.cursor is not None:
        passed = mark_delete(store, source, topic, options.cursor, note)
        after = passed if after is None else max(after, passed)
    return TopicPlan(
        str(topic),
        tuple(_spans(info, options.index_property)),
        _number(info.properties, INDEX),
        after,
        options.before,
    )


def _spans(info: ManagedLedgerInfo, index_property: str) -> Iterator[LedgerSpan]:
    ledgers = ledgers_by_id(info)
    for at, ledger in enumerate(ledgers):
        entries = ledger.entries if ledger.HasField("entries") else OPEN
        if entries == 0 and not ledger.timestamp:
            entries = OPEN
        if at == len(ledgers) - 1 and info.terminatedPosition.ledgerId == ledger.ledgerId:
            entries = max(info.terminatedPosition.entryId + 1, 0)
        closed = ledger.timestamp if ledger.HasField("timestamp") else None
        yield LedgerSpan(
            ledger.ledgerId,
            max(entries, OPEN),
            first_index=_number(ledger.properties, index_property),
            closed_at=closed or None,
        )


def _number(properties: Iterable[Any], key: str) -> int | None:
    """Return a property that is a number, None where it is absent, twice there or something else."""
    values = [entry.value for entry in properties if entry.key == key]
    if len(values) == 1 and len(values[0]) <= 20:
        with suppress(ValueError):
            return int(values[0])
    return None


def outline_of(plan: TopicPlan, source: EntrySource) -> Outline:
    """Return a plan's outline, open ledgers counted in the source, bounds applied."""
    spans = []
    for span in plan.ledgers:
        if span.entries == OPEN:
            last = source.last_entry(span.ledger_id)
            span = replace(span, entries=0 if last is None else last + 1)
        spans.append(span)
    outline = Outline(spans, plan.last_index)
    if plan.after is None and plan.before is None:
        return outline
    start = outline.ordinal(Position(plan.after[0], plan.after[1] + 1)) if plan.after else 0
    return outline.between(start, outline.ordinal(plan.before) if plan.before else outline.total)

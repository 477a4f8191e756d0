"""What the metadata says about where a topic's entries are: plain values that can travel to the entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.seek.outline import LedgerSpan, Outline
from pulsar_meta.jobs.seek.questions import INDEX, SeekOptions
from pulsar_meta.jobs.seek.search import UNREADABLE
from pulsar_meta.jobs.topics.cursors import mark_delete
from pulsar_meta.jobs.topics.topic import Ledger, Position, read_topic
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
        found = read_topic(store, topic)
    except NotFoundError:
        return TopicPlan(str(topic), status=NO_TOPIC)
    except DecodeError as error:
        reason = str(DecodeError(error.message, offset=error.offset))
        return TopicPlan(str(topic), status=UNREADABLE, reason=reason)
    after = options.after
    if options.cursor is not None:
        passed = mark_delete(store, source, topic, options.cursor, note)
        after = passed if after is None else max(after, passed)
    return TopicPlan(
        found.name,
        tuple(_span(ledger, options.index_property) for ledger in found.ledgers),
        _number(found.values(INDEX)),
        after,
        options.before,
    )


def _span(ledger: Ledger, index_property: str) -> LedgerSpan:
    return LedgerSpan(
        ledger.ledger_id,
        OPEN if ledger.entries is None else ledger.entries,
        first_index=_number(ledger.values(index_property)),
        closed_at=ledger.closed_at,
    )


def _number(values: Sequence[str]) -> int | None:
    """Return a property that is a number, None where it is absent, twice there or something else."""
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

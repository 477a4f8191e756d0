"""Ledgers that only cursors point to: compacted data, and indexes of delayed messages.

Sources: apache/pulsar TwoPhaseCompactor, CompactedTopicImpl, BucketDelayedDeliveryTracker;
apache/pulsar#26483 (recovery drops the pointer); what brokers did with each was tried on 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pulsar_meta.jobs.check.codes import Code, Finding, Severity, Where
from pulsar_meta.jobs.check.facts import LedgerFacts
from pulsar_meta.jobs.check.sight import Check, CursorSight, Sight
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER, COMPACTION, bucket_ledgers
from pulsar_meta.jobs.topics.topic import Position

POINTER_LOST: Final = Code(
    "compaction-pointer-lost",
    Severity.WARNING,
    "Compacted data that its topic does not point to",
    means="A ledger holds the compacted data of the topic up to a position that the compaction cursor is"
    " past (or the cursor itself is gone), and the cursor does not name it. The cursor's property is the"
    " only pointer.",
    broker="It does not come back by itself: readers of the compacted topic get what is left uncompacted,"
    " until it is compacted again. What was trimmed after the compaction is only in the compacted ledger.",
    comes="Recovery of a cursor drops its properties in some releases (apache/pulsar#26483, seen with"
    " 4.2.4); the cursor was deleted by hand.",
    cure="Write the property `CompactedTopicLedger` of the cursor `__compaction` again, with the ledger"
    " that the finding names; or compact again, if nothing was trimmed. Do not delete that ledger as an"
    " orphan.",
    unless="A compaction that was interrupted: its ledger goes beyond the cursor, or has no end.",
    evidence={"candidates": list[tuple[int, tuple[int, int]]]},
)
COMPACTED_MISSING: Final = Code(
    "compaction-ledger-missing",
    Severity.ERROR,
    "The ledger with a topic's compacted data is gone",
    means="The compaction cursor points to a ledger that BookKeeper does not know, or of which no bookie"
    " has an entry.",
    broker="The topic loads; reading compacted stalls, its internal stats answer 500, and compacting again"
    " hangs and fails.",
    errors=("Compaction failure", "No such ledger exists on Metadata Server"),
    comes="The ledger was taken for an orphan, or lost with a disk.",
    cure="Remove the property `CompactedTopicLedger` of the cursor `__compaction`, then compact again.",
)
BUCKET_MISSING: Final = Code(
    "bucket-ledger-missing",
    Severity.NOTE,
    "The ledger with an index of delayed messages is gone",
    means="A property of the subscription points to a ledger that BookKeeper does not know.",
    broker="It falls back to an index in memory; every message was delivered.",
    errors=("fallback to InMemoryDelayedDeliveryTracker",),
    comes="The ledger was taken for an orphan, or lost with a disk.",
    cure="None needed.",
)
_STALLS: Final = "reading compacted stalls"
CODES: Final = (POINTER_LOST, COMPACTED_MISSING, BUCKET_MISSING)


def compaction(sight: Sight) -> Iterator[Finding]:
    """Whether the compaction cursor points to compacted data that is there."""
    cursor = next((one for one in sight.cursors if one.name == COMPACTION), None)
    if cursor is not None and not cursor.known:
        return
    pointer = None if cursor is None else compacted_ledger(cursor)
    if pointer is None:
        yield from _lost_pointer(sight, cursor)
    elif sight.facts(pointer).metadata == "absent":
        text = f"compacted data lies in ledger {pointer}, which BookKeeper does not know: {_STALLS}"
        yield COMPACTED_MISSING.found(text, **_where(sight, COMPACTION, pointer))
    elif _has_none(sight, pointer):
        text = f"compacted data lies in ledger {pointer}, of which no bookie has an entry: {_STALLS}"
        yield COMPACTED_MISSING.found(text, **_where(sight, COMPACTION, pointer))


def buckets(sight: Sight) -> Iterator[Finding]:
    """Whether the indexes of delayed messages are there."""
    for cursor in sight.cursors:
        for ledger_id in () if cursor.info is None else bucket_ledgers(cursor.info):
            if sight.facts(ledger_id).metadata == "absent":
                text = f"an index of delayed messages is ledger {ledger_id}, which BookKeeper does not know"
                yield BUCKET_MISSING.found(text, **_where(sight, cursor.name, ledger_id))


TOPIC_CHECKS: Final[tuple[Check, ...]] = (compaction, buckets)


def compacted_ledger(cursor: CursorSight) -> int | None:
    """Return the ledger that a cursor's true state names as that of the compacted data."""
    state = None if cursor.state is None else cursor.state.state
    found = () if state is None else state.properties
    return next((item.value for item in found if item.name == COMPACTED_LEDGER), None)


def _lost_pointer(sight: Sight, cursor: CursorSight | None) -> Iterator[Finding]:
    """Compacted data that fits the topic and is not pointed to; in a pass the cursor is not seen yet."""
    if not sight.ledgers:
        return
    ends = ((one, _fits(sight, sight.facts(one), cursor)) for one in sight.compacted)
    fitting = {one: end for one, end in ends if end is not None}
    if not fitting:
        return
    best = max(fitting, key=lambda one: (fitting[one], one))
    end = fitting[best]
    text = f"ledger {best} holds compacted data up to {end.ledger_id}:{end.entry_id}, and the cursor "
    text += f"{COMPACTION} is gone" if cursor is None else f"{COMPACTION} does not point to it"
    trimmed = end.ledger_id < sight.ledgers[0].ledger_id
    yield POINTER_LOST.found(
        text + ("; what it stands for was trimmed" if trimmed else ""),
        severity=Severity.ERROR if trimmed else Severity.WARNING,
        evidence={"candidates": [[one, list(at)] for one, at in fitting.items()]},
        **_where(sight, COMPACTION, best),
    )


def _fits(sight: Sight, facts: LedgerFacts, cursor: CursorSight | None) -> Position | None:
    """Return up to where a ledger of compacted data goes, if it is whole and the topic's; else None.

    In a pass the position is not known: any whole one may fit.
    """
    if facts.metadata != "known" or facts.last_entry is None or facts.last_entry < 0:
        return None
    if facts.known is None:
        return Position(0, 0)
    if facts.known.compacted_to is None:
        return None
    end = Position(*facts.known.compacted_to)
    if cursor is None:
        # Of a topic of that name that was deleted meanwhile there may be one, too.
        return end if end.ledger_id in sight.listed else None
    at = cursor.mark_delete
    return end if at is not None and at >= end else None


def _has_none(sight: Sight, ledger_id: int) -> bool:
    """Return whether a closed ledger should have entries on bookies that were asked, and none is there."""
    source, facts = sight.cluster.on_bookies, sight.facts(ledger_id)
    if source is None or facts.metadata != "known" or facts.last_entry is None or facts.last_entry < 0:
        return False
    given = source.bookies is not None and facts.bookies.all <= source.bookies
    return (sight.cluster.asks_bookies or given) and not sight.has_entry(ledger_id, facts.last_entry)


def _where(sight: Sight, cursor: str, ledger_id: int) -> Where:
    return {
        "topic": str(sight.name),
        "cursor": cursor,
        "path": sight.name.cursor_path(cursor),
        "ledger_id": ledger_id,
    }

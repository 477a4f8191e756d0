"""The compacted data of a topic: the ledger that the compaction cursor refers to, and the cursor's position.

Sources: apache/pulsar PersistentTopic, TwoPhaseCompactor, CompactedTopicImpl; apache/pulsar#26483 (recovery
drops the reference to compacted data). The effects on brokers were tested with 4.0.7 and 4.2.4, except those
of a position that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pulsar_meta.jobs.check.codes import Finding, Place, Severity, command_line, finding
from pulsar_meta.jobs.check.ledger_facts import LedgerFacts, owner_hash
from pulsar_meta.jobs.check.topic_view import CursorView, Rule, TopicView
from pulsar_meta.jobs.topics.owners import COMPACTION
from pulsar_meta.jobs.topics.topic import Position

_HORIZON: Final = "compaction-horizon-differs"
_STALLS: Final = "reading compacted stalls"


def compaction(view: TopicView) -> Iterator[Finding]:
    """Check that the compaction cursor refers to the compacted data, and that it exists."""
    cursor = next((each for each in view.cursors if each.name == COMPACTION), None)
    if cursor is not None and not cursor.known:
        return
    ledger_id = None if cursor is None else cursor.compacted_ledger
    if ledger_id is None:
        yield from _lost_reference(view, cursor)
        return
    place, facts = view.cursor_place(COMPACTION, ledger_id), view.facts(ledger_id)
    if facts.role not in ("", "other", "compacted") or _is_other_topics(view, facts):
        yield _foreign_compaction(view, cursor, facts, place)
    elif facts.metadata == "absent":
        yield _missing(view, cursor, "which BookKeeper doesn't know", place)
    elif _is_without_entries(view, ledger_id):
        yield _missing(view, cursor, "of which no bookie has an entry", place)
    else:
        yield from _horizon(view, cursor, ledger_id)


def _missing(view: TopicView, cursor: CursorView | None, why: str, place: Place) -> Finding:
    """Return the finding about a missing ledger. Another one with compacted data is not given up."""
    ledger_id = place["ledger_id"]
    text = f"its compacted data is in ledger {ledger_id}, {why}: {_STALLS}"
    ends = ((_compacted_up_to(view, other, cursor), other) for other in view.compacted if other != ledger_id)
    fitting = [(end, other) for end, other in ends if end is not None]
    if not fitting:
        return finding("compaction-ledger-missing", text, repair=_repair(view, "--drop"), **place)
    end, best = max(fitting)
    text += f"; ledger {best} has the compacted data up to {end.text}"
    return finding("compaction-ledger-missing", text, repair=_repair(view, "--ledger", str(best)), **place)


def _repair(view: TopicView, *options: str) -> str:
    return command_line("repair", "compaction", str(view.name), *options)


def _horizon(view: TopicView, cursor: CursorView | None, ledger_id: int) -> Iterator[Finding]:
    """Check that the compaction cursor is not before the end of its compacted data.

    It can be beyond that end, because messages without a key or a value are not in the compacted data.
    """
    at, place = None if cursor is None else cursor.mark_delete, view.cursor_place(COMPACTION, ledger_id)
    if not view.whole:
        # Only the complete metadata has the end, so this is a suspicion about every compacted topic.
        yield finding(_HORIZON, "not known yet", **place)
    ends = dict(_compacted_ends(view, {ledger_id, *view.compacted}))
    end = ends.get(ledger_id)
    if end is None or at is None or not view.ledgers:
        return
    is_trimmed = end.ledger_id < view.ledgers[0].ledger_id
    if at < end and (is_trimmed or _entries_between(view, at, end)):
        trimmed = ", which is the only copy of trimmed entries" if is_trimmed else ""
        yield finding(
            _HORIZON,
            f"its compacted data in ledger {ledger_id} ends at {end.text}, but it is at {at.text}:"
            f" readers of the compacted topic don't get the data in that ledger{trimmed}",
            severity=Severity.ERROR if is_trimmed else Severity.WARNING,
            evidence={"mark_delete": list(at), "compacted_to": list(end)},
            **place,
        )
    newest = max(ends, key=lambda each: (ends[each] <= at, ends[each]))
    if end < ends[newest] <= at and _entries_between(view, end, ends[newest]):
        yield _stale(view, newest, ends, at, place)


def _stale(view: TopicView, newest: int, ends: Mapping[int, Position], at: Position, place: Place) -> Finding:
    """Return the finding about a cursor that refers to an older ledger with compacted data."""
    end = ends[place["ledger_id"]]
    return finding(
        _HORIZON,
        f"it refers to the compacted data up to {end.text} and is at {at.text}, but ledger {newest} has"
        f" the data up to {ends[newest].text}: readers of the compacted topic skip the messages in between",
        evidence={"mark_delete": list(at), "compacted_to": list(end), "newest": newest},
        repair=_repair(view, "--ledger", str(newest)),
        **place,
    )


def _compacted_ends(view: TopicView, ledger_ids: Iterable[int]) -> Iterator[tuple[int, Position]]:
    """Yield the closed ledgers with compacted data, and the last position that each covers."""
    for ledger_id in ledger_ids:
        facts = view.facts(ledger_id)
        full = facts.full
        if full is not None and full.compacted_to is not None and facts.last_entry not in (None, -1):
            yield ledger_id, Position(*full.compacted_to)


def _entries_between(view: TopicView, after: Position, last: Position) -> int:
    """Return the number of listed entries after one position and up to another, as far as it is known."""
    count = 0
    for ledger in view.ledgers:
        first = after.entry_id + 1 if ledger.ledger_id == after.ledger_id else 0
        end = last.entry_id + 1 if ledger.ledger_id == last.ledger_id else ledger.entries or 0
        if after.ledger_id <= ledger.ledger_id <= last.ledger_id:
            count += max(0, end - first)
    return count


def _is_other_topics(view: TopicView, facts: LedgerFacts) -> bool:
    """Return True if a ledger has compacted data of another topic."""
    own = owner_hash("compacted", str(view.name), COMPACTION)
    return facts.role == "compacted" and facts.owner_hash not in (0, own)


def _foreign_compaction(
    view: TopicView, cursor: CursorView | None, facts: LedgerFacts, place: Place
) -> Finding:
    fits = any(_compacted_up_to(view, ledger_id, cursor) is not None for ledger_id in view.compacted)
    return finding(
        "compaction-ledger-foreign",
        f"its compacted data should be in ledger {place['ledger_id']}, which was created as {facts.purpose}:"
        " readers of the compacted topic get wrong entries",
        evidence=facts.owner_evidence,
        repair=_repair(view) if fits else _repair(view, "--drop"),
        **place,
    )


def _lost_reference(view: TopicView, cursor: CursorView | None) -> Iterator[Finding]:
    """Check for compacted data that fits the topic and that no cursor refers to.

    During a scan the cursors are not known yet.
    """
    if not view.ledgers:
        return
    ends = ((ledger_id, _compacted_up_to(view, ledger_id, cursor)) for ledger_id in view.compacted)
    fitting = {ledger_id: end for ledger_id, end in ends if end is not None}
    if not fitting:
        return
    best = max(fitting, key=lambda ledger_id: (fitting[ledger_id], ledger_id))
    end = fitting[best]
    trimmed = end.ledger_id < view.ledgers[0].ledger_id
    missing = "is gone" if cursor is None else "does not refer to it"
    yield finding(
        "compaction-pointer-lost",
        f"ledger {best} has the compacted data up to {end.text}, and the cursor"
        f" {COMPACTION} {missing}{'; the original entries were trimmed' if trimmed else ''}",
        severity=Severity.ERROR if trimmed else Severity.WARNING,
        evidence={"candidates": [[ledger_id, list(at)] for ledger_id, at in fitting.items()]},
        **view.cursor_place(COMPACTION, best),
    )


def _compacted_up_to(view: TopicView, ledger_id: int, cursor: CursorView | None) -> Position | None:
    """Return the end of a ledger of compacted data if it is complete and fits the topic, else None.

    During a scan the end is not known, so any complete ledger may fit.
    """
    facts = view.facts(ledger_id)
    if facts.metadata != "known" or facts.last_entry is None or facts.last_entry < 0:
        return None
    if facts.full is None:
        return Position(0, 0)
    if facts.full.compacted_to is None:
        return None
    end = Position(*facts.full.compacted_to)
    if cursor is None:
        # An earlier topic of the same name may also have left one.
        return end if end.ledger_id in view.listed else None
    at = cursor.mark_delete
    return end if at is not None and at >= end else None


def _is_without_entries(view: TopicView, ledger_id: int) -> bool:
    """Return True if a closed ledger should have entries on the given bookies, and has none."""
    source, facts = view.context.on_bookies, view.facts(ledger_id)
    if source is None or facts.metadata != "known" or facts.last_entry is None or facts.last_entry < 0:
        return False
    return view.has_every_bookie(facts) and not view.has_entry(ledger_id, facts.last_entry)


RULES: Final[tuple[Rule, ...]] = (compaction,)

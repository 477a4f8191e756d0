"""The cursors of a topic: their positions, the ledgers with their state, and the ledgers that they refer to.

Sources: apache/pulsar ManagedCursorImpl (recover, recoverFromLedger, recoveredCursor), PersistentTopic,
TwoPhaseCompactor, CompactedTopicImpl, BucketDelayedDeliveryTracker; apache/pulsar#26483 (recovery drops the
reference to compacted data). The effects on brokers were tested with 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.acks import Acks, acks_of, has_acks
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.check.codes import Finding, Place, Severity, finding
from pulsar_meta.jobs.check.ledger_facts import LedgerFacts, owner_hash
from pulsar_meta.jobs.check.topic_view import CursorView, Rule, TopicView, is_internal
from pulsar_meta.jobs.topics.backlog import backlog
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER, COMPACTION, bucket_ledgers
from pulsar_meta.jobs.topics.recovery import rewound_to
from pulsar_meta.jobs.topics.topic import Ledger, Position

_STALLS: Final = "reading compacted stalls"


def positions(view: TopicView) -> Iterator[Finding]:
    """Check that mark-delete positions are within the topic's ledgers."""
    if not _is_comparable(view):
        return
    first, end, unlisted = view.ledgers[0].ledger_id, end_of(view), _unlisted(view)
    counts = {ledger.ledger_id: ledger.entries for ledger in view.ledgers}
    for cursor in view.cursors:
        at = cursor.mark_delete
        if at is None or at.entry_id < 0 or at.ledger_id < first or at.ledger_id in unlisted:
            continue
        beyond = _is_beyond(view, at, end)
        if not beyond and at.ledger_id in counts and not _is_past(counts[at.ledger_id], at):
            continue
        place = view.cursor_place(cursor.name)
        evidence: Place = {"mark_delete": list(at)}
        text = f"its position is {at.ledger_id}:{at.entry_id}"
        if beyond:
            text += (
                ", beyond the end of the topic: loading moves it to the end, and its backlog counts as read"
            )
            evidence["end"] = None if end is None else list(end)
            yield finding("cursor-beyond-end", text, evidence=evidence, **place)
        elif at.ledger_id not in counts:
            text += ", in a ledger that is not listed: the broker continues with the next entry"
            yield finding("cursor-in-vanished-ledger", text, evidence=evidence, **place)
        elif _is_past(_counts(view)[at.ledger_id], at):
            entries = counts[at.ledger_id]
            text += f", and the ledger has {entries} entries: the broker continues with the next ledger"
            evidence["entries"] = entries
            yield finding("cursor-beyond-end", text, severity=Severity.NOTE, evidence=evidence, **place)


def end_of(view: TopicView) -> Position | None:
    """Return the position of the topic's last entry, None if an open ledger may have more."""
    for ledger in reversed(view.ledgers):
        entries = ledger.entries
        if entries is None:
            return None
        if entries:
            return Position(ledger.ledger_id, entries - 1)
    return Position(view.ledgers[-1].ledger_id, -1)


def ranges(view: TopicView) -> Iterator[Finding]:
    """Check that individually acknowledged ranges are within the topic's ledgers."""
    if not _is_comparable(view):
        return
    counts: dict[int, int | None] | None = None
    for cursor in view.cursors:
        if cursor.state is None or cursor.state.state is None or not has_acks(cursor.state.state):
            continue
        if counts is None:
            # A ledger of the topic that is not listed is reported separately.
            counts = dict.fromkeys(_unlisted(view)) | _counts(view)
        acks, faults = acks_of(cursor.state.state), dict[str, int]()
        mark = cursor.state.mark_delete
        for ledger_id, runs in acks.entries.items():
            for fault in _range_faults(ledger_id, sorted(runs), counts, mark):
                faults[fault] = faults.get(fault, 0) + 1
        if faults:
            text = ", ".join(f"{count} {fault}" for fault, count in faults.items())
            place = view.cursor_place(cursor.name)
            yield finding("cursor-ranges", f"acknowledged ranges: {text}", evidence=faults, **place)


def _range_faults(
    ledger_id: int, runs: list[tuple[int, int]], counts: dict[int, int | None], mark: Position
) -> Iterator[str]:
    if ledger_id not in counts:
        yield "in a ledger that is not listed"
        return
    entries = counts[ledger_id]
    for _, last in runs:
        if (ledger_id, last) <= mark:
            yield "before the position"
        elif entries is not None and last >= entries:
            yield "beyond the end of a ledger"
    yield from ("overlapping" for first, second in pairwise(runs) if second[0] <= first[1])


def state_ledgers(view: TopicView) -> Iterator[Finding]:
    """Check the ledgers that hold the states of cursors."""
    for cursor in view.cursors:
        if cursor.state is None or cursor.state.ledger_id is None:
            continue
        ledger_id = cursor.state.ledger_id
        facts = view.facts(ledger_id)
        own = owner_hash("cursor", str(view.name), cursor.name)
        if facts.metadata == "known" and facts.owner_hash == own and view.context.source is None:
            continue
        place = view.cursor_place(cursor.name, ledger_id)
        if facts.metadata == "known" and facts.owner_hash not in (0, own):
            owner = facts.owner
            purpose = "something else" if owner is None else f"{owner.role} of {owner.name}"
            yield finding(
                "cursor-ledger-foreign",
                f"its state should be in ledger {ledger_id}, which was created as {purpose}: the topic"
                " does not load",
                evidence={} if owner is None else {"owner": owner.name, "role": owner.role},
                **place,
            )
        elif facts.metadata == "absent":
            yield _state_lost(view, cursor, "BookKeeper has no metadata of it", place)
        elif facts.metadata == "known":
            yield from _unread_state(view, cursor, place)


def _unread_state(view: TopicView, cursor: CursorView, place: Place) -> Iterator[Finding]:
    """Check the newest entry of a state ledger, which is the one that a broker reads."""
    source, state = view.context.on_bookies, cursor.state
    if source is None or state is None or state.ledger_id is None:
        return
    if isinstance(state.fault, DecodeError):
        text, evidence = (
            f"{state.fault.message}: the topic does not load",
            {"newest_readable": state.entry_id},
        )
        yield finding("cursor-ledger-unreadable", text, evidence=evidence, **place)
        return
    last = view.facts(state.ledger_id).last_entry
    complete = view.context.asks_bookies or _has_all(source.bookies, view.facts(state.ledger_id))
    if complete and last is None and state.entry_id is None:
        # A record refers to a ledger only after the ledger's first entry was written.
        yield _state_lost(view, cursor, "no bookie has an entry of it", place)
    elif complete and last is not None and last >= 0 and (state.entry_id is None or state.entry_id < last):
        yield _state_lost(view, cursor, f"no bookie has its last entry, {last}", place)


def _has_all(given: frozenset[str] | None, facts: LedgerFacts) -> bool:
    """Return True if every bookie of a ledger's ensembles was given."""
    return given is not None and facts.bookies.all <= given


def _state_lost(view: TopicView, cursor: CursorView, why: str, place: Place) -> Finding:
    text = f"the ledger with its state is gone ({why})"
    if cursor.info is None:
        return finding("cursor-ledger-missing", text, **place)
    at = rewound_to(view.ledgers, cursor.info)
    after = backlog(view.ledgers, at, Acks())
    least = "" if after.open_ledger is None else "at least "
    back = f"the broker goes back to {at.ledger_id}:{at.entry_id}"
    text += f": {back} and redelivers {least}{after.entries} entries"
    evidence = {"back_to": list(at), "entries_after": after.entries}
    return finding("cursor-ledger-missing", text, evidence=evidence, **place)


def idle(view: TopicView) -> Iterator[Finding]:
    """Check for idle subscriptions that retain data; those in use keep their state in a ledger."""
    now = view.context.now
    for cursor in view.cursors if now is not None and not is_internal(view.name.local) else ():
        at, active = cursor.mark_delete, 0 if cursor.info is None else cursor.info.lastActive
        if at is None or not active or cursor.state is None or cursor.state.ledger_id is not None:
            continue
        if is_internal(cursor.name) or now is None or now - active < view.context.idle:
            continue
        retained = sum(ledger.size or 0 for ledger in view.ledgers if _is_retained(ledger, at))
        if retained:
            yield finding(
                "cursor-idle",
                f"it was last active at {iso_time(active)}, and retains {retained} bytes",
                evidence={"last_active": active, "bytes": retained, "mark_delete": list(at)},
                **view.cursor_place(cursor.name),
            )


def _is_retained(ledger: Ledger, at: Position) -> bool:
    """Return True if a ledger is kept for a subscription at this position."""
    last = (ledger.entries or 0) - 1
    return (ledger.ledger_id, last) > (at.ledger_id, at.entry_id)


def compaction(view: TopicView) -> Iterator[Finding]:
    """Check that the compaction cursor refers to the compacted data, and that it exists."""
    cursor = next((each for each in view.cursors if each.name == COMPACTION), None)
    if cursor is not None and not cursor.known:
        return
    ledger_id = None if cursor is None else compacted_ledger(cursor)
    if ledger_id is None:
        yield from _lost_reference(view, cursor)
        return
    place = view.cursor_place(COMPACTION, ledger_id)
    if view.facts(ledger_id).metadata == "absent":
        text = f"its compacted data is in ledger {ledger_id}, which BookKeeper doesn't know: {_STALLS}"
        yield finding("compaction-ledger-missing", text, **place)
    elif _is_without_entries(view, ledger_id):
        text = f"its compacted data is in ledger {ledger_id}, of which no bookie has an entry: {_STALLS}"
        yield finding("compaction-ledger-missing", text, **place)


def buckets(view: TopicView) -> Iterator[Finding]:
    """Check that the indexes of delayed messages exist."""
    for cursor in view.cursors:
        for ledger_id in () if cursor.info is None else bucket_ledgers(cursor.info):
            if view.facts(ledger_id).metadata == "absent":
                text = f"its index of delayed messages is ledger {ledger_id}, which BookKeeper doesn't know"
                yield finding("bucket-ledger-missing", text, **view.cursor_place(cursor.name, ledger_id))


RULES: Final[tuple[Rule, ...]] = (positions, ranges, state_ledgers, idle, compaction, buckets)


def compacted_ledger(cursor: CursorView) -> int | None:
    """Return the ledger with compacted data that a cursor's true state refers to."""
    state = None if cursor.state is None else cursor.state.state
    properties = () if state is None else state.properties
    return next((item.value for item in properties if item.name == COMPACTED_LEDGER), None)


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
        f"ledger {best} has the compacted data up to {end.ledger_id}:{end.entry_id}, and the cursor"
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
    complete = view.context.asks_bookies or _has_all(source.bookies, facts)
    return complete and not view.has_entry(ledger_id, facts.last_entry)


def _is_comparable(view: TopicView) -> bool:
    """Return True if the list tells where positions can be; a wrong termination makes it unreliable."""
    return bool(view.ledgers) and not view.is_shadow and view.first_after_termination() is None


def _counts(view: TopicView) -> dict[int, int | None]:
    """Return the entries of each ledger, None if it is open or if the list and BookKeeper disagree."""
    return {ledger.ledger_id: None if view.disagrees(ledger) else ledger.entries for ledger in view.ledgers}


def _unlisted(view: TopicView) -> set[int]:
    """Return the topic's own ledgers, by custom metadata, that it does not list."""
    return {ledger_id for ledger_id in view.owned if ledger_id not in view.listed}


def _is_beyond(view: TopicView, at: Position, end: Position | None) -> bool:
    """Return True if a position is beyond the topic's last entry, if that is known."""
    return at.ledger_id > view.ledgers[-1].ledger_id or (end is not None and at > end)


def _is_past(entries: int | None, at: Position) -> bool:
    return entries is not None and at.entry_id >= entries

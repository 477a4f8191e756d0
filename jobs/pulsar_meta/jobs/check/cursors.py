"""The cursors of a topic: their positions, the ledgers with their state, and the ledgers that they refer to.

Sources: apache/pulsar ManagedCursorImpl (recover, recoverFromLedger, recoveredCursor), PersistentTopic,
BucketDelayedDeliveryTracker. The effects on brokers were tested with 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.metadata.acks import Acks, acks_of, has_acks
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check import compaction
from pulsar_meta.jobs.check.codes import Finding, Place, Severity, finding
from pulsar_meta.jobs.check.ledger_facts import LedgerFacts, owner_hash
from pulsar_meta.jobs.check.topic_view import CursorView, Rule, TopicView, is_internal
from pulsar_meta.jobs.cursors.subscriptions import RANGES_IN_RECORD, Limits, UsedLimit
from pulsar_meta.jobs.topics.backlog import Backlog, backlog
from pulsar_meta.jobs.topics.cursors import rewound_to
from pulsar_meta.jobs.topics.owners import bucket_faults, bucket_ledgers, impossible_buckets
from pulsar_meta.jobs.topics.topic import Ledger, Position
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo

_NEAR: Final = 0.8
# BookKeeper's default of nettyMaxFrameSizeBytes.
FRAME_LIMIT: Final = 5 << 20


def positions(view: TopicView) -> Iterator[Finding]:
    """Check that mark-delete positions are within the topic's ledgers."""
    if not _is_comparable(view):
        return
    end, unlisted = end_of(view), _unlisted(view)
    counts = {ledger.ledger_id: ledger.entries for ledger in view.ledgers}
    for cursor in view.cursors:
        at = cursor.mark_delete
        if at is None:
            continue
        if at.ledger_id < 0 <= at.entry_id or at.entry_id < -1:
            yield _impossible(view, cursor, at)
            continue
        if at.ledger_id in unlisted:
            yield from _unread_below(view, cursor, at)
            continue
        if at.ledger_id > view.ledgers[-1].ledger_id or (at.entry_id >= 0 and end is not None and at > end):
            yield _beyond_topic(view, cursor, at, end)
        elif at.entry_id < 0 and at.ledger_id in counts:
            continue
        elif at.ledger_id not in counts:
            yield from _outside_list(view, cursor, at)
        elif _is_past(counts[at.ledger_id], at) and _is_past(_counts(view)[at.ledger_id], at):
            yield _beyond_ledger(view, cursor, at, counts[at.ledger_id])


def _impossible(view: TopicView, cursor: CursorView, at: Position) -> Finding:
    """Return the finding about a position that no broker writes."""
    return finding(
        "cursor-in-vanished-ledger",
        f"its position {at.text} has a negative number, so the broker goes back to the start of"
        f" {'the topic' if at.ledger_id < 0 else 'the ledger'}",
        severity=Severity.WARNING,
        evidence={"mark_delete": list(at), "entries_before": _entries_up_to(view, at)},
        **view.cursor_place(cursor.name),
    )


def _unread_below(view: TopicView, cursor: CursorView, at: Position) -> Iterator[Finding]:
    """Yield the topic's own ledgers below its first that a subscription in one of them has still to read.

    A broker trims only what every subscription has read.
    """
    for ledger_id in view.owned:
        last = view.facts(ledger_id).last_entry
        if (
            at.ledger_id <= ledger_id < view.ledgers[0].ledger_id
            and last is not None
            and at < (ledger_id, last)
        ):
            yield finding(
                "ledger-not-listed",
                f"the topic does not list it, so its {last + 1} entries are silently skipped; subscription"
                f" {cursor.name} has not read all of them",
                evidence={"last_entry": last, "length": view.facts(ledger_id).length},
                **view.cursor_place(cursor.name, ledger_id) | {"path": ledger_path(ledger_id)},
            )


def _beyond_topic(view: TopicView, cursor: CursorView, at: Position, end: Position | None) -> Finding:
    return finding(
        "cursor-beyond-end",
        f"its position {at.text} is beyond the end of the topic: loading moves it to the end, and its"
        " backlog counts as read",
        evidence={"mark_delete": list(at), "end": None if end is None else list(end)},
        **view.cursor_place(cursor.name),
    )


def _beyond_ledger(view: TopicView, cursor: CursorView, at: Position, entries: int | None) -> Finding:
    skipped = _entries_up_to(view, at)
    return finding(
        "cursor-beyond-end",
        f"its position {at.text} can't be right, because the ledger has {entries} entries: the broker"
        f" continues with the next ledger, and the {skipped} entries before it count as read",
        evidence={"mark_delete": list(at), "entries": entries, "entries_before": skipped},
        **view.cursor_place(cursor.name),
    )


def _outside_list(view: TopicView, cursor: CursorView, at: Position) -> Iterator[Finding]:
    """Check a position in a ledger that the topic does not list, below its last ledger."""
    facts, skipped = view.facts(at.ledger_id), _entries_up_to(view, at)
    place, evidence = view.cursor_place(cursor.name), {"mark_delete": list(at), "entries_before": skipped}
    text = f"its position {at.text} is in a ledger that is not listed"
    if facts.owner_hash not in (0, view.own_hash):
        owner = facts.owner
        named = "" if owner is None else f" ({owner.role} of {owner.name})"
        effect = f"the {skipped} entries before it count as read" if skipped else "it goes back to the start"
        text = f"its position {at.text} is in a ledger of something else{named}: {effect}"
        evidence |= {} if owner is None else {"owner": owner.name, "role": owner.role}
        severity = Severity.ERROR if skipped else Severity.WARNING
        yield finding("cursor-in-vanished-ledger", text, severity=severity, evidence=evidence, **place)
    elif at.entry_id >= 0 and at.ledger_id > view.ledgers[0].ledger_id:
        text += (
            f": either that ledger was lost, or the position is wrong and the {skipped} entries before it"
            " count as read although they may not be acknowledged"
        )
        yield finding(
            "cursor-in-vanished-ledger", text, severity=Severity.WARNING, evidence=evidence, **place
        )


def _entries_up_to(view: TopicView, at: Position) -> int:
    """Return the number of listed entries up to a position, as far as counts are known.

    The position is beyond the entries of its ledger, or in a ledger that is not listed.
    """
    return sum(ledger.entries or 0 for ledger in view.ledgers if ledger.ledger_id <= at.ledger_id)


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
        inverted = _inverted_ranges(cursor.state.state, acks)
        for ledger_id, runs in acks.entries.items():
            for fault in _range_faults(ledger_id, sorted(runs), counts, mark):
                faults[fault] = faults.get(fault, 0) + 1
        if inverted:
            yield _inverted(view, cursor, inverted)
        if faults:
            text = ", ".join(f"{count} {fault}" for fault, count in faults.items())
            place = view.cursor_place(cursor.name)
            yield finding("cursor-ranges", f"acknowledged ranges: {text}", evidence=faults, **place)


def _inverted(view: TopicView, cursor: CursorView, count: int) -> Finding:
    return finding(
        "cursor-ranges-inverted",
        f"{count} of its acknowledged ranges end before they begin: brokers redeliver their messages, or,"
        " with managedLedgerUnackedRangesOpenCacheSetEnabled=false, don't load the topic",
        evidence={"ranges": count},
        **view.cursor_place(cursor.name),
    )


def _inverted_ranges(state: PositionInfo | ManagedCursorInfo, acks: Acks) -> int:
    """Return the number of ranges whose lower end is above their upper end."""
    if not acks.spanning and acks.range_count == len(state.individualDeletedMessages):
        # A shortcut for almost all states, because inverted ranges span ledgers or are left out of `acks`.
        return 0
    return sum(
        (each.lowerEndpoint.ledgerId, each.lowerEndpoint.entryId)
        > (each.upperEndpoint.ledgerId, each.upperEndpoint.entryId)
        for each in state.individualDeletedMessages
    )


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
                evidence=facts.owner_evidence,
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
    complete = view.has_every_bookie(view.facts(state.ledger_id))
    if complete and last is None and state.entry_id is None:
        # A record refers to a ledger only after the ledger's first entry was written.
        yield _state_lost(view, cursor, "no bookie has an entry of it", place)
    elif complete and last is not None and last >= 0 and (state.entry_id is None or state.entry_id < last):
        yield _state_lost(view, cursor, f"no bookie has its last entry, {last}", place)


def state_sizes(view: TopicView) -> Iterator[Finding]:
    """Check that cursor states in ledgers are well below the largest entry that bookies accept."""
    source = view.context.on_bookies
    for cursor in () if source is None else view.cursors:
        state = cursor.state
        if source is None or state is None or state.ledger_id is None or state.entry_id is None:
            continue
        size = _size_of(source, state.ledger_id, state.entry_id)
        if size > _NEAR * FRAME_LIMIT:
            yield finding(
                "cursor-entry-near-limit",
                f"its newest state has {size} bytes, and bookies accept {FRAME_LIMIT} by default: at the"
                " limit, acknowledgements are only kept in memory",
                evidence={"size": size, "limit": FRAME_LIMIT},
                **view.cursor_place(cursor.name, state.ledger_id),
            )


def _size_of(source: EntrySource, ledger_id: int, entry_id: int) -> int:
    try:
        return len(source.read(ledger_id, entry_id).data)
    except (NotFoundError, DecodeError):
        return 0


def _state_lost(view: TopicView, cursor: CursorView, why: str, place: Place) -> Finding:
    text = f"the ledger with its state is gone ({why})"
    if cursor.info is None:
        return finding("cursor-ledger-missing", text, **place)
    at = rewound_to(view.ledgers, cursor.info)
    after = backlog(view.ledgers, at, Acks())
    back = f"the broker goes back to {at.ledger_id}:{at.entry_id}"
    text += f": {back} and redelivers {_entries_text(after)} after it"
    evidence = {"back_to": list(at), "entries_after": after.entries}
    return finding("cursor-ledger-missing", text, evidence=evidence, **place)


def _entries_text(after: Backlog) -> str:
    if after.open_ledger is None:
        return f"{after.entries} entries"
    return f"at least {after.entries} entries" if after.entries else "everything"


def ack_limits(view: TopicView) -> Iterator[Finding]:
    """Check that brokers can persist all acknowledgements of each cursor."""
    for cursor in view.cursors:
        state = None if cursor.state is None else cursor.state.state
        if state is None or not has_acks(state) or _is_small(state, view.context.limits):
            continue
        for used in view.context.limits.used_by(state):
            severity = _severity_of_use(used)
            if severity is None or used["setting"] == RANGES_IN_RECORD:
                continue
            effect = "the others are lost" if severity is Severity.ERROR else "more than that are lost"
            yield finding(
                "cursor-ack-limit",
                f"it has {used['used']} acknowledgements, and {used['setting']} is {used['limit']}: {effect}"
                " when the broker stops, and their messages are redelivered",
                severity=severity,
                evidence={name: used[name] for name in ("setting", "limit", "from", "used")},
                **view.cursor_place(cursor.name),
            )
            break


def _is_small(state: PositionInfo | ManagedCursorInfo, limits: Limits) -> bool:
    """Return True if a state has ranges that are far below every limit. False for bit sets."""
    ranges, batches = len(state.individualDeletedMessages), len(state.batchedEntryDeletionIndexInfo)
    least = min(limit for limit, _ in limits.values.values())
    return ranges > 0 and max(ranges, batches) < _NEAR * least


def _severity_of_use(used: UsedLimit) -> Severity | None:
    """Return the severity of a used limit; above a default limit, the broker must have a higher one."""
    if used["from"] == "default" and used["used"] > used["limit"]:
        return None
    if used["used"] >= used["limit"]:
        return Severity.ERROR
    return Severity.WARNING if used["used"] >= _NEAR * used["limit"] else None


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


def buckets(view: TopicView) -> Iterator[Finding]:
    """Check the properties that name indexes of delayed messages, and that the indexes exist."""
    for cursor in view.cursors:
        yield from _unreadable_buckets(view, cursor)
        for ledger_id in () if cursor.info is None else bucket_ledgers(cursor.info):
            facts, place = view.facts(ledger_id), view.cursor_place(cursor.name, ledger_id)
            own = owner_hash("delayed-index-bucket", str(view.name), cursor.name)
            if facts.metadata == "absent":
                text = f"its index of delayed messages is ledger {ledger_id}, which BookKeeper doesn't know"
                yield finding("bucket-ledger-missing", text, **place)
            elif facts.owner_hash not in (0, own):
                yield _foreign_bucket(ledger_id, facts, place)


def _unreadable_buckets(view: TopicView, cursor: CursorView) -> Iterator[Finding]:
    """Check the properties that name a subscription's indexes of delayed messages."""
    if cursor.info is None:
        return
    for ledger_id in impossible_buckets(cursor.info):
        text = f"its index of delayed messages is ledger {ledger_id}, which BookKeeper doesn't know"
        yield finding("bucket-ledger-missing", text, **view.cursor_place(cursor.name, ledger_id))
    faults = bucket_faults(cursor.info)
    if not faults:
        return
    name, fault = next(iter(faults.items()))
    more = "" if len(faults) == 1 else f", and {len(faults) - 1} more properties are wrong"
    yield finding(
        "bucket-property-invalid",
        f"{fault}{more}: a broker that uses buckets (`BucketDelayedDeliveryTracker`) can't read its indexes"
        " of delayed messages",
        evidence={"property": name, "count": len(faults)},
        **view.cursor_place(cursor.name),
    )


def _foreign_bucket(ledger_id: int, facts: LedgerFacts, place: Place) -> Finding:
    return finding(
        "bucket-ledger-foreign",
        f"its index of delayed messages should be ledger {ledger_id}, which was created as {facts.purpose}:"
        " the broker deletes that ledger once it takes the index for delivered",
        evidence=facts.owner_evidence,
        **place,
    )


RULES: Final[tuple[Rule, ...]] = (
    positions, ranges, state_ledgers, state_sizes, ack_limits, idle, *compaction.RULES, buckets,
)  # fmt: skip


def _is_comparable(view: TopicView) -> bool:
    """Return True if the list tells where positions can be; a wrong termination makes it unreliable."""
    return bool(view.ledgers) and not view.is_shadow and view.first_after_termination() is None


def _counts(view: TopicView) -> dict[int, int | None]:
    """Return the entries of each ledger, None if it is open or if the list and BookKeeper disagree."""
    return {ledger.ledger_id: None if view.disagrees(ledger) else ledger.entries for ledger in view.ledgers}


def _unlisted(view: TopicView) -> set[int]:
    """Return the topic's own ledgers, by custom metadata, that it does not list."""
    return {ledger_id for ledger_id in view.owned if ledger_id not in view.listed}


def _is_past(entries: int | None, at: Position) -> bool:
    return entries is not None and at.entry_id >= entries

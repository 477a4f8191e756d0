"""The cursors of a topic: where they stand, beside the ledgers that there are, and where their state lies.

Sources: apache/pulsar ManagedCursorImpl (recover, recoverFromLedger, recoveredCursor), PersistentTopic; what
brokers did with each was tried on 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.acks import Acks, acks_of, has_acks
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.check.codes import Code, Finding, Severity, Where
from pulsar_meta.jobs.check.facts import LedgerFacts, mark_of
from pulsar_meta.jobs.check.ledgers import ends, terminated
from pulsar_meta.jobs.check.records import is_lost
from pulsar_meta.jobs.check.sight import Check, CursorSight, Sight
from pulsar_meta.jobs.topics.backlog import backlog
from pulsar_meta.jobs.topics.recovery import rewound_to
from pulsar_meta.jobs.topics.topic import Ledger, Position

BEYOND_END: Final = Code(
    "cursor-beyond-end",
    Severity.ERROR,
    "A subscription that stands behind the end of its topic",
    means="The mark-delete position is higher than the topic's last entry.",
    broker="Loading moves the cursor to the end: **what came before counts as read**, the backlog is"
    " skipped.",
    errors=("Current position … is ahead of last position",),
    comes="The topic's list or metadata was restored from an earlier time than the cursor, or ledgers were"
    " lost; an edit by hand.",
    cure="Write the right position into the cursor's record before a broker loads the topic.",
    unless="An open last ledger, of which nobody can say where it ends without the bookies; a position"
    " behind the end of a ledger in the middle goes on at the next entry, a note.",
    evidence={"mark_delete": tuple[int, int], "end": tuple[int, int] | None, "entries": int},
)
VANISHED: Final = Code(
    "cursor-in-vanished-ledger",
    Severity.NOTE,
    "A subscription that stands in a ledger that the topic does not list",
    means="The mark-delete position is in a ledger between the first and the last of the list that is not"
    " there.",
    broker="It goes on at the next entry that there is.",
    comes="The ledger was taken out of the list, or lost from it.",
    cure="None for the cursor; see whether the ledger is missing (`ledger-not-listed`).",
    unless="Before the first ledger (trimmed), and `LEDGER:-1` of an empty ledger that was discarded.",
    evidence={"mark_delete": tuple[int, int]},
)
RANGES: Final = Code(
    "cursor-ranges",
    Severity.NOTE,
    "Acknowledged ranges that do not fit",
    means="Entries that are acknowledged individually lie before the mark-delete position, overlap, lie in"
    " ledgers that the topic does not list, or beyond a ledger's end.",
    broker="It ignores or merges them. Should an entry of that position be written later, it counts as read.",
    comes="An edit by hand of the position alone, or a list that lost ledgers.",
    cure="None needed.",
    evidence={
        "before the position": int,
        "in a ledger that is not listed": int,
        "beyond the end of a ledger": int,
        "overlapping": int,
    },
)
LEDGER_MISSING: Final = Code(
    "cursor-ledger-missing",
    Severity.WARNING,
    "The ledger with a subscription's state is gone",
    means="The cursor's record says that its state is in a ledger, and BookKeeper has no metadata of that,"
    " or the bookies no entry.",
    broker="The topic loads. The cursor goes back to the position in its record, or to the topic's start;"
    " what was acknowledged individually comes again. Properties of the subscription are kept.",
    errors=("Error opening metadata ledger", "Error reading from metadata ledger"),
    comes="The ledger was deleted by hand or as an orphan, or lost with a disk.",
    cure="None needed; a record with the right position spares the messages that would come again.",
    evidence={"back_to": tuple[int, int], "entries_after": int},
)
LEDGER_UNREADABLE: Final = Code(
    "cursor-ledger-unreadable",
    Severity.ERROR,
    "The ledger with a subscription's state has entries that are no state",
    means="No entry of the cursor's ledger can be decoded.",
    broker="The cursor cannot be opened, and with it the whole topic does not load.",
    errors=("Error while recovering cursor", "InvalidProtocolBufferException"),
    comes="Damaged entries; or states that a fork writes, split or compressed, which other brokers cannot"
    " read.",
    cure="Make the record hold the state itself: cursorsLedgerId -1 and the position.",
    evidence={"newest_readable": int | None},
)
LEDGER_FOREIGN: Final = Code(
    "cursor-ledger-foreign",
    Severity.ERROR,
    "A subscription whose state should lie in a ledger of something else",
    means="The ledger that the cursor's record names holds messages, or belongs to another cursor.",
    broker="The topic does not load.",
    errors=("InvalidProtocolBufferException",),
    comes="An edit or a restore by hand.",
    cure="Make the record hold the state itself: cursorsLedgerId -1 and the position.",
    evidence={"owner": str, "role": str},
)
WITHOUT_TOPIC: Final = Code(
    "cursor-without-topic",
    Severity.WARNING,
    "A subscription of a topic that is not there",
    means="There is the record of a cursor, its topic has none, and no ledger says that it is that topic's.",
    broker="Nothing, until a topic of that name is made: then the subscription is there from the start.",
    comes="A broker that was stopped while it deleted the topic, or a deletion by hand.",
    cure="Remove the record, unless the topic's record is what is missing.",
    evidence={"cursors": list[str], "count": int},
)
IDLE: Final = Code(
    "cursor-idle",
    Severity.NOTE,
    "A subscription that nobody used for long, and that holds data",
    means="The subscription was last active longer ago than `--idle`, and the topic keeps data for it.",
    broker="It keeps every ledger from the subscription's position on.",
    comes="A consumer was taken down without unsubscribing; a reader with a durable cursor was forgotten.",
    cure="Ask whose it is, then `pulsar-admin topics unsubscribe`; `subscriptionExpirationTimeMinutes` does"
    " it by itself.",
    unless="`__compaction`, `pulsar.*` and cursors of transactions; subscriptions whose last activity"
    " nobody wrote down (newer releases do not).",
    evidence={"last_active": int, "bytes": int, "mark_delete": tuple[int, int]},
)
CODES: Final = (
    BEYOND_END, VANISHED, RANGES, LEDGER_MISSING, LEDGER_UNREADABLE, LEDGER_FOREIGN, WITHOUT_TOPIC, IDLE,
)  # fmt: skip


def positions(sight: Sight) -> Iterator[Finding]:
    """Where cursors stand, beside the ledgers of the topic."""
    if not _is_comparable(sight):
        return
    first, end, unlisted = sight.ledgers[0].ledger_id, end_of(sight), _unlisted(sight)
    counts = {ledger.ledger_id: ledger.entries for ledger in sight.ledgers}
    for cursor in sight.cursors:
        at = cursor.mark_delete
        if at is None or at.entry_id < 0 or at.ledger_id < first or at.ledger_id in unlisted:
            continue
        behind = _is_behind(sight, at, end)
        if not behind and at.ledger_id in counts and not _is_past(counts[at.ledger_id], at):
            continue
        where, evidence = _where(sight, cursor), {"mark_delete": list(at)}
        if behind:
            known = None if end is None else list(end)
            text = (
                f"it stands at {at.ledger_id}:{at.entry_id}, behind the end of the topic: loading moves it to"
            )
            text += " the end, and what it has not read counts as read"
            yield BEYOND_END.found(text, evidence=evidence | {"end": known}, **where)
        elif at.ledger_id not in counts:
            text = f"it stands at {at.ledger_id}:{at.entry_id}, in a ledger that the list has not got"
            yield VANISHED.found(f"{text}: it goes on at the next entry", evidence=evidence, **where)
        elif _is_past(_counts(sight)[at.ledger_id], at):
            entries = counts[at.ledger_id]
            text = (
                f"it stands at {at.ledger_id}:{at.entry_id}, the ledger has {entries} entries: it goes on at"
            )
            yield BEYOND_END.found(
                f"{text} the next one",
                severity=Severity.NOTE,
                evidence=evidence | {"entries": entries},
                **where,
            )


def end_of(sight: Sight) -> Position | None:
    """Return the position of the topic's last entry; None where an open ledger may have more."""
    for ledger in reversed(sight.ledgers):
        entries = ledger.entries
        if entries is None:
            return None
        if entries:
            return Position(ledger.ledger_id, entries - 1)
    return Position(sight.ledgers[-1].ledger_id, -1)


def ranges(sight: Sight) -> Iterator[Finding]:
    """Whether what is acknowledged individually lies where entries are."""
    if not _is_comparable(sight):
        return
    counts: dict[int, int | None] | None = None
    for cursor in sight.cursors:
        if cursor.state is None or cursor.state.state is None or not has_acks(cursor.state.state):
            continue
        if counts is None:
            # A ledger that is the topic's and not in its list is a finding of its own.
            counts = dict.fromkeys(_unlisted(sight)) | _counts(sight)
        acks, faults = acks_of(cursor.state.state), dict[str, int]()
        mark = cursor.state.mark_delete
        for ledger_id, runs in acks.entries.items():
            for name in _range_faults(ledger_id, sorted(runs), counts, mark):
                faults[name] = faults.get(name, 0) + 1
        if faults:
            text = ", ".join(f"{count} {name}" for name, count in faults.items())
            yield RANGES.found(f"acknowledged ranges: {text}", evidence=faults, **_where(sight, cursor))


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
    yield from ("overlapping" for one, other in pairwise(runs) if other[0] <= one[1])


def state_ledgers(sight: Sight) -> Iterator[Finding]:
    """The ledgers that hold the states of cursors."""
    for cursor in sight.cursors:
        if cursor.state is None or cursor.state.ledger_id is None:
            continue
        ledger_id = cursor.state.ledger_id
        facts = sight.facts(ledger_id)
        mine = mark_of("cursor", str(sight.name), cursor.name)
        if facts.metadata == "known" and facts.mark == mine and sight.cluster.source is None:
            continue
        where = _where(sight, cursor) | {"ledger_id": ledger_id}
        if facts.metadata == "known" and facts.mark not in (0, mine):
            owner = facts.owner
            named = "something else" if owner is None else f"{owner.role} of {owner.name}"
            yield LEDGER_FOREIGN.found(
                f"its state should lie in ledger {ledger_id}, which was created as {named}: the topic does"
                f" not"
                " load",
                evidence={} if owner is None else {"owner": owner.name, "role": owner.role},
                **where,
            )
        elif facts.metadata == "absent":
            yield _gone(sight, cursor, "BookKeeper has no metadata of it", where)
        elif facts.metadata == "known":
            yield from _unread_state(sight, cursor, where)


def _unread_state(sight: Sight, cursor: CursorSight, where: Where) -> Iterator[Finding]:
    """A state whose newest entry, the one that a broker reads, is not there or says nothing."""
    source, state = sight.cluster.on_bookies, cursor.state
    if source is None or state is None or state.ledger_id is None:
        return
    if isinstance(state.fault, DecodeError):
        text = f"{state.fault.message}: the topic does not load"
        yield LEDGER_UNREADABLE.found(text, evidence={"newest_readable": state.entry_id}, **where)
        return
    last = sight.facts(state.ledger_id).last_entry
    covers = sight.cluster.asks_bookies or _has_all(source.bookies, sight.facts(state.ledger_id))
    if covers and last is None and state.entry_id is None:
        # The record names a ledger only after its first entry is written.
        yield _gone(sight, cursor, "no bookie has an entry of it", where)
    elif covers and last is not None and last >= 0 and (state.entry_id is None or state.entry_id < last):
        yield _gone(sight, cursor, f"no bookie has its last entry, {last}", where)


def _has_all(given: frozenset[str] | None, facts: LedgerFacts) -> bool:
    """Return whether every bookie that the ledger lies on was given."""
    return given is not None and facts.bookies.all <= given


def _gone(sight: Sight, cursor: CursorSight, why: str, where: Where) -> Finding:
    if cursor.info is None:
        return LEDGER_MISSING.found(f"the ledger with its state is gone ({why})", **where)
    at = rewound_to(sight.ledgers, cursor.info)
    text = f"the ledger with its state is gone ({why})"
    again = backlog(sight.ledgers, at, Acks())
    least = "" if again.open_ledger is None else " or more"
    text += (
        f": the broker goes back to {at.ledger_id}:{at.entry_id}, {again.entries} entries{least} come again"
    )
    evidence = {"back_to": list(at), "entries_after": again.entries}
    return LEDGER_MISSING.found(text, evidence=evidence, **where)


def idle(sight: Sight) -> Iterator[Finding]:
    """Subscriptions that were not used for long and hold data; those in use keep their state in a ledger."""
    now = sight.cluster.now
    for cursor in sight.cursors if now is not None and not is_internal(sight.name.local) else ():
        at, active = cursor.mark_delete, 0 if cursor.info is None else cursor.info.lastActive
        if at is None or not active or cursor.state is None or cursor.state.ledger_id is not None:
            continue
        if is_internal(cursor.name) or now is None or now - active < sight.cluster.idle:
            continue
        held = sum(ledger.size or 0 for ledger in sight.ledgers if _holds(ledger, at))
        if held:
            yield IDLE.found(
                f"last active {iso_time(active)}; the topic keeps {held} bytes from its position on",
                evidence={"last_active": active, "bytes": held, "mark_delete": list(at)},
                **_where(sight, cursor),
            )


def is_internal(name: str) -> bool:
    """Return whether a topic or a cursor is one of the brokers' own."""
    return name.startswith(("__", "pulsar.", "transaction.")) or "__transaction" in name


def _holds(ledger: Ledger, at: Position) -> bool:
    """Return whether a ledger is kept for a subscription that stands at a position."""
    last = (ledger.entries or 0) - 1
    return (ledger.ledger_id, last) > (at.ledger_id, at.entry_id)


def without_topic(sight: Sight) -> Iterator[Finding]:
    """Cursors whose topic has no record."""
    if sight.record is None and sight.cursors and not is_lost(sight):
        names = [cursor.name for cursor in sight.cursors]
        yield WITHOUT_TOPIC.found(
            f"its {len(names)} subscriptions have records, the topic has none",
            evidence={"cursors": names[:10], "count": len(names)},
            **sight.where(),
        )


TOPIC_CHECKS: Final[tuple[Check, ...]] = (positions, ranges, state_ledgers, without_topic, idle)


def _where(sight: Sight, cursor: CursorSight) -> Where:
    return {"topic": str(sight.name), "cursor": cursor.name, "path": cursor.path}


def _is_comparable(sight: Sight) -> bool:
    """Return whether the topic's list says where positions can be; not where it ends before its entries."""
    return bool(sight.ledgers) and not sight.is_shadow and next(terminated(sight), None) is None


def _counts(sight: Sight) -> dict[int, int | None]:
    """Return how many entries each ledger has; None where that is open, or list and BookKeeper disagree."""
    disputed = {one.ledger_id for one in ends(sight)}
    return {one.ledger_id: None if one.ledger_id in disputed else one.entries for one in sight.ledgers}


def _unlisted(sight: Sight) -> set[int]:
    """Return the ledgers that are the topic's by their custom metadata, and not in its list."""
    listed = sight.listed
    return {one for one in sight.owned if one not in listed}


def _is_behind(sight: Sight, at: Position, end: Position | None) -> bool:
    """Return whether a position is behind the last entry of the topic, as far as that is known."""
    return at.ledger_id > sight.ledgers[-1].ledger_id or (end is not None and at > end)


def _is_past(entries: int | None, at: Position) -> bool:
    return entries is not None and at.entry_id >= entries

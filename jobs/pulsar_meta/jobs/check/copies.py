"""Whether entries have as many copies as were promised: counted on the disks, or asked of running bookies.

A writer learns that an entry is safe once the ack quorum has it, so that up to write quorum minus ack quorum
copies of an entry may be missing for ever, and nothing is wrong. A bookie that has nothing at all of a ledger
that it should have a part of is another thing: it lost its disks, or was replaced.

Sources: apache/bookkeeper LedgerHandle, RoundRobinDistributionSchedule, BookieAutoRecovery (Auditor).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.ensemble import Ensembles, Segment
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.entries import last_expected
from pulsar_meta.jobs.check.sight import Check, Sight
from pulsar_meta.jobs.topics.placement import Placement, placement_on
from pulsar_meta.jobs.topics.topic import Ledger

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNDER_REPLICATED: Final = Code(
    "ledger-under-replicated",
    Severity.WARNING,
    "A ledger of which a bookie has lost its part",
    means="A bookie that should have copies of the ledger's entries has none at all, or each entry that was"
    " asked for has fewer copies than the write quorum on bookies that run. Every entry can still be read.",
    broker="It reads from the other copies. Another lost bookie may take the last one.",
    comes="A bookie that lost its disks, or was replaced under the same name, before its ledgers were copied;"
    " autorecovery that is switched off.",
    cure="Have it replicated again (`bookkeeper shell recover`, or autorecovery).",
    unless="Up to write quorum minus ack quorum missing copies of single entries: writers never waited for"
    " them. Bookies that are only down (`bookie-unreachable`), or whose disks were not given.",
    evidence={"write_quorum": int, "ack_quorum": int, "bookies": list[str]},
)
BELOW_ACK_QUORUM: Final = Code(
    "ledger-below-ack-quorum",
    Severity.ERROR,
    "Entries with fewer copies than were promised",
    means="Entries have fewer copies than the ack quorum, on all bookies that should have them: a copy that"
    " the writer had confirmed is lost.",
    broker="It reads from what is left. Where the ledger has to be recovered, fewer answers than the quorum"
    " may end it earlier.",
    errors=("Not enough non-faulty bookies available",),
    comes="A bookie that lost its disks, entry logs that were removed, or disks that were restored from an"
    " earlier time.",
    cure="Have the ledger replicated again (`bookkeeper shell recover`) while a copy is left.",
    unless="As `ledger-under-replicated`; entries without any copy are `entry-missing`, `ledger-end-differs`"
    " or `ledger-without-entries`. A note where every subscription is past it.",
    evidence={"write_quorum": int, "ack_quorum": int, "entries": int, "first": int, "copies": int},
)
CODES: Final = (UNDER_REPLICATED, BELOW_ACK_QUORUM)
# Of larger ledgers the copies are not counted one by one.
LARGEST: Final = 1 << 28


@dataclass(slots=True)
class _Counted:
    """How many copies entries have at most: of those with too few how many, which first; who has nothing."""

    below: int = 0
    first: int = -1
    least: int = 0
    without: tuple[str, ...] = ()


def copies_there(sight: Sight) -> Iterator[Finding]:
    """Ledgers whose entries have too few copies."""
    source = sight.cluster.on_bookies
    if source is None or sight.is_shadow:
        return
    for ledger in sight.ledgers:
        facts, last = sight.facts(ledger.ledger_id), last_expected(sight, ledger)
        if last is None or facts.bookies.write_quorum < 2 or last >= LARGEST:
            continue
        ensembles = _ensembles(sight, ledger)
        if ensembles is None:
            if not sight.whole:
                # In a pass it is not known where segments begin: whether it is so the second look says.
                yield UNDER_REPLICATED.found("suspected", **sight.where(ledger.ledger_id))
            continue
        count = _asked if sight.cluster.asks_bookies else _on_disks
        yield from _found(sight, ledger, count(source, ensembles, last), ensembles)


TOPIC_CHECKS: Final[tuple[Check, ...]] = (copies_there,)


def _found(sight: Sight, ledger: Ledger, counted: _Counted, ensembles: Ensembles) -> Iterator[Finding]:
    where = sight.where(ledger.ledger_id)
    quorums = {"write_quorum": ensembles.write_quorum, "ack_quorum": ensembles.ack_quorum}
    if counted.below:
        read = sight.consumed(ledger)
        yield BELOW_ACK_QUORUM.found(
            f"{counted.below} of its entries have fewer copies than the ack quorum of {ensembles.ack_quorum},"
            f" the first is {counted.first}{'; every subscription is past it' if read else ''}",
            severity=Severity.NOTE if read else Severity.ERROR,
            evidence=quorums | {"entries": counted.below, "first": counted.first, "copies": counted.least},
            **where,
        )
    elif counted.without:
        yield UNDER_REPLICATED.found(
            f"{', '.join(counted.without)} should have copies of its entries and has none",
            evidence=quorums | {"bookies": list(counted.without)},
            **where,
        )


def _ensembles(sight: Sight, ledger: Ledger) -> Ensembles | None:
    """Return where a ledger's entries lie; None where that is not known yet, or makes no sense."""
    members = sight.facts(ledger.ledger_id).bookies
    try:
        if ledger.bookkeeper is not None:
            return ledger.bookkeeper.ensembles()
    except DecodeError:
        return None
    if len(members.segments) != 1 or len(members.segments[0]) < members.write_quorum:
        return None
    return Ensembles(
        ledger_id=ledger.ledger_id,
        write_quorum=members.write_quorum,
        ack_quorum=members.ack_quorum,
        segments=(Segment(0, members.segments[0]),),
        last_entry=None,
        digest_type="CRC32",
        password=None,
    )


def _on_disks(source: EntrySource, ensembles: Ensembles, last: int) -> _Counted:
    """Count the copies on disks; bookies whose disks were not given may have all of theirs."""
    import numpy as np

    if source.bookies is None:
        return _Counted()
    copies, lacking = np.zeros(last + 1, np.int16), {}
    for bookie in sorted({one for segment in ensembles.segments for one in segment.members}):
        should = _mask(placement_on(ensembles, frozenset({bookie})), last)
        if bookie in source.bookies:
            held = _held(source, bookie, ensembles.ledger_id, last) & should
            if not held.any():
                lacking[bookie] = should
            should = held
        copies += should
    # Of what is left nowhere it does not matter whose part it was.
    without = [bookie for bookie, should in lacking.items() if copies[should].any()]
    return _counted(copies, ensembles.ack_quorum, without)


def _counted(copies: NDArray[np.int16], ack_quorum: int, without: list[str]) -> _Counted:
    import numpy as np

    # What has no copy at all is another finding.
    low = np.flatnonzero((copies > 0) & (copies < ack_quorum))
    if not len(low):
        return _Counted(without=tuple(without))
    return _Counted(len(low), int(low[0]), int(copies[low].min()), tuple(without))


def _mask(place: Placement, last: int) -> NDArray[np.bool_]:
    import numpy as np

    ids, found = np.arange(last + 1), np.zeros(last + 1, np.bool_)
    for stripe in place.stripes:
        part = slice(stripe.first, min(stripe.stop, last + 1))
        found[part] |= np.isin(ids[part] % stripe.size, stripe.remainders)
    return found


def _held(source: EntrySource, bookie: str, ledger_id: int, last: int) -> NDArray[np.bool_]:
    import numpy as np

    from pulsar_meta.entries.record_sizes import within_files

    found = np.zeros(last + 1, np.bool_)
    for part in source.parts:
        if part.bookies is not None and bookie in part.bookies:
            for one in part.located(ledger_id, 0, last) or ():
                found[within_files(one)] = True
    return found


def _asked(source: EntrySource, ensembles: Ensembles, last: int) -> _Counted:
    """Ask running bookies for the first and the last entry: counting all would be reading them all."""
    asked = sorted({0, last})
    lacking = {entry_id: source.lacking(ensembles.ledger_id, entry_id) for entry_id in asked}
    have = {entry_id: ensembles.write_quorum - len(lacking[entry_id]) for entry_id in asked}
    low = [entry_id for entry_id in asked if 0 < have[entry_id] < ensembles.ack_quorum]
    if low:
        return _Counted(len(low), low[0], min(have[entry_id] for entry_id in low))
    replicas = {entry_id: frozenset(ensembles.replicas(entry_id)) for entry_id in asked}
    without = [
        bookie
        for bookie in sorted(frozenset().union(*replicas.values()))
        if all(bookie in lacking[one] for one in asked if bookie in replicas[one])
    ]
    return _Counted(without=tuple(without) if any(have.values()) else ())

"""Ledgers that are complete on the disks, in no list and without metadata, and that a topic misses.

Nothing in the store refers to such a ledger. Its messages show its place, because their indexes, or their
producers' sequence ids, continue those of a ledger of the topic. Ledgers of deleted topics look alike until
the bookies collect them, so a single matching number is not enough.

Source: apache/bookkeeper ScanAndCompareGarbageCollector (deletes ledgers without metadata).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pulsar_meta.jobs.check.codes import Finding, finding
from pulsar_meta.jobs.topics.disk_ledger import DiskLedger, order_of
from pulsar_meta.jobs.topics.evidence import (
    SLACK_MS,
    EvidenceReader,
    Piece,
    TopicLedgers,
    Witness,
    membership,
)
from pulsar_meta.jobs.topics.scope import Scope
from pulsar_meta.jobs.topics.topic import Ledger, topics_in
from pulsar_meta.stores.base import Store

DEADLINE: Final = "bookies delete its entries at their next garbage collection, since no metadata names it"
# The most ledgers that are compared. If there are more, they are garbage that bookies have not collected yet.
MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a topic's list: after one ledger and before another, None for the end of the list."""

    topic: TopicLedgers
    before: Ledger
    after: Ledger | None


def unnamed_on_disks(reader: EvidenceReader, is_known: Callable[[int], bool]) -> list[int]:
    """Return at most MOST ledgers of the disks that `is_known` does not know, ascending."""
    source = reader.source
    if source is None or reader.complete.lives:
        return []
    return [ledger_id for ledger_id in source.ledgers() if not is_known(ledger_id)][:MOST]


def every_list(store: Store) -> Iterator[TopicLedgers]:
    """Yield the list of each topic that is not a shadow. Other rules report records that can't be read."""
    for topic in topics_in(store, Scope(), lambda error: None):
        if topic.shadow is None and topic.ledgers:
            yield TopicLedgers(topic.name, topic.ledgers)


def lost_ledgers(
    reader: EvidenceReader, topics: Iterable[TopicLedgers], candidates: Sequence[int]
) -> Iterator[Finding]:
    """Yield the candidates that a topic misses. `candidates` are ascending, without list and metadata."""
    for topic in topics if candidates else ():
        for place in _places(topic):
            yield from _lost_at(reader, place, candidates)


def _places(topic: TopicLedgers) -> Iterator[_Place]:
    """Yield the places after each ledger of a topic that has entries; an empty ledger is no neighbour."""
    ledgers = [ledger for ledger in topic.ledgers if ledger.entries != 0]
    for before, after in pairwise(ledgers):
        yield _Place(topic, before, after)
    if ledgers:
        yield _Place(topic, ledgers[-1], None)


def _lost_at(reader: EvidenceReader, place: _Place, candidates: Sequence[int]) -> Iterator[Finding]:
    """Yield the ledgers of one place, each of which continues the one before it."""
    first = bisect_right(candidates, place.before.ledger_id)
    last = len(candidates) if place.after is None else bisect_left(candidates, place.after.ledger_id)
    if first >= last:
        return
    current = reader.disk(place.before.ledger_id)
    following = None if place.after is None else reader.disk(place.after.ledger_id)
    if current is None or (following is not None and order_of(current, following) == "follows"):
        return
    doubt = _doubt_about(reader, place)
    for ledger_id in candidates[first:last]:
        ledger = reader.disk(ledger_id)
        if ledger is None or ledger.content != "messages" or not _is_in_time(ledger, place):
            continue
        pieces = _pieces(current, ledger, following, place)
        if len(pieces) >= 2:
            # The ledgers on both sides are two witnesses.
            both = (
                following is not None
                and order_of(ledger, following) == order_of(current, ledger) == "follows"
            )
            owners = reader.ledger(ledger_id).other_clusters
            against = [*doubt, *(Piece(Witness.OTHER_CLUSTER, f"{owner} refers to it") for owner in owners)]
            certain = not against and (both or len({piece.witness for piece in pieces}) >= 2)
            yield _found(place, ledger, pieces, against, certain=certain)
            current, doubt = ledger, _doubt(against, ledger_id)


def _is_in_time(ledger: DiskLedger, place: _Place) -> bool:
    """Return True if the messages were published after the ledger before them was closed."""
    closed = place.before.closed_at
    return closed is None or ledger.first_time is None or ledger.first_time >= closed - SLACK_MS


def _pieces(before: DiskLedger, ledger: DiskLedger, after: DiskLedger | None, place: _Place) -> list[Piece]:
    """Return the evidence that a ledger belongs to a place; none if another ledger has its indexes."""
    orders = [order_of(before, ledger), "unknown" if after is None else order_of(ledger, after)]
    if "overlaps" in orders:
        return []
    pieces = []
    if orders[0] == "follows" and ledger.first_index is not None:
        text = f"index {before.last_index} of ledger {before.ledger_id}, then {ledger.first_index} here"
        pieces.append(Piece(Witness.DISKS, text))
    if orders[1] == "follows" and after is not None:
        pieces.append(Piece(Witness.DISKS, f"the messages of ledger {after.ledger_id} continue its own"))
    pieces += _by_producers(before, ledger, place)
    for name, ids in place.topic.cursors.items():
        if ledger.ledger_id in ids:
            pieces.append(Piece(Witness.CURSORS, f"the subscription {name} acknowledged entries of it"))
            break
    return pieces


def _doubt_about(reader: EvidenceReader, place: _Place) -> list[Piece]:
    """Return evidence that the ledger before a place is not the topic's, nor then what continues it."""
    case = membership(reader, place.topic, place.before.ledger_id)
    return _doubt(case.contradicts, place.before.ledger_id)


def _doubt(against: Sequence[Piece], ledger_id: int) -> list[Piece]:
    """Return the doubt about a ledger that continues `ledger_id`, against which there is evidence."""
    text = f"it continues ledger {ledger_id}, which may not be the topic's"
    return [Piece(against[0].witness, text)] if against else []


def _by_producers(before: DiskLedger, ledger: DiskLedger, place: _Place) -> Iterator[Piece]:
    """Yield that a producer continues in the ledger, and that this was after the one before was closed."""
    for name, ids in before.next_sequences.items():
        if ledger.first_sequences.get(name, 0) in ids:
            yield Piece(Witness.DISKS, f"the producer {name} continues in it")
            if place.before.closed_at is not None and ledger.first_time is not None:
                yield Piece(Witness.LIST, f"ledger {before.ledger_id} was closed before its first message")
            return


def _found(
    place: _Place, ledger: DiskLedger, pieces: Sequence[Piece], against: Sequence[Piece], *, certain: bool
) -> Finding:
    where = f"after ledger {place.before.ledger_id}"
    if place.after is not None:
        where = f"between ledgers {place.before.ledger_id} and {place.after.ledger_id}"
    doubt = f"; it may not be the topic's, because {against[0].says}" if against else ""
    return finding(
        "ledger-lost",
        f"bookies have {ledger.entries} entries of it that belong {where}, and neither the topic's list nor"
        f" BookKeeper knows it; {DEADLINE}{doubt}",
        topic=place.topic.name,
        ledger_id=ledger.ledger_id,
        evidence={
            "entries": ledger.entries,
            "bookies": list(ledger.bookies),
            "before": place.before.ledger_id,
            "after": None if place.after is None else place.after.ledger_id,
            "for": [piece.document() for piece in pieces],
            "against": [piece.document() for piece in against],
        },
        undecided=not certain,
    )

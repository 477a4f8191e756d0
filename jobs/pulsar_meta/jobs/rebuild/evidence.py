"""Evidence for a rebuilt value, and what ledgers reveal about their topic: indexes, producers, times,
references.

Needs NumPy. Source: PIP-70 (indexes continue from ledger to ledger).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict

import numpy as np

from pulsar_meta.codecs.columns.column import Column
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entry_reader import read_columns
from pulsar_meta.jobs.rebuild.kinds import Kind
from pulsar_meta.jobs.rebuild.replication import (
    LOOKED_AT,
    MARKERS,
    NOT_REPLICATED,
    Replicated,
    replicated,
)
from pulsar_meta.jobs.rebuild.system_topics import NOTHING, Announced, announced

# "old": an older store had it. "lost+found": nothing says its name. "invented": nothing on the disks says so.
# "gone": an older store named it, and no disk has it. "refused": a value would be wrong, so there is none.
Certainty = Literal["certain", "likely", "old", "lost+found", "invented", "gone", "refused"]


class Segment(TypedDict):
    """From which entry on a ledger's entries lie on which bookies."""

    first_entry: int
    bookies: list[str]


class RebuiltFacts(TypedDict, total=False):
    """What a reader of a value looks at: of a ledger, topic, subscription, schema or counter what it has.

    `missing` are runs of entries that no disk has, both ends included; `gone` is a ledger that no disk has,
    `of` whose it was; times are in milliseconds.
    """

    ledger_id: int
    kind: Kind
    entries: int
    last_entry: int
    size: int | None
    digest_type: str | None
    ensemble_size: int
    write_quorum: int
    ensembles: list[Segment]
    missing: list[list[int]]
    fenced: bool
    topic: str | None
    ledgers: list[int]
    messages: int
    first_time: int | None
    last_time: int | None
    cursor: str | None
    position: str | None
    cursor_ledger: int | None
    compacted_ledger: int
    schema: str
    version: int
    deleted: bool
    schema_ledgers: list[int]
    gone: int
    of: str
    next: int


class RebuiltValue(RebuiltFacts):
    """A value made again from disks, how certain it is, and what says so."""

    path: str
    certainty: Certainty
    evidence: list[str]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One value: where it belongs, how certain it is, and why. `facts` are what a reader of it looks at."""

    path: str
    certainty: Certainty
    evidence: tuple[str, ...]
    value: bytes | None = field(default=None, repr=False)
    facts: RebuiltFacts = field(default_factory=RebuiltFacts)

    def document(self) -> RebuiltValue:
        """Return it for showing, without the value itself."""
        return {
            "path": self.path,
            "certainty": self.certainty,
            **self.facts,
            "evidence": list(self.evidence),
        }


# Producers, and transactions, that are remembered of a ledger.
MOST_PRODUCERS: Final = 64
MOST_TXNS: Final = 1024
_WORD: Final = 2**64
_COLUMNS: Final = (
    "first_index", "last_index", "producer_name", "sequence_id", "num_messages", "publish_time",
    "broker_timestamp", "txnid_most_bits", "txnid_least_bits", "marker_type",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sequence:
    """A producer's first sequence id in a ledger, and those that can come after its last one there."""

    first: int
    after: frozenset[int]


@dataclass(frozen=True, slots=True)
class DataClues:
    """What the messages of a ledger say; None where they do not. Times are milliseconds.

    `times_by_broker` is false where only producers' clocks are known. `txns` are transactions of messages,
    `highest_txns` the highest by coordinator; `announced` is what messages say of topics' names,
    `replicated` what came with replication.
    """

    ledger_id: int
    messages: int = 0
    first_index: int | None = None
    last_index: int | None = None
    first_time: int | None = None
    last_time: int | None = None
    times_by_broker: bool = False
    producers: Mapping[str, Sequence] = field(default_factory=dict)
    txns: frozenset[TxnId] = frozenset()
    highest_txns: Mapping[int, int] = field(default_factory=dict)
    announced: Announced = NOTHING
    replicated: Replicated = NOT_REPLICATED


@dataclass(frozen=True, slots=True)
class Mention:
    """A ledger (a cursor's, compacted data, pending acks, also data) that names data ledgers of its topic.

    `says` is the reason in words, for this ledger and two that it names.
    """

    ledger_id: int
    kind: Kind
    named: frozenset[int]
    says: str = "ledger {} names {} and {}"


def data_clues(source: EntrySource, ledger_id: int, digest_type: DigestType | None) -> DataClues:
    """Return what the messages of a data ledger say. What the source raises goes through."""
    ends: dict[str, tuple[tuple[int, int], tuple[int, int, int]]] = {}
    indexes, times, by_broker = list[int](), list[int](), True
    messages, txns, highest = 0, set[TxnId](), dict[int, int]()
    entries, markers = set[int](), set[int]()
    for columns in read_columns(source, ledger_id, _COLUMNS, digest_type=digest_type):
        indexes += [*_ends(columns["first_index"]), *_ends(columns["last_index"])]
        broker = columns["broker_timestamp"]
        by_broker = by_broker and bool(broker.present.all())
        times += _ends(broker if broker.present.any() else columns["publish_time"])
        messages += int(columns["num_messages"].values[columns["num_messages"].present].sum())
        _add_producers(ends, columns)
        _add_txns(txns, highest, columns)
        entry_ids, marker = columns["entry_id"].values, columns["marker_type"]
        entries |= {*entry_ids[:LOOKED_AT].tolist(), *entry_ids[-LOOKED_AT:].tolist()}
        markers |= set(entry_ids[marker.present & np.isin(marker.values, list(MARKERS))].tolist())
    producers = {
        name: Sequence(first, frozenset((last + 1, last + max(count, 1))))
        for name, ((_, first), (_, last, count)) in ends.items()
    }
    return DataClues(
        ledger_id,
        messages,
        min(indexes, default=None),
        max(indexes, default=None),
        min(times, default=None),
        max(times, default=None),
        by_broker and bool(times),
        producers,
        frozenset(txns),
        highest,
        announced(source, ledger_id),
        replicated(source, ledger_id, _outer(entries), sorted(markers)),
    )


def _outer(entries: Iterable[int]) -> list[int]:
    ordered = sorted(entries)
    return sorted({*ordered[:LOOKED_AT], *ordered[-LOOKED_AT:]})


def _ends(column: Column) -> list[int]:
    there = column.values[column.present]
    return [int(there.min()), int(there.max())] if there.size else []


def _add_producers(
    ends: dict[str, tuple[tuple[int, int], tuple[int, int, int]]], columns: Mapping[str, Column]
) -> None:
    names, entries = columns["producer_name"], columns["entry_id"].values
    sequences, counts = columns["sequence_id"].values, columns["num_messages"].values
    for code in np.unique(names.values[names.present]).tolist():
        name = (names.names or ())[code]
        # Markers have no sequence: theirs is -1.
        rows = np.flatnonzero(names.present & (names.values == code) & (sequences >= 0))
        if not rows.size or (name not in ends and len(ends) >= MOST_PRODUCERS):
            continue
        low, high = rows[np.argmin(entries[rows])], rows[np.argmax(entries[rows])]
        first = int(entries[low]), int(sequences[low])
        last = int(entries[high]), int(sequences[high]), int(counts[high])
        known = ends.get(name, (first, last))
        ends[name] = min(first, known[0]), max(last, known[1])


def _add_txns(txns: set[TxnId], highest: dict[int, int], columns: Mapping[str, Column]) -> None:
    most, least = columns["txnid_most_bits"], columns["txnid_least_bits"]
    rows = np.flatnonzero(most.present & least.present)
    if not rows.size:
        return
    pairs = np.unique(np.stack([most.values[rows], least.values[rows]]).astype(np.int64), axis=1)
    for coordinator, number in pairs.T.tolist():
        txn = TxnId(coordinator % _WORD, number % _WORD)
        highest[txn.most] = max(txn.least, highest.get(txn.most, -1))
        if len(txns) < MOST_TXNS:
            txns.add(txn)

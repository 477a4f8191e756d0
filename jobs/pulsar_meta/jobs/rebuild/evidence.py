"""What the messages of a data ledger reveal about its topic, and the evidence for a rebuilt value.

Messages contain indexes, producers with sequence ids, publish times, transactions and references to other
ledgers. Needs NumPy. Source: PIP-70 (indexes continue from ledger to ledger).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict

import numpy as np

from pulsar_meta.codecs.columns.entries import Column
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entry_reader import read_columns
from pulsar_meta.jobs.rebuild.kinds import Kind
from pulsar_meta.jobs.rebuild.replication import (
    MARKERS,
    NOT_REPLICATED,
    SAMPLED_ENTRIES,
    Replicated,
    replication_clues,
)
from pulsar_meta.jobs.rebuild.system_topics import NO_MENTIONS, TopicMentions, topic_mentions

# "old": from the older store. "lost+found": the name is unknown. "invented": a default that no disk contains.
# "gone": the older store or a state on a disk refers to it, but no disk has it. "refused": it would be wrong.
Certainty = Literal["certain", "likely", "old", "lost+found", "invented", "gone", "refused"]


class Segment(TypedDict):
    """The bookies that store a ledger's entries from `first_entry` on."""

    first_entry: int
    bookies: list[str]


class RebuiltFacts(TypedDict, total=False):
    """Facts about a value that help an operator judge it; each kind of value has some of them.

    `missing` lists runs [first, last] of entries before the last one that no disk has in a readable form.
    `unreadable` lists runs of entries that a disk should have and that can't be read. `gone` is a ledger that
    no disk has, and `of` its owner. `next` is the next number of a counter. Times are in milliseconds.
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
    unreadable: list[list[int]]
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
    """A rebuilt value, how certain it is, and the evidence for it."""

    path: str
    certainty: Certainty
    evidence: list[str]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One value: its path, how certain it is, and the evidence. `facts` describe it for the operator."""

    path: str
    certainty: Certainty
    evidence: tuple[str, ...]
    value: bytes | None = field(default=None, repr=False)
    facts: RebuiltFacts = field(default_factory=RebuiltFacts)

    def document(self) -> RebuiltValue:
        """Describe the value for output, without its bytes."""
        return {
            "path": self.path,
            "certainty": self.certainty,
            **self.facts,
            "evidence": list(self.evidence),
        }


# At most this many producers and transactions are recorded per ledger.
MOST_PRODUCERS: Final = 64
MOST_TXNS: Final = 1024
_WORD: Final = 2**64
_COLUMNS: Final = (
    "first_index", "last_index", "producer_name", "sequence_id", "num_messages", "publish_time",
    "broker_timestamp", "txnid_most_bits", "txnid_least_bits", "marker_type",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sequence:
    """A producer's first sequence id in a ledger, and the ids that can follow its last one."""

    first: int
    after: frozenset[int]


@dataclass(frozen=True, slots=True)
class DataClues:
    """What the messages of a data ledger reveal; None if they don't. Times are in milliseconds.

    `times_by_broker` is False if some entries only have the producer's clock. `txns` are the transactions of
    messages, `highest_txns` the highest id per coordinator. `announced` holds names of topics found in
    messages, `replicated` what geo-replication left.
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
    topic_mentions: TopicMentions = NO_MENTIONS
    replicated: Replicated = NOT_REPLICATED


@dataclass(frozen=True, slots=True)
class Mention:
    """A ledger that refers to data ledgers of its own topic.

    It can be a cursor ledger, compacted data, a log of pending acknowledgments, or a data ledger. `reason`
    is a template for the evidence text: its fields are this ledger and two of the ledgers in `named`.
    """

    ledger_id: int
    kind: Kind
    named: frozenset[int]
    reason: str = "ledger {} refers to {} and {}"


def data_clues(source: EntrySource, ledger_id: int, digest_type: DigestType | None) -> DataClues:
    """Collect the clues in the messages of a data ledger. Raises whatever `source` raises."""
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
        entries |= {*entry_ids[:SAMPLED_ENTRIES].tolist(), *entry_ids[-SAMPLED_ENTRIES:].tolist()}
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
        topic_mentions(source, ledger_id),
        replication_clues(source, ledger_id, _outer(entries), sorted(markers)),
    )


def _outer(entries: Iterable[int]) -> list[int]:
    ordered = sorted(entries)
    return sorted({*ordered[:SAMPLED_ENTRIES], *ordered[-SAMPLED_ENTRIES:]})


def _ends(column: Column) -> list[int]:
    present = column.values[column.present]
    return [int(present.min()), int(present.max())] if present.size else []


def _add_producers(
    ends: dict[str, tuple[tuple[int, int], tuple[int, int, int]]], columns: Mapping[str, Column]
) -> None:
    names, entries = columns["producer_name"], columns["entry_id"].values
    sequences, counts = columns["sequence_id"].values, columns["num_messages"].values
    for code in np.unique(names.values[names.present]).tolist():
        name = (names.names or ())[code]
        # Markers have sequence id -1.
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

"""Check that indexes are consecutive from entry to entry, and that first-index properties are right.

Each ledger is scanned in columns, in this process or by Spark (`scan_ledger`). The scans of a topic are then
joined in reading order (`check_topic`), because a break can be between two ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NotRequired, TypedDict

import numpy as np

from pulsar_meta.codecs.columns.entries import Column, join_columns
from pulsar_meta.codecs.columns.words import Positions, Rows
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entry_reader import read_columns
from pulsar_meta.jobs.topics.placement import Placement, placement
from pulsar_meta.jobs.topics.topic import Ledger, Topic, TopicNames, contradictions

COLUMNS: Final = ("first_index", "last_index", "broken")
# A report lists at most this many faults of each kind, and counts the others.
NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Break:
    """An entry whose first index is not `expected`, the index after the previous entry."""

    kind: str
    entry_id: int
    expected: int
    first_index: int
    last_index: int


@dataclass(frozen=True, slots=True)
class LedgerScan:
    """The indexes of one ledger. `entry_zero_index` is the first index of entry 0, if it has one.

    `head` is the first entry that has an index, and `last_index` the last index of the ledger. Both are None
    if no entry has an index. At most NAMED breaks, unindexed and unreadable entries are listed. `elsewhere`
    counts entries that are only on bookies whose disks were not given.
    """

    ledger_id: int
    entries: int = 0
    first_entry: int | None = None
    last_entry: int | None = None
    entry_zero_index: int | None = None
    head: Break | None = None
    last_index: int | None = None
    without_index: int = 0
    broken: int = 0
    missing: int = 0
    elsewhere: int = 0
    breaks: tuple[Break, ...] = ()
    gaps: int = 0
    overlaps: int = 0
    steps_back: int = 0
    unindexed: tuple[int, ...] = ()
    unreadable: tuple[int, ...] = ()


GAP: Final = "gap"
OVERLAP: Final = "overlap"
STEP_BACK: Final = "step-back"


def scan_ledger(source: EntrySource, ledger: Ledger) -> LedgerScan:
    """Read all headers of a ledger that `source` has.

    Raises UnreachableError from the source; entries that cannot be read are counted.
    """
    ledger_id, entries, placed = ledger.ledger_id, ledger.entries, placement(ledger, source)
    last = None if entries is None else entries - 1
    parts = list(read_columns(source, ledger_id, COLUMNS, 0, last))
    if not parts:
        missing = placed.count(0, (entries or 0) - 1)
        return LedgerScan(ledger_id, missing=missing, elsewhere=placed.elsewhere(0, (entries or 0) - 1))
    columns = {name: join_columns([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["entry_id"].values, kind="stable")
    if (np.diff(order) < 0).any():
        columns = {name: column.chosen(order) for name, column in columns.items()}
    return examine_columns(ledger_id, columns, entries, placed)


def examine_columns(
    ledger_id: int, columns: dict[str, Column], entries: int | None, placed: Placement
) -> LedgerScan:
    """Return the scan of a ledger from the columns of its entries, in order of the entry ids."""
    ids, broken = columns["entry_id"].values, columns["broken"].values.astype(bool)
    has_index: Rows = columns["last_index"].present & ~broken
    without = ~has_index & ~broken
    rows = np.flatnonzero(has_index)
    first, last = columns["first_index"].values[rows], columns["last_index"].values[rows]
    expected = last[:-1] + 1
    wrong = np.flatnonzero((first[1:] != expected) & _neighbours(ids, broken, rows)) + 1
    kinds = _kinds(first[wrong], last[wrong], expected[wrong - 1])
    found = _breaks(kinds, ids[rows[wrong]], expected[wrong - 1], first[wrong], last[wrong])
    length = int(ids[-1]) + 1 if entries is None else entries
    missing = max(0, placed.count(0, length - 1) - placed.count_of(ids))
    head = Break("", int(ids[rows[0]]), 0, int(first[0]), int(last[0])) if rows.size else None
    return LedgerScan(
        ledger_id,
        entries=len(ids),
        first_entry=int(ids[0]),
        last_entry=int(ids[-1]),
        entry_zero_index=head.first_index if head is not None and head.entry_id == 0 else None,
        head=head,
        last_index=int(last[-1]) if rows.size else None,
        without_index=int(without.sum()),
        broken=int(broken.sum()),
        missing=missing,
        elsewhere=max(0, placed.elsewhere(0, length - 1) - (len(ids) - placed.count_of(ids))),
        breaks=tuple(found),
        gaps=kinds.count(GAP),
        overlaps=kinds.count(OVERLAP),
        steps_back=kinds.count(STEP_BACK),
        unindexed=tuple(ids[without][:NAMED].tolist()),
        unreadable=tuple(ids[broken][:NAMED].tolist()),
    )


def _neighbours(ids: Positions, broken: Rows, rows: Positions) -> Rows:
    """Return for each two neighbours in `rows` if no entry between them is missing or unreadable."""
    unreadable = np.cumsum(broken)[rows]
    whole: Rows = np.diff(ids[rows]) == np.diff(rows)
    readable: Rows = np.diff(unreadable) == 0
    return whole & readable


def kind_of_break(first: int, last: int, expected: int) -> str | None:
    """Return the kind of break if an entry's indexes are [first, last], None if `first` is `expected`."""
    if first == expected:
        return None
    if first > expected:
        return GAP
    # The previous entry ends at expected - 1. An entry that ends after it shares indexes with it.
    return OVERLAP if last >= expected else STEP_BACK


def _kinds(first: Positions, last: Positions, expected: Positions) -> list[str]:
    kinds = np.where(first > expected, 0, np.where(last >= expected, 1, 2))
    return [(GAP, OVERLAP, STEP_BACK)[kind] for kind in kinds.tolist()]


def _breaks(
    kinds: list[str], ids: Positions, expected: Positions, first: Positions, last: Positions
) -> Iterator[Break]:
    named = dict.fromkeys((GAP, OVERLAP, STEP_BACK), 0)
    for at, kind in enumerate(kinds):
        if named[kind] < NAMED:
            named[kind] += 1
            yield Break(kind, int(ids[at]), int(expected[at]), int(first[at]), int(last[at]))


PropertyTruth = Literal["absent", "right", "false", "no-number", "doubled", "unchecked"]
ABSENT: Final = "absent"
RIGHT: Final = "right"
FALSE: Final = "false"
NO_NUMBER: Final = "no-number"
DOUBLED: Final = "doubled"
UNCHECKED: Final = "unchecked"


class IndexCounts(TypedDict):
    """How often each kind of fault is in the indexes of a ledger."""

    gaps: int
    overlaps: int
    steps_back: int
    without_index: int
    unreadable: int
    missing: int


class IndexFault(TypedDict):
    """A fault, one of at most ten of its kind. `why` tells how BookKeeper contradicts the record."""

    fault: str
    entry_id: NotRequired[int]
    expected: NotRequired[int]
    first_index: NotRequired[int]
    last_index: NotRequired[int]
    why: NotRequired[str]


class IndexReport(IndexCounts):
    """Tells if the indexes of a ledger are consecutive, and if its property is right."""

    topic: str
    scalable_topic: NotRequired[str]
    shadow_of: NotRequired[str | None]
    ledger_id: int
    ok: bool
    entries: int
    first_index: NotRequired[int | None]
    last_index: NotRequired[int | None]
    property: PropertyTruth
    property_values: NotRequired[list[str]]
    not_checked: NotRequired[int]
    faults: list[IndexFault]


def check_indexes(
    source: EntrySource,
    topics: Iterable[Topic],
    key: str,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[IndexReport]:
    """Scan the ledgers of the topics in this process, and yield a report for each. `key` is the property."""
    for topic in topics:
        scans = {}
        for ledger in topic.ledgers:
            scans[ledger.ledger_id] = scan_ledger(source, ledger)
            advance(1)
        yield from check_topic(topic, scans, key)


def check_topic(topic: Topic, scans: Mapping[int, LedgerScan], key: str) -> Iterator[IndexReport]:
    """Yield a report for each ledger of a topic, in reading order."""
    before: int | None = None
    for ledger in topic.ledgers:
        scan = scans[ledger.ledger_id]
        scan = _joined(scan, before)
        document = ledger_document(topic.names, ledger, scan, key)
        if topic.shadow is not None:
            document["shadow_of"] = topic.shadow.source
        yield document
        # If entries are missing, the first index of the next ledger is not known.
        if scan.missing or scan.elsewhere or scan.broken:
            before = None
        elif scan.last_index is not None:
            before = scan.last_index


def _joined(scan: LedgerScan, before: int | None) -> LedgerScan:
    """Return the scan with the break between the previous ledger and this one, if there is one."""
    head = scan.head
    if before is None or head is None or ((scan.missing or scan.elsewhere) and scan.first_entry != 0):
        return scan
    kind = kind_of_break(head.first_index, head.last_index, before + 1)
    if kind is None:
        return scan
    between = Break(kind, head.entry_id, before + 1, head.first_index, head.last_index)
    counts = {"gap": "gaps", "overlap": "overlaps", "step-back": "steps_back"}
    name = counts[kind]
    return replace(scan, breaks=(between, *scan.breaks), **{name: getattr(scan, name) + 1})


def ledger_document(names: TopicNames, ledger: Ledger, scan: LedgerScan, key: str) -> IndexReport:
    """Return the report on one ledger, which begins with `names`. `ok` is false if anything is wrong."""
    values = ledger.values(key)
    truth, wrong = property_truth(values, scan), list(contradictions(ledger))
    counts: IndexCounts = {
        "gaps": scan.gaps,
        "overlaps": scan.overlaps,
        "steps_back": scan.steps_back,
        "without_index": scan.without_index,
        "unreadable": scan.broken,
        "missing": scan.missing,
    }
    document: IndexReport = {
        **names,
        "ledger_id": ledger.ledger_id,
        "ok": not any(counts.values()) and not wrong and truth in (ABSENT, RIGHT, UNCHECKED),
        "entries": scan.entries,
        **counts,
        "property": truth,
        "faults": [*(IndexFault(fault="ledger", why=why) for why in wrong), *_faults(scan)],
    }
    if scan.head is not None:
        document |= {"first_index": scan.head.first_index, "last_index": scan.last_index}
    if values:
        document["property_values"] = list(values)
    if scan.elsewhere:
        document["not_checked"] = scan.elsewhere
    return document


def property_truth(values: Sequence[str], scan: LedgerScan) -> PropertyTruth:
    """Compare a ledger's first-index property with its first entry."""
    if not values:
        return ABSENT
    if len(values) > 1:
        return DOUBLED
    number = index_number(values[0])
    if number is None:
        return NO_NUMBER
    if scan.entries == 0 or scan.first_entry != 0 or 0 in scan.unreadable:
        return UNCHECKED
    return RIGHT if number == scan.entry_zero_index else FALSE


def index_number(text: str) -> int | None:
    """Return the index in a property, None if the property is not a plain number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def _faults(scan: LedgerScan) -> Iterator[IndexFault]:
    for fault in scan.breaks:
        yield {
            "fault": fault.kind,
            "entry_id": fault.entry_id,
            "expected": fault.expected,
            "first_index": fault.first_index,
            "last_index": fault.last_index,
        }
    for entry_id in scan.unindexed:
        yield {"fault": "no-index", "entry_id": entry_id}
    for entry_id in scan.unreadable:
        yield {"fault": "unreadable", "entry_id": entry_id}

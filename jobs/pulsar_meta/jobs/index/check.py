"""Whether the indexes of topics go on from entry to entry, and whether ledgers' properties are right.

A topic's ledgers are scanned one by one, here or by Spark (`scan_ledger`); the scans are then joined in
reading order (`check_topic`), since a break can lie between two ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, NotRequired, TypedDict

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.index.scan import Break, LedgerScan, kind_of_break, scan_ledger
from pulsar_meta.jobs.topics.topic import Ledger, Topic, TopicNames, contradictions

PropertyTruth = Literal["absent", "right", "false", "no-number", "doubled", "unchecked"]
ABSENT: Final = "absent"
RIGHT: Final = "right"
FALSE: Final = "false"
NO_NUMBER: Final = "no-number"
DOUBLED: Final = "doubled"
UNCHECKED: Final = "unchecked"


class IndexCounts(TypedDict):
    """How often what is wrong with the indexes of a ledger."""

    gaps: int
    overlaps: int
    steps_back: int
    without_index: int
    unreadable: int
    missing: int


class IndexFault(TypedDict):
    """One of at most ten faults of a kind; `why` is of a ledger that BookKeeper knows otherwise."""

    fault: str
    entry_id: NotRequired[int]
    expected: NotRequired[int]
    first_index: NotRequired[int]
    last_index: NotRequired[int]
    why: NotRequired[str]


class IndexReport(IndexCounts):
    """Whether the indexes of a ledger go on, and its property is right."""

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
    """Yield a document for each ledger of the topics, scanned in this process; `key` is the property's."""
    for topic in topics:
        scans = {}
        for ledger in topic.ledgers:
            scans[ledger.ledger_id] = scan_ledger(source, ledger)
            advance(1)
        yield from check_topic(topic, scans, key)


def check_topic(topic: Topic, scans: Mapping[int, LedgerScan], key: str) -> Iterator[IndexReport]:
    """Yield what is right and wrong with each ledger of a topic, in reading order."""
    before: int | None = None
    for ledger in topic.ledgers:
        scan = scans[ledger.ledger_id]
        scan = _joined(scan, before)
        document = ledger_document(topic.names, ledger, scan, key)
        if topic.shadow is not None:
            document["shadow_of"] = topic.shadow.source
        yield document
        # After a ledger of which something is missing nobody knows where the next one should begin.
        if scan.missing or scan.elsewhere or scan.broken:
            before = None
        elif scan.last_index is not None:
            before = scan.last_index


def _joined(scan: LedgerScan, before: int | None) -> LedgerScan:
    """Return the scan with the break, if any, between the ledger before and this one."""
    head = scan.head
    if before is None or head is None or ((scan.missing or scan.elsewhere) and scan.first_entry != 0):
        return scan
    kind = kind_of_break(head.first_index, head.last_index, before + 1)
    if kind is None:
        return scan
    found = Break(kind, head.entry_id, before + 1, head.first_index, head.last_index)
    counts = {"gap": "gaps", "overlap": "overlaps", "step-back": "steps_back"}
    name = counts[kind]
    return replace(scan, breaks=(found, *scan.breaks), **{name: getattr(scan, name) + 1})


def ledger_document(names: TopicNames, ledger: Ledger, scan: LedgerScan, key: str) -> IndexReport:
    """Return the document of one ledger, `names` at its head; `ok` is false where anything is wrong."""
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
    """Return what becomes of a ledger's first-index property when held against its first entry."""
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
    """Return the index that a property says, None where it is no plain number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def _faults(scan: LedgerScan) -> Iterator[IndexFault]:
    for found in scan.breaks:
        yield {
            "fault": found.kind,
            "entry_id": found.entry_id,
            "expected": found.expected,
            "first_index": found.first_index,
            "last_index": found.last_index,
        }
    for entry_id in scan.unindexed:
        yield {"fault": "no-index", "entry_id": entry_id}
    for entry_id in scan.unreadable:
        yield {"fault": "unreadable", "entry_id": entry_id}

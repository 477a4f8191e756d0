"""Whether the indexes of topics go on from entry to entry, and whether ledgers' properties are right.

A topic's ledgers are scanned one by one, here or by Spark (`scan_ledger`); the scans are then joined in
reading order (`check_topic`), since a break can lie between two ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.index.scan import Break, LedgerScan, kind_of_break, scan_ledger
from pulsar_meta.jobs.topics.topic import Ledger, Topic, contradictions

ABSENT: Final = "absent"
RIGHT: Final = "right"
FALSE: Final = "false"
NO_NUMBER: Final = "no-number"
DOUBLED: Final = "doubled"
UNCHECKED: Final = "unchecked"


def check_indexes(
    source: EntrySource,
    topics: Iterable[Topic],
    key: str,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[Document]:
    """Yield a document for each ledger of the topics, scanned in this process; `key` is the property's."""
    for topic in topics:
        scans = {}
        for ledger in topic.ledgers:
            scans[ledger.ledger_id] = scan_ledger(source, ledger)
            advance(1)
        yield from check_topic(topic, scans, key)


def check_topic(topic: Topic, scans: Mapping[int, LedgerScan], key: str) -> Iterator[Document]:
    """Yield what is right and wrong with each ledger of a topic, in reading order."""
    before: int | None = None
    for ledger in topic.ledgers:
        scan = scans[ledger.ledger_id]
        scan = _joined(scan, before)
        document = ledger_document(topic.names, ledger, scan, key)
        yield document if topic.shadow is None else document | {"shadow_of": topic.shadow.source}
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


def ledger_document(names: Mapping[str, str], ledger: Ledger, scan: LedgerScan, key: str) -> Document:
    """Return the document of one ledger, `names` at its head; `ok` is false where anything is wrong."""
    values = ledger.values(key)
    truth, wrong = property_truth(values, scan), list(contradictions(ledger))
    counts = {
        "gaps": scan.gaps,
        "overlaps": scan.overlaps,
        "steps_back": scan.steps_back,
        "without_index": scan.without_index,
        "unreadable": scan.broken,
        "missing": scan.missing,
    }
    document: Document = {
        **names,
        "ledger_id": ledger.ledger_id,
        "ok": not any(counts.values()) and not wrong and truth in (ABSENT, RIGHT, UNCHECKED),
        "entries": scan.entries,
    }
    if scan.head is not None:
        document |= {"first_index": scan.head.first_index, "last_index": scan.last_index}
    document |= counts | {"property": truth}
    if values:
        document["property_values"] = list(values)
    if scan.elsewhere:
        document["not_checked"] = scan.elsewhere
    document["faults"] = [*({"fault": "ledger", "why": why} for why in wrong), *_faults(scan)]
    return document


def property_truth(values: Sequence[str], scan: LedgerScan) -> str:
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


def _faults(scan: LedgerScan) -> Iterator[Document]:
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

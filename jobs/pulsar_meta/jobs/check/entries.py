"""Whether the entries that ledgers should have are where they should be: with a source of entries only.

Whether they are whole is for `verify-entries`. Up to write quorum minus ack quorum copies of an entry may be
missing, so any copy counts.

Sources: apache/bookkeeper LedgerHandle, RoundRobinDistributionSchedule; apache/pulsar OpReadEntry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.sight import Check, Sight, has_entry
from pulsar_meta.jobs.topics.placement import Placement, placement
from pulsar_meta.jobs.topics.topic import Ledger

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WITHOUT_ENTRIES: Final = Code(
    "ledger-without-entries",
    Severity.ERROR,
    "A ledger of which no bookie has an entry",
    means="BookKeeper has its metadata, and none of the disks or bookies that were asked, and that should"
    " have its entries, has any.",
    broker="The topic loads; reading stops there, and clients get nothing. With autoSkipNonRecoverableData"
    " its entries count as acknowledged.",
    errors=("LedgerNotExistException: No such ledger exists on Bookies", "No such entry"),
    comes="A disk was lost or formatted; the metadata was missing for a while, and the bookies collected"
    " the entries; a bookie was replaced under the same name.",
    cure="If the disks are not lost, bring them back. Else take the ledger out of the topic's list: what"
    " comes after is then read again.",
    unless="Bookies that are only down, or whose disks were not given; ledgers that were offloaded and"
    " deleted from BookKeeper. A note where every subscription is past it.",
    evidence={"expected": int, "found": int, "last_entry": int},
)
END_DIFFERS: Final = Code(
    "ledger-end-differs",
    Severity.ERROR,
    "A ledger whose last entries are on no bookie",
    means="The metadata has it closed at an entry that nobody has; the entries end before.",
    broker="Reading stalls there; of the last ledger clients time out in getLastMessageId.",
    errors=("NonRecoverableLedgerException: No such entry",),
    comes="The metadata was rebuilt with a wrong last entry, or disks were restored from an earlier time.",
    cure="Make the metadata OPEN with no last entry, and let the broker recover it; the entries that are"
    " gone stay gone.",
    unless="Disks that hold more than the metadata says, journals that hold more than the entry logs.",
    evidence={"expected": int, "found": int, "last_entry": int, "first_missing": int},
)
ENTRY_MISSING: Final = Code(
    "entry-missing",
    Severity.ERROR,
    "Entries in the middle of a ledger that are on no bookie",
    means="There are entries before and after them, and no copy of these.",
    broker="Reading stops there. **With autoSkipNonRecoverableData the whole ledger is skipped.**",
    errors=("No such entry",),
    comes="A disk lost bytes, or an entry log was removed.",
    cure="Acknowledge these entries individually in each cursor: only they are lost. Readers, which have no"
    " cursor of their own, still stall.",
    evidence={"expected": int, "found": int, "last_entry": int, "first_missing": int},
)
CODES: Final = (WITHOUT_ENTRIES, END_DIFFERS, ENTRY_MISSING)


def entries_there(sight: Sight) -> Iterator[Finding]:
    """Ledgers whose entries are not where the metadata says."""
    source = sight.cluster.on_bookies
    if source is None or sight.is_shadow:
        return
    for ledger in sight.ledgers:
        last = last_expected(sight, ledger)
        if last is not None:
            yield from _of_ledger(sight, source, ledger, last)


TOPIC_CHECKS: Final[tuple[Check, ...]] = (entries_there,)


def last_expected(sight: Sight, ledger: Ledger) -> int | None:
    """Return the last entry that the metadata and the list agree on; None where there is none to look for."""
    facts = sight.facts(ledger.ledger_id)
    gone = ledger.offload is not None and ledger.offload.bookkeeper_deleted
    if facts.metadata != "known" or gone:
        return None
    last = ledger.counted - 1 if facts.last_entry is None else facts.last_entry
    disagree = ledger.counted and last + 1 != ledger.counted
    return None if last < 0 or disagree else last


def _of_ledger(sight: Sight, source: EntrySource, ledger: Ledger, last: int) -> Iterator[Finding]:
    place = placement(ledger, source)
    should = place.count(0, last)
    asked = sight.cluster.asks_bookies
    held = (_count_asked if asked else _count_held)(source, ledger.ledger_id, last, place)
    covers = source.bookies is not None or asked
    if held >= should or (held == 0 and not covers):
        return
    where, evidence = sight.where(ledger.ledger_id), {"expected": should, "found": held, "last_entry": last}
    severity = Severity.NOTE if sight.consumed(ledger) else Severity.ERROR
    read = "; every subscription is past it" if severity is Severity.NOTE else ""
    if held == 0:
        text = f"none of its {should} entries is on a bookie that should have it{read}"
        yield WITHOUT_ENTRIES.found(text, severity=severity, evidence=evidence, **where)
        return
    ids = (
        source.entry_ids(ledger.ledger_id, 0, last) if asked else held_entries(source, ledger.ledger_id, last)
    )
    first = _first_missing(map(int, ids), last, place)
    evidence |= {"first_missing": first}
    count = should - held
    if place.count(first, last) == count:
        text = f"it goes to entry {last}, and the last {count} are on no bookie, from {first} on{read}"
        yield END_DIFFERS.found(text, severity=severity, evidence=evidence, **where)
    else:
        text = f"{count} of its entries are on no bookie that should have them, the first is {first}{read}"
        yield ENTRY_MISSING.found(text, severity=severity, evidence=evidence, **where)


def held_entries(source: EntrySource, ledger_id: int, last: int) -> NDArray[np.int64]:
    """Return the entries up to `last` that a bookie's files have room for, in order.

    Places that an index names beyond the end of a file hold nothing. What is in the records is for
    `verify-entries`.
    """
    import numpy as np

    from pulsar_meta.entries.record_sizes import within_files

    found = [np.empty(0, np.int64)]
    for part in source.parts:
        tables = part.located(ledger_id, 0, last)
        if tables is None:
            found.append(np.fromiter(part.entry_ids(ledger_id, 0, last), np.int64))
        else:
            found += map(within_files, tables)
    return np.unique(np.concatenate(found))


def _count_held(source: EntrySource, ledger_id: int, last: int, place: Placement) -> int:
    """Return how many of the entries up to `last` that should be here are."""
    return place.count_of(held_entries(source, ledger_id, last))


def _count_asked(source: EntrySource, ledger_id: int, last: int, place: Placement) -> int:
    """Return the same of running bookies, which are asked for two entries: counting is reading them all."""
    missing = [one for one in {0, last} if not has_entry(source, ledger_id, one)]
    return 0 if len(missing) == len({0, last}) else last + 1 - len(missing)


def _entries(source: EntrySource, ledger_id: int, last: int, *, asked: bool) -> Iterator[int]:
    """Yield the entries that are there, in order; those of running bookies as they are asked for."""
    if asked:
        yield from source.entry_ids(ledger_id, 0, last)
    else:
        yield from held_entries(source, ledger_id, last).tolist()


def _first_missing(found: Iterable[int], last: int, place: Placement) -> int:
    """Return the first entry that should be here and is not among those that are found, when one is."""
    expected = place.first(0, last)
    for entry_id in found:
        if expected is None or entry_id > expected:
            break
        if entry_id == expected:
            expected = place.first(entry_id + 1, last)
    return last if expected is None else expected

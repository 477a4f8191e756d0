"""`repair offload`: ledgers that are said to be in tiered storage, read from BookKeeper again.

Without its offload a ledger is one like any other: brokers read it from the bookies, and offload it anew when
its turn comes. That needs BookKeeper's copy. An offload that began and did not end is forgotten so, too.

Sources: apache/pulsar ManagedLedgerImpl (getLedgerHandle, prepareLedgerInfoForOffloaded), OffloadUtils; tried
on 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.ledgers import has_begun
from pulsar_meta.jobs.check.topic_view import has_entry
from pulsar_meta.jobs.entries.entry_sources import in_tiered_storage, on_bookies
from pulsar_meta.jobs.repair.records import own_record, packed
from pulsar_meta.jobs.repair.repair import Repair, becoming, undecided
from pulsar_meta.jobs.rewrite.decision import Decided, keep
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.topic import Ledger, Offload, Topic, topic_of, with_bookkeeper
from pulsar_meta.stores.base import Store, Versioned

OBJECT_THERE: Final = "its object is there"


class Judged(NamedTuple):
    """An offloaded ledger, what is to be said of it, and whether it goes back to BookKeeper."""

    ledger_id: int
    text: str
    goes_back: bool


def repair_offload(
    store: Store, source: EntrySource | None, name: TopicName, ledger_ids: Sequence[int], readers: Readers
) -> Repair:
    """Return what has brokers read ledgers of a topic from BookKeeper: these, else all that need it.

    Those that need it began an offload that did not end, or have no object in the tiered storage among
    `source`. NotFoundError for a topic or a ledger that is not there, UsageError for a shadow, and a ledger
    that was not offloaded, DecodeError where the record is broken.
    """
    seen = own_record(store, name)
    topic = topic_of(seen)
    offloaded = [one for one in topic.ledgers if one.offload is not None and has_begun(one.offload)]
    chosen = _chosen(topic, offloaded, ledger_ids)
    known = with_bookkeeper(store if has_metadata(store) else None, chosen, lambda error: None)
    judged = [_judged(one, source, named=bool(ledger_ids)) for one in known]
    unlooked = {}
    if not on_bookies(source):
        unlooked["entries"] = "no --entries of bookies"
    if not in_tiered_storage(source):
        unlooked["objects"] = "no --entries offload:"
    return Repair(
        "offload",
        (_decided(seen, judged, readers),),
        checked={"ledgers": len(topic.ledgers), "offloaded ledgers": len(offloaded)},
        not_checked=unlooked,
        said=tuple(f"ledger {one.ledger_id}: {one.text}" for one in judged),
    )


def _chosen(topic: Topic, offloaded: list[Ledger], ledger_ids: Sequence[int]) -> list[Ledger]:
    by_id = {one.ledger_id: one for one in offloaded}
    for ledger_id in ledger_ids:
        if all(one.ledger_id != ledger_id for one in topic.ledgers):
            raise NotFoundError(f"{topic.name} has no ledger {ledger_id}")
        if ledger_id not in by_id:
            raise UsageError(f"ledger {ledger_id} was not offloaded")
    return [by_id[one] for one in dict.fromkeys(ledger_ids)] if ledger_ids else offloaded


def _judged(ledger: Ledger, source: EntrySource | None, *, named: bool) -> Judged:
    offload = ledger.offload
    assert offload is not None
    if not offload.complete:
        left = f"what it wrote stays in the storage under {offload.uuid}"
        return Judged(ledger.ledger_id, f"its offload did not end: it is forgotten, {left}", goes_back=True)
    why_not = _why_not(ledger, offload, source) or _why_stay(ledger, source, named=named)
    if why_not is not None:
        return Judged(ledger.ledger_id, why_not, goes_back=False)
    return Judged(ledger.ledger_id, "brokers read it from BookKeeper again", goes_back=True)


def _why_not(ledger: Ledger, offload: Offload, source: EntrySource | None) -> str | None:
    """Return why BookKeeper's copy of a ledger cannot be read."""
    last = (ledger.entries or 0) - 1
    bookies = on_bookies(source)
    there = any(has_entry(one, ledger.ledger_id, last) for one in bookies) if last >= 0 else True
    if ledger.metadata in ("absent", "broken"):
        return "BookKeeper does not know it any more: its entries are in the storage alone"
    if bookies and not there:
        return f"the bookies that were given have not got its last entry, {last}"
    if offload.bookkeeper_deleted and not bookies:
        return "it was deleted from BookKeeper, the record says: --entries of bookies show whether it was"
    return None


def _why_stay(ledger: Ledger, source: EntrySource | None, *, named: bool) -> str | None:
    """Return why a ledger that was not asked for by its number stays in tiered storage."""
    if named:
        return None
    objects = in_tiered_storage(source)
    if not objects:
        return "whether its object is there is not known: --entries offload:URL, or name the ledger"
    if any(one.last_entry(ledger.ledger_id) is not None for one in objects):
        return OBJECT_THERE
    return None


def _decided(seen: Versioned, judged: Iterable[Judged], readers: Readers) -> Decided:
    """Return the decision about the record: without the offloads of the ledgers that go back."""
    going = {one.ledger_id for one in judged if one.goes_back}
    staying = [one.text for one in judged if not one.goes_back and one.text != OBJECT_THERE]
    if not going:
        return undecided(seen, staying[0]) if staying else (seen, keep(seen, "already"))
    info = decode_managed_ledger(seen.value)
    for ledger in info.ledgerInfo:
        if ledger.ledgerId in going:
            ledger.ClearField("offloadContext")
    return becoming(seen, packed(seen, info.SerializeToString(), readers))

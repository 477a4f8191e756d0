"""`repair generator`, `repair partitions` and `repair offload`: repairs of records that need no entries.

`generator` raises the counter of ledger ids above every known id. Known ids are the counter itself, ledgers
in `/ledgers`, ledgers that topics, cursors and schemas refer to, and with `--entries` ledgers on the
bookies' disks, including deleted ones that are still in entry logs. If a ledger id is assigned twice,
entries are overwritten, and a new ledger with a low id sorts before the topic's other ledgers.

`partitions` rewrites the record of a partitioned topic from the existing partitions. Brokers with PIP-414
refuse partitions without that record.

`offload` clears the offload context, so that brokers read the ledger from the bookies and offload it again
later. It needs BookKeeper's copy.

Sources: apache/pulsar PulsarLedgerIdGenerator.java, PartitionedTopicMetadata, ManagedLedgerImpl
(getLedgerHandle, prepareLedgerInfoForOffloaded), OffloadUtils; PIP-414. Tested with 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_edit import edit_json
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import SHORT_LEDGER_LIMIT, TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.ledgers import has_begun
from pulsar_meta.jobs.check.topic_view import has_entry
from pulsar_meta.jobs.entries.entry_sources import in_tiered_storage, on_bookies
from pulsar_meta.jobs.repair.repair import Repair, becoming, own_record, packed, undecided
from pulsar_meta.jobs.restore.survey import Survey, survey_target
from pulsar_meta.jobs.restore.values import counter_minimums, missing_bucket
from pulsar_meta.jobs.rewrite.decision import Decided, keep
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.scope import MOST, partitions_with_record
from pulsar_meta.jobs.topics.topic import Ledger, Offload, Report, Topic, topic_of, with_bookkeeper
from pulsar_meta.jobs.values.places import IDGEN, read_counters
from pulsar_meta.stores.base import ABSENT, Store, Versioned, current


def repair_generator(
    store: Store, source: EntrySource | None, report: Report, at_least: int | None = None
) -> Repair:
    """Raise the generator of ledger ids above every known id, or to `at_least`.

    Broken records go to `report`: the ids that they name are not known. UsageError for a store that counts
    nothing.
    """
    if not store.counts_sequences:
        raise UsageError(
            "this kind of store has no counter of ledger ids: use zk:, etcd:, oxia: or rocksdb:",
            source=store.url,
        )
    surveys = [survey_target(store, report)]
    if source is not None:
        surveys.append(Survey())
        surveys[-1].add_disks(source, report)
    if at_least is not None:
        surveys.append(_asked(at_least))
    now = read_counters(store, {bucket for survey in surveys for bucket in survey.buckets})
    floors = counter_minimums(store, store, surveys)
    values = [becoming(current(store, one.path), one.value) for one in missing_bucket(surveys)]
    highest = max((high for survey in surveys for high in survey.ids.highest.items()), default=(0, -1))
    shown = ", ".join(f"{path} at {number}" for path, number in now.items() if path.startswith("/ledgers/"))
    used = highest[0] << 32 | max(highest[1], 0)
    not_checked = {} if source is not None else {"ids that only bookies have": "no --entries"}
    broken = sum(survey.broken for survey in surveys)
    if broken:
        not_checked["ledgers in damaged records"] = str(broken)
    return Repair(
        "generator",
        tuple(values),
        checked={"counters": len(now)},
        not_checked=not_checked,
        said=(f"{shown or IDGEN + ' has no number yet'}; the highest id in use is {used}",),
        counters={path: floor for path, floor in floors.counters.items() if path.startswith("/ledgers/")},
    )


def _asked(at_least: int) -> Survey:
    """Return a survey as if the ledger before that number were there."""
    if at_least >= SHORT_LEDGER_LIMIT:
        raise UsageError(
            f"--at-least {at_least}: 63-bit ids continue from the highest id in use by themselves"
        )
    survey = Survey()
    survey.ids.add(at_least - 1)
    return survey


def repair_partitions(store: Store, name: TopicName, wanted: int | None = None) -> Repair:
    """Write the record of a partitioned topic with `wanted` partitions, by default the existing ones.

    A higher number in the record stays, because partitions are created when they are first used. Raises
    UsageError for the name of a partition or a number that is too low, and NotFoundError if no partition
    exists.
    """
    if name.partition is not None:
        raise UsageError(f"{name} is a partition: name its topic, {name.partitioned}")
    there = [one.partition or 0 for one in partitions_with_record(store, name, MOST)]
    if not there and wanted is None:
        raise NotFoundError(
            f"{name} has no partition: add --count N if it is a partitioned topic", source=store.url
        )
    least = max(there, default=-1) + 1
    if wanted is not None and wanted < least:
        raise UsageError(f"--count {wanted}: partition {least - 1} exists, and partitions are never removed")
    seen = current(store, name.partitioned_path)
    held = _document(seen)
    before = held.get("partitions", 0) if held else 0
    count = wanted if wanted is not None else max(least, before)
    said = [f"{name}: {_was(seen, held)}; {len(there)} partitions have a record, the last one is {least - 1}"]
    absent = sorted(set(range(count)) - set(there))
    if absent:
        said.append(f"{len(absent)} of {count} partitions have no record yet, the first one is {absent[0]}")
    return Repair(
        "partitions",
        (becoming(seen, _value(seen, held, count)),),
        checked={"partitions": len(there)},
        said=tuple(said),
    )


def _document(seen: Versioned) -> dict[str, Any] | None:
    """Parse the record, None if it makes no sense."""
    try:
        held = read_json_object(seen.value)
    except DecodeError:
        return None
    count = held.get("partitions")
    return held if type(count) is int and 0 <= count <= MOST else None


def _was(seen: Versioned, held: dict[str, Any] | None) -> str:
    if seen.version == ABSENT:
        return "no record"
    return "its record can't be read" if held is None else f"its record says {held['partitions']} partitions"


def _value(seen: Versioned, held: dict[str, Any] | None, count: int) -> bytes:
    """Set the number of partitions in the record, and keep its other fields."""
    if held is None:
        return b'{"partitions":%d,"deleted":false}' % count
    return edit_json(seen.value.decode(), held | {"partitions": count}).text.encode()


OBJECT_THERE: Final = "its object exists"


class Judged(NamedTuple):
    """An offloaded ledger, a message about it, and whether brokers will read it from BookKeeper again."""

    ledger_id: int
    text: str
    goes_back: bool


def repair_offload(
    store: Store, source: EntrySource | None, name: TopicName, ledger_ids: Sequence[int], readers: Readers
) -> Repair:
    """Make brokers read ledgers of a topic from BookKeeper again, by default all that need it.

    A ledger needs it if its offload did not finish, or if `source` has tiered storage without its object.
    Raises NotFoundError if there is no such topic or ledger, UsageError for a shadow topic or a ledger that
    was not offloaded, and DecodeError if the record is damaged.
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
        left = f"the parts that it wrote stay in the storage under {offload.uuid}"
        return Judged(ledger.ledger_id, f"its offload did not finish and is cleared; {left}", goes_back=True)
    why_not = _why_not(ledger, offload, source) or _why_stay(ledger, source, named=named)
    if why_not is not None:
        return Judged(ledger.ledger_id, why_not, goes_back=False)
    return Judged(ledger.ledger_id, "brokers will read it from BookKeeper again", goes_back=True)


def _why_not(ledger: Ledger, offload: Offload, source: EntrySource | None) -> str | None:
    """Return why BookKeeper's copy of a ledger cannot be read."""
    last = (ledger.entries or 0) - 1
    bookies = on_bookies(source)
    there = any(has_entry(one, ledger.ledger_id, last) for one in bookies) if last >= 0 else True
    if ledger.metadata in ("absent", "broken"):
        return "BookKeeper no longer has it: its entries are only in tiered storage"
    if bookies and not there:
        return f"the given bookies do not have its last entry, {last}"
    if offload.bookkeeper_deleted and not bookies:
        return (
            "the record says that it was deleted from BookKeeper: add --entries of bookies to see if it was"
        )
    return None


def _why_stay(ledger: Ledger, source: EntrySource | None, *, named: bool) -> str | None:
    """Return why a ledger that was not asked for by its number stays in tiered storage."""
    if named:
        return None
    objects = in_tiered_storage(source)
    if not objects:
        return "cannot tell if its object exists: add --entries offload:URL, or name the ledger"
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

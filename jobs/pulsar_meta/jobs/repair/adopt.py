"""`repair adopt`: bring a ledger that only the disks have back into its topic and into BookKeeper.

Its messages show where it belongs: by index, by their producers' sequence ids and by time. The metadata is
made from the disks, and the list as `repair topic-record` makes it.

Source: apache/bookkeeper ScanAndCompareGarbageCollector (deletes the entries of ledgers without metadata).
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.lost_ledgers import lost_ledgers
from pulsar_meta.jobs.repair.ledger_metadata import DEADLINE, MetadataMaker, Named
from pulsar_meta.jobs.repair.repair import ANY, Repair, own_record
from pulsar_meta.jobs.repair.topic_record import repair_topic_record
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.completeness import completeness_of
from pulsar_meta.jobs.topics.disk_ledger import DiskLedger
from pulsar_meta.jobs.topics.evidence import EvidenceReader, TopicLedgers, membership
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.owners import Owner, owners_of
from pulsar_meta.jobs.topics.topic import Ledger, Report, topic_of
from pulsar_meta.jobs.values.places import IDGEN
from pulsar_meta.stores.base import ABSENT, Store, current
from pulsar_meta.stores.memory import OverlayStore


def repair_adopt(
    store: Store,
    source: EntrySource | None,
    name: TopicName,
    ledger_id: int,
    report: Report,
    readers: Readers = ANY,
    *,
    others: Sequence[Store] = (),
) -> Repair:
    """Write the metadata of a ledger on the disks and put it into the list of its topic.

    `others` are stores of other clusters in the same BookKeeper. If the messages don't show on two ways that
    the ledger is the topic's, the topic's name has to be confirmed. Raises NotFoundError if there is no such
    topic, or if the disks don't have the ledger; UsageError if a record names the ledger, if it has metadata,
    or if its messages contradict the topic's.
    """
    if source is None or not all(part.bookies is not None for part in source.parts):
        raise UsageError("adopt reads the ledger from the bookies' disks: add --entries bookie-disk:PATH")
    clusters = OtherClusters(store, others, report)
    reader = EvidenceReader(store, source, completeness_of(source), clusters)
    record = own_record(store, name)
    topic = TopicLedgers(str(name), topic_of(record).ledgers, lambda other: reader.ledger(other).created)
    ledger = _unnamed(store, reader, clusters, ledger_id)
    said, losses = _evidence(reader, topic, ledger)
    view, seen = OverlayStore(store), current(store, ledger_path(ledger_id))
    listed = Ledger(ledger_id, entries=ledger.entries, state="closed")
    named = Named(
        Owner(ledger_id, "data", str(name), None, record.path),
        listed,
        last=ledger_id > max(topic.ids, default=-1),
    )
    (_, metadata), text = MetadataMaker(view, source, report).decided(seen, named, again=False)
    if metadata.action != "rewrite" or metadata.new is None:
        raise UsageError(f"can't make metadata of ledger {ledger_id}: {metadata.note or metadata.reason}")
    view.put(seen.path, metadata.new, seen.version)
    lists = repair_topic_record(view, source, name, report, readers, others=others)
    losses = (*losses, *lists.losses)
    return Repair(
        "adopt",
        ((seen, metadata), *lists.decided),
        checked={"entries": ledger.entries},
        said=(*said, f"ledger {ledger_id}: {text}", DEADLINE, *_behind(store, ledger_id), *lists.said),
        losses=losses,
        confirm=str(name) if losses else None,
    )


def _unnamed(store: Store, reader: EvidenceReader, clusters: OtherClusters, ledger_id: int) -> DiskLedger:
    """Return a ledger that the disks have and nothing names. Raises NotFoundError or UsageError."""
    if current(store, ledger_path(ledger_id)).version != ABSENT:
        raise UsageError(f"ledger {ledger_id} has metadata: run repair topic-record")
    named = owners_of([ledger_id], store, None, lambda error: None)[ledger_id]
    if named:
        raise UsageError(
            f"{named[0].name} refers to ledger {ledger_id}: run repair ledger-metadata {ledger_id}"
        )
    owner = clusters.owner(ledger_id)
    if owner is not None:
        raise UsageError(f"ledger {ledger_id} belongs to another cluster: {owner} refers to it")
    ledger = reader.disk(ledger_id)
    if ledger is None:
        raise NotFoundError(f"the disks have no entry of ledger {ledger_id}")
    if ledger.content != "messages":
        raise UsageError(f"ledger {ledger_id} has no messages, so it is not part of a topic")
    return ledger


def _evidence(
    reader: EvidenceReader, topic: TopicLedgers, ledger: DiskLedger
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what shows that a ledger is the topic's, and the doubt that has to be confirmed."""
    case = membership(reader, topic, ledger.ledger_id)
    if case.contradicts:
        reasons = "; ".join(piece.says for piece in case.contradicts)
        raise UsageError(f"refusing to adopt ledger {ledger.ledger_id}: {reasons}")
    found = next(iter(lost_ledgers(reader, [topic], [ledger.ledger_id])), None)
    pieces = [piece.says for piece in case.supports]
    if found is not None:
        pieces += [str(piece["says"]) for piece in found.evidence["for"]]
    said = tuple(f"ledger {ledger.ledger_id}: {says}" for says in dict.fromkeys(pieces))
    if found is not None and not found.undecided:
        return said, ()
    doubt = (
        f"only this command says that ledger {ledger.ledger_id} belongs to {topic.name}"
        if not pieces
        else f"only one source says that ledger {ledger.ledger_id} belongs to {topic.name}"
    )
    return said, (
        f"{doubt}: if it belongs to another topic, its messages would be read here, and"
        " trimming would delete them",
    )


def _behind(store: Store, ledger_id: int) -> list[str]:
    """Return a warning if the generator of ids may assign the ledger's id again."""
    number = store.next_sequence(IDGEN)
    if number is None or number > ledger_id:
        return []
    return [f"the next ledger id is {number}: run repair generator before brokers run"]

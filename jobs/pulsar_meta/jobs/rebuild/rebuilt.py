"""The rebuilt store: its values with their certainty and evidence, its counters, and recovered subscriptions.

Counters are set above every id and producer name that was ever assigned. Most cursors had their state only in
the store. For subscriptions without a ledger, markers of replicated subscriptions give a lower bound of the
position. A retried or dead-lettered message names its subscription, but contains no position.

Sources: apache/bookkeeper LedgerLayout.java, ZKRegistrationManager.java (instance id, cookies); apache/pulsar
PulsarLedgerIdGenerator.java, DistributedIdGenerator.java, ReplicatedSubscriptionsController.java,
RetryMessageUtil.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypedDict

from pulsar_meta.codecs.errors import DecodeError, GuardError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.ledger_metadata import decode_cookie
from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rebuild.cursors import (
    FoundCursor,
    UnnamedCursor,
    cursor_facts,
    found_cursors,
    place_text,
    rebuilt_cursors,
    replicated_in,
    state_in_record,
    unnamed_cursors,
)
from pulsar_meta.jobs.rebuild.evidence import DataClues, Rebuilt, RebuiltFacts
from pulsar_meta.jobs.rebuild.kinds import Kind
from pulsar_meta.jobs.rebuild.ledgers import FoundLedger
from pulsar_meta.jobs.rebuild.merging import (
    IN_OLD,
    certain_owners,
    closed_before,
    gone_ledgers,
    merged_cursors,
    merged_needs,
    merged_schemas,
    what_topics_need,
    with_old_metadata,
)
from pulsar_meta.jobs.rebuild.names import GivenCursor, GivenNames, Names, names_on_disks
from pulsar_meta.jobs.rebuild.old_store import OldStore
from pulsar_meta.jobs.rebuild.readable import emptied_ledgers
from pulsar_meta.jobs.rebuild.replication import REPLICATED
from pulsar_meta.jobs.rebuild.scan import Scanner, ScanResult, local_scanner
from pulsar_meta.jobs.rebuild.schemas import SchemaClues, rebuilt_schemas
from pulsar_meta.jobs.rebuild.topics import FoundTopic, UnnamedTopic, found_topics, unnamed
from pulsar_meta.jobs.restore.survey import LedgerIds
from pulsar_meta.jobs.topics.owners import Owner
from pulsar_meta.jobs.topics.topic import Position, Report
from pulsar_meta.jobs.values.places import IDGEN, PRODUCER_NAMES, bucket_path
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.snapshot_writer import SnapshotWriter

# Added to counters, because higher ids may have been assigned to ledgers and producers that are gone.
MARGIN: Final = 1000
_name_re: Final = re.compile(r"-(\d{1,18})-\d{1,18}")


def counters(
    ledgers: Iterable[int], data: Iterable[DataClues], cluster: str, old: Mapping[str, int]
) -> Iterator[Rebuilt]:
    """Yield the next value of each counter, as `next` in its facts. `old` has the values in the old store."""
    ids = LedgerIds()
    for ledger_id in ledgers:
        ids.add(ledger_id)
    wanted = {
        IDGEN if bucket == 0 else bucket_path(bucket): ids.next_in(bucket) for bucket in (0, *ids.highest)
    }
    names = (name for clues in data for name in clues.producers)
    numbers = [int(match[1]) for name in names if (match := _number(name, cluster)) is not None]
    wanted[PRODUCER_NAMES] = max(numbers, default=-1) + 1
    for path in dict.fromkeys((*wanted, *old)):
        number = max(wanted.get(path, 0), old.get(path, 0)) + MARGIN
        why = f"{MARGIN} above the highest known one"
        yield Rebuilt(path, "likely", (why,), None, {"next": number})


def _number(name: str, cluster: str) -> re.Match[str] | None:
    """Match the number in a producer's name that a broker of the cluster generated."""
    return _name_re.fullmatch(name.removeprefix(cluster)) if name.startswith(cluster) else None


def beginning_cursors(
    topics: Iterable[FoundTopic], wanted: Iterable[GivenCursor], scanned: ScanResult
) -> Iterator[Rebuilt]:
    """Yield the subscriptions without a ledger that the operator wants, at the position given in --names."""
    kept = {topic.name: [at for at in topic.ledgers if at in scanned.kept] for topic in topics}
    for given in wanted:
        ledgers = kept.get(given.topic)
        path, facts = given.topic.cursor_path(given.cursor), cursor_facts(given.topic, given.cursor)
        if not ledgers:
            yield Rebuilt(path, "refused", ("its topic has no ledgers on the disks",), None, facts)
            continue
        last = ledgers[-1], scanned.ledgers[ledgers[-1]].last_entry
        position = Position(ledgers[0], -1) if given.start == "earliest" else Position(*last)
        why = f"its state is lost; --names sets it to the {given.start} message"
        facts |= {"position": place_text(position)}
        yield Rebuilt(path, "invented", (why,), state_in_record(position), facts)


def replicated_cursors(
    topics: Iterable[FoundTopic],
    cursors: Iterable[FoundCursor],
    scanned: ScanResult,
    old: OldStore,
    cluster: str,
) -> Iterator[Rebuilt]:
    """Yield the replicated subscriptions without a ledger, at the position in their markers.

    Messages that they acknowledged later are redelivered. Subscriptions that should be in the old store but
    are not are left out.
    """
    present = {(cursor.topic, cursor.name) for cursor in cursors}
    for topic in topics:
        kept = [ledger_id for ledger_id in topic.ledgers if ledger_id in scanned.kept]
        for item in replicated_in(topic, cluster) if kept else ():
            name = item.subscription
            if (topic.name, name) in present or _was_deleted(topic.name, item.ledger_id, old):
                continue
            place = item.position or Position(kept[0], -1)
            where = f"it was at {place_text(place)} or later" if item.position else "its position is unknown"
            facts = cursor_facts(topic.name, name) | {"position": place_text(place)}
            value = state_in_record(place, {REPLICATED: 1})
            yield Rebuilt(topic.name.cursor_path(name), "likely", (item.why, where), value, facts)


class GoneCursor(TypedDict):
    """A subscription of which only the name is known; the operator sets `position` to earliest or latest."""

    topic: str
    cursor: str
    position: None
    evidence: list[str]


def gone_cursors(
    scanned: ScanResult, made: Iterable[tuple[TopicName, str]], old: OldStore
) -> Iterator[Rebuilt]:
    """Yield the subscriptions that are known only from their retried or dead-lettered messages."""
    present = {*made, *old.cursors}
    named: dict[tuple[TopicName, str], int] = {}
    for ledger_id, clues in scanned.clues_of(DataClues).items():
        for subscriber in clues.topic_mentions.subscribers:
            if not _was_deleted(subscriber.topic, ledger_id, old):
                named.setdefault((subscriber.topic, subscriber.cursor), ledger_id)
    for (topic, cursor), ledger_id in named.items():
        if (topic, cursor) not in present:
            why = f"messages that it retried or dead-lettered, in ledger {ledger_id}, contain its name"
            choice = "its position is unknown; to create it at earliest or latest, add a line to --names"
            yield Rebuilt(topic.cursor_path(cursor), "gone", (why, choice), None, cursor_facts(topic, cursor))


def as_names(cursors: Iterable[Rebuilt]) -> Iterator[GoneCursor]:
    """Convert subscriptions of which only the name is known to lines of a file of names."""
    for gone in cursors:
        topic, cursor = gone.facts["topic"], gone.facts["cursor"]
        if topic is not None and cursor is not None:
            yield {"topic": topic, "cursor": cursor, "position": None, "evidence": list(gone.evidence)}


def _was_deleted(topic: TopicName, ledger_id: int, old: OldStore) -> bool:
    """True if a subscription in `ledger_id` would be in the old store, unless it had been deleted."""
    return topic in old.topics and ledger_id < old.next_id


LAYOUT: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
# The kinds of ledgers that can have a name.
NAMED_KINDS: Final = frozenset(("data", "cursor", "transaction-log", "pending-acks", "compacted"))


@dataclass(frozen=True, slots=True)
class Known:
    """Facts that are not on the disks and that the operator supplies.

    `password` is the brokers' password for ledgers, `lost` are bookies whose disks are missing, `ack_quorum`
    is the brokers' ack quorum. `given` has the operator's names, `logged` names from brokers' logs and from
    tiered storage, `old` an older store. If `policies_as_they_were` is False, policies are changed to keep
    everything. `cluster` is the cluster's name in the brokers' configuration.
    """

    password: bytes = b""
    lost: tuple[str, ...] = ()
    ack_quorum: int | None = None
    given: GivenNames = field(default_factory=GivenNames)
    logged: Names = field(default_factory=dict)
    old: OldStore = field(default_factory=OldStore)
    policies_as_they_were: bool = False
    cluster: str = "standalone"


def scan_disks(
    source: EntrySource, report: Report, known: Known, scanner: Scanner | None = None
) -> ScanResult:
    """Scan all ledgers on the disks with `scanner`; by default in this process.

    Damage goes to `report`. Raises UsageError if the disks are not those of known bookies, and
    UnreachableError.
    """
    check_disks(source)
    scanner = scanner or local_scanner(source, report, password=known.password, lost=known.lost)
    return ScanResult.of(list(scanner(source.ledgers())), known.password)


def rebuilt_values(
    source: EntrySource, report: Report, known: Known, scanner: Scanner | None = None
) -> Iterator[Rebuilt]:
    """Yield the rebuilt values: BookKeeper's cluster, ledgers, topics, and the other values that topics need.

    Raises like `scan_disks`; also UsageError if a name is given for a ledger that can't have it or if
    `cluster` is not the cluster's name, and GuardError if the disks belong to several clusters.
    """
    check_disks(source)
    old, cluster = known.old, list(_cluster(source))
    scanned = scan_disks(source, report, known, scanner)
    _check_cluster(scanned, known.cluster)
    names = _names(scanned, known)
    topics = _with_old(found_topics(scanned, names), old)
    cursors = found_cursors(scanned, topics, names, known.cluster)
    records = [topic.rebuilt(scanned.ledgers, old.topics.get(topic.name)) for topic in topics]
    listed = {ledger_id for record in records for ledger_id in record.facts.get("ledgers", ())}
    owners = certain_owners(scanned, topics, cursors, listed)
    for at, ledger in scanned.ledgers.items():
        yield _ledger(ledger, scanned.kinds[at], known, owners.get(at))
    yield from gone_ledgers(scanned, old)
    yield from _emptied(source, report)
    yield from records
    given, ends = known.given.cursors, _ends(topics, records, scanned)
    yield from merged_cursors(
        [
            *replicated_cursors(topics, cursors, scanned, old, known.cluster),
            *rebuilt_cursors(scanned, topics, cursors, ends),
            *beginning_cursors(topics, given, scanned),
        ],
        cursors,
        scanned,
        old,
        ends,
    )
    yield from gone_cursors(scanned, _named(cursors, given), old)
    from_disks = rebuilt_schemas(scanned.clues_of(SchemaClues).values(), scanned.kept)
    schemas = list(merged_schemas(from_disks, scanned, old))
    yield from schemas
    data = scanned.clues_of(DataClues).values()
    yield from counters(scanned.ledgers, data, known.cluster, old.counters)
    needs = what_topics_need(topics, (schema.facts["schema"] for schema in schemas), known.cluster)
    yield from merged_needs([*cluster, *needs], old, as_they_were=known.policies_as_they_were)


def _ends(
    topics: Sequence[FoundTopic], records: Sequence[Rebuilt], scanned: ScanResult
) -> dict[TopicName, Position]:
    """Map topics to their last positions, if their last ledgers are on the disks."""
    ends = {}
    for topic, record in zip(topics, records, strict=True):
        last = scanned.ledgers.get(max(record.facts.get("ledgers", ()), default=-1))
        if last is not None:
            ends[topic.name] = Position(last.ledger_id, last.last_entry)
    return ends


def unnamed_groups(
    source: EntrySource, report: Report, known: Known, scanner: Scanner | None = None
) -> Iterator[UnnamedTopic | UnnamedCursor | GoneCursor]:
    """Yield topics, cursors, and subscriptions without a ledger as lines of a file of names to be filled in.

    Raises like `rebuilt_values`.
    """
    scanned = scan_disks(source, report, known, scanner)
    names = _names(scanned, known)
    topics = found_topics(scanned, names)
    yield from unnamed(source, topics)
    cursors = found_cursors(scanned, topics, names, known.cluster)
    recent = (cursor for cursor in cursors if cursor.clues.ledger_id >= known.old.next_id)
    yield from unnamed_cursors(recent)
    yield from as_names(gone_cursors(scanned, _named(cursors, known.given.cursors), known.old))


def _named(cursors: Iterable[FoundCursor], given: Iterable[GivenCursor]) -> Iterator[tuple[TopicName, str]]:
    """Yield the subscriptions that are rebuilt."""
    yield from ((wanted.topic, wanted.cursor) for wanted in given)
    for cursor in cursors:
        if cursor.topic is not None and cursor.name is not None:
            yield cursor.topic, cursor.name


def _names(scanned: ScanResult, known: Known) -> Names:
    for ledger_id, named in sorted(known.given.ledgers.items()):
        kind = scanned.kinds.get(ledger_id)
        if kind not in NAMED_KINDS:
            raise UsageError(f"ledger {ledger_id} can't be named: the disks have no data of it")
        if named.cursor is not None and kind != "cursor":
            raise UsageError(f"ledger {ledger_id} can't have a cursor's name: it is of kind {kind}")
    return {**names_on_disks(scanned), **known.logged, **known.old.names, **known.given.ledgers}


def _with_old(topics: Sequence[FoundTopic], old: OldStore) -> list[FoundTopic]:
    """Add the topics that are only in the old store."""
    here = {topic.name for topic in topics}
    why = (IN_OLD, "none of its ledgers is on the disks")
    return [*topics, *(FoundTopic(name, "old", (), why) for name in old.topics if name not in here)]


def _check_cluster(scanned: ScanResult, cluster: str) -> None:
    """Raise UsageError if replication markers contain other names of this cluster, but not `cluster`."""
    clues = scanned.clues_of(DataClues).items()
    names = {ledger.replicated.cluster: at for at, ledger in clues if ledger.replicated.cluster}
    if names and cluster not in names:
        name, ledger_id = next(iter(names.items()))
        why = f"according to a marker in ledger {ledger_id}, this cluster is called {name!r}"
        raise UsageError(f"{why}: add --cluster {name}")


def check_disks(source: EntrySource) -> None:
    """Raise UsageError if the entries come from anything but the disks of bookies with known ids."""
    for part in source.parts:
        if part.bookies is None:
            raise UsageError(
                "rebuild needs bookies' disks with a cookie (file VERSION), which has the bookie's id",
                source=next((str(at) for at in getattr(part.entry_logs, "directories", ())), part.url),
            )


def write_rebuilt(values: Iterable[Rebuilt], target: Path, head: Document) -> list[Rebuilt]:
    """Write the values to a snapshot, which appears only when it is complete. Returns the values.

    Raises UsageError if `target` can't be written.
    """
    rebuilt = list(values)
    counted = {item.path: item.facts["next"] for item in rebuilt if "next" in item.facts}
    with closing(SnapshotWriter(target, {**head, "counters": counted})) as writer:
        for item in sorted(rebuilt, key=lambda item: item.path):
            if item.value is not None:
                writer.add(Versioned(item.path, item.value, 0))
        writer.finish({})
    return rebuilt


def _cluster(source: EntrySource) -> Iterator[Rebuilt]:
    """Yield the values that define BookKeeper's cluster: its layout, instance id and cookies."""
    cookies = dict(sorted(source.cookies.items()))
    instances = {bookie: decode_cookie(cookie).fields.instanceId for bookie, cookie in cookies.items()}
    known = sorted(set(filter(None, instances.values())))
    if len(known) > 1:
        raise GuardError(
            f"disks of {len(known)} clusters: instance ids {', '.join(known)}", source=source.url
        )
    yield Rebuilt(f"{LEDGERS}/LAYOUT", "invented", ("the default in ZooKeeper",), LAYOUT)
    path = f"{LEDGERS}/INSTANCEID"
    if known:
        yield Rebuilt(path, "certain", ("in the cookies",), known[0].encode())
    else:
        yield Rebuilt(path, "refused", ("no cookie contains one: releases before 2.9 did not write it",))
    for bookie, cookie in cookies.items():
        yield Rebuilt(f"{LEDGERS}/cookies/{bookie}", "certain", ("the file VERSION, byte for byte",), cookie)


def _ledger(ledger: FoundLedger, kind: Kind, known: Known, owner: Owner | None) -> Rebuilt:
    path, facts = ledger_path(ledger.ledger_id), _facts(ledger, kind)
    closed = closed_before(ledger.ledger_id, known.old)
    if closed is not None:
        why = "it was closed when the old store was copied"
        return Rebuilt(path, "old", (why, *_gaps(ledger)), closed, facts)
    if ledger.refused is not None:
        return Rebuilt(path, "refused", (ledger.refused, *_unreadable(ledger)), facts=facts)
    evidence = (*_gaps(ledger), *ledger.unsure)
    value = ledger.value(known.password, known.ack_quorum)
    value = with_old_metadata(value, ledger.ledger_id, known.old, owner)
    if evidence:
        return Rebuilt(path, "likely", evidence, value, facts)
    return Rebuilt(path, "certain", ("its entries and the bookies that hold them",), value, facts)


def _emptied(source: EntrySource, report: Report) -> Iterator[Rebuilt]:
    """Yield the ledgers of which the disks have lost every entry."""
    emptied = emptied_ledgers(source)
    if emptied:
        text = f"no disk has an entry of {len(emptied)} ledgers of which bookies had some; the first is"
        report(DecodeError(f"{text} {emptied[0]}", source=source.url))
    for ledger_id in emptied:
        why = "a bookie had entries of it, and no disk has one"
        yield Rebuilt(ledger_path(ledger_id), "gone", (why,), None, {"gone": ledger_id})


def _gaps(ledger: FoundLedger) -> Iterator[str]:
    if ledger.missing:
        count = sum(last - first + 1 for first, last in ledger.missing)
        yield f"{count} entries before its last one are on no disk, the first is {ledger.missing[0][0]}"
    yield from _unreadable(ledger)


def _unreadable(ledger: FoundLedger) -> Iterator[str]:
    if ledger.unreadable:
        count, first = sum(last - first + 1 for first, last in ledger.unreadable), ledger.unreadable[0][0]
        yield f"{count} entries that the disks should have can't be read, the first is {first}"


def _facts(ledger: FoundLedger, kind: Kind) -> RebuiltFacts:
    quorum = ledger.striping.quorum
    return {
        "ledger_id": ledger.ledger_id,
        "kind": kind,
        "entries": ledger.entries,
        "last_entry": ledger.last_entry,
        "size": ledger.length,
        "digest_type": ledger.digest_type,
        "ensemble_size": quorum.ensemble,
        "write_quorum": quorum.write,
        "ensembles": [
            {"first_entry": segment.first_entry, "bookies": list(segment.members)}
            for segment in ledger.striping.segments
        ],
        "missing": [list(run) for run in ledger.missing],
        "unreadable": [list(run) for run in ledger.unreadable],
        "fenced": ledger.fenced,
    }

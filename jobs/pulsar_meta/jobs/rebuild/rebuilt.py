"""The rebuilt store: its values with their certainty and evidence, its counters, and recovered subscriptions.

Counters are set above every id and producer name that was ever given out. Most cursors had their state only
in the
store. For subscriptions without a ledger, markers of replicated subscriptions give a lower bound of the
position; a
retried or dead-lettered message names its subscription without a position.

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

from pulsar_meta.codecs.errors import GuardError, UsageError
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
from pulsar_meta.jobs.rebuild.replication import REPLICATED
from pulsar_meta.jobs.rebuild.scan import Scanned, Scanner, scan_here
from pulsar_meta.jobs.rebuild.schemas import SchemaClues, rebuilt_schemas
from pulsar_meta.jobs.rebuild.topics import FoundTopic, UnnamedTopic, found_topics, unnamed
from pulsar_meta.jobs.restore.survey import LedgerIds
from pulsar_meta.jobs.topics.topic import Position, Report
from pulsar_meta.jobs.values.places import IDGEN, PRODUCER_NAMES, bucket_path
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.snapshot_writer import SnapshotWriter

# Above the highest one on the disks others were given out, to ledgers and producers of which nothing is left.
LEFT_NOTHING: Final = 1000
_name_re: Final = re.compile(r"-(\d{1,18})-\d{1,18}")


def counters(
    ledgers: Iterable[int], data: Iterable[DataClues], cluster: str, old: Mapping[str, int]
) -> Iterator[Rebuilt]:
    """Yield how far each counter has to be, as `next` in its facts; `old` is how far they were once."""
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
        number = max(wanted.get(path, 0), old.get(path, 0)) + LEFT_NOTHING
        why = f"{LEFT_NOTHING} behind the highest that is known"
        yield Rebuilt(path, "likely", (why,), None, {"next": number})


def _number(name: str, cluster: str) -> re.Match[str] | None:
    """Return the broker's number in a producer's name that a broker of the cluster gave out."""
    return _name_re.fullmatch(name.removeprefix(cluster)) if name.startswith(cluster) else None


def beginning_cursors(
    topics: Iterable[FoundTopic], wanted: Iterable[GivenCursor], scanned: Scanned
) -> Iterator[Rebuilt]:
    """Yield the subscriptions of which no ledger is left, where the person wants them to begin."""
    ledgers = {topic.name: [one for one in topic.ledgers if one in scanned.kept] for topic in topics}
    for one in wanted:
        mine = ledgers.get(one.topic)
        path, facts = one.topic.cursor_path(one.cursor), cursor_facts(one.topic, one.cursor)
        if not mine:
            yield Rebuilt(path, "refused", ("its topic has no ledgers here",), None, facts)
            continue
        last = mine[-1], scanned.found[mine[-1]].last_entry
        position = Position(mine[0], -1) if one.start == "earliest" else Position(*last)
        why = f"nothing of it is left; it begins with the {one.start}, as was given"
        yield Rebuilt(
            path, "invented", (why,), state_in_record(position), facts | {"position": place_text(position)}
        )


def replicated_cursors(
    topics: Iterable[FoundTopic],
    cursors: Iterable[FoundCursor],
    scanned: Scanned,
    old: OldStore,
    cluster: str,
) -> Iterator[Rebuilt]:
    """Yield the replicated subscriptions of which no ledger is left, where the markers have them.

    What they acknowledged since comes again. Those that an older store would have known, and did not, are
    left out.
    """
    there = {(one.topic, one.name) for one in cursors}
    for topic in topics:
        kept = [one for one in topic.ledgers if one in scanned.kept]
        for one in replicated_in(topic, cluster):
            known = (topic.name, one.subscription) in there or _was_gone(topic.name, one.ledger_id, old)
            if known or not kept:
                continue
            path, facts = topic.name.cursor_path(one.subscription), cursor_facts(topic.name, one.subscription)
            place = one.position or Position(kept[0], -1)
            where = f"it was at {place_text(place)} or later" if one.position else "nothing says where it was"
            value = state_in_record(place, {REPLICATED: 1})
            yield Rebuilt(path, "likely", (one.why, where), value, facts | {"position": place_text(place)})


class GoneCursor(TypedDict):
    """A subscription of which only the name is left; `position` is to be filled in: earliest, latest."""

    topic: str
    cursor: str
    position: None
    evidence: list[str]


def gone_cursors(scanned: Scanned, made: Iterable[tuple[TopicName, str]], old: OldStore) -> Iterator[Rebuilt]:
    """Yield the subscriptions that put messages off, and of which nothing else is left."""
    there = {*made, *old.cursors}
    named: dict[tuple[TopicName, str], int] = {}
    for ledger_id, clues in scanned.said(DataClues).items():
        for subscriber in clues.announced.subscribers:
            if not _was_gone(subscriber.topic, ledger_id, old):
                named.setdefault((subscriber.topic, subscriber.cursor), ledger_id)
    for (topic, cursor), ledger_id in named.items():
        if (topic, cursor) not in there:
            why = f"messages that it put off, in ledger {ledger_id}, have its name"
            choice = "nothing says where it stood; a line of --names makes it, at earliest or latest"
            yield Rebuilt(topic.cursor_path(cursor), "gone", (why, choice), None, cursor_facts(topic, cursor))


def as_names(cursors: Iterable[Rebuilt]) -> Iterator[GoneCursor]:
    """Yield subscriptions of which only the name is left as lines of a file of names."""
    for one in cursors:
        topic, cursor = one.facts["topic"], one.facts["cursor"]
        if topic is not None and cursor is not None:
            yield {"topic": topic, "cursor": cursor, "position": None, "evidence": list(one.evidence)}


def _was_gone(topic: TopicName, ledger_id: int, old: OldStore) -> bool:
    """Return whether what an older ledger names of a topic is none of what the old store knew of it."""
    return topic in old.topics and ledger_id < old.next_id


LAYOUT: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
# Ledgers of these kinds can be given a name.
NAMED_KINDS: Final = frozenset(("data", "cursor", "transaction-log", "pending-acks", "compacted"))


@dataclass(frozen=True, slots=True)
class Known:
    """What disks do not say and a person does.

    `password` is what brokers gave to ledgers, `lost` are bookies whose disks are not here, `ack_quorum` what
    brokers waited for. `given` is what a person says of names, `logged` what brokers' logs and objects in
    tiered storage do, `old` what an older store knew; with `policies_as_they_were` its policies are not made
    to keep everything. `cluster` is the brokers' own name of it.
    """

    password: bytes = b""
    lost: tuple[str, ...] = ()
    ack_quorum: int | None = None
    given: GivenNames = field(default_factory=GivenNames)
    logged: Names = field(default_factory=dict)
    old: OldStore = field(default_factory=OldStore)
    policies_as_they_were: bool = False
    cluster: str = "standalone"


def scan_disks(source: EntrySource, report: Report, known: Known, scanner: Scanner | None = None) -> Scanned:
    """Return what all ledgers on the disks are and say; `scanner` looks at them, by default here.

    Damage goes to `report`. UsageError where these are no disks of known bookies; UnreachableError.
    """
    check_disks(source)
    scanner = scanner or scan_here(source, report, password=known.password, lost=known.lost)
    return Scanned.of(list(scanner(source.ledgers())), known.password)


def rebuilt_values(
    source: EntrySource, report: Report, known: Known, scanner: Scanner | None = None
) -> Iterator[Rebuilt]:
    """Yield what the disks tell: BookKeeper's cluster, every ledger in order, the topics, what they need.

    Raises as `scan_disks`, UsageError also where a name is for a ledger that has none, and where the cluster
    calls itself otherwise; GuardError where the disks are of several clusters.
    """
    check_disks(source)
    old, cluster = known.old, list(_cluster(source))
    scanned = scan_disks(source, report, known, scanner)
    _check_cluster(scanned, known.cluster)
    yield from (_ledger(one, scanned.kinds[at], known) for at, one in scanned.found.items())
    yield from gone_ledgers(scanned, old)
    names = _names(scanned, known)
    topics = _with_old(found_topics(scanned, names), old)
    yield from (topic.rebuilt(scanned.found, old.topics.get(topic.name)) for topic in topics)
    cursors = found_cursors(scanned, topics, names, known.cluster)
    given = known.given.cursors
    yield from merged_cursors(
        [
            *replicated_cursors(topics, cursors, scanned, old, known.cluster),
            *rebuilt_cursors(scanned, topics, cursors),
            *beginning_cursors(topics, given, scanned),
        ],
        cursors,
        scanned,
        old,
    )
    yield from gone_cursors(scanned, _named(cursors, given), old)
    schemas = list(
        merged_schemas(rebuilt_schemas(scanned.said(SchemaClues).values(), scanned.kept), scanned, old)
    )
    yield from schemas
    data = scanned.said(DataClues).values()
    yield from counters(scanned.found, data, known.cluster, old.counters)
    needs = what_topics_need(topics, (one.facts["schema"] for one in schemas), known.cluster)
    yield from merged_needs([*cluster, *needs], old, as_they_were=known.policies_as_they_were)


def unnamed_groups(
    source: EntrySource, report: Report, known: Known, scanner: Scanner | None = None
) -> Iterator[UnnamedTopic | UnnamedCursor | GoneCursor]:
    """Yield each topic and cursor whose name nothing says, as lines of a file of names.

    Behind them subscriptions of which only the name is left.

    Raises as `rebuilt_values`.
    """
    scanned = scan_disks(source, report, known, scanner)
    names = _names(scanned, known)
    topics = found_topics(scanned, names)
    yield from unnamed(source, topics)
    cursors = found_cursors(scanned, topics, names, known.cluster)
    yield from unnamed_cursors(one for one in cursors if one.clues.ledger_id >= known.old.next_id)
    yield from as_names(gone_cursors(scanned, _named(cursors, known.given.cursors), known.old))


def _named(cursors: Iterable[FoundCursor], given: Iterable[GivenCursor]) -> Iterator[tuple[TopicName, str]]:
    """Yield the subscriptions that are made."""
    yield from ((one.topic, one.cursor) for one in given)
    yield from ((one.topic, one.name) for one in cursors if one.topic is not None and one.name is not None)


def _names(scanned: Scanned, known: Known) -> Names:
    for ledger_id, named in sorted(known.given.ledgers.items()):
        kind = scanned.kinds.get(ledger_id)
        if kind not in NAMED_KINDS:
            raise UsageError(f"ledger {ledger_id} has a name, and the disks have no data of it")
        if named.cursor is not None and kind != "cursor":
            raise UsageError(f"ledger {ledger_id} is given a cursor's name, and holds {kind}")
    return {**names_on_disks(scanned), **known.logged, **known.old.names, **known.given.ledgers}


def _with_old(topics: Sequence[FoundTopic], old: OldStore) -> list[FoundTopic]:
    """Return the topics of the disks, and those that only the old store has."""
    here = {topic.name for topic in topics}
    why = ("the old store has it", "no ledger of it is on the disks")
    return [*topics, *(FoundTopic(name, "old", (), why) for name in old.topics if name not in here)]


def _check_cluster(scanned: Scanned, cluster: str) -> None:
    """Raise UsageError where no marker of replication has the cluster's name, and some have another one."""
    said = {
        one.replicated.cluster: at for at, one in scanned.said(DataClues).items() if one.replicated.cluster
    }
    if said and cluster not in said:
        name, ledger_id = next(iter(said.items()))
        raise UsageError(f"a marker in ledger {ledger_id} calls this cluster {name!r}: --cluster {name}")


def check_disks(source: EntrySource) -> None:
    """Raise UsageError where entries come from elsewhere than from disks of bookies that can be named."""
    for part in source.parts:
        if part.bookies is None:
            raise UsageError(
                "a ledger's metadata names its bookies: expected bookies' disks with a cookie (VERSION)",
                source=part.url,
            )


def write_rebuilt(values: Iterable[Rebuilt], target: Path, head: Document) -> list[Rebuilt]:
    """Write the values to a snapshot, which appears when it is whole; return them.

    UsageError where nothing can be written to `target`.
    """
    rebuilt = list(values)
    counted = {one.path: one.facts["next"] for one in rebuilt if "next" in one.facts}
    with closing(SnapshotWriter(target, {**head, "counters": counted})) as writer:
        for one in sorted(rebuilt, key=lambda one: one.path):
            if one.value is not None:
                writer.add(Versioned(one.path, one.value, 0))
        writer.finish({})
    return rebuilt


def _cluster(source: EntrySource) -> Iterator[Rebuilt]:
    """Yield what makes bookies one cluster: its layout, its instance id, their cookies."""
    cookies = dict(sorted(source.cookies.items()))
    instances = {bookie: decode_cookie(cookie).fields.instanceId for bookie, cookie in cookies.items()}
    known = sorted(set(filter(None, instances.values())))
    if len(known) > 1:
        raise GuardError(
            f"disks of {len(known)} clusters: instance ids {', '.join(known)}", source=source.url
        )
    yield Rebuilt(f"{LEDGERS}/LAYOUT", "invented", ("what ZooKeeper has by default",), LAYOUT)
    path = f"{LEDGERS}/INSTANCEID"
    if known:
        yield Rebuilt(path, "certain", ("in the cookies",), known[0].encode())
    else:
        yield Rebuilt(path, "refused", ("no cookie has one: releases before 2.9 wrote none",))
    for bookie, cookie in cookies.items():
        yield Rebuilt(f"{LEDGERS}/cookies/{bookie}", "certain", ("the file VERSION, byte for byte",), cookie)


def _ledger(found: FoundLedger, kind: Kind, known: Known) -> Rebuilt:
    path, facts = ledger_path(found.ledger_id), _facts(found, kind)
    closed = closed_before(found.ledger_id, known.old)
    if closed is not None:
        why = "it was closed when the old store was taken"
        return Rebuilt(path, "old", (why, *_gaps(found)), closed, facts)
    if found.refused is not None:
        return Rebuilt(path, "refused", (found.refused,), facts=facts)
    likely = bool(found.unsure or found.missing)
    value = found.value(known.password, known.ack_quorum)
    return Rebuilt(
        path,
        "likely" if likely else "certain",
        (*_gaps(found), *found.unsure) or ("its entries and where they lie",),
        with_old_metadata(value, found.ledger_id, known.old),
        facts,
    )


def _gaps(found: FoundLedger) -> Iterator[str]:
    if found.missing:
        count = sum(last - first + 1 for first, last in found.missing)
        yield f"{count} entries before its last are on no disk, the first is {found.missing[0][0]}"


def _facts(found: FoundLedger, kind: Kind) -> RebuiltFacts:
    quorum = found.striping.quorum
    return {
        "ledger_id": found.ledger_id,
        "kind": kind,
        "entries": found.entries,
        "last_entry": found.last_entry,
        "size": found.length,
        "digest_type": found.digest_type,
        "ensemble_size": quorum.ensemble,
        "write_quorum": quorum.write,
        "ensembles": [
            {"first_entry": segment.first_entry, "bookies": list(segment.members)}
            for segment in found.striping.segments
        ],
        "missing": [list(run) for run in found.missing],
        "fenced": found.fenced,
    }

"""A store made again from bookies' disks: its values, each with how certain it is and what says so.

Sources: apache/bookkeeper LedgerLayout.java, ZKRegistrationManager.java (instance id, cookies).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pulsar_meta.codecs.errors import GuardError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.cookie import decode_cookie
from pulsar_meta.codecs.names import LEDGERS, SHORT_LEDGER_LIMIT, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rebuild.clues import mention
from pulsar_meta.jobs.rebuild.evidence import Rebuilt
from pulsar_meta.jobs.rebuild.kinds import Kind, kind_of
from pulsar_meta.jobs.rebuild.ledgers import FoundLedger, found_ledgers
from pulsar_meta.jobs.rebuild.names import Names, names_on_disks
from pulsar_meta.jobs.rebuild.topics import (
    FoundGroups,
    groups_of,
    rebuilt_topics,
    unnamed,
    what_topics_need,
)
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.jobs.values.counters import IDGEN, IDGEN_LONG
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.snapshot_writer import SnapshotWriter

LAYOUT: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
# Above the highest id on the disks others were given out, to ledgers of which nothing is left.
LEFT_NOTHING: Final = 1000


@dataclass(frozen=True, slots=True)
class Known:
    """What disks do not say and a person does.

    `password` is what brokers gave to ledgers, `lost` are bookies whose disks are not here, `ack_quorum` what
    brokers waited for. `names` has the topics of ledgers as a person gave them, `old_names` those of an old
    store; `cluster` is the brokers' own name of it.
    """

    password: bytes = b""
    lost: tuple[str, ...] = ()
    ack_quorum: int | None = None
    names: Names = field(default_factory=dict)
    old_names: Names = field(default_factory=dict)
    cluster: str = "standalone"


def rebuilt_values(source: EntrySource, report: Report, known: Known) -> Iterator[Rebuilt]:
    """Yield what the disks tell: BookKeeper's cluster, every ledger in order, the topics, what they need.

    Damage goes to `report`. UsageError where these are no disks of known bookies, or a name is for a ledger
    that they do not have as data; GuardError where they are of several clusters; UnreachableError.
    """
    check_disks(source)
    yield from _cluster(source)
    ledgers = list(_with_kinds(source, report, known))
    yield from (_ledger(found, kind, known) for found, kind in ledgers)
    groups, data, names = _groups(source, ledgers, known)
    yield from rebuilt_topics(groups, data, names)
    yield from what_topics_need(groups, known.cluster)


def unnamed_groups(source: EntrySource, report: Report, known: Known) -> Iterator[Document]:
    """Yield each topic whose name nothing says, as a line of a file of names; raises as `rebuilt_values`."""
    check_disks(source)
    groups, _, _ = _groups(source, list(_with_kinds(source, report, known)), known)
    yield from unnamed(source, groups)


def _with_kinds(source: EntrySource, report: Report, known: Known) -> Iterator[tuple[FoundLedger, Kind]]:
    for found in found_ledgers(source, report, password=known.password, lost=known.lost):
        yield found, kind_of(source, found.ledger_id, found.last_entry, found.digest_type)


def _groups(
    source: EntrySource, ledgers: Sequence[tuple[FoundLedger, Kind]], known: Known
) -> tuple[FoundGroups, dict[int, FoundLedger], Names]:
    data = {found.ledger_id: found for found, kind in ledgers if kind == "data"}
    strange = sorted(known.names.keys() - data.keys())
    if strange:
        raise UsageError(f"ledger {strange[0]} has a name, and the disks have no data of it")
    names = {**names_on_disks(source, data), **known.old_names, **known.names}
    mentions = [mention(source, found.ledger_id, kind, found.digest_type) for found, kind in ledgers]
    return groups_of(source, data, mentions, names), data, names


def check_disks(source: EntrySource) -> None:
    """Raise UsageError where entries come from elsewhere than from disks of bookies that can be named."""
    for part in source.parts:
        if part.bookies is None:
            raise UsageError(
                "a ledger's metadata names its bookies: expected bookies' disks with a cookie (VERSION)",
                source=part.url,
            )


def write_rebuilt(
    values: Iterable[Rebuilt], ledger_ids: Iterable[int], target: Path, head: Document
) -> list[Rebuilt]:
    """Write the values to a snapshot, which appears when it is whole; return them.

    `ledger_ids` are all on the disks: the snapshot's counters are past them. UsageError where nothing can be
    written to `target`.
    """
    rebuilt = list(values)
    with closing(SnapshotWriter(target, head | {"counters": _counters(ledger_ids)})) as writer:
        for one in sorted(rebuilt, key=lambda one: one.path):
            if one.value is not None:
                writer.add(Versioned(one.path, one.value, 0))
        writer.finish({})
    return rebuilt


def _counters(ledger_ids: Iterable[int]) -> dict[str, int]:
    """Return the next id to give out, by the path of what gives them out: those of 31 and of 63 bits."""
    ids = set(ledger_ids)
    short = {one for one in ids if one < SHORT_LEDGER_LIMIT}
    counters = {IDGEN: max(short, default=-1) + 1 + LEFT_NOTHING}
    return counters | ({IDGEN_LONG: max(ids) + 1 + LEFT_NOTHING} if ids - short else {})


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
    if found.refused is not None:
        return Rebuilt(path, "refused", (found.refused,), facts=facts)
    likely = bool(found.unsure or found.missing)
    return Rebuilt(
        path,
        "likely" if likely else "certain",
        (*_gaps(found), *found.unsure) or ("its entries and where they lie",),
        found.value(known.password, known.ack_quorum),
        facts,
    )


def _gaps(found: FoundLedger) -> Iterator[str]:
    if found.missing:
        count = sum(last - first + 1 for first, last in found.missing)
        yield f"{count} entries before its last are on no disk, the first is {found.missing[0][0]}"


def _facts(found: FoundLedger, kind: Kind) -> Document:
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

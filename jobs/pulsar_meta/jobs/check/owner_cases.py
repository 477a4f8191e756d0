"""Decides to which topic or cluster a ledger belongs: listed, unlisted, copied and unreferenced ledgers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.check.case_context import CaseContext, with_case
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.topics.disk_ledger import overlaps
from pulsar_meta.jobs.topics.evidence import (
    Case,
    EvidenceReader,
    Piece,
    Witness,
    foreignness,
    membership,
)

COPIED: Final = "ledger-metadata-copied"


def judge_owner(context: CaseContext, suspicion: Finding, ledger_id: int) -> Iterator[Finding]:
    """Judge that a ledger is missing in its topic's list, or listed by a topic that does not own it."""
    name = suspicion.topic or ""
    unlisted = suspicion.code == "ledger-not-listed"
    owner = suspicion.evidence.get("owner")
    relatives = context.topic(str(owner)).ids if owner else []
    others = [
        other
        for other in context.other_lists(ledger_id, name)
        if not unlisted or _may_list(context, other, ledger_id)
    ]
    case = membership(context.reader, context.topic(name), ledger_id, listed_by=others, relatives=relatives)
    ledger = context.ledger(suspicion, ledger_id, relatives)
    if ledger.twin is not None:
        yield from copied_metadata(context, suspicion, ledger_id, ledger.twin)
    elif not unlisted:
        yield with_case(suspicion, foreignness(case))
    elif not ledger.other_clusters:
        yield with_case(suspicion, context.doubted(case, name))


def _may_list(context: CaseContext, name: str, ledger_id: int) -> bool:
    """Return False if two witnesses show that a ledger does not belong to a topic."""
    case = foreignness(membership(context.reader, context.topic(name), ledger_id))
    return not case.allows_repair


def copied_metadata(context: CaseContext, suspicion: Finding, ledger_id: int, twin: int) -> Iterator[Finding]:
    """Yield that a ledger has the metadata of another one, once for each ledger."""
    if ledger_id in context.copied:
        return
    context.copied.add(ledger_id)
    topic, ledger = context.topic(suspicion.topic or ""), context.reader.ledger(ledger_id)
    listed = ledger_id in topic.ids
    supports = [Piece(Witness.METADATA, f"it is byte for byte that of ledger {twin}")]
    if listed:
        supports.append(Piece(Witness.LIST, f"the list of {topic.name} names both, or another count"))
    against = []
    if ledger.disk is not None:
        supports.append(Piece(Witness.DISKS, f"bookies have entries up to {ledger.disk.last_entry}"))
    elif ledger.is_nowhere:
        against.append(Piece(Witness.DISKS, "no bookie has an entry of it, so that nothing is lost"))
    # Without disks, nothing shows what the overwritten record was.
    recoverable = ledger.disk is not None and listed
    case = Case(
        f"the metadata of ledger {ledger_id} was overwritten",
        tuple(supports) if recoverable else (),
        tuple(against),
        other_reading=f"ledger {ledger_id} never existed, and its metadata is a copy",
        next_step="Compare both records: get ledger ID",
    )
    copied = finding(
        COPIED,
        f"its metadata is byte for byte that of ledger {twin}, so one of the two is a copy",
        severity=Severity.ERROR if listed or suspicion.severity is Severity.ERROR else Severity.WARNING,
        topic=suspicion.topic,
        ledger_id=ledger_id,
        path=ledger_path(ledger_id),
        evidence={"twin": twin},
    )
    yield with_case(copied, case)


def judge_lost_record(context: CaseContext, suspicion: Finding) -> Iterator[Finding]:
    """Judge that a topic's record is lost, because ledgers were created for the topic."""
    evidence, name = context.reader, suspicion.topic
    owned = [each for each in suspicion.evidence.get("ledgers", ()) if isinstance(each, int)]
    elsewhere = {} if evidence.others is None else evidence.others.owners(owned)
    lists = {each: names for each in owned if (names := context.other_lists(each, name))}
    own = [each for each in owned if each not in elsewhere and each not in lists]
    if owned and not own:
        # Other topics or clusters have all of them, so wrong metadata is a finding there.
        return
    supports = [Piece(Witness.METADATA, f"{len(own)} ledgers were created for it")]
    if suspicion.evidence.get("cursors"):
        supports.append(Piece(Witness.CURSORS, "it still has subscriptions"))
    against = [
        *(
            Piece(Witness.OTHER_CLUSTER, f"ledger {each}: {clusters[0]} names it")
            for each, clusters in elsewhere.items()
        ),
        *(
            Piece(Witness.LIST, f"ledger {each}: the list of {names[0]} names it")
            for each, names in lists.items()
        ),
    ]
    if own and evidence.source is not None and all(evidence.ledger(each).is_nowhere for each in own):
        against.append(Piece(Witness.DISKS, "no bookie has an entry of any of them"))
    against += [Piece(Witness.DISKS, text) for text in overlaps(evidence.disk(each) for each in sorted(own))]
    case = Case(
        "the record is lost",
        tuple(supports),
        tuple(against),
        other_reading="some of these ledgers are not the topic's",
        next_step="Compare the topics of the clusters",
        only_witness=True,
    )
    yield with_case(suspicion, context.doubted(case, name))


def judge_record(context: CaseContext, suspicion: Finding) -> Finding:
    """Judge a broken topic record, whose repair lists every ledger that was created for the topic."""
    name = suspicion.topic
    if name is None or suspicion.cursor is not None or suspicion.ledger_id is not None:
        return suspicion
    text = "another cluster in the same BookKeeper names ledgers that were created for a topic of this name"
    case = Case(
        "all ledgers that name the topic are its own",
        (),
        (Piece(Witness.OTHER_CLUSTER, text),) if context.is_contested(name) else (),
        other_reading="some of them are the other cluster's",
        next_step="Find out to which topic they belong: whois LEDGER",
    )
    case = context.doubted(case, name)
    return replace(with_case(suspicion, case), severity=suspicion.severity) if case.contradicts else suspicion


def judge_orphan(context: CaseContext, suspicion: Finding, ledger_id: int) -> Iterator[Finding]:
    """Yield an unreferenced ledger unless another cluster refers to it, or may do so."""
    others = context.reader.others
    if others is None or not others.trees:
        yield suspicion
    elif others.broken:
        labels = ", ".join(tree.label for tree in others.trees)
        context.not_checked["ledgers that no record names"] = f"records of {labels} cannot be read"
    elif not others.names(ledger_id):
        yield suspicion


def shared_ledgers(reader: EvidenceReader, referenced: array[int]) -> Iterator[Finding]:
    """Yield the other clusters that refer to ledgers of this one. Needs NumPy."""
    import numpy as np

    others = reader.others
    if others is None or not others.trees:
        return
    own = np.frombuffer(referenced, np.int64) if referenced else np.empty(0, np.int64)
    shared = np.intersect1d(others.named, own)
    by_cluster: dict[str, list[int]] = {}
    for ledger_id, owners in others.owners(shared.tolist()).items():
        for label in dict.fromkeys(owner.cluster for owner in owners):
            by_cluster.setdefault(label, []).append(ledger_id)
    for label, ids in sorted(by_cluster.items()):
        count = f"{len(ids)} ledger{'' if len(ids) == 1 else 's'}"
        yield finding(
            "ledgers-in-two-clusters",
            f"the cluster at {label} names {count} that this cluster names, too, so trimming in one deletes"
            " the other's data",
            path=label if label.startswith("/") else None,
            evidence={"cluster": label, "ledgers": len(ids), "some": ids[:10]},
        )

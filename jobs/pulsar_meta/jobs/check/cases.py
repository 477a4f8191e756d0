"""Decides a suspicion about one ledger, record, schema or counter, with the evidence of all sources.

An entry counts as missing only if the disks of its bookies are complete. If they are not, the gap is reported
as not checked.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.check.case_context import CaseContext, members_of, with_case
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.check.disks import Unindexed, unindexed
from pulsar_meta.jobs.topics.disk_ledger import overlaps
from pulsar_meta.jobs.topics.evidence import (
    Case,
    EvidenceReader,
    LedgerEvidence,
    Piece,
    Witness,
    foreignness,
    membership,
)

COPIED: Final = "ledger-metadata-copied"
_ON_NO_BOOKIE = "every bookie was given complete, and none has an entry of it"


# --- to which topic or cluster a ledger belongs ---


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


# --- what is lost ---


def judge_absence(
    context: CaseContext, suspicion: Finding, ledger_id: int, *, may_have_copies: bool
) -> Iterator[Finding]:
    """Judge that entries, or copies of them, are missing; a root cause that explains it takes it over.

    `may_have_copies` is True if bookies that were not given could have the entries.
    """
    ledger = context.ledger(suspicion, ledger_id)
    if ledger.metadata == "absent":
        yield judge_pointer(suspicion, ledger)
        return
    if context.reader.complete.lives or context.reader.source is None:
        yield suspicion
        return
    bookies = suspicion.evidence.get("bookies")
    logs = [log for log in ledger.missing_logs if not bookies or log.bookie in bookies]
    logs = [log for log in logs if context.is_damaged(log)]
    gaps = [gap for gap in ledger.gaps if not bookies or gap.bookie is None or gap.bookie in bookies]
    gaps += context.bookies_not_given(ledger) if may_have_copies and not bookies else []
    if logs:
        context.causes.add_log(logs, suspicion)
    elif gaps:
        context.causes.add_gap(gaps, suspicion)
    elif suspicion.code in ("ledger-under-replicated", "ledger-below-ack-quorum"):
        yield from _judge_copies(context, suspicion, [*map(str, bookies or members_of(ledger))])
    elif hidden := unindexed(context.reader.source, ledger_id):
        context.causes.add_unindexed(hidden[0], _unindexed(suspicion, hidden[0]))
    else:
        text = "every bookie of its ensembles was given, with all directories and a readable index"
        case = Case("the entries are lost", (Piece(Witness.DISKS, text),), only_witness=True)
        yield with_case(suspicion, case)


def _unindexed(suspicion: Finding, hidden: Unindexed) -> Finding:
    text = f"entry log {hidden.file} has entries of it to which the bookie's index does not lead"
    case = Case(
        "the entries are lost",
        (),
        (Piece(Witness.DISKS, text),),
        other_reading="the index of a bookie is damaged",
        next_step="Rebuild the index of that bookie: bookkeeper shell rebuild-db-ledger-locations-index",
        only_witness=True,
    )
    # A bookie does not serve what its index does not lead to.
    return replace(with_case(suspicion, case), severity=suspicion.severity)


def _judge_copies(context: CaseContext, suspicion: Finding, bookies: list[str]) -> Iterator[Finding]:
    """Yield that copies are missing, unless a bookie's index, files or VERSION explain it."""
    if context.causes.add_cookie(bookies, suspicion):
        return
    hidden = context.unindexed_copies(bookies, suspicion.ledger_id or 0)
    emptied = [] if hidden else list(filter(context.is_emptied, bookies))
    for log in hidden:
        context.causes.add_unindexed(log, suspicion)
    for bookie in emptied:
        context.causes.add_bookie(bookie, suspicion)
    if not hidden and not emptied:
        yield suspicion


def judge_pointer(suspicion: Finding, ledger: LedgerEvidence) -> Finding:
    """Judge a reference to a ledger without metadata, whose entries may still be on disks."""
    if ledger.disk is None:
        return suspicion
    supports = (
        Piece(Witness.STORE, "a record names the ledger"),
        Piece(Witness.DISKS, f"bookies have entries up to {ledger.disk.last_entry}"),
    )
    repair = f"pulsar-meta repair ledger-metadata {ledger.ledger_id}"
    recoverable = replace(
        suspicion,
        message=f"{suspicion.message}; bookies still have its entries, until they collect garbage",
        repair=None if suspicion.severity is Severity.NOTE else repair,
    )
    return with_case(recoverable, Case("only its metadata is lost", supports))


def judge_without_metadata(context: CaseContext, suspicion: Finding, ledger_id: int) -> Finding:
    """Judge a listed ledger without metadata: only the metadata is lost, or its entries too."""
    ledger = context.ledger(suspicion, ledger_id)
    supports = [Piece(Witness.LIST, "the topic's list names it")]
    against = []
    if ledger.disk is not None:
        supports.append(Piece(Witness.DISKS, f"bookies have entries up to {ledger.disk.last_entry}"))
        case = membership(context.reader, context.topic(suspicion.topic or ""), ledger_id)
        against = [piece for piece in case.contradicts if piece.witness is Witness.DISKS]
    elif ledger.is_nowhere and suspicion.evidence.get("entries"):
        return _without_entries_too(suspicion)
    case = Case(
        "only its metadata is lost",
        tuple(supports),
        tuple(against),
        other_reading="the disks have another ledger of this number",
        next_step=f"Compare the messages: dump-entries {ledger_id}",
        only_witness=ledger.disk is None,
    )
    return with_case(suspicion, case)


def _without_entries_too(suspicion: Finding) -> Finding:
    supports = (
        Piece(Witness.DISKS, _ON_NO_BOOKIE),
        Piece(Witness.METADATA, "BookKeeper has no metadata of it"),
    )
    repair = f"pulsar-meta repair missing-ledger {suspicion.topic} {suspicion.ledger_id}"
    return replace(
        with_case(suspicion, Case("its entries are lost, too", supports)),
        message=f"{suspicion.message}; its entries are on no bookie either",
        repair=repair if suspicion.severity is Severity.ERROR else None,
    )


def judge_schema(context: CaseContext, suspicion: Finding, ledger_id: int) -> Finding:
    """Judge a schema whose ledger has no metadata: a bookie may still have the schema."""
    ledger = context.ledger(suspicion, ledger_id)
    reference = Piece(Witness.STORE, "the record of the schema names the ledger")
    if ledger.disk is not None and ledger.disk.content == "schema":
        text = f"bookie {', '.join(ledger.disk.bookies) or 'disks'} has the schema"
        case = Case("only the metadata of the ledger is lost", (reference, Piece(Witness.DISKS, text)))
        recoverable = replace(
            suspicion,
            severity=Severity.ERROR,
            message=f"{suspicion.message}; a bookie still has the schema's entry, until it collects garbage",
            repair=f"pulsar-meta repair ledger-metadata {ledger_id}",
        )
        return with_case(recoverable, case)
    if ledger.is_nowhere and not context.reader.complete.lives:
        return with_case(
            suspicion, Case("the schema is lost", (reference, Piece(Witness.DISKS, _ON_NO_BOOKIE)))
        )
    step = _next_step(ledger, "they may still have the schema", f"Check ledger {ledger.ledger_id}")
    return with_case(suspicion, Case("the schema is lost", (reference,), next_step=step))


def judge_end(context: CaseContext, suspicion: Finding, ledger_id: int) -> Finding:
    """Judge that the list and BookKeeper's metadata end a ledger at different entries; the disks decide."""
    ledger = context.ledger(suspicion, ledger_id)
    listed = int(suspicion.evidence.get("entries") or 0) - 1
    metadata = suspicion.evidence.get("last_entry")
    complete = ledger.disk is not None and not ledger.gaps and not ledger.missing_logs
    last = ledger.disk.last_entry if ledger.disk is not None and complete else None
    pieces = (
        Piece(Witness.LIST, f"the list ends at entry {listed}"),
        Piece(Witness.METADATA, f"BookKeeper's metadata ends at entry {metadata}"),
    )
    if last is None:
        step = _next_step(ledger, "they show where it ends", "Read its last entries: dump-entries")
        other = "BookKeeper's metadata is right"
        case = Case("the list is right", pieces[:1], pieces[1:], other_reading=other, next_step=step)
        return replace(with_case(suspicion, case), severity=suspicion.severity)
    right = [piece for piece, end in zip(pieces, (listed, metadata), strict=True) if end == last]
    disks = Piece(Witness.DISKS, f"the disks end at entry {last}")
    return with_case(suspicion, Case("the disks are right", (disks, *right), only_witness=True))


def _next_step(ledger: LedgerEvidence, reason: str, otherwise: str) -> str:
    if not ledger.disks_given:
        return f"Give the bookies' disks (--entries bookie-disk:PATH): {reason}"
    return f"Give what is missing: {ledger.gaps[0]}" if ledger.gaps else otherwise


def judge_generator(context: CaseContext, suspicion: Finding) -> Finding:
    """Judge that the generator of ledger ids is below an existing ledger, which may be a copied record."""
    highest = suspicion.evidence.get("highest")
    if not isinstance(highest, int):
        return suspicion
    owner = context.reader.ledger(highest).owner
    relatives = context.topic(owner.name).ids if owner is not None and owner.role == "data" else []
    ledger = context.reader.ledger(highest, relatives)
    against = []
    if ledger.twin is not None:
        text = f"the metadata of ledger {highest} is a copy of that of ledger {ledger.twin}"
        against.append(Piece(Witness.METADATA, text))
    if ledger.is_nowhere and (ledger.bookkeeper is None or (ledger.bookkeeper.last_entry or 0) >= 0):
        against.append(Piece(Witness.DISKS, f"no bookie has an entry of ledger {highest}"))
    case = Case(
        "the generator was set back",
        (Piece(Witness.METADATA, f"there is a ledger {highest}"),),
        tuple(against),
        other_reading=f"ledger {highest} does not exist, and its record was put there",
        next_step=f"Check its record: get ledger {highest}",
        only_witness=True,
    )
    return with_case(suspicion, case)

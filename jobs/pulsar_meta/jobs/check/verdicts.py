"""Judges findings that one record cannot decide, with all evidence that was given.

A finding is held until the store was read completely. Then its case is made from every source: the topic's
list, BookKeeper's metadata, the disks, the cursors and other clusters. Its repair is printed only if nothing
contradicts the case and two independent witnesses support it. An entry counts as missing only if the disks of
its bookies are complete; if they are not, the gap is reported as not checked.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.check.root_causes import LOST_PART, RootCauses
from pulsar_meta.jobs.topics.completeness import Gap
from pulsar_meta.jobs.topics.cursors import state_of
from pulsar_meta.jobs.topics.evidence import (
    Case,
    EvidenceReader,
    LedgerEvidence,
    Piece,
    TopicLedgers,
    Witness,
    foreignness,
    membership,
)
from pulsar_meta.jobs.topics.owners import owners_of
from pulsar_meta.jobs.topics.topic import read_topic

# Findings about whose a ledger is.
OF_OWNERS: Final = frozenset(("ledger-not-listed", "ledger-foreign", "ledger-in-two-topics"))
# Findings that say that entries are not there.
OF_ABSENCE: Final = frozenset(
    (
        *("ledger-without-entries", "ledger-end-differs", "entry-missing", "ledger-below-ack-quorum"),
        *("ledger-under-replicated", "compaction-ledger-missing", "cursor-ledger-unreadable"),
    )
)
# Findings that metadata causes which is a copy of another ledger's.
OF_METADATA: Final = frozenset(
    (
        *("ledger-end-low", "ledger-end-high", "ledger-counts-zero", "ledger-without-entries"),
        *("ledger-end-differs", "entry-missing", "ledger-under-replicated", "ledger-below-ack-quorum"),
    )
)
# Findings about a topic's record, which is made again from the ledgers that name the topic.
OF_RECORDS: Final = frozenset(("record-undecodable", "record-wrong-kind", "record-empty"))
OF_ORPHANS: Final = frozenset(("orphan-ledger", "orphan-bucket"))
JUDGED: Final = frozenset(
    (
        *(*OF_OWNERS, *OF_ABSENCE, *OF_METADATA, *OF_ORPHANS, *OF_RECORDS),
        *("topic-record-lost", "schema-ledger-missing"),
        *("ledger-without-metadata", "ledger-id-ahead", "system-topic-unreadable", "cursor-ledger-missing"),
        "ledger-lost",
    )
)
COPIED: Final = "ledger-metadata-copied"


@dataclass(slots=True)
class Verdicts:
    """The findings of a run that need more than one witness.

    `evidence` is called once, when all findings were taken. `consequences` also yields the findings that a
    root cause explains. `not_checked` is complete once the findings were yielded. Raises UnreachableError.
    """

    evidence: Callable[[], EvidenceReader]
    consequences: bool = False
    not_checked: dict[str, str] = field(default_factory=dict)
    causes: RootCauses = field(init=False)
    reader: EvidenceReader = field(init=False)
    _held: list[Finding] = field(default_factory=list)
    _topics: dict[str, TopicLedgers] = field(default_factory=dict)
    _listed_by: dict[int, list[str]] = field(default_factory=dict)
    _copied: set[int] = field(default_factory=set)
    _early: int = 0
    _contested: frozenset[str] | None = None
    _emptied: dict[str, bool] = field(default_factory=dict)

    def takes(self, suspicion: Finding) -> bool:
        """Hold a finding that has to be judged; return whether it is one."""
        if suspicion.code not in JUDGED:
            return False
        self._held.append(suspicion)
        return True

    def is_certain_early(self, suspicion: Finding) -> bool:
        """Return whether a finding can be judged before all ledgers were indexed.

        So some ledgers without metadata are reported at once. Many of them may be a lost part of the store.
        """
        return suspicion.code == "ledger-without-metadata" and self._early < LOST_PART - 1

    def judge_early(self, suspicion: Finding) -> Finding:
        """Return a finding that is certain early, with its evidence."""
        self._early += 1
        self.reader = self.evidence()
        return self._judge_without_metadata(suspicion, suspicion.ledger_id or 0)

    def findings(self) -> Iterator[Finding]:
        """Yield the judged findings, root causes first."""
        self.reader = self.evidence()
        self.causes = RootCauses(self.reader.store)
        self.causes.add_missing(self.reader)
        self._listed_by = self._read_lists()
        judged = [result for suspicion in self._held for result in self._judge(suspicion)]
        judged = self.causes.gather_lost_parts(judged)
        yield from self.causes.findings()
        yield from (one for one in judged if _is_still_blocked(one, judged))
        if self.consequences:
            yield from self.causes.consequences
        self.not_checked |= self.causes.not_checked

    def _judge(self, suspicion: Finding) -> Iterator[Finding]:
        """Yield what a finding becomes: itself with its evidence, another one, or nothing."""
        code, ledger_id = suspicion.code, suspicion.ledger_id
        if self._may_be_redacted(suspicion):
            self.not_checked[suspicion.path or "empty records"] = (
                "this copy is redacted, which empties records"
            )
        elif code == "topic-record-lost":
            yield from self._judge_lost_record(suspicion)
        elif ledger_id is None:
            yield self._judge_without_ledger(suspicion)
        elif code in OF_METADATA and (twin := self._twin(suspicion)) is not None:
            yield from self._copied_metadata(suspicion, ledger_id, twin)
        elif code in OF_OWNERS:
            yield from self._judge_owner(suspicion, ledger_id)
        elif code in OF_ABSENCE:
            yield from self._judge_absence(suspicion, ledger_id)
        elif code in OF_ORPHANS:
            yield from self._judge_orphan(suspicion, ledger_id)
        else:
            yield self._judge_with_ledger(suspicion, ledger_id)

    def _judge_with_ledger(self, suspicion: Finding, ledger_id: int) -> Finding:
        """Return a finding about a ledger that stays one finding."""
        match suspicion.code:
            case "cursor-ledger-missing":
                return self._judge_pointer(suspicion, self._ledger(suspicion, ledger_id))
            case "schema-ledger-missing":
                return self._judge_schema(suspicion, ledger_id)
            case "ledger-without-metadata":
                return self._judge_without_metadata(suspicion, ledger_id)
            case "ledger-end-low" | "ledger-end-high":
                return self._judge_end(suspicion, ledger_id)
        return suspicion

    def _judge_without_ledger(self, suspicion: Finding) -> Finding:
        """Return a finding about a record or the store."""
        if suspicion.code in OF_RECORDS:
            return self._judge_record(suspicion)
        return self._judge_generator(suspicion) if suspicion.code == "ledger-id-ahead" else suspicion

    def _may_be_redacted(self, suspicion: Finding) -> bool:
        """Return whether a record is empty and the store is a copy whose secrets were removed."""
        if not self.reader.store.origin.get("redacted"):
            return False
        if suspicion.code == "record-empty":
            return True
        if suspicion.code != "topic-record-lost" or suspicion.path is None:
            return False
        (record,) = self.reader.store.read_many([suspicion.path])
        return record is not None

    # Whose a ledger is

    def _judge_owner(self, suspicion: Finding, ledger_id: int) -> Iterator[Finding]:
        name = suspicion.topic or ""
        topic = self.topic(name)
        others = self._other_lists(ledger_id, name)
        owner = suspicion.evidence.get("owner")
        relatives = self.topic(str(owner)).ids if owner else []
        others = [
            one
            for one in others
            if suspicion.code != "ledger-not-listed" or self._is_rightful(one, ledger_id)
        ]
        case = membership(self.reader, topic, ledger_id, listed_by=others, relatives=relatives)
        ledger = self._ledger(suspicion, ledger_id, relatives)
        if ledger.twin is not None:
            yield from self._copied_metadata(suspicion, ledger_id, ledger.twin)
        elif suspicion.code != "ledger-not-listed":
            yield _with_case(suspicion, foreignness(case))
        elif not ledger.other_clusters:
            yield _with_case(suspicion, case)

    def _is_rightful(self, name: str, ledger_id: int) -> bool:
        """Return whether a topic may list a ledger: not if two witnesses say that it is another's."""
        return not foreignness(membership(self.reader, self.topic(name), ledger_id)).allows_repair

    def _copied_metadata(self, suspicion: Finding, ledger_id: int, twin: int) -> Iterator[Finding]:
        """Yield that the metadata of a ledger is another's, once for each ledger."""
        if ledger_id in self._copied:
            return
        self._copied.add(ledger_id)
        topic = self.topic(suspicion.topic or "")
        listed = ledger_id in topic.ids
        ledger = self.reader.ledger(ledger_id)
        supports = [Piece(Witness.METADATA, f"it is byte for byte that of ledger {twin}")]
        if listed:
            supports.append(Piece(Witness.LIST, f"the list of {topic.name} names both, or another count"))
        against = []
        if ledger.disk is not None:
            supports.append(Piece(Witness.DISKS, f"bookies have entries up to {ledger.disk.last_entry}"))
        elif ledger.is_nowhere:
            against.append(Piece(Witness.DISKS, "no bookie has an entry of it, so that nothing is lost"))
        case = Case(
            f"the metadata of ledger {ledger_id} was written over",
            tuple(supports),
            tuple(against),
            other_reading=f"ledger {ledger_id} never existed, and its metadata is a copy",
            next_step="Look at both records: get ledger ID",
        )
        text = f"its metadata is byte for byte that of ledger {twin}: one of the two is a copy"
        severity = Severity.ERROR if listed else Severity.WARNING
        copied = finding(
            COPIED,
            text,
            severity=severity,
            topic=suspicion.topic,
            ledger_id=ledger_id,
            path=ledger_path(ledger_id),
            evidence={"twin": twin},
        )
        # Only disks say what the lost record said.
        yield _with_case(copied, case if ledger.disk is not None and listed else replace(case, supports=()))

    def _judge_lost_record(self, suspicion: Finding) -> Iterator[Finding]:
        owned = [one for one in suspicion.evidence.get("ledgers", ()) if isinstance(one, int)]
        theirs = {} if self.reader.others is None else self.reader.others.owners(owned)
        listed = [one for one in owned if self._other_lists(one, suspicion.topic)]
        mine = [one for one in owned if one not in theirs and one not in listed]
        if owned and not mine:
            # Other topics or clusters have all of them: that their metadata is wrong is a finding there.
            return
        pieces = [Piece(Witness.METADATA, f"{len(mine)} ledgers were created for it")]
        if suspicion.evidence.get("cursors"):
            pieces.append(Piece(Witness.CURSORS, "it still has subscriptions"))
        against = [
            Piece(Witness.OTHER_CLUSTER, f"ledger {one}: {found[0]} names it")
            for one, found in theirs.items()
        ]
        against += [
            Piece(
                Witness.LIST,
                f"ledger {one}: the list of {self._other_lists(one, suspicion.topic)[0]} names it",
            )
            for one in listed
        ]
        evidence = self.reader
        nowhere = [one for one in mine if evidence.source is not None and evidence.ledger(one).is_nowhere]
        if mine and len(nowhere) == len(mine):
            against.append(Piece(Witness.DISKS, "no bookie has an entry of any of them"))
        case = Case(
            "the record is lost",
            tuple(pieces),
            tuple(against),
            other_reading="some of these ledgers are not the topic's",
            next_step="Compare the topics of the clusters",
            only_witness=True,
        )
        yield _with_case(suspicion, case)

    def _judge_record(self, suspicion: Finding) -> Finding:
        """Return a finding about a topic's record without a repair if another cluster has such a topic."""
        name = suspicion.topic
        if name is None or suspicion.cursor is not None or suspicion.ledger_id is not None:
            return suspicion
        if not self._is_contested(name):
            return suspicion
        says = (
            "another cluster in the same BookKeeper names ledgers that were created for a topic of this name"
        )
        case = Case(
            "all ledgers that name the topic are its own",
            (),
            (Piece(Witness.OTHER_CLUSTER, says),),
            other_reading="some of them are the other cluster's",
            next_step="Find out whose they are: whois LEDGER",
        )
        return replace(_with_case(suspicion, case), severity=suspicion.severity)

    def _judge_end(self, suspicion: Finding, ledger_id: int) -> Finding:
        """Return a finding about a ledger's end: the list and BookKeeper differ, so the disks decide."""
        ledger = self._ledger(suspicion, ledger_id)
        listed = int(suspicion.evidence.get("entries") or 0) - 1
        metadata = suspicion.evidence.get("last_entry")
        last = None if ledger.disk is None or ledger.gaps or ledger.missing_logs else ledger.disk.last_entry
        pieces = [
            Piece(Witness.LIST, f"the list ends at entry {listed}"),
            Piece(Witness.METADATA, f"BookKeeper's metadata ends at entry {metadata}"),
        ]
        if last is None:
            case = Case(
                "the ledger ends elsewhere", (pieces[0],), (pieces[1],), next_step=_where_ends_are(ledger)
            )
            return replace(_with_case(suspicion, case), severity=suspicion.severity)
        held = Piece(Witness.DISKS, f"the disks end at entry {last}")
        right = [piece for piece, end in zip(pieces, (listed, metadata), strict=True) if end == last]
        return _with_case(suspicion, Case("the disks are right", (held, *right), only_witness=True))

    def _judge_orphan(self, suspicion: Finding, ledger_id: int) -> Iterator[Finding]:
        others = self.reader.others
        if others is None or not others.trees:
            yield suspicion
        elif others.broken:
            labels = ", ".join(tree.label for tree in others.trees)
            self.not_checked["ledgers that no record names"] = f"records of {labels} cannot be read"
        elif not others.names(ledger_id):
            yield suspicion

    # What is missing

    def _judge_absence(self, suspicion: Finding, ledger_id: int) -> Iterator[Finding]:
        ledger = self._ledger(suspicion, ledger_id)
        if ledger.metadata == "absent":
            yield self._judge_pointer(suspicion, ledger)
            return
        if self.reader.complete.lives or self.reader.source is None:
            yield suspicion
            return
        bookies = suspicion.evidence.get("bookies")
        logs = [log for log in ledger.missing_logs if not bookies or log.bookie in bookies]
        gaps = [gap for gap in ledger.gaps if not bookies or gap.bookie is None or gap.bookie in bookies]
        gaps += self._bookies_not_given(ledger) if suspicion.code in OF_METADATA and not bookies else []
        if logs:
            self.causes.add_log(logs, suspicion)
        elif gaps:
            self.causes.add_gap(gaps, suspicion)
        elif suspicion.code in ("ledger-under-replicated", "ledger-below-ack-quorum"):
            members = bookies or _members(ledger)
            emptied = [bookie for bookie in members if self._has_nothing(str(bookie))]
            for bookie in emptied:
                self.causes.add_bookie(str(bookie), suspicion)
            if not emptied:
                yield suspicion
        else:
            says = "every bookie of its ensembles was given, with all directories and a readable index"
            case = Case("the entries are lost", (Piece(Witness.DISKS, says),), only_witness=True)
            yield _with_case(suspicion, case)

    def _bookies_not_given(self, ledger: LedgerEvidence) -> list[Gap]:
        """Return the bookies that may have a copy of each entry and of which no disk was given."""
        known = ledger.bookkeeper
        if known is None or known.write_quorum < 2 or not self.reader.complete.bookies:
            return []
        return [
            Gap(bookie, "disk", "of its own")
            for bookie in _members(ledger)
            if bookie not in self.reader.complete.bookies
        ]

    def _judge_pointer(self, suspicion: Finding, ledger: LedgerEvidence) -> Finding:
        """Return a finding about a pointer to a ledger without metadata; disks may still have its entries."""
        piece = Piece(Witness.STORE, "a record names the ledger")
        if ledger.disk is None:
            return suspicion
        held = Piece(Witness.DISKS, f"bookies have entries up to {ledger.disk.last_entry}")
        text = f"{suspicion.message}; bookies still have its entries, until they collect garbage"
        needed = suspicion.severity is not Severity.NOTE
        command = f"pulsar-meta repair ledger-metadata {ledger.ledger_id}" if needed else None
        return _with_case(
            replace(suspicion, message=text, repair=command), Case("only its metadata is lost", (piece, held))
        )

    def _has_nothing(self, bookie: str) -> bool:
        """Return whether the disks of a bookie, which were given, have no entry of any ledger."""
        source = self.reader.source
        if source is None or bookie not in self.reader.complete.bookies:
            return False
        if bookie not in self._emptied:
            parts = [part for part in source.parts if part.bookies is not None and bookie in part.bookies]
            self._emptied[bookie] = not any(part.ledgers() for part in parts)
        return self._emptied[bookie]

    def _judge_without_metadata(self, suspicion: Finding, ledger_id: int) -> Finding:
        ledger = self._ledger(suspicion, ledger_id)
        entries = suspicion.evidence.get("entries")
        supports = [Piece(Witness.LIST, "the topic's list names it")]
        against = []
        if ledger.disk is not None:
            supports.append(Piece(Witness.DISKS, f"bookies have entries up to {ledger.disk.last_entry}"))
            case = membership(self.reader, self.topic(suspicion.topic or ""), ledger_id)
            against = [piece for piece in case.contradicts if piece.witness is Witness.DISKS]
        elif ledger.is_nowhere and entries:
            return self._without_entries_too(suspicion)
        case = Case(
            "only its metadata is lost",
            tuple(supports),
            tuple(against),
            other_reading="the disks have another ledger of this number",
            next_step=f"Compare the messages: dump-entries {ledger_id}",
            only_witness=ledger.disk is None,
        )
        return _with_case(suspicion, case)

    def _without_entries_too(self, suspicion: Finding) -> Finding:
        says = "every bookie was given complete, and none has an entry of it"
        case = Case(
            "its entries are lost, too",
            (Piece(Witness.DISKS, says), Piece(Witness.METADATA, "BookKeeper has no metadata of it")),
        )
        found = _with_case(suspicion, case)
        text = f"{suspicion.message}; its entries are on no bookie either"
        command = f"pulsar-meta repair missing-ledger {suspicion.topic} {suspicion.ledger_id}"
        return replace(found, message=text, repair=command if suspicion.severity is Severity.ERROR else None)

    def _judge_schema(self, suspicion: Finding, ledger_id: int) -> Finding:
        ledger = self._ledger(suspicion, ledger_id)
        piece = Piece(Witness.STORE, "the record of the schema names the ledger")
        if ledger.disk is not None and ledger.disk.content == "schema":
            held = Piece(Witness.DISKS, f"bookie {', '.join(ledger.disk.bookies) or 'disks'} has the schema")
            case = Case("only the metadata of the ledger is lost", (piece, held))
            text = f"{suspicion.message}; a bookie still has the schema's entry, until it collects garbage"
            command = f"pulsar-meta repair ledger-metadata {ledger_id}"
            whole = replace(suspicion, severity=Severity.ERROR, message=text, repair=command)
            return _with_case(whole, case)
        if ledger.is_nowhere and not self.reader.complete.lives:
            gone = Piece(Witness.DISKS, "every bookie was given complete, and none has an entry of it")
            return _with_case(suspicion, Case("the schema is lost", (piece, gone)))
        case = Case("the schema is lost", (piece,), next_step=_where_entries_are(ledger))
        return _with_case(suspicion, case)

    def _judge_generator(self, suspicion: Finding) -> Finding:
        highest = suspicion.evidence.get("highest")
        if not isinstance(highest, int):
            return suspicion
        ledger = self.reader.ledger(highest)
        owner = ledger.owner
        relatives = self.topic(owner.name).ids if owner is not None and owner.role == "data" else []
        ledger = self.reader.ledger(highest, relatives)
        against = []
        if ledger.twin is not None:
            says = f"the metadata of ledger {highest} is a copy of that of ledger {ledger.twin}"
            against.append(Piece(Witness.METADATA, says))
        if ledger.is_nowhere and (ledger.bookkeeper is None or (ledger.bookkeeper.last_entry or 0) >= 0):
            against.append(Piece(Witness.DISKS, f"no bookie has an entry of ledger {highest}"))
        case = Case(
            "the generator was set back",
            (Piece(Witness.METADATA, f"there is a ledger {highest}"),),
            tuple(against),
            other_reading=f"ledger {highest} does not exist, and its record was put there",
            next_step=f"Look at its record: get ledger {highest}",
            only_witness=True,
        )
        return _with_case(suspicion, case)

    # What is read for it

    def topic(self, name: str) -> TopicLedgers:
        """Return what the record and the cursors of a topic say now; no ledgers if it has no record."""
        if name not in self._topics:
            self._topics[name] = self._read_topic(name)
        return self._topics[name]

    def _read_topic(self, name: str) -> TopicLedgers:
        with suppress(NotFoundError, DecodeError, UsageError):
            topic = read_topic(self.reader.store, TopicName.parse(name))
            return TopicLedgers(name, topic.ledgers, self._created, dict(self._acknowledged(topic.path)))
        return TopicLedgers(name, [])

    def _created(self, ledger_id: int) -> int | None:
        return self.reader.ledger(ledger_id).created

    def _acknowledged(self, path: str) -> Iterator[tuple[str, frozenset[int]]]:
        """Yield by subscription the ledgers in which it acknowledged entries, if its state is known."""
        store = self.reader.store
        names = store.children(path)
        for name, record in zip(names, store.read_many([f"{path}/{one}" for one in names]), strict=True):
            if record is None:
                continue
            with suppress(DecodeError):
                state = state_of(decode_cursor(record.value), self.reader.source)
                if state.state is not None:
                    yield name, frozenset({state.mark_delete.ledger_id, *acks_of(state.state).entries})

    def _ledger(self, suspicion: Finding, ledger_id: int, relatives: Iterable[int] = ()) -> LedgerEvidence:
        ids = self.topic(suspicion.topic).ids if suspicion.topic else []
        counts = {one.ledger_id: one.counted for one in self.topic(suspicion.topic or "").ledgers}
        return self.reader.ledger(ledger_id, (*ids, *relatives), counts.get(ledger_id))

    def _twin(self, suspicion: Finding) -> int | None:
        """Return the ledger of whose metadata that of the finding's ledger is a copy."""
        ledger_id = suspicion.ledger_id or 0
        owner = self.reader.ledger(ledger_id).owner
        foreign = owner is not None and owner.role == "data" and owner.name != suspicion.topic
        relatives: Sequence[int] = self.topic(owner.name).ids if owner is not None and foreign else ()
        return self._ledger(suspicion, ledger_id, relatives).twin

    def _other_lists(self, ledger_id: int, name: str | None) -> list[str]:
        """Return the topics but one that list a ledger."""
        return [other for other in self._listed_by.get(ledger_id, ()) if other != name]

    def _read_lists(self) -> dict[int, list[str]]:
        """Return which topics list the ledgers whose owner has to be judged, in one pass over the store."""
        wanted = {one.ledger_id for one in self._held if one.code in OF_OWNERS and one.ledger_id is not None}
        for one in self._held:
            if one.code == "topic-record-lost":
                wanted.update(one.evidence.get("ledgers", ()))
        if not wanted:
            return {}
        found = owners_of(wanted, self.reader.store, None, lambda error: None)
        return {
            ledger_id: [owner.name for owner in owners if owner.role == "data"]
            for ledger_id, owners in found.items()
        }

    def _is_contested(self, name: str) -> bool:
        """Return whether another cluster names ledgers that were created for a topic of this name."""
        if self._contested is None:
            others = self.reader.others
            ids = [] if others is None or not others.trees else others.named.tolist()
            owners = (self.reader.ledger(ledger_id).owner for ledger_id in ids)
            self._contested = frozenset(one.name for one in owners if one is not None and one.role == "data")
        return name in self._contested


def shared_ledgers(reader: EvidenceReader, referenced: array[int]) -> Iterator[Finding]:
    """Yield for each other cluster that it names ledgers which this one names too. Needs NumPy."""
    import numpy as np

    others = reader.others
    if others is None or not others.trees:
        return
    own = np.frombuffer(referenced, np.int64) if referenced else np.empty(0, np.int64)
    shared = np.intersect1d(others.named, own)
    by_cluster: dict[str, list[int]] = {}
    for ledger_id, owners in others.owners(shared.tolist()).items():
        for label in dict.fromkeys(one.cluster for one in owners):
            by_cluster.setdefault(label, []).append(ledger_id)
    for label, ids in sorted(by_cluster.items()):
        count = f"{len(ids)} ledger{'' if len(ids) == 1 else 's'}"
        yield finding(
            "ledgers-in-two-clusters",
            f"the cluster at {label} names {count} that this cluster names, too: trimming in one deletes"
            " the other's data",
            path=label if label.startswith("/") else None,
            evidence={"cluster": label, "ledgers": len(ids), "some": ids[:10]},
        )


def _with_case(suspicion: Finding, case: Case) -> Finding:
    """Return a finding with its evidence; with both readings and without a repair if it is in doubt."""
    evidence = {
        **suspicion.evidence,
        "for": [piece.document() for piece in case.supports],
        "against": [piece.document() for piece in case.contradicts],
    }
    if case.allows_repair:
        return replace(suspicion, evidence=evidence)
    severity = suspicion.severity
    if case.is_unlikely and severity is Severity.ERROR:
        severity = Severity.WARNING
    return replace(
        suspicion,
        message=f"{suspicion.message}; {case.doubt()}",
        severity=severity,
        evidence=evidence,
        repair=None,
        undecided=True,
    )


def _members(ledger: LedgerEvidence) -> list[str]:
    """Return the bookies of a ledger's ensembles."""
    known = ledger.bookkeeper
    return (
        [] if known is None else list(dict.fromkeys(one for part in known.segments for one in part.members))
    )


def _where_entries_are(ledger: LedgerEvidence) -> str:
    if not ledger.disks_given:
        return "Give the bookies' disks (--entries bookie-disk:PATH): they may still have the schema"
    return f"Give what is missing: {ledger.gaps[0]}" if ledger.gaps else f"Look at ledger {ledger.ledger_id}"


def _where_ends_are(ledger: LedgerEvidence) -> str:
    if not ledger.disks_given:
        return "Give the bookies' disks (--entries bookie-disk:PATH): they tell where it ends"
    return (
        f"Give what is missing: {ledger.gaps[0]}" if ledger.gaps else "Look at its last entries: dump-entries"
    )


def _is_still_blocked(one: Finding, judged: Sequence[Finding]) -> bool:
    """Return whether a finding is no blocked namespace, or an error about its system topic is left."""
    if one.code != "system-topic-unreadable":
        return True
    because = one.evidence.get("because")
    if because not in JUDGED:
        return True
    return any(
        other.topic == one.topic and other.severity is Severity.ERROR and other is not one for other in judged
    )

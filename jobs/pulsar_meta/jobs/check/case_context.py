"""Evidence that decides suspicions: about a ledger, and in the records of its topic, read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.codes import Finding, Severity, first_of
from pulsar_meta.jobs.check.disks import Unindexed, unindexed
from pulsar_meta.jobs.check.root_causes import RootCauses
from pulsar_meta.jobs.topics.completeness import Gap, MissingLog
from pulsar_meta.jobs.topics.cursors import state_of
from pulsar_meta.jobs.topics.evidence import (
    Case,
    EvidenceReader,
    LedgerEvidence,
    Piece,
    TopicLedgers,
    Witness,
)
from pulsar_meta.jobs.topics.owners import topics_listing
from pulsar_meta.jobs.topics.topic import read_topic

# As many other topics with unlisted ledgers are no accident.
_MANY: Final = 2
# The most topics that a doubt names.
_NAMED: Final = 3
# Findings about a ledger that only come from its metadata.
_OF_COPIES: Final = frozenset(
    ("ledger-not-listed", "ledger-foreign", "ledger-in-two-topics", "orphan-ledger")
)
# The number of ledgers of a damaged entry log whose entries are searched for in the other logs.
_SEARCHED: Final = 16
_NAME_STORE: Final = "If another cluster uses this BookKeeper, name its store (--other-store URL)"


@dataclass(slots=True)
class CaseContext:
    """Reads and remembers evidence for all suspicions of a run.

    `causes` are causes that explain several findings. `listed_by` are the topics that list the ledgers whose
    owner has to be judged. `with_unlisted` are topics with ledgers that no list has, `without_trace` those
    that only ledgers name. `copied` are ledgers
    whose metadata was reported as a copy. `not_checked` are reasons for which a suspicion was dropped.
    """

    reader: EvidenceReader
    causes: RootCauses
    listed_by: dict[int, list[str]] = field(default_factory=dict)
    with_unlisted: set[str] = field(default_factory=set)
    without_trace: set[str] = field(default_factory=set)
    copied: set[int] = field(default_factory=set)
    not_checked: dict[str, str] = field(default_factory=dict)
    _topics: dict[str, TopicLedgers] = field(default_factory=dict)
    _contested: frozenset[str] | None = None
    _emptied: dict[str, bool] = field(default_factory=dict)
    _damaged: set[str] = field(default_factory=set)
    _searched: Counter[str] = field(default_factory=Counter)

    def topic(self, name: str) -> TopicLedgers:
        """Return a topic's current ledgers and acknowledgements; no ledgers if it has no readable record."""
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
        """Yield each subscription with a known state, and the ledgers in which it acknowledged entries."""
        store = self.reader.store
        names = store.children(path)
        records = store.read_many([f"{path}/{name}" for name in names])
        for name, record in zip(names, records, strict=True):
            if record is None:
                continue
            with suppress(DecodeError):
                state = state_of(decode_cursor(record.value), self.reader.source)
                if state.state is not None:
                    yield name, frozenset({state.mark_delete.ledger_id, *acks_of(state.state).entries})

    def ledger(self, suspicion: Finding, ledger_id: int, relatives: Iterable[int] = ()) -> LedgerEvidence:
        """Return the evidence of a ledger, compared with the other ledgers of the topic and `relatives`."""
        topic = self.topic(suspicion.topic) if suspicion.topic else TopicLedgers("", [])
        return self.reader.ledger(ledger_id, (*topic.ids, *relatives), topic.listed(ledger_id))

    def twin(self, suspicion: Finding) -> int | None:
        """Return the ledger that has the same metadata as the suspicion's ledger, None if there is none."""
        ledger_id = suspicion.ledger_id or 0
        owner = self.reader.ledger(ledger_id).owner
        foreign = owner is not None and owner.role == "data" and owner.name != suspicion.topic
        relatives: Sequence[int] = self.topic(owner.name).ids if owner is not None and foreign else ()
        return self.ledger(suspicion, ledger_id, relatives).twin

    def without_copied(self, judged: Sequence[Finding]) -> Iterator[Finding]:
        """Yield the findings except those about ledgers whose metadata is a copy, which explains them."""
        for each in judged:
            if each.ledger_id in self.copied and each.code in _OF_COPIES:
                self.causes.consequences.append(each)
            else:
                yield each

    def other_lists(self, ledger_id: int, name: str | None) -> list[str]:
        """Return the topics other than `name` that list a ledger."""
        return [other for other in self.listed_by.get(ledger_id, ()) if other != name]

    def read_lists(self, ledger_ids: set[int]) -> None:
        """Read which topics list these ledgers, in one pass over the store."""
        if ledger_ids:
            self.listed_by = topics_listing(ledger_ids, self.reader.store)

    def note_unlisted(self, suspicion: Finding) -> None:
        """Remember the topic of a ledger that no list has, unless another cluster refers to the ledger.

        A ledger in which the topic's own subscription has a position is the topic's.
        """
        others, ledger_id = self.reader.others, suspicion.ledger_id
        if ledger_id is None or (others is not None and others.names(ledger_id)):
            return
        if self.other_lists(ledger_id, None):
            return
        if suspicion.code == "ledger-not-listed" and suspicion.topic is not None and not suspicion.cursor:
            self.with_unlisted.add(suspicion.topic)
        elif suspicion.code == "orphan-ledger" and suspicion.evidence.get("role") == "data":
            self.with_unlisted.add(str(suspicion.evidence.get("owner")))

    def note_without_trace(self, suspicion: Finding) -> None:
        """Remember a topic without a record if only ledgers show that it was in this cluster.

        The topics of another cluster look like this, too.
        """
        if suspicion.code != "topic-record-lost" or suspicion.topic is None:
            return
        others, owned = self.reader.others, suspicion.evidence.get("ledgers", ())
        if others is not None and all(others.names(ledger_id) for ledger_id in owned):
            return
        name = TopicName.parse(suspicion.topic)
        partitioned = name.partitioned
        traces = [
            name.path,
            name.schema_path,
            *([] if partitioned is None else [partitioned.partitioned_path]),
        ]
        if not suspicion.evidence.get("cursors") and not any(self.reader.store.read_many(traces)):
            self.without_trace.add(suspicion.topic)
            self.with_unlisted.add(suspicion.topic)

    def doubted(self, case: Case, name: str | None) -> Case:
        """Return a case about ledgers of a topic with a doubt if an unknown cluster may own them.

        Ledgers of a cluster that was not named look like unlisted ledgers of many topics. So if other topics
        have such ledgers, too, custom metadata does not show which cluster's topic a ledger belongs to.
        """
        topics = sorted(self.with_unlisted - {str(name)})
        if len(topics) < _MANY or any(piece.witness is Witness.DISKS for piece in case.supports):
            return case
        text = (
            f"{len(topics)} other topics have ledgers that no list has ({first_of(topics, _NAMED)}),"
            " so another cluster may use BookKeeper"
        )
        return replace(
            case, contradicts=(*case.contradicts, Piece(Witness.OTHER_CLUSTER, text)), next_step=_NAME_STORE
        )

    def is_contested(self, name: str) -> bool:
        """Return True if another cluster refers to ledgers that were created for a topic of this name."""
        if self._contested is None:
            others = self.reader.others
            ids = [] if others is None or not others.trees else others.named.tolist()
            owners = (self.reader.ledger(ledger_id).owner for ledger_id in ids)
            self._contested = frozenset(
                owner.name for owner in owners if owner is not None and owner.role == "data"
            )
        return name in self._contested

    def is_damaged(self, log: MissingLog) -> bool:
        """Return False if a log exists and all its entries are elsewhere in the logs: the index is damaged.

        One ledger whose entries are nowhere else decides for the log. A bookie that replayed its journal may
        have others twice. The search may read all logs, so only some ledgers of a log are searched for.
        """
        source, searched = self.reader.source, self._searched[log.file]
        if log.file not in self._damaged and searched < _SEARCHED:
            self._searched[log.file] += 1
            if not (log.why and source is not None and unindexed(source, log.ledger_id)):
                self._damaged.add(log.file)
        return log.file in self._damaged

    def is_emptied(self, bookie: str) -> bool:
        """Return True if the disks of a bookie were given and have no entry of any ledger."""
        source = self.reader.source
        if source is None or bookie not in self.reader.complete.bookies:
            return False
        if bookie not in self._emptied:
            parts = [part for part in source.parts if part.bookies is not None and bookie in part.bookies]
            self._emptied[bookie] = not any(part.ledgers() for part in parts)
        return self._emptied[bookie]

    def unindexed_copies(self, bookies: Sequence[str], ledger_id: int) -> list[Unindexed]:
        """Return entry logs of bookies with entries of a ledger to which their indexes don't lead.

        The search may read all logs, so bookies are left out for which it often was in vain.
        """
        source = self.reader.source
        wanted = {bookie for bookie in bookies if self._searched[bookie] < _SEARCHED}
        if source is None or not wanted:
            return []
        found = {log.directory: log for log in unindexed(source, ledger_id) if log.bookie in wanted}
        for bookie in wanted - {log.bookie for log in found.values()}:
            self._searched[bookie] += 1
        return list(found.values())

    def bookies_not_given(self, ledger: LedgerEvidence) -> list[Gap]:
        """Return the bookies of a replicated ledger's ensembles whose disks were not given."""
        known = ledger.bookkeeper
        if known is None or known.write_quorum < 2 or not self.reader.complete.bookies:
            return []
        return [
            Gap(bookie, "disk", "of its own")
            for bookie in members_of(ledger)
            if bookie not in self.reader.complete.bookies
        ]


def members_of(ledger: LedgerEvidence) -> list[str]:
    """Return the bookies of a ledger's ensembles."""
    segments = () if ledger.bookkeeper is None else ledger.bookkeeper.segments
    return list(dict.fromkeys(member for segment in segments for member in segment.members))


def with_case(suspicion: Finding, case: Case) -> Finding:
    """Return a finding with its evidence. If that is not enough, it has no repair and explains the doubt."""
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

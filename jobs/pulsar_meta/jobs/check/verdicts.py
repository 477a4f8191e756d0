"""Judges findings that one record cannot decide, with all evidence that was given.

A finding waits until the store was read completely. Then its case is made from every source: the topic's
list, BookKeeper's metadata, the disks, the cursors and other clusters. Its repair is printed only if nothing
contradicts the case and two independent witnesses support it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pulsar_meta.jobs.check.case_context import CaseContext
from pulsar_meta.jobs.check.cases import (
    copied_metadata,
    judge_absence,
    judge_end,
    judge_generator,
    judge_lost_record,
    judge_orphan,
    judge_owner,
    judge_record,
    judge_schema,
    judge_without_metadata,
)
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.copied_records import OF_POINTERS, OF_POSITIONS, without_copies
from pulsar_meta.jobs.check.root_causes import LOST_PART, RootCauses
from pulsar_meta.jobs.topics.evidence import EvidenceReader

UNLISTED: Final = "ledger-not-listed"
# Findings about the owner of a ledger.
OF_OWNERS: Final = frozenset((UNLISTED, "ledger-foreign", "ledger-in-two-topics"))
# Findings about missing entries.
OF_ABSENCE: Final = frozenset(
    (
        *("ledger-without-entries", "ledger-end-differs", "entry-missing", "ledger-below-ack-quorum"),
        *("ledger-under-replicated", "compaction-ledger-missing", "cursor-ledger-unreadable"),
        "cursor-ledger-missing",
    )
)
# Findings that metadata causes if it is a copy of another ledger's.
OF_METADATA: Final = frozenset(
    (
        *("ledger-end-low", "ledger-end-high", "ledger-counts-zero", "ledger-size-differs"),
        *("ledger-without-entries", "schema-ledger-foreign", "compaction-ledger-foreign", *OF_POINTERS),
        *("ledger-end-differs", "entry-missing", "ledger-under-replicated", "ledger-below-ack-quorum"),
    )
)
# Findings about a topic's record, which is rebuilt from the ledgers that were created for the topic.
OF_RECORDS: Final = frozenset(("record-undecodable", "record-wrong-kind", "record-empty"))
OF_ORPHANS: Final = frozenset(("orphan-ledger", "orphan-bucket"))
JUDGED: Final = frozenset(
    (
        *(*OF_OWNERS, *OF_ABSENCE, *OF_METADATA, *OF_ORPHANS, *OF_RECORDS),
        *("topic-record-lost", "schema-ledger-missing"),
        *("ledger-without-metadata", "ledger-id-ahead", "system-topic-unreadable"),
        *("ledger-lost", "schema-ledger-foreign", "compaction-ledger-foreign"),
        *(*OF_POSITIONS, *OF_POINTERS),
    )
)


@dataclass(slots=True)
class Verdicts:
    """The findings of a run that need more than one witness.

    `evidence` opens the reader of everything that is known about ledgers, when it is first needed.
    `consequences` also yields the findings that a root cause explains. `groups_copies` is False if copied
    records are not to be reported; the findings that they explain then are. `not_checked` is complete once
    `findings` has yielded all.
    """

    evidence: Callable[[], EvidenceReader]
    consequences: bool = False
    groups_copies: bool = True
    not_checked: dict[str, str] = field(default_factory=dict)
    _pending: list[Finding] = field(default_factory=list)
    _early: int = 0

    def takes(self, suspicion: Finding) -> bool:
        """Keep a finding that has to be judged; return whether it has to be."""
        ends_early = suspicion.code == "schema-ledger-foreign" and "owner" not in suspicion.evidence
        if suspicion.code not in JUDGED or ends_early:
            return False
        self._pending.append(suspicion)
        return True

    def is_certain_early(self, suspicion: Finding) -> bool:
        """Return True if a finding can be judged before all ledgers were indexed.

        A few ledgers without metadata are reported at once. Many of them may be a lost part of the store.
        """
        return suspicion.code == "ledger-without-metadata" and self._early < LOST_PART - 1

    def judge_early(self, suspicion: Finding) -> Finding:
        """Return a finding that is certain early, with its evidence."""
        self._early += 1
        return judge_without_metadata(self._context(), suspicion, suspicion.ledger_id or 0)

    def findings(self) -> Iterator[Finding]:
        """Yield the judged findings, root causes first. Raises UnreachableError."""
        context = self._context()
        context.causes.add_missing(context.reader, context.is_damaged)
        copies: list[Finding] = []
        if self.groups_copies:
            copies, self._pending = without_copies(context, self._pending)
        context.read_lists(set(self._ledgers_with_owners()))
        for suspicion in self._pending:
            context.note_unlisted(suspicion)
            context.note_without_trace(suspicion)
        judged = [result for suspicion in self._pending for result in self._judge(context, suspicion)]
        judged = [*copies, *context.causes.gather_unindexed(), *context.without_copied(judged)]
        judged = _without_doubtful_lists(judged)
        judged = context.causes.gather_lost_parts(judged)
        judged = context.causes.gather_unknown_topics(judged, context.without_trace)
        yield from context.causes.findings()
        yield from (each for each in judged if _is_still_blocked(each, judged))
        if self.consequences:
            yield from context.causes.consequences
        self.not_checked |= context.not_checked | context.causes.not_checked

    def _context(self) -> CaseContext:
        reader = self.evidence()
        return CaseContext(reader, RootCauses(reader.store))

    def _ledgers_with_owners(self) -> Iterator[int]:
        """Yield the ledgers whose owner has to be judged."""
        for suspicion in self._pending:
            if suspicion.code in OF_OWNERS and suspicion.ledger_id is not None:
                yield suspicion.ledger_id
            if suspicion.code == "topic-record-lost":
                yield from suspicion.evidence.get("ledgers", ())

    def _judge(self, context: CaseContext, suspicion: Finding) -> Iterator[Finding]:
        """Yield the result: the finding with its evidence, another finding, or none."""
        code, ledger_id = suspicion.code, suspicion.ledger_id
        if _may_be_redacted(context, suspicion):
            place = suspicion.path or "empty records"
            self.not_checked[place] = "this copy is redacted, which empties records"
        elif code == "topic-record-lost":
            yield from judge_lost_record(context, suspicion)
        elif ledger_id is None:
            yield _judge_without_ledger(context, suspicion)
        elif code in OF_METADATA and (twin := context.twin(suspicion)) is not None:
            yield from copied_metadata(context, suspicion, ledger_id, twin)
        elif code in OF_OWNERS:
            yield from judge_owner(context, suspicion, ledger_id)
        elif code in OF_ABSENCE:
            copies = code in OF_METADATA
            yield from judge_absence(context, suspicion, ledger_id, may_have_copies=copies)
        elif code in OF_ORPHANS:
            yield from judge_orphan(context, suspicion, ledger_id)
        else:
            yield _judge_with_ledger(context, suspicion, ledger_id)


def _judge_with_ledger(context: CaseContext, suspicion: Finding, ledger_id: int) -> Finding:
    """Judge a finding about a ledger that stays one finding."""
    match suspicion.code:
        case "schema-ledger-missing":
            return judge_schema(context, suspicion, ledger_id)
        case "ledger-without-metadata":
            return judge_without_metadata(context, suspicion, ledger_id)
        case "ledger-end-low" | "ledger-end-high":
            return judge_end(context, suspicion, ledger_id)
    return suspicion


def _judge_without_ledger(context: CaseContext, suspicion: Finding) -> Finding:
    """Judge a finding about a record or the store."""
    if suspicion.code in OF_RECORDS:
        return judge_record(context, suspicion)
    return judge_generator(context, suspicion) if suspicion.code == "ledger-id-ahead" else suspicion


def _may_be_redacted(context: CaseContext, suspicion: Finding) -> bool:
    """Return True if a record is empty and the store is a copy without secrets."""
    if not context.reader.store.origin.get("redacted"):
        return False
    if suspicion.code == "record-empty":
        return True
    if suspicion.code != "topic-record-lost" or suspicion.path is None:
        return False
    return context.reader.store.find(suspicion.path) is not None


def _without_doubtful_lists(judged: Sequence[Finding]) -> list[Finding]:
    """Withdraw the repair of a topic's list if it would also add ledgers that may not be the topic's."""
    doubtful = Counter(each.topic for each in judged if each.code == UNLISTED and each.undecided)
    return [
        replace(each, message=f"{each.message}; {_doubt(doubtful[each.topic])}", undecided=True)
        if each.code == UNLISTED and not each.undecided and each.topic in doubtful
        else each
        for each in judged
    ]


def _doubt(count: int) -> str:
    ledgers = "another ledger" if count == 1 else f"{count} other ledgers"
    return f"repair topic-record would also add {ledgers} to the list, which may not be the topic's"


def _is_still_blocked(each: Finding, judged: Sequence[Finding]) -> bool:
    """Return False for a blocked namespace if no error about its system topic is left."""
    if each.code != "system-topic-unreadable" or each.evidence.get("because") not in JUDGED:
        return True
    return any(
        other.topic == each.topic and other.severity is Severity.ERROR and other is not each
        for other in judged
    )

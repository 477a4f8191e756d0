"""Ledgers that nobody names: what is left of what was deleted, and what others keep on the same bookies.

Sources: apache/pulsar ManagedLedgerImpl (trimming writes the record before it deletes),
BookkeeperSchemaStorage, TwoPhaseCompactor, LedgerMetadataUtils; apache/pulsar PIP-334.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.names import TopicName, encode_name, ledger_path
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.facts import LedgerFacts, read_facts
from pulsar_meta.jobs.check.listing import Listing
from pulsar_meta.jobs.check.rooms import are_among
from pulsar_meta.jobs.check.sight import Cluster
from pulsar_meta.jobs.topics.owners import COMPACTION, SCHEMAS, Owner, named_by
from pulsar_meta.jobs.topics.topic import LEDGERS_AT_ONCE
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EVIDENCE: Final[Mapping[str, Any]] = {
    "length": int,
    "created": int | None,
    "state": str,
    "role": str,
    "owner": str,
    "application": str | None,
}
ORPHAN_LEDGER: Final = Code(
    "orphan-ledger",
    Severity.WARNING,
    "A ledger that nobody names",
    means="BookKeeper has it, and no topic, cursor, schema, compaction or index of delayed messages names"
    " it. Its entries take space on the bookies for ever.",
    broker="Nothing.",
    comes="A broker that was stopped between creating a ledger and naming it, or between taking it out of a"
    " record and deleting it; schemas and compacted data of topics that were deleted.",
    cure="Compare with a second look later. Then delete it (`bookkeeper shell deleteledger`), if you know"
    " that nothing else uses these bookies.",
    unless="Ledgers younger than `--min-age`; in a snapshot, which cannot be looked at again, it is a note;"
    " and so are ledgers that do not say that they are Pulsar's: function packages, and other users of the"
    " bookies.",
    evidence=EVIDENCE,
)
ORPHAN_BUCKET: Final = Code(
    "orphan-bucket",
    Severity.WARNING,
    "An index of delayed messages that no subscription names",
    means="The ledger was made for a subscription, whose properties do not name it.",
    broker="Nothing.",
    comes="Indexes that were merged or deleted while the broker was stopped; apache/pulsar#25984, #26260.",
    cure="As an orphan ledger.",
    unless="As an orphan ledger.",
    evidence=EVIDENCE,
)
CODES: Final = (ORPHAN_LEDGER, ORPHAN_BUCKET)
YOUNG: Final = "younger than --min-age, somebody may still name them"
UNDECIDED: Final = (
    "the record that would name them cannot be read, or its state lies in a ledger that is not here"
)


@dataclass(slots=True)
class Orphans:
    """What is left of a listing without all that is named; `young` and `undecided` count ledgers."""

    store: Store
    cluster: Cluster
    listing: Listing
    young: int = 0
    undecided: int = 0
    _unseen: list[str] = field(default_factory=list)

    def findings(self, named: NDArray[np.int64], stated: Set[int]) -> Iterator[Finding]:
        """Yield the ledgers that are not `named` (in order), nor at a second look; not those of `stated`."""
        ids = self.listing.ids
        left = ids[~are_among(ids, named)].tolist()
        for at in range(0, len(left), LEDGERS_AT_ONCE):
            some = [one for one in left[at : at + LEDGERS_AT_ONCE] if one not in stated and self._is_old(one)]
            for ledger_id, facts in read_facts(self.store, some).items():
                if facts.metadata == "known" and self._is_unnamed(ledger_id, facts):
                    yield self._finding(ledger_id, facts)

    @property
    def not_checked(self) -> dict[str, str]:
        """What was left out, and why."""
        counts = ((self.young, YOUNG), (self.undecided, UNDECIDED))
        return {
            f"{count} ledger{'s' if count > 1 else ''} that nobody names": why
            for count, why in counts
            if count
        }

    def _is_old(self, ledger_id: int) -> bool:
        old = self.cluster.is_old(self.listing.facts(ledger_id).created)
        self.young += not old
        return old

    def _is_unnamed(self, ledger_id: int, facts: LedgerFacts) -> bool:
        """Return whether the one that it was made for does not name it just now."""
        path = None if facts.owner is None else path_of(facts.owner)
        if path is None:
            return True
        self._unseen.clear()
        try:
            record = self.store.read(path)
            found = {one.ledger_id for one in named_by(record, self.cluster.source, self._note_unseen)}
        except NotFoundError:
            return True
        except DecodeError:
            self.undecided += 1
            return False
        hidden = bool(self._unseen) and facts.role == "compacted"
        self.undecided += hidden
        return ledger_id not in found and not hidden

    def _note_unseen(self, path: str, why: str) -> None:
        self._unseen.append(why)

    def _finding(self, ledger_id: int, facts: LedgerFacts) -> Finding:
        owner = facts.owner
        code = ORPHAN_BUCKET if facts.role == "delayed-index-bucket" else ORPHAN_LEDGER
        since = "" if facts.created is None else f", created {iso_time(facts.created)}"
        if owner is not None:
            of = f" of {owner.cursor}" if owner.cursor and owner.role != "compacted" else ""
            text = f"nobody names it; it was created as {owner.role}{of} of {owner.name}{since}"
        else:
            text = f"no record of Pulsar names it, and it does not say for whom it was created{since}"
        certain = self.cluster.live and facts.role != ""
        return code.found(
            text,
            severity=Severity.WARNING if certain else Severity.NOTE,
            ledger_id=ledger_id,
            path=ledger_path(ledger_id),
            evidence=self._evidence(facts, owner),
        )

    def _evidence(self, facts: LedgerFacts, owner: Owner | None) -> dict[str, object]:
        found: dict[str, object] = {"length": facts.length, "created": facts.created, "state": facts.state}
        if owner is not None:
            found |= {"role": owner.role, "owner": owner.name}
        elif facts.known is not None and facts.known.custom:
            found["application"] = facts.known.custom.get("application")
        return found


def path_of(owner: Owner) -> str | None:
    """Return where the record lies that would name a ledger of this owner."""
    if owner.role == "schema":
        namespace, _, local = owner.name.rpartition("/")
        return f"{SCHEMAS}/{namespace}/{encode_name(local)}"
    if "://" not in owner.name:
        return None
    with suppress(Exception):
        name = TopicName.parse(owner.name)
        if owner.role == "data":
            return name.path
        cursor = COMPACTION if owner.role == "compacted" else owner.cursor
        return None if cursor is None else name.cursor_path(cursor)
    return None

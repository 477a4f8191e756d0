"""Ledgers and offloaded objects that no record refers to.

They are left over from deletions, or belong to other users of the same bookies or storage.

Sources: apache/pulsar ManagedLedgerImpl (trimming updates the record before it deletes a ledger),
BookkeeperSchemaStorage, TwoPhaseCompactor, LedgerMetadataUtils, PIP-334.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.names import TopicName, encode_name, ledger_path
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.check.context import Context
from pulsar_meta.jobs.check.ledger_facts import LedgerFacts, read_facts
from pulsar_meta.jobs.check.ledger_index import LedgerIndex, are_among
from pulsar_meta.jobs.topics.owners import COMPACTION, SCHEMAS, Owner, named_by
from pulsar_meta.jobs.topics.topic import LEDGERS_AT_ONCE
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

YOUNG: Final = "younger than --min-age, so a record may still refer to them"
UNDECIDED: Final = "the record that may refer to them can't be read, or its state is in a missing ledger"


@dataclass(slots=True)
class Orphans:
    """Finds ledgers that no record refers to; `young` and `undecided` count ledgers that are not judged."""

    store: Store
    context: Context
    index: LedgerIndex
    young: int = 0
    undecided: int = 0
    _unseen: list[str] = field(default_factory=list)

    def findings(self, referenced: NDArray[np.int64], stated: Set[int]) -> Iterator[Finding]:
        """Yield the ledgers that are unreferenced, also when their owner's record is read again.

        `referenced` is in order; `stated` are ledgers that another finding already reports.
        """
        ids = self.index.ids
        left = ids[~are_among(ids, referenced)].tolist()
        for at in range(0, len(left), LEDGERS_AT_ONCE):
            batch = [
                each for each in left[at : at + LEDGERS_AT_ONCE] if each not in stated and self._is_old(each)
            ]
            for ledger_id, facts in read_facts(self.store, batch).items():
                if facts.metadata == "known" and self._is_unreferenced(ledger_id, facts):
                    yield self._finding(ledger_id, facts)

    @property
    def not_checked(self) -> dict[str, str]:
        """The ledgers that were not judged, with the reasons."""
        counts = ((self.young, YOUNG), (self.undecided, UNDECIDED))
        return {
            f"{count} unreferenced ledger{'s' if count > 1 else ''}": why for count, why in counts if count
        }

    def _is_old(self, ledger_id: int) -> bool:
        old = self.context.is_old(self.index.facts(ledger_id).created)
        self.young += not old
        return old

    def _is_unreferenced(self, ledger_id: int, facts: LedgerFacts) -> bool:
        """Return True if the owner's current record does not refer to the ledger."""
        path = None if facts.owner is None else path_of(facts.owner)
        if path is None:
            return True
        self._unseen.clear()
        try:
            record = self.store.read(path)
            ids = {owner.ledger_id for owner in named_by(record, self.context.source, self._note_unseen)}
        except NotFoundError:
            return True
        except DecodeError:
            self.undecided += 1
            return False
        hidden = bool(self._unseen) and facts.role == "compacted"
        self.undecided += hidden
        return ledger_id not in ids and not hidden

    def _note_unseen(self, path: str, why: str) -> None:
        self._unseen.append(why)

    def _finding(self, ledger_id: int, facts: LedgerFacts) -> Finding:
        owner = facts.owner
        since = "" if facts.created is None else f", created {iso_time(facts.created)}"
        if owner is not None:
            of = f" of {owner.cursor}" if owner.cursor and owner.role != "compacted" else ""
            text = f"no record refers to it; it was created as {owner.role}{of} of {owner.name}{since}"
        else:
            text = f"no record of Pulsar refers to it, and its metadata names no owner{since}"
        certain = self.context.live and facts.role != ""
        return finding(
            "orphan-bucket" if facts.role == "delayed-index-bucket" else "orphan-ledger",
            text,
            severity=Severity.WARNING if certain else Severity.NOTE,
            ledger_id=ledger_id,
            path=ledger_path(ledger_id),
            evidence=self._evidence(facts, owner),
        )

    def _evidence(self, facts: LedgerFacts, owner: Owner | None) -> dict[str, object]:
        evidence: dict[str, object] = {
            "length": facts.length,
            "created": facts.created,
            "state": facts.state,
        }
        if owner is not None:
            evidence |= {"role": owner.role, "owner": owner.name}
        elif facts.full is not None and facts.full.custom:
            evidence["application"] = facts.full.custom.get("application")
        return evidence


def path_of(owner: Owner) -> str | None:
    """Return the path of the record that refers to the ledgers of an owner, None if its name is invalid."""
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


def orphan_objects(source: EntrySource, referenced: Set[int]) -> Iterator[Finding]:
    """Yield offloads in tiered storage that no record refers to, and that still exist when listed again.

    `referenced` are the hashes of the others (`offload_hash`).
    """
    left = {offload for offload in source.objects() if offload_hash(*offload) not in referenced}
    for ledger_id, uuid in sorted(left & set(source.objects(again=True))) if left else ():
        yield finding(
            "offload-object-orphan",
            f"tiered storage has an offload of ledger {ledger_id} that no record refers to",
            ledger_id=ledger_id,
            evidence={"uuid": uuid},
        )


def offload_hash(ledger_id: int, uuid: str) -> int:
    """Return a signed hash of 8 bytes for an offload."""
    digest = blake2b(f"{ledger_id} {uuid}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)

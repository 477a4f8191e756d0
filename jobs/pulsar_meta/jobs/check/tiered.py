"""Ledgers in tiered storage: offloads that did not end, objects that are gone.

Sources: apache/pulsar ManagedLedgerImpl (prepareLedgerInfoForOffloaded, completeLedgerInfoForOffloaded);
tried on 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from hashlib import blake2b
from typing import Final

from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.sight import Check, Sight
from pulsar_meta.jobs.topics.topic import Offload

UNFINISHED: Final = Code(
    "offload-unfinished",
    Severity.NOTE,
    "An offload that began and did not end",
    means="The list says that an offload of the ledger began; it is not complete.",
    broker="It reads from the bookies. The next offload begins anew and cleans up what the first one wrote.",
    comes="A broker that was stopped while it offloaded, or a storage that refused.",
    cure="None needed; see why offloading fails if there are many.",
    unless="Younger than `--min-age`.",
    evidence={"uuid": str, "begun_at": int | None},
)
OBJECT_MISSING: Final = Code(
    "offload-object-missing",
    Severity.ERROR,
    "An offloaded ledger that the storage has not got",
    means="The list says that the ledger was offloaded, and the tiered storage that was given with"
    " `--entries offload:` has no entry of it.",
    broker="It reads what is offloaded from the storage, also where BookKeeper still has it: reading stalls"
    " there. So it does where the broker has no offloader for the storage, which is not to be seen here.",
    errors=("ManagedLedgerException: Other exception", "UnsupportedOperationException"),
    comes="The object was deleted, by a lifecycle rule of the bucket or by hand; or another storage was"
    " given here.",
    cure="Bring the object back. Where BookKeeper still has the ledger, clear its offload context. Else take"
    " the ledger out of the list: what comes after is then read again.",
    unless="Without an `offload:` source it is not checked.",
    evidence={"uuid": str, "driver": str | None, "entries": int, "bookkeeper_deleted": bool},
)
OBJECT_ORPHAN: Final = Code(
    "offload-object-orphan",
    Severity.WARNING,
    "An offloaded ledger in tiered storage that nobody names",
    means="The storage that was given with `--entries offload:` has an offload of a ledger (by its UUID) that"
    " no topic's record names. It takes place, and costs, for ever.",
    broker="Nothing: it only deletes what a record names.",
    comes="A topic that was deleted without its offloaded data, an offload that failed and left things that"
    " could not be deleted, a record that lost its offload context (apache/pulsar#26509); #9962.",
    cure="If no other cluster keeps its ledgers in this storage, delete the object and its index.",
    unless="Objects that are gone when they are listed again; where a topic's record cannot be read it may"
    " name any of them, and nothing is said; with some topics only, and without an `offload:` source, it is"
    " not checked.",
    evidence={"uuid": str},
)
CODES: Final = (UNFINISHED, OBJECT_MISSING, OBJECT_ORPHAN)
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def has_begun(offload: Offload) -> bool:
    """Return whether there is, or may be, an object of this offload."""
    return offload.complete or offload.uuid != _NO_UUID


def unfinished(sight: Sight) -> Iterator[Finding]:
    """Offloads that began some time ago and are not complete."""
    for ledger in sight.ledgers:
        offload = ledger.offload
        if offload is None or offload.complete or not has_begun(offload):
            continue
        if sight.cluster.is_old(offload.begun_at):
            since = "" if offload.begun_at is None else f" at {iso_time(offload.begun_at)}"
            yield UNFINISHED.found(
                f"its offload{since} did not end",
                evidence={"uuid": offload.uuid, "begun_at": offload.begun_at},
                **sight.where(ledger.ledger_id),
            )


def objects(sight: Sight) -> Iterator[Finding]:
    """Ledgers that are offloaded, and of which tiered storage has nothing."""
    if sight.cluster.source is None or not sight.cluster.has_offload or sight.is_shadow:
        return
    for ledger in sight.ledgers:
        offload = ledger.offload
        if offload is None or not offload.complete or not ledger.entries:
            continue
        if ledger.ledger_id not in sight.cluster.stored:
            alone = f"are {'in' if offload.bookkeeper_deleted else 'read from'} tiered storage"
            alone += " alone" if offload.bookkeeper_deleted else ""
            yield OBJECT_MISSING.found(
                f"its {ledger.entries} entries {alone}, which has none of them",
                evidence={
                    "uuid": offload.uuid,
                    "driver": offload.driver,
                    "entries": ledger.entries,
                    "bookkeeper_deleted": offload.bookkeeper_deleted,
                },
                **sight.where(ledger.ledger_id),
            )


TOPIC_CHECKS: Final[tuple[Check, ...]] = (unfinished, objects)


def orphan_objects(source: EntrySource, named: Set[int]) -> Iterator[Finding]:
    """Yield the offloads that no record names, and that still are there; `named` has marks of the others."""
    left = {one for one in source.objects() if offload_mark(*one) not in named}
    for ledger_id, uuid in sorted(left & set(source.objects(again=True))) if left else ():
        yield OBJECT_ORPHAN.found(
            f"tiered storage has an offload of ledger {ledger_id} that no record names",
            ledger_id=ledger_id,
            evidence={"uuid": uuid},
        )


def offload_mark(ledger_id: int, uuid: str) -> int:
    """Return a number of 8 bytes that stands for an offload."""
    digest = blake2b(f"{ledger_id} {uuid}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)

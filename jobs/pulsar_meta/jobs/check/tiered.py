"""Ledgers in tiered storage: offloads that did not end, objects that are gone.

Sources: apache/pulsar ManagedLedgerImpl (prepareLedgerInfoForOffloaded, completeLedgerInfoForOffloaded);
tried on 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.check.codes import Code, Finding, Severity
from pulsar_meta.jobs.check.sight import Check, Sight

UNFINISHED: Final = Code(
    "offload-unfinished",
    Severity.NOTE,
    "An offload that began and did not end",
    means="The list says that an offload of the ledger began; it is not complete.",
    broker="It reads from the bookies. The next offload begins anew and cleans up what the first one wrote.",
    comes="A broker that was stopped while it offloaded, or a storage that refused.",
    cure="None needed; see why offloading fails if there are many.",
    unless="Younger than `--min-age`.",
)
OBJECT_MISSING: Final = Code(
    "offload-object-missing",
    Severity.ERROR,
    "An offloaded ledger that the storage has not got",
    means="The list says that the ledger was offloaded and deleted from BookKeeper, and the tiered storage"
    " that was given with `--entries offload:` has no entry of it.",
    broker="Reading stalls there.",
    errors=("ManagedLedgerException: Other exception",),
    comes="The object was deleted, by a lifecycle rule of the bucket or by hand; or another storage was"
    " given here.",
    cure="Bring the object back. Else take the ledger out of the list: what comes after is then read again.",
    unless="Without an `offload:` source it is not checked.",
)
CODES: Final = (UNFINISHED, OBJECT_MISSING)
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def unfinished(sight: Sight) -> Iterator[Finding]:
    """Offloads that began some time ago and are not complete."""
    for ledger in sight.ledgers:
        offload = ledger.offload
        if offload is None or offload.complete or offload.uuid == _NO_UUID:
            continue
        if sight.cluster.is_old(offload.begun_at):
            since = "" if offload.begun_at is None else f" at {iso_time(offload.begun_at)}"
            yield UNFINISHED.found(
                f"its offload{since} did not end",
                evidence={"uuid": offload.uuid, "begun_at": offload.begun_at},
                **sight.where(ledger.ledger_id),
            )


def objects(sight: Sight) -> Iterator[Finding]:
    """Ledgers that are in tiered storage alone, and of which it has nothing."""
    source = sight.cluster.source
    if source is None or not sight.cluster.has_offload or sight.is_shadow:
        return
    for ledger in sight.ledgers:
        offload = ledger.offload
        if offload is None or not (offload.complete and offload.bookkeeper_deleted) or not ledger.entries:
            continue
        if source.last_entry(ledger.ledger_id) is None:
            yield OBJECT_MISSING.found(
                f"its {ledger.entries} entries are in tiered storage alone, which has none of them",
                evidence={"uuid": offload.uuid, "driver": offload.driver, "entries": ledger.entries},
                **sight.where(ledger.ledger_id),
            )


TOPIC_CHECKS: Final[tuple[Check, ...]] = (unfinished, objects)

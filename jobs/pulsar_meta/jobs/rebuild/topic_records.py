"""The record of a topic's managed ledger, made of the ledgers on the disks and of what an older store had.

A ledger of a record has its entries, the last one too: a broker deletes one that says it has none.

Source: apache/pulsar ManagedLedgerImpl.java (initialize, internalTrimLedgers), MLDataFormats.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pulsar_meta.jobs.rebuild.ledgers import FoundLedger
from pulsar_meta.jobs.rebuild.transactions import MAX_LOCAL_TXN_ID
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo


def record_of(
    ledgers: Iterable[FoundLedger], old: ManagedLedgerInfo | None, properties: Mapping[str, str]
) -> tuple[ManagedLedgerInfo, list[int]]:
    """Return the record of a topic's managed ledger, and the ledgers that stay deleted."""
    record = ManagedLedgerInfo()
    found = {one.ledger_id: one for one in ledgers}
    newest = -1
    for before in old.ledgerInfo if old is not None else ():
        newest = max(newest, before.ledgerId)
        here = found.get(before.ledgerId)
        if here is not None or before.offloadContext.complete:
            kept = record.ledgerInfo.add()
            kept.CopyFrom(before)
            if here is not None and not (before.timestamp and before.entries):
                kept.entries, kept.size = here.last_entry + 1, here.length or 0
    known = {one.ledgerId for one in record.ledgerInfo}
    deleted = [one for one in sorted(found) if one not in known and one < newest]
    for one in sorted(found):
        if one > newest:
            record.ledgerInfo.add(
                ledgerId=one, entries=found[one].last_entry + 1, size=found[one].length or 0
            )
    if old is not None and old.HasField("terminatedPosition") and max(found, default=-1) <= newest:
        record.terminatedPosition.CopyFrom(old.terminatedPosition)
    _set_properties(record, old, properties)
    return record, deleted


def _set_properties(
    record: ManagedLedgerInfo, old: ManagedLedgerInfo | None, properties: Mapping[str, str]
) -> None:
    values = {one.key: one.value for one in old.properties} if old is not None else {}
    for key, value in properties.items():
        before = values.get(key, "")
        if key == MAX_LOCAL_TXN_ID and before.isdigit() and int(before) > int(value):
            continue
        values[key] = value
    for key, value in values.items():
        record.properties.add(key=key, value=value)

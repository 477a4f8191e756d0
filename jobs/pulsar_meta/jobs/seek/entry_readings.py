"""What entries of a source say to a search: their headers, or why they say nothing."""

from __future__ import annotations

from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.transactions.log_entries import txn_of_message
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.jobs.seek.samples import Reading, ReadRequest, State

TO_THE_END: Final = 2**63


def answer(source: EntrySource, request: ReadRequest) -> list[Reading]:
    """Return a reading for every entry of the request; UnreachableError where the source is."""
    if request.first == request.last:
        return [read_one(source, request.ledger_id, request.first)]
    found: dict[int, Reading] = {}
    try:
        for raw in source.read_many(request.ledger_id, request.first, request.last):
            found[raw.entry_id] = examine(raw)
    except (DecodeError, NotFoundError):
        # A broken record ends the run; what is left of it is asked for one by one.
        pass
    return [
        found.get(entry_id) or read_one(source, request.ledger_id, entry_id)
        for entry_id in range(request.first, request.last + 1)
    ]


def read_one(source: EntrySource, ledger_id: int, entry_id: int) -> Reading:
    """Return what one entry says; a ledger that is not there, or ends before it, is one long reading."""
    try:
        return examine(source.read(ledger_id, entry_id))
    except NotFoundError:
        last = source.last_entry(ledger_id)
    except DecodeError:
        return Reading(ledger_id, entry_id, State.UNREADABLE)
    if last is None:
        return Reading(ledger_id, 0, State.MISSING, span=TO_THE_END)
    if entry_id > last:
        return Reading(ledger_id, last + 1, State.MISSING, span=TO_THE_END)
    return Reading(ledger_id, entry_id, State.MISSING)


def examine(raw: RawEntry) -> Reading:
    """Return what an entry's header says; one whose digest is wrong may say anything and is unreadable."""
    try:
        data: bytes | memoryview = raw.data
        if raw.bookie:
            entry = decode_bookie_entry(raw.data)
            if entry.digest == "bad":
                return Reading(raw.ledger_id, raw.entry_id, State.UNREADABLE)
            data = entry.data
        frame = decode_frame(data, verify=False)
    except DecodeError:
        return Reading(raw.ledger_id, raw.entry_id, State.UNREADABLE)
    first, last = frame.index_range or (None, None)
    return Reading(
        raw.ledger_id,
        raw.entry_id,
        first_index=first,
        last_index=last,
        broker_timestamp=frame.broker_timestamp,
        publish_time=frame.metadata.publish_time,
        batched=frame.metadata.HasField("num_messages_in_batch"),
        txn=txn_of_message(frame.metadata),
        marker=frame.metadata.HasField("marker_type"),
    )

"""Read the headers of entries for a search: their indexes and times, or why there are none."""

from __future__ import annotations

from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.transactions.log_entries import txn_of_message
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.jobs.seek.samples import Reading, ReadRequest, State

TO_THE_END: Final = 2**63
# About 50 MB of readings. Forgetting them costs reads and never changes an answer.
REMEMBERED_READINGS: Final = 200_000


class EntryReader:
    """Reads entries from a source and remembers them, so that a later question does not read them again.

    `entries_read` counts the entries that the source returned, `round_trips` the requests to it.
    """

    def __init__(self, source: EntrySource) -> None:
        self.source = source
        self.entries_per_read = source.entries_per_read
        self.entries_read = 0
        self.round_trips = 0
        self._remembered: dict[ReadRequest, list[Reading]] = {}
        self._count = 0

    def read(self, request: ReadRequest) -> list[Reading]:
        """Return a reading for every entry of the request. Raises UnreachableError."""
        readings = self._remembered.get(request)
        if readings is not None:
            return readings
        readings = read_headers(self.source, request)
        self.round_trips += 1
        self.entries_read += sum(reading.state is not State.MISSING for reading in readings)
        self._count += len(readings)
        if self._count > REMEMBERED_READINGS:
            self._remembered.clear()
            self._count = len(readings)
        self._remembered[request] = readings
        return readings


def read_headers(source: EntrySource, request: ReadRequest) -> list[Reading]:
    """Return a reading for every entry of the request. Raises UnreachableError."""
    if request.first == request.last:
        return [read_one(source, request.ledger_id, request.first)]
    readings: dict[int, Reading] = {}
    try:
        for raw in source.read_many(request.ledger_id, request.first, request.last):
            readings[raw.entry_id] = examine(raw)
    except (DecodeError, NotFoundError):
        # A broken record ends the run, so the entries after it are read one by one.
        pass
    return [
        readings.get(entry_id) or read_one(source, request.ledger_id, entry_id)
        for entry_id in range(request.first, request.last + 1)
    ]


def read_one(source: EntrySource, ledger_id: int, entry_id: int) -> Reading:
    """Return the reading of one entry.

    If the ledger is missing, or ends before the entry, the reading spans everything that is missing.
    """
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
    """Decode an entry's header. An entry with a wrong digest is unreadable: any of its bytes may be wrong."""
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

"""Move the state of cursors from their ledgers to their records, as ranges, which every release can read.

Since apache/pulsar#9292, brokers may write individual acknowledgments to a cursor's ledger as bit sets. An
older release loads such a cursor without them, so the messages are redelivered. A record only contains
ranges, and if it refers to no ledger, every release uses its state.

Source: apache/pulsar ManagedCursorImpl (recover, recoverIndividualDeletedMessages), MLDataFormats.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.acks import ack_form, acks_of
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor, open_envelope
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rewrite.apply import Batches
from pulsar_meta.jobs.rewrite.decision import (
    NOT_THERE,
    UNDECODABLE,
    Decided,
    Decision,
    by_rule,
    keep,
    skip,
    write,
)
from pulsar_meta.jobs.rewrite.readable import Readers, packed_again
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.cursors import recovered
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned

COMMAND: Final = "convert-cursor"
# At most this many cursors with losses are named.
NAMED: Final = 10
STATE_UNKNOWN: Final = "state-unknown"
# The state is not in the record, but every release can read it.
READABLE: Final = "readable"


@dataclass(frozen=True, slots=True)
class Conversion:
    """Decides whether to move a cursor's state from its ledger to its record.

    Only states in bit sets are moved, with `everything` also those in ranges. `warn` is called before the
    write with anything that a record can't contain. `left` has the ledger and the number of partly
    acknowledged batches of each record to be written, `losing` the first records with such batches, and
    `unknown` the reasons why states are unknown.
    """

    store: Store
    source: EntrySource | None
    readers: Readers
    warn: Callable[[str], None]
    everything: bool = False
    left: dict[str, tuple[int, int]] = field(default_factory=dict)
    losing: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)

    def rewrite(self, values: Callable[[], Iterable[Versioned]]) -> Rewrite:
        """Make the rewrite that converts these cursors.

        It decides in this process, because it reads entries.
        """

        def decided(batches: Batches) -> Generator[Decided]:
            for seen in values():
                yield seen, self(seen)

        return Rewrite(COMMAND, decided, by_rule(self), with_new=True)

    def __call__(self, seen: Versioned) -> Decision:
        """Decide what to do with a cursor's record."""
        if seen.version == ABSENT:
            return skip(seen, NOT_THERE, note="it is listed, but does not exist")
        try:
            envelope = open_envelope(seen.value)
            record = decode_cursor(seen.value)
        except DecodeError as error:
            return skip(seen, UNDECODABLE, note=str(error))
        codec = "none" if envelope is None else envelope.codec
        if record.cursorsLedgerId == STATE_IN_RECORD:
            return keep(seen, "already", codec)
        with_metadata = self.store if has_metadata(self.store) else None
        cursor = recovered(record, with_metadata, self.source)
        state, recovery = cursor.state.state, cursor.recovery
        if not isinstance(state, PositionInfo) or recovery.believed != "ledger":
            self.unknown[seen.path] = recovery.why
            return skip(seen, STATE_UNKNOWN, codec, note=recovery.why)
        if ack_form(state) != "bitset" and not self.everything:
            return keep(seen, READABLE, codec)
        self._add_left(seen.path, record.cursorsLedgerId, len(state.batchedEntryDeletionIndexInfo))
        payload = record_with(record, state).SerializeToString()
        packed, after = packed_again(seen.path, payload, codec, self.readers)
        return write(seen, packed, codec, after)

    def converted(self) -> list[int]:
        """The ledgers that no record refers to any more after the run."""
        records = self.store.read_many(list(self.left))
        return [
            ledger_id
            for (ledger_id, _), record in zip(self.left.values(), records, strict=True)
            if record is not None and decode_cursor(record.value).cursorsLedgerId == STATE_IN_RECORD
        ]

    def _add_left(self, path: str, ledger_id: int, batches: int) -> None:
        """Record what a write leaves in the ledger, and warn about the first losses."""
        if path in self.left:
            return
        self.left[path] = ledger_id, batches
        if not batches or len(self.losing) > NAMED:
            return
        self.losing.append(path)
        if len(self.losing) <= NAMED:
            self.warn(f"{path}: {batches} partly acknowledged batches will be redelivered completely")
        else:
            self.warn("more cursors have batches that will be redelivered completely")


def record_with(record: ManagedCursorInfo, state: PositionInfo) -> ManagedCursorInfo:
    """Copy a cursor's record with `state` in it. The properties of the subscription are unchanged."""
    new = ManagedCursorInfo()
    new.CopyFrom(record)
    new.cursorsLedgerId = STATE_IN_RECORD
    new.markDeleteLedgerId, new.markDeleteEntryId = state.ledgerId, state.entryId
    for name in ("individualDeletedMessages", "properties", "batchedEntryDeletionIndexInfo"):
        new.ClearField(name)
    new.properties.extend(state.properties)
    new.batchedEntryDeletionIndexInfo.extend(state.batchedEntryDeletionIndexInfo)
    if len(state.individualDeletedMessages):
        new.individualDeletedMessages.extend(state.individualDeletedMessages)
        return new
    for ledger_id, ranges in sorted(acks_of(state).entries.items()):
        for first, last in ranges:
            added = new.individualDeletedMessages.add()
            added.lowerEndpoint.ledgerId, added.lowerEndpoint.entryId = ledger_id, first - 1
            added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = ledger_id, last
    return new

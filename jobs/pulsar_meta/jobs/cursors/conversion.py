"""The state of cursors moved out of their ledgers into their records, as ranges, which every release reads.

Since apache/pulsar#9292 brokers may write single acknowledgements into a cursor's ledger as bit sets; a
release before it loads such a cursor without them, and the messages come again. A record has ranges only, and
one that names no ledger is what every release believes.

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
from pulsar_meta.jobs.topics.cursors import Recovery, recovered
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned

COMMAND: Final = "convert-cursor"
# So many cursors of which something is lost are named.
NAMED: Final = 10
STATE_UNKNOWN: Final = "state-unknown"
# Not the form that is asked for, but one that every release reads.
READABLE: Final = "readable"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The rule that gives a cursor's record the state that lies in its ledger as a bit set.

    `everything`: also states that lie there as ranges. `warn` is stated, ahead of the write, of what a record
    cannot carry over. `left` has the ledger and the number of partly acknowledged batches of each record
    that is to be written, `losing` the first ones with such batches, `unknown` why a state is not known.
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
        """Return what converts these cursors; decided here, since it reads entries."""

        def decided(batches: Batches) -> Generator[Decided]:
            for seen in values():
                yield seen, self(seen)

        return Rewrite(COMMAND, decided, by_rule(self), with_new=True)

    def __call__(self, seen: Versioned) -> Decision:
        """Return what is to become of a cursor's record."""
        if seen.version == ABSENT:
            return skip(seen, NOT_THERE, note="listed, but not there")
        try:
            envelope = open_envelope(seen.value)
            record = decode_cursor(seen.value)
        except DecodeError as error:
            return skip(seen, UNDECODABLE, note=str(error))
        codec = "none" if envelope is None else envelope.codec
        if record.cursorsLedgerId == STATE_IN_RECORD:
            return keep(seen, "already", codec)
        state, recovery = self._found(record)
        if not isinstance(state, PositionInfo) or recovery.believed != "ledger":
            self.unknown[seen.path] = recovery.why
            return skip(seen, STATE_UNKNOWN, codec, note=recovery.why)
        if ack_form(state) != "bitset" and not self.everything:
            return keep(seen, READABLE, codec)
        self._leave(seen.path, record.cursorsLedgerId, len(state.batchedEntryDeletionIndexInfo))
        payload = record_with(record, state).SerializeToString()
        packed, after = packed_again(seen.path, payload, codec, self.readers)
        return write(seen, packed, codec, after)

    def converted(self) -> list[int]:
        """Return the ledgers that no record names any more, now that the run is over."""
        records = self.store.read_many(list(self.left))
        return [
            ledger_id
            for (ledger_id, _), record in zip(self.left.values(), records, strict=True)
            if record is not None and decode_cursor(record.value).cursorsLedgerId == STATE_IN_RECORD
        ]

    def _leave(self, path: str, ledger_id: int, batches: int) -> None:
        """Note what a write leaves behind; the first ones of which something is lost are named."""
        if path in self.left:
            return
        self.left[path] = ledger_id, batches
        if not batches or len(self.losing) > NAMED:
            return
        self.losing.append(path)
        if len(self.losing) <= NAMED:
            self.warn(f"{path}: {batches} batches acknowledged in part come again whole")
        else:
            self.warn("more cursors have batches that come again whole")

    def _found(self, record: ManagedCursorInfo) -> tuple[ManagedCursorInfo | PositionInfo | None, Recovery]:
        """Return the state of a cursor in its ledger, and what a broker makes of it."""
        found = recovered(record, self.store if has_metadata(self.store) else None, self.source)
        return found.state.state, found.recovery


def record_with(record: ManagedCursorInfo, state: PositionInfo) -> ManagedCursorInfo:
    """Return a cursor's record that holds `state` itself, its properties of the subscription as they were."""
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

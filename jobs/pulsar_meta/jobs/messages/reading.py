"""Read the messages of a range of entries as Arrow batches, and count those that were read or left out.

The steps are those of Pulsar's consumer: skip markers, keep encrypted entries closed, join chunks, decompress
and split all other entries. An unreadable entry gives a row with `error`.

Sources: apache/pulsar ConsumerImpl.java (messageReceived, processMessageChunk), MessageImpl.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.batch import DEFAULT_MAX_SIZE, Message, decompress_payload, open_entry
from pulsar_meta.codecs.frames.entry_json import properties_of
from pulsar_meta.codecs.frames.frame import Frame, decode_raw_message
from pulsar_meta.codecs.frames.row_schema import MESSAGE_COLUMNS
from pulsar_meta.codecs.schemas.values import schema_version
from pulsar_meta.entries.base import EntrySource, entry_of, read_each
from pulsar_meta.jobs.entries.entry_choice import ELSEWHERE, MARKERS_ELSEWHERE, Range
from pulsar_meta.jobs.entries.entry_reading import DataEntry, data_entry, find_frame, whole_copy
from pulsar_meta.jobs.entries.filters import Filter
from pulsar_meta.jobs.messages.chunks import Chunks, Joined
from pulsar_meta.jobs.messages.columns import (
    PAYLOAD,
    SCALABLE,
    TOPIC,
    VALUE,
    Metadata,
    Rows,
    key_bytes,
    key_of,
    transaction_of,
)
from pulsar_meta.jobs.messages.schemas import TopicSchemas
from pulsar_meta.jobs.topics.placement import placement
from pulsar_meta.jobs.topics.topic import Ledger, Position
from pulsar_meta.jobs.transactions.outcomes import Transactions

if TYPE_CHECKING:
    import pyarrow as pa

NO_KEY: Final = "no key"
# The number of error texts to keep.
KEPT: Final = 20


@dataclass(slots=True)
class MessageCounts:
    """Counts of one run. `first_errors` has the first errors of rows, each with its position.

    `entries` were read, `missing` entries are on no disk, and `elsewhere` are on disks that were not given.
    `rows` were produced, `errors` of them with an error (`without_schema`: their schema was not found), and
    `encrypted` ones without a key. `markers`,
    `hidden` entries (aborted, or after the start of an open transaction) and `filtered` messages were left
    out, and also `undecided` entries (the outcome of their transaction is unknown) and `unfiltered` ones
    (encrypted, so the filter can't be applied).
    """

    entries: int = 0
    rows: int = 0
    errors: int = 0
    without_schema: int = 0
    encrypted: int = 0
    missing: int = 0
    elsewhere: int = 0
    markers: int = 0
    hidden: int = 0
    undecided: int = 0
    filtered: int = 0
    unfiltered: int = 0
    first_errors: list[str] = field(default_factory=list)

    def error(self, place: object, text: str) -> None:
        """Count a row with an error."""
        self.errors += 1
        if len(self.first_errors) < KEPT:
            self.first_errors.append(f"{place}: {text}")

    def merge(self, other: MessageCounts) -> None:
        """Add the counts of another process."""
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first_errors += other.first_errors[: KEPT - len(self.first_errors)]

    def document(self) -> dict[str, Any]:
        """The counts that are not zero, and always `rows` and `entries`."""
        counts = {name: getattr(self, name) for name in COUNTED}
        return {name: count for name, count in counts.items() if count or name in ("entries", "rows")}

    @property
    def whole(self) -> bool:
        """True if everything was read, so that another run would give the same result."""
        return not (self.errors or self.missing or self.elsewhere or self.undecided or self.unfiltered)

    @property
    def left_out(self) -> dict[str, str]:
        """The messages that were not read, by kind, with the reasons."""
        reasons = {
            f"{self.elsewhere} entries": ELSEWHERE if self.elsewhere else "",
            f"the payloads of {self.encrypted} encrypted entries": NO_KEY if self.encrypted else "",
            f"whether {self.undecided} entries are readable": MARKERS_ELSEWHERE if self.undecided else "",
            f"whether the messages of {self.unfiltered} encrypted entries match": NO_KEY
            if self.unfiltered
            else "",
        }
        return {messages: reason for messages, reason in reasons.items() if reason}


COUNTED: Final = tuple(item.name for item in fields(MessageCounts) if item.name != "first_errors")


ENCRYPTED = "encrypted"


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """The messages to read, and their columns. It can be pickled.

    `where` filters by properties, `keys` by the keys of messages (None: all messages). Messages with an index
    below `from_index` are left out. `latest` are the only positions (ledger, entry, batch index or -1) to
    read, if given. `max_size` limits the decompressed size of a payload, in bytes.
    """

    columns: tuple[str, ...] = MESSAGE_COLUMNS
    where: Filter | None = None
    from_index: int | None = None
    max_size: int = DEFAULT_MAX_SIZE
    latest: frozenset[tuple[int, int, int]] | None = None
    keys: frozenset[str] | None = None


@dataclass(slots=True)
class MessageReader:
    """Reads the messages of one topic, range by range, and counts its entries in `counts`.

    `topic` is its name, also for a shadow topic; None for ledgers that were given by id. `ledgers` lists all
    ledgers of the topic in reading order; it is called if chunks of a message are outside a range. With
    `transactions`, only messages that consumers can see are read.
    """

    topic: str | None
    source: EntrySource
    options: MessageOptions
    ledgers: Callable[[], Sequence[Ledger]]
    schemas: TopicSchemas | None = None
    transactions: Transactions | None = None
    counts: MessageCounts = field(default_factory=MessageCounts)

    def read(self, part: Range) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range in reading order. Its ledger has BookKeeper's metadata.

        A chunked message has the position of its last chunk. Raises UnreachableError.
        """
        yield from _RangeReader(self, part).batches()


class _RangeReader:
    def __init__(self, reader: MessageReader, part: Range) -> None:
        self._reader, self._part, self._counts = reader, part, reader.counts
        self._options, self._form = reader.options, part.ledger.format
        names = {TOPIC: reader.topic, SCALABLE: part.segment.get("scalable_topic")}
        self._rows = Rows(self._options.columns, names)
        self._opens = not {PAYLOAD, VALUE, "error"}.isdisjoint(self._options.columns)
        self._chunks = Chunks(reader.source, part, reader.ledgers)
        self._place = Position(0, 0)
        self._fault: str | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        for entry_id, found in self._entries():
            self._place, self._fault = Position(self._part.ledger.ledger_id, entry_id), None
            self._entry(found)
            if self._rows.full:
                yield self._rows.take()
        for joined in self._chunks.unfinished():
            self._place, self._fault = joined.place, None
            self._joined(joined)
        if self._rows.count:
            yield self._rows.take()

    def _entries(self) -> Iterator[tuple[int, DataEntry | DecodeError]]:
        """Yield the present entries, each with its data or an error, and count the others."""
        part, source, counts = self._part, self._reader.source, self._counts
        ledger_id, placed, expected, present = part.ledger.ledger_id, placement(part.ledger, source), 0, 0
        for entry_id, outcome in read_each(source, ledger_id, part.first, part.last):
            if isinstance(outcome, NotFoundError):
                continue
            present += 1
            expected += placed.count(entry_id, entry_id)
            try:
                entry = data_entry(entry_of(outcome), self._form)
                if entry.digest == "bad":
                    entry = whole_copy(entry, source, self._form, lambda fault: None)
                yield entry_id, entry
            except DecodeError as error:
                yield entry_id, error
        last = part.first - 1 if part.last is None else part.last
        counts.entries += present
        counts.missing += max(0, placed.count(part.first, last) - expected)
        counts.elsewhere += max(0, placed.elsewhere(part.first, last) - (present - expected))

    def _entry(self, found: DataEntry | DecodeError) -> None:
        if isinstance(found, DecodeError):
            self._broken(None, str(found))
            return
        frame, compacted_from, reason = find_frame(found.data, self._form)
        if frame is None:
            if self._form.content is None:
                self._broken(None, f"no frame: {reason}")
            return
        if compacted_from is not None:
            origin = decode_raw_message(found.data).message_id
            self._place = Position(origin.ledgerId, origin.entryId)
            if any(ledger.ledger_id == origin.ledgerId for ledger in self._reader.ledgers()):
                # Compaction copied an entry that the topic still has.
                return
        if found.digest == "bad":
            self._fault = "its digest does not fit"
        elif frame.checksum == "bad":
            self._fault = "the checksum of its frame does not fit"
        if frame.metadata.HasField("marker_type"):
            self._counts.markers += 1
        elif self._is_readable(frame):
            self._frame(frame)

    def _is_readable(self, frame: Frame) -> bool:
        transactions = self._reader.transactions
        if transactions is None:
            return True
        readable = transactions.readable(self._place, transaction_of(frame.metadata))
        self._counts.undecided += readable is None
        self._counts.hidden += readable is False
        return readable is True

    def _frame(self, frame: Frame) -> None:
        metadata = frame.metadata
        if metadata.encryption_keys:
            self._encrypted(frame)
        elif metadata.num_chunks_from_msg > 1:
            joined = self._chunks.take(self._place, frame)
            if joined is not None:
                self._joined(joined)
        elif not metadata.HasField("num_messages_in_batch"):
            self._single(frame, frame.payload)
        else:
            self._batch(frame)

    def _encrypted(self, frame: Frame) -> None:
        """Add a row for an encrypted entry. In a batch, even the properties are encrypted."""
        batch = frame.metadata.HasField("num_messages_in_batch")
        if batch and self._options.where is not None:
            self._counts.unfiltered += 1
            return
        self._counts.encrypted += 1
        self._rows.entry(self._place, frame)
        text = f"{ENCRYPTED}: a batch of {frame.message_count} messages" if batch else ENCRYPTED
        self._add(frame.metadata, None, index=frame.index, error=text)

    def _single(self, frame: Frame, stored: memoryview | bytes) -> None:
        payload: memoryview | None = None
        fault = self._fault
        if self._opens:
            try:
                payload = decompress_payload(frame.metadata, stored, max_size=self._options.max_size)
            except DecodeError as error:
                fault = fault or str(error)
        self._rows.entry(self._place, frame)
        self._message(
            frame, Message(None, frame.index, frame.metadata, payload or memoryview(b"")), fault, payload
        )

    def _batch(self, frame: Frame) -> None:
        try:
            opened = open_entry(frame, max_size=self._options.max_size, partly=True)
        except DecodeError as error:
            self._broken(frame, str(error))
            return
        self._rows.entry(self._place, frame)
        for message in opened.messages:
            if not message.compacted_out:
                self._message(frame, message, self._fault, message.payload)
        if opened.fault is not None:
            self._failed(f"after {len(opened.messages)} messages of {frame.message_count}: {opened.fault}")

    def _joined(self, joined: Joined) -> None:
        if joined.error is None:
            self._single(joined.frame, joined.payload)
            return
        self._rows.entry(joined.place, joined.frame)
        self._failed(joined.error, joined.frame)

    def _message(self, frame: Frame, message: Message, fault: str | None, payload: memoryview | None) -> None:
        """Add a message. `fault` describes the fault of its entry."""
        value = None
        if VALUE in self._options.columns and payload is not None:
            value, why = self._value(frame, message)
            if fault is None and why is not None:
                fault = why
                self._counts.without_schema += self._lacks_schema(frame)
        self._add(
            message.metadata,
            payload,
            batch_index=message.batch_index,
            index=message.index,
            value=value,
            error=fault,
        )
        if fault is not None:
            self._counts.error(self._named(message.batch_index), fault)

    def _value(self, frame: Frame, message: Message) -> tuple[str | None, str | None]:
        schemas = self._reader.schemas
        version = schema_version(frame.metadata.schema_version)
        if schemas is None or version is None or version < 0:
            return None, None
        payload = None if message.metadata.null_value else bytes(message.payload)
        return schemas.value(version, payload, key_bytes(message.metadata))

    def _lacks_schema(self, frame: Frame) -> bool:
        schemas = self._reader.schemas
        return schemas is not None and schema_version(frame.metadata.schema_version) in schemas.missing

    def _add(
        self,
        metadata: Metadata,
        payload: memoryview | None,
        *,
        batch_index: int | None = None,
        index: int | None = None,
        value: str | None = None,
        error: str | None = None,
    ) -> None:
        if not self._is_wanted(metadata, batch_index, index):
            self._counts.filtered += 1
            return
        self._counts.rows += 1
        self._rows.message(metadata, payload, batch_index=batch_index, index=index, value=value, error=error)

    def _is_wanted(self, metadata: Metadata, batch_index: int | None, index: int | None) -> bool:
        options = self._options
        if options.from_index is not None and index is not None and index < options.from_index:
            return False
        if options.latest is not None:
            place = (*self._place, -1 if batch_index is None else batch_index)
            if place not in options.latest:
                return False
        if options.keys is not None and key_of(metadata) not in options.keys:
            return False
        return options.where is None or options.where.holds(properties_of(metadata.properties))

    def _broken(self, frame: Frame | None, error: str) -> None:
        """Add a row for an entry without a readable message."""
        self._rows.entry(self._place, frame)
        self._failed(self._fault or error, frame)

    def _failed(self, error: str, frame: Frame | None = None) -> None:
        self._counts.rows += 1
        self._counts.error(self._named(None), error)
        self._rows.message(None if frame is None else frame.metadata, None, error=error)

    def _named(self, batch_index: int | None) -> str:
        place = f"entry {self._place.ledger_id}:{self._place.entry_id}"
        return place if batch_index is None else f"{place}:{batch_index}"

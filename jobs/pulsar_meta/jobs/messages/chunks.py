"""Join chunked messages from their entries, including entries outside the range that is read.

Each chunk is an entry, and chunks of several producers are interleaved. A message has the position of its
last chunk. The reader of a range searches before it for first chunks, and after it for the last chunks of
incomplete messages.

Source: apache/pulsar ConsumerImpl.java (processMessageChunk), PIP-37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.frame import Frame
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Range
from pulsar_meta.jobs.entries.entry_reading import data_entry, find_frame
from pulsar_meta.jobs.topics.topic import Ledger, Position

_COLUMNS: Final = ("broken", "chunk_id", "producer_name", "sequence_id")


@dataclass(frozen=True, slots=True)
class Joined:
    """A message whose last chunk is at `place`, with its `frame`.

    `error` is the reason why it is incomplete.
    """

    place: Position
    frame: Frame
    payload: bytes = field(default=b"", repr=False)
    error: str | None = None


@dataclass(slots=True)
class _Open:
    """The chunks of a message so far, by number, and the position of the last one."""

    place: Position
    frame: Frame
    parts: dict[int, bytes] = field(default_factory=dict)


class Chunks:
    """The chunked messages of one range of a topic."""

    def __init__(self, source: EntrySource, part: Range, ledgers: Callable[[], Sequence[Ledger]]) -> None:
        """`ledgers` lists the topic's ledgers in reading order.

        It is called if a chunk is outside the range.
        """
        self._source, self._part, self._ledgers = source, part, ledgers
        self._open: dict[str, _Open] = {}
        # Chunks before the range: those that were read so far, and an iterator over the others.
        self._before: dict[str, dict[int, bytes]] = {}
        self._backwards: Iterator[tuple[Position, Frame]] | None = None

    def take(self, place: Position, frame: Frame) -> Joined | None:
        """Add a chunk. Returns the message if this was its last chunk."""
        metadata = frame.metadata
        if metadata.chunk_id == 0 or metadata.uuid not in self._open:
            self._open[metadata.uuid] = _Open(place, frame)
        known = self._open[metadata.uuid]
        known.place, known.frame = place, frame
        known.parts[metadata.chunk_id] = bytes(frame.payload)
        if metadata.chunk_id < metadata.num_chunks_from_msg - 1:
            return None
        del self._open[metadata.uuid]
        if 0 not in known.parts:
            known.parts = self._look_back(metadata.uuid) | known.parts
        return _join(known)

    def unfinished(self) -> Iterator[Joined]:
        """Yield the incomplete messages at the end of the range, except those that end after it."""
        left = dict(self._open)
        if not left:
            return
        for uuid in self._ending_later(left):
            left.pop(uuid, None)
        for message in sorted(left.values(), key=lambda message: message.place):
            yield Joined(message.place, message.frame, error=f"{_said(message)}: the last one is not here")

    def _look_back(self, uuid: str) -> dict[int, bytes]:
        """Find the chunks of a message that are before the range."""
        if self._backwards is None:
            self._backwards = self._chunks_before()
        chunks = self._before.setdefault(uuid, {})
        while 0 not in chunks:
            chunk = next(self._backwards, None)
            if chunk is None:
                break
            metadata = chunk[1].metadata
            self._before.setdefault(metadata.uuid, {}).setdefault(metadata.chunk_id, bytes(chunk[1].payload))
        return chunks

    def _chunks_before(self) -> Iterator[tuple[Position, Frame]]:
        """Yield the chunks before the range, the last one first."""
        own = self._part.ledger
        before = [ledger for ledger in self._ledgers() if ledger.ledger_id < own.ledger_id]
        if self._part.first:
            yield from self._chunks_in(own, self._part.first - 1)
        for ledger in reversed(before):
            yield from self._chunks_in(ledger, None)

    def _chunks_in(self, ledger: Ledger, last: int | None) -> Iterator[tuple[Position, Frame]]:
        for entry_id, chunk_id, _, _ in reversed(self._heads(ledger, 0, last)):
            frame = None if chunk_id is None else self._frame(ledger, entry_id)
            if frame is not None:
                yield Position(ledger.ledger_id, entry_id), frame

    def _heads(self, ledger: Ledger, first: int, last: int | None) -> list[tuple[int, int | None, str, int]]:
        """List (entry, chunk, producer, sequence id) of a ledger's entries, in order."""
        from pulsar_meta.jobs.entry_reader import read_columns

        rows: list[tuple[int, int | None, str, int]] = []
        for columns in read_columns(self._source, ledger.ledger_id, _COLUMNS, first, last):
            ids, broken, *others = (columns[name].tolist() for name in ("entry_id", *_COLUMNS))
            rows += [row[:1] + row[2:] for row in zip(ids, broken, *others, strict=True) if not row[1]]
        return sorted(rows, key=lambda row: row[0])

    def _frame(self, ledger: Ledger, entry_id: int) -> Frame | None:
        with suppress(DecodeError, NotFoundError):
            entry = data_entry(self._source.read(ledger.ledger_id, entry_id), ledger.format)
            return find_frame(entry.data, ledger.format)[0]
        return None

    def _ending_later(self, left: dict[str, _Open]) -> Iterator[str]:
        """Yield the messages with another chunk after the range.

        The search for a message ends when its producer begins another one.
        """
        waiting = {
            (one.frame.metadata.producer_name, one.frame.metadata.sequence_id): uuid
            for uuid, one in left.items()
        }
        for _, chunk_id, producer, sequence_id in self._heads_after():
            uuid = waiting.pop((producer, sequence_id), None) if chunk_id is not None else None
            if uuid is not None:
                yield uuid
            elif waiting:
                waiting = {key: one for key, one in waiting.items() if key[0] != producer or chunk_id is None}
            if not waiting:
                return

    def _heads_after(self) -> Iterator[tuple[int, int | None, str, int]]:
        own = self._part.ledger
        if self._part.last is not None:
            yield from self._heads(own, self._part.last + 1, None)
        for ledger in self._ledgers():
            if ledger.ledger_id > own.ledger_id:
                yield from self._heads(ledger, 0, None)


def _join(known: _Open) -> Joined:
    metadata, parts = known.frame.metadata, known.parts
    absent = [number for number in range(metadata.num_chunks_from_msg) if number not in parts]
    if absent:
        numbers = ", ".join(str(number + 1) for number in absent[:10])
        return Joined(known.place, known.frame, error=f"{_said(known)}: chunk {numbers} is not here")
    payload = b"".join(parts[number] for number in range(metadata.num_chunks_from_msg))
    size = metadata.total_chunk_msg_size
    if size and size != len(payload):
        error = f"its chunks have {len(payload)} bytes, they say {size}"
        return Joined(known.place, known.frame, error=error)
    return Joined(known.place, known.frame, payload)


def _said(known: _Open) -> str:
    return f"a message in {known.frame.metadata.num_chunks_from_msg} chunks"

"""Decode the headers of many entries at once, and verify their digests and checksums.

`HeaderReader.read` decodes the rows that are `whole`: they have the usual form, and if digests and checksums
were verified, these are correct (a frame may have no checksum). All other rows have to be decoded by the
codec for a single entry, which defines the result for all rows.

A bookie's digest covers the bytes of the frame's checksum and a few bytes before them. A CRC is linear over
bits, so the digest is computed from the checksum, without a second pass over the payload.

Needs NumPy. Sources: apache/pulsar Commands.java, PulsarApi.proto; apache/bookkeeper DigestManager.java; RFC
3720 B.4; `crc32_combine` of zlib.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from numpy.typing import NDArray

from pulsar_meta.codecs import backends
from pulsar_meta.codecs.columns.fields import FieldColumn, InnerMessages, sized_tag
from pulsar_meta.codecs.columns.frames import FrameColumns, read_frames, read_whole_frames
from pulsar_meta.codecs.columns.words import Heads, Positions, Rows, WordReader, Words
from pulsar_meta.codecs.frames.bookie_entry import DIGEST_SIZES, HEADER, DigestType
from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

Sums = NDArray[np.uint32]

_POLYNOMIAL: Final = 0x82F63B78
_BYTE: Final = 256


def crc32c_of(data: Buffer, starts: Positions, ends: Positions) -> Sums:
    """Return the CRC-32C of the bytes in each [start, end)."""
    # The libraries do not accept a memoryview, but accept a slice of an array without copying it.
    sum_of, whole = backends.crc32c_library().value, np.frombuffer(data, np.uint8)
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.fromiter([sum_of(whole[start:end]) for start, end in places], np.uint32, len(starts))


def crc32c_of_words(words: Sequence[Words], size: int) -> Sums:
    """Return the CRC-32C of each row's first `size` bytes; `words` has the bytes of each row in order."""
    steps = _after_zeros(size)
    first = b"".join(int(word[0]).to_bytes(8, "little") for word in words)[:size]
    sums: Sums = np.full(len(words[0]), backends.crc32c_library().value(first), np.uint32)
    # The difference between two rows determines the difference between their sums, and most bytes are equal.
    for start, word in zip(range(0, size, 8), words, strict=True):
        changes = word ^ word[0]
        anywhere, octets = int(np.bitwise_or.reduce(changes)), changes.view(np.uint8).reshape(-1, 8)
        for at in range(min(8, size - start)):
            if anywhere >> 8 * at & 0xFF:
                sums ^= steps[size - 1 - start - at][octets[:, at]]
    return sums


def joined(first: Sums, second: Sums, sizes: Positions) -> Sums:
    """Return the CRC-32C of two concatenated texts of each row; `sizes` are those of the second."""
    left, place = sizes.copy(), 0
    while left.any():
        first = _shifted(_shifts(place), first, left % _BYTE)
        left, place = left // _BYTE, place + 1
    return first ^ second


@cache
def _table() -> Sums:
    """Return a table with the register after each byte."""
    table = np.arange(_BYTE, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


def _zero(register: Sums) -> Sums:
    """Return the register after one more byte that is zero."""
    after: Sums = _table()[register & 0xFF] ^ register >> 8
    return after


@cache
def _after_zeros(count: int) -> list[Sums]:
    """Return the tables of a byte that 0, 1 … `count` - 1 zeros follow."""
    tables = [_table()]
    while len(tables) < count:
        tables.append(_zero(tables[-1]))
    return tables


@cache
def _shifts(place: int) -> NDArray[np.uint32]:
    """Return each byte of a register after 0 to 255 times 256 ** `place` zeros."""
    bytes_of = np.arange(_BYTE, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, np.newaxis]
    tables = [bytes_of.astype(np.uint32)]
    whole = None if place == 0 else _shifts(place - 1)
    while len(tables) < _BYTE:
        last = tables[-1]
        if whole is None:
            tables.append(_zero(last))
        else:
            most, one = np.full(last.size, _BYTE - 1), np.ones(last.size, np.int64)
            further = _shifted(whole, _shifted(whole, last.ravel(), most), one)
            tables.append(further.reshape(last.shape))
    return np.stack(tables)


def _shifted(tables: NDArray[np.uint32], register: Sums, times: Positions) -> Sums:
    """Return each register after `times` times as many zeros as in the first step of `tables`."""
    flat, base = tables.ravel(), times * (4 * _BYTE)
    shifted = flat[base + (register & 0xFF)]
    for at in range(1, 4):
        shifted ^= flat[base + (at * _BYTE) + (register >> np.uint32(8 * at) & 0xFF)]
    return shifted


# The number of bytes that are read of each entry. If more than one entry in LONG_ONE_IN has longer metadata,
# all are read again with the next number, otherwise only the long ones.
WIDTHS: Final = (192, 768, 3072)
LONG_ONE_IN: Final = 32
# The number of bytes that should follow each entry in the data for `HeaderReader.read`.
PADDING: Final = WIDTHS[-1]
# The digests that are computed for many entries; None tries CRC32C.
DIGESTS: Final[tuple[DigestType | None, ...]] = (None, "CRC32C", "CRC32")
KEY: Final = sized_tag(1)
VALUE: Final = sized_tag(2)

# The places of the words of a bookie entry's header.
_HEADER_WORDS: Final = range(0, HEADER.size, 8)
_WIDE: Final = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)
_WIDE_FIELDS: Final = tuple(
    descriptor.name
    for kind in (BrokerEntryMetadata, MessageMetadata)
    for descriptor in kind.DESCRIPTOR.fields
    if descriptor.type in _WIDE
)


@dataclass(frozen=True, slots=True)
class EntryHeaders:
    """The headers of entries. Rows that are not `whole` have arbitrary values.

    `fields` has the fields of both protobuf messages by name; an integer is the bits of its varint. `data_at`
    and `payload_at` count bytes from the start of an entry. `bookie` if entries have BookKeeper's header and
    digest. `verified` if the digests and checksums of `whole` rows were verified.
    """

    heads: Heads
    sizes: Positions
    whole: Rows
    fields: dict[str, FieldColumn]
    has_metadata: Rows
    has_checksum: Rows
    data_at: int
    payload_at: Positions
    bookie: bool
    verified: bool
    properties: list[InnerMessages] = field(default_factory=list)

    @property
    def every(self) -> Rows:
        """A mask that selects all rows."""
        return np.ones(len(self.sizes), bool)

    def header(self, offset: int) -> Positions:
        """Return the number at `offset` of the bookie entry's header."""
        return self.heads.big_endian(offset).view(np.int64)

    def int32(self, name: str) -> Positions:
        """Return a field that is an int32."""
        numbers: Positions = self.fields[name].values.astype(np.int32).astype(np.int64)
        return numbers

    def message_counts(self) -> Positions:
        """Return the number of messages that each entry claims; 1 without a batch, or with an empty one."""
        # The value of an absent field is 0.
        return np.maximum(self.int32("num_messages_in_batch"), 1)

    def index_widths(self) -> Positions:
        """Return how far each entry advanced the topic's index."""
        return np.where(self.fields["txnid_most_bits"].present, 1, self.message_counts())


class HeaderReader:
    """Decodes the headers of many entries of a ledger at once."""

    def __init__(
        self,
        *,
        bookie: bool = True,
        digest_type: DigestType | None = None,
        fields: Collection[str] | None = None,
        verify: bool = True,
    ) -> None:
        """Read bookie entries with this digest (one of DIGESTS), or frames if `bookie` is False.

        Decodes only `fields`, if given. Otherwise it decodes all fields and properties, and a row is `whole`
        only if JSON can represent it (no unknown fields, no numbers that are too large). `verify` computes
        digests and checksums.
        """
        self._bookie, self._digest_type = bookie, digest_type
        self._fields, self._verify = fields, verify
        self.data_at = HEADER.size + DIGEST_SIZES[digest_type or "CRC32C"] if bookie else 0
        self._widths: tuple[int, ...] = WIDTHS

    def read(self, data: Buffer, offsets: Positions, sizes: Positions) -> EntryHeaders:
        """Decode the entries at `offsets` of `data`.

        Entries that are followed by fewer than PADDING bytes may not be `whole`.
        """
        while True:
            safe = self._safe(data, offsets, sizes)
            if not safe.any():
                data, offsets = bytes(PADDING), np.zeros_like(offsets)
            places, ends = self._places(offsets, sizes, safe)
            heads = Heads(data, places, self._widths[0])
            frames = self._frames(heads, ends)
            if len(self._widths) == 1 or np.count_nonzero(frames.long) * LONG_ONE_IN <= len(offsets):
                break
            self._widths = self._widths[1:]
        heads, frames = self._with_long_ones(data, places, ends, heads, frames)
        whole = safe & ~frames.odd & ~self._looks_like_crc32(heads)
        if self._fields is None:
            whole &= ~_unsafe(frames) & ~_index_too_small(frames)
        if self._verify:
            rows = np.flatnonzero(whole)
            whole[rows] = self._sums_fit(data, offsets, sizes, heads, frames, rows)
        payload_at = np.broadcast_to(frames.payload_at, sizes.shape)
        return EntryHeaders(
            heads,
            sizes,
            whole,
            frames.fields,
            frames.has_metadata,
            frames.has_checksum,
            self.data_at,
            payload_at,
            self._bookie,
            self._verify,
            frames.properties,
        )

    def _safe(self, data: Buffer, offsets: Positions, sizes: Positions) -> Rows:
        """Find entries that are long enough and followed by enough bytes to be read together."""
        needed = np.maximum(sizes, self._widths[0])
        safe: Rows = (sizes >= self.data_at + 4) & (offsets + needed <= memoryview(data).nbytes)
        return safe

    def _places(self, offsets: Positions, sizes: Positions, safe: Rows) -> tuple[Positions, Positions]:
        """Return places and sizes to read. Unsafe entries are replaced by the first safe one."""
        if safe.all():
            return offsets, sizes
        if not safe.any():
            return offsets, np.full_like(sizes, self.data_at + 4)
        rows = np.where(safe, np.arange(len(safe)), np.argmax(safe))
        return offsets[rows], sizes[rows]

    def _frames(self, heads: Heads, ends: Positions) -> FrameColumns:
        if self._fields is None:
            return read_whole_frames(heads, self.data_at, ends)
        return read_frames(heads, self.data_at, ends, self._fields)

    def _with_long_ones(
        self, data: Buffer, offsets: Positions, ends: Positions, heads: Heads, frames: FrameColumns
    ) -> tuple[Heads, FrameColumns]:
        """Read more bytes of entries whose metadata is longer than the heads."""
        for width in self._widths[1:]:
            long = np.flatnonzero(frames.long & (offsets + width <= memoryview(data).nbytes))
            if not long.size:
                break
            wider = Heads(data, offsets[long], width)
            more = self._frames(wider, ends[long])
            heads, frames = heads.with_rows(long, wider), frames.with_rows(long, more)
        return heads, frames

    def _looks_like_crc32(self, heads: Heads) -> Rows:
        """Find entries whose digest is probably a CRC32 (eight bytes, the first four of them zeros).

        This guess is only needed if digests are not verified.
        """
        if self._verify or not self._bookie or self._digest_type is not None:
            return np.zeros(heads.count, bool)
        zeros: Rows = (heads.words(HEADER.size) << np.uint64(32)) == 0
        return zeros

    def digests_fit(self, data: Buffer, offsets: Positions, sizes: Positions) -> Rows:
        """Find the entries with a correct digest, without decoding them."""
        # The header is read in words of eight bytes.
        fit = (sizes >= self.data_at) & (offsets + self.data_at + 8 <= memoryview(data).nbytes)
        if not fit.any():
            return fit
        starts, ends = offsets[fit], (offsets + sizes)[fit]
        words = WordReader(data)
        if self._digest_type == "CRC32":
            fit[fit] = words.big_endian(starts + HEADER.size) == _crc32(data, starts, self.data_at, ends)
        else:
            before = crc32c_of_words([words.words(starts + at) for at in _HEADER_WORDS], HEADER.size)
            sums = joined(before, crc32c_of(data, starts + self.data_at, ends), ends - starts - self.data_at)
            fit[fit] = words.sizes(starts + HEADER.size).astype(np.uint32) == sums
        return fit

    def _sums_fit(
        self,
        data: Buffer,
        offsets: Positions,
        sizes: Positions,
        heads: Heads,
        frames: FrameColumns,
        rows: Positions,
    ) -> Rows:
        """Find the `rows` whose digest and frame checksum are correct or absent."""
        starts, ends = offsets[rows], (offsets + sizes)[rows]
        covered_at = np.broadcast_to(frames.message_at, sizes.shape)[rows]
        covered = crc32c_of(data, starts + covered_at, ends)
        stored = (heads.big_endian(frames.checksum_at) >> np.uint64(32))[rows]
        fit: Rows = ~frames.has_checksum[rows] | (stored == covered)
        if self._bookie and self._digest_type == "CRC32":
            fit &= heads.big_endian(HEADER.size)[rows].view(np.int64) == _crc32(
                data, starts, self.data_at, ends
            )
        elif self._bookie:
            before = _before_covered(heads, rows, self.data_at, covered_at)
            sums = joined(before, covered, ends - starts - covered_at)
            fit &= heads.big_endian(HEADER.size)[rows] >> np.uint64(32) == sums
        return fit


def _unsafe(frames: FrameColumns) -> Rows:
    """Find rows with a number that is too large for JSON or for a signed integer."""
    unsafe: Rows = np.zeros(len(frames.odd), bool)
    for name in _WIDE_FIELDS:
        unsafe |= frames.fields[name].values > MAX_SAFE_INTEGER
    return unsafe


def _index_too_small(frames: FrameColumns) -> Rows:
    """Find entries whose index is smaller than their batch, so the first message's index is negative."""
    index, count = frames.fields["index"], frames.fields["num_messages_in_batch"]
    small: Rows = index.present & count.present & (index.values + 1 < count.values)
    return small


def _before_covered(heads: Heads, rows: Positions, data_at: int, covered_at: Positions) -> Sums:
    """Return the CRC-32C of the bytes that only the digest covers (BookKeeper's header, broker's part)."""
    sums = np.zeros(len(rows), np.uint32)
    last = int(covered_at.max(initial=data_at))
    words = [heads.words(at) for at in (*_HEADER_WORDS, *range(data_at, last, 8))]
    for place in np.flatnonzero(np.bincount(covered_at)).tolist():
        here = np.flatnonzero(covered_at == place)
        size = HEADER.size + place - data_at
        some = rows[here]
        sums[here] = crc32c_of_words([word[some] for word in words[: (size + 7) // 8]], size)
    return sums


def _crc32(data: Buffer, starts: Positions, data_at: int, ends: Positions) -> Positions:
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    crc, size, data = zlib.crc32, HEADER.size, memoryview(data)
    return np.array(
        [crc(data[at + data_at : end], crc(data[at : at + size])) for at, end in places], np.int64
    )

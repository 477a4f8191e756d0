"""All that the headers of many entries say, and whether their checksums fit: for rows that are to be shown.

`HeaderReader.read` speaks for the rows that are `whole`: there it has every field of both messages, digest
and checksum fit (a frame may lack its checksum), and nothing in them is out of the ordinary. Every other row
has to be read by the codec for one entry, which is the truth for both.

Needs NumPy. Sources: apache/pulsar Commands.java, PulsarApi.proto; apache/bookkeeper DigestManager.java.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from pulsar_meta.codecs.columns.entries import LONG_ONE_IN, WIDTHS
from pulsar_meta.codecs.columns.fields import Found, Inner, sized_tag
from pulsar_meta.codecs.columns.frames import FrameColumns, read_whole_frames
from pulsar_meta.codecs.columns.sums import Sums, crc32c_of, crc32c_of_words, joined
from pulsar_meta.codecs.columns.words import Heads, Positions, Rows, WordReader
from pulsar_meta.codecs.frames.bookie_entry import DIGEST_SIZES, HEADER, DigestType
from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

# So many bytes have to follow each entry in what `HeaderReader.read` is given.
PADDING: Final = WIDTHS[-1]
# The digests that are computed for many entries; with None they are CRC32C where that fits.
DIGESTS: Final[tuple[DigestType | None, ...]] = (None, "CRC32C", "CRC32")
KEY: Final = sized_tag(1)
VALUE: Final = sized_tag(2)

# Where the words of a bookie entry's header begin.
_HEADER_WORDS: Final = range(0, HEADER.size, 8)
_WIDE: Final = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)
_WIDE_FIELDS: Final = tuple(
    one.name
    for kind in (BrokerEntryMetadata, MessageMetadata)
    for one in kind.DESCRIPTOR.fields
    if one.type in _WIDE
)


@dataclass(frozen=True, slots=True)
class EntryHeaders:
    """What entries say; rows that are not `whole` mean nothing.

    `fields` by their names in both messages; integers are the bits of the varint. `data_at` and `payload_at`
    count bytes from the start of an entry; `lengths` are those of BookKeeper's header, as the two ids.
    """

    heads: Heads
    sizes: Positions
    whole: Rows
    fields: dict[str, Found]
    has_checksum: Rows
    data_at: int
    payload_at: Positions
    properties: list[Inner] = field(default_factory=list)

    def header(self, offset: int) -> Positions:
        """Return the number at `offset` of the bookie entry's header."""
        return self.heads.big_endian(offset).view(np.int64)

    def int32(self, name: str) -> Positions:
        """Return a field that is an int32."""
        numbers: Positions = self.fields[name].values.astype(np.int32).astype(np.int64)
        return numbers

    def message_counts(self) -> Positions:
        """Return how many messages each entry says it holds."""
        return np.where(
            self.fields["num_messages_in_batch"].present,
            np.maximum(self.int32("num_messages_in_batch"), 1),
            1,
        )

    def index_widths(self) -> Positions:
        """Return by how many each entry moved the topic's index."""
        return np.where(self.fields["txnid_most_bits"].present, 1, self.message_counts())


class HeaderReader:
    """Reads the headers of a ledger's entries, run by run."""

    def __init__(self, *, bookie: bool = True, digest_type: DigestType | None = None) -> None:
        """Entries are bookie entries with this digest (one of DIGESTS), or frames where `bookie` is false."""
        self._bookie, self._digest_type = bookie, digest_type
        self.data_at = HEADER.size + DIGEST_SIZES[digest_type or "CRC32C"] if bookie else 0
        self._widths: tuple[int, ...] = WIDTHS

    def read(self, data: Buffer, offsets: Positions, sizes: Positions) -> EntryHeaders:
        """Return what the entries say that lie at `offsets` of `data`, PADDING bytes after each."""
        safe = sizes >= self.data_at + 4
        held = np.where(safe, sizes, self.data_at + 4)
        while True:
            heads = Heads(data, offsets, self._widths[0])
            frames = read_whole_frames(heads, self.data_at, held)
            if len(self._widths) == 1 or np.count_nonzero(frames.long) * LONG_ONE_IN <= len(offsets):
                break
            self._widths = self._widths[1:]
        heads, frames = self._with_long_ones(data, offsets, held, heads, frames)
        whole = safe & ~frames.odd & ~_unsafe(frames) & ~_index_too_small(frames)
        rows = np.flatnonzero(whole)
        whole[rows] = self._sums_fit(data, offsets, sizes, heads, frames, rows)
        payload_at = np.broadcast_to(frames.payload_at, sizes.shape)
        return EntryHeaders(
            heads,
            sizes,
            whole,
            frames.fields,
            frames.has_checksum,
            self.data_at,
            payload_at,
            frames.properties,
        )

    def _with_long_ones(
        self, data: Buffer, offsets: Positions, held: Positions, heads: Heads, frames: FrameColumns
    ) -> tuple[Heads, FrameColumns]:
        """Return the same with more bytes of those entries whose metadata is longer than the heads."""
        for width in self._widths[1:]:
            long = np.flatnonzero(frames.long)
            if not long.size:
                break
            wider = Heads(data, offsets[long], width)
            more = read_whole_frames(wider, self.data_at, held[long])
            heads, frames = heads.with_rows(long, wider), frames.with_rows(long, more)
        return heads, frames

    def digests_fit(self, data: Buffer, offsets: Positions, sizes: Positions) -> Rows:
        """Return whose digest fits; nothing else is looked at."""
        fit = sizes >= self.data_at
        if not fit.any():
            return fit
        starts, ends = offsets[fit], (offsets + sizes)[fit]
        words = WordReader(data)
        if self._digest_type == "CRC32":
            fit[fit] = words.big_endian(starts + HEADER.size) == _crc32(data, starts, self.data_at, ends)
        else:
            before = crc32c_of_words([words.words(starts + at) for at in _HEADER_WORDS], HEADER.size)
            found = joined(before, crc32c_of(data, starts + self.data_at, ends), ends - starts - self.data_at)
            fit[fit] = words.sizes(starts + HEADER.size).astype(np.uint32) == found
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
        """Return of which of `rows` both the digest and the frame's checksum fit, as far as there are any."""
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
            found = joined(before, covered, ends - starts - covered_at)
            fit &= heads.big_endian(HEADER.size)[rows] >> np.uint64(32) == found
        return fit


def _unsafe(frames: FrameColumns) -> Rows:
    """Return where a number is too large for JSON, or for the sign that it has."""
    unsafe: Rows = np.zeros(len(frames.odd), bool)
    for name in _WIDE_FIELDS:
        unsafe |= frames.fields[name].values > MAX_SAFE_INTEGER
    return unsafe


def _index_too_small(frames: FrameColumns) -> Rows:
    """Find entries whose index is smaller than their batch, so that the first message's is negative."""
    index, count = frames.fields["index"], frames.fields["num_messages_in_batch"]
    small: Rows = index.present & count.present & (index.values + 1 < count.values)
    return small


def _before_covered(heads: Heads, rows: Positions, data_at: int, covered_at: Positions) -> Sums:
    """Return the CRC-32C of what a digest covers before the frame's checksum does: header, broker's part."""
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

"""Split many batches at once into the places of their messages and the fields of their metadata.

All batches step from message to message together. If a batch is unusual in any way (a size that does not fit,
bytes left over, fewer messages than its entry claims, unknown fields), it is not `whole` and has to be
decoded by `frames.batch`, which defines the result for all batches.

Clients write the fields of a message's metadata in the order of their numbers: properties (with short keys
and values), a key, the size of the payload, and then numbers and short strings. Recognizing this usual form
(`usual_metadata`) is faster than decoding it. All other metadata is decoded by `fields`.

Needs NumPy. Sources: apache/pulsar Commands.deSerializeSingleMessageInBatch; SingleMessageMetadata in
PulsarApi.proto; protobuf encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.fields import (
    PAIR,
    SIZED,
    VARINT,
    FieldColumn,
    FieldWalk,
    InnerMessages,
    Shape,
)
from pulsar_meta.codecs.columns.frames import WHOLE_PAIR, tags_of
from pulsar_meta.codecs.columns.words import (
    EVERY,
    MARGIN,
    Heads,
    Place,
    Positions,
    Rows,
    Selection,
    WordReader,
    Words,
    common,
    groups_of,
    short_varints,
)
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.proto.PulsarApi_pb2 import SingleMessageMetadata

# The number of bytes that must follow the metadata in the buffer (a pair's longest key and a word, twice).
REACH: Final = 2 * (0x7F + 16)

_TAGS: Final = tags_of(SingleMessageMetadata)
_PROPERTIES, _KEY, _PAYLOAD_SIZE = (_TAGS[name] for name in ("properties", "partition_key", "payload_size"))
_BYTE: Final = np.uint64(8)
_PAIR_SIZE: Final = np.uint64(16)
# A size of one byte.
_SHORT: Final = np.uint64(0x7F)
# The bits that tell a tag with a short size after it, and their value for a property.
_SIZED_BITS: Final = np.uint64(0x80FF)
_PAIR_BITS: Final = np.uint64(0x80FF80FF)
_PAIR: Final = np.uint64(_PROPERTIES | PAIR[0] << 16)
# A tag and a size each.
_HEADS: Final = 4
# A word without a tag of one byte.
_KNOWN: Final = 7

# The tags that may follow the size of the payload.
_NUMBERS: Final = np.zeros(256, bool)
_NUMBERS[[tag for tag in _TAGS.values() if tag & 7 == VARINT and tag != _PAYLOAD_SIZE]] = True
_STRINGS: Final = np.zeros(256, bool)
_STRINGS[[tag for tag in _TAGS.values() if tag & 7 == SIZED and tag > _PAYLOAD_SIZE]] = True


def usual_metadata(
    words: WordReader, at: Positions, size_at: Positions, after: Positions, ends: Positions
) -> Rows:
    """Find the usual metadata in [at, ends). The field with the payload's size is [size_at, after).

    Metadata with a negative `size_at` is not usual.
    """
    at, word = _past_properties(words, at, size_at)
    keyed = word & _SIZED_BITS == _KEY
    if keyed.any():
        at += np.where(keyed, _short_size(word) + 2, 0)
    usual: Rows = at == size_at
    usual &= _end_well(words, after, ends)
    return usual


def _past_properties(words: WordReader, at: Positions, before: Positions) -> tuple[Positions, Words]:
    """Return the end of the usual properties at the start of metadata, and the word at that place.

    None of them begins at `before` or after it.
    """
    at, word = at.copy(), words.words(at)
    rows: Selection = EVERY
    while True:
        pairs = (word[rows] & _PAIR_BITS == _PAIR) & (at[rows] < before[rows])
        rows = _kept(rows, pairs, len(at))
        here, head = at[rows], word[rows]
        sizes, key_sizes = _short_size(head), _short_size(head >> _PAIR_SIZE)
        value = words.words(here + _HEADS + key_sizes)
        right = (value & _SIZED_BITS == PAIR[1]) & (key_sizes + _short_size(value) + _HEADS == sizes)
        rows = _kept(rows, right, len(at))
        if not right.all():
            here, sizes = here[right], sizes[right]
        if not here.size:
            return at, word
        at[rows] = here + (sizes + 2)
        word[rows] = words.words(at[rows])


def _kept(rows: Selection, kept: Rows, count: int) -> Selection:
    """Return those of `rows` that are kept, of `count` in all."""
    return rows if kept.all() else np.arange(count)[rows][kept]


def _end_well(words: WordReader, at: Positions, ends: Positions) -> Rows:
    """Find rows with only known numbers and short strings in [at, ends)."""
    well: Rows = at == ends
    rows = np.arange(len(at))
    on = at < ends
    if not on.all():
        rows, at, ends = rows[on], at[on], ends[on]
    while rows.size:
        word = words.words(at)
        tags = word.astype(np.uint8)
        word >>= _BYTE
        _, lengths = groups_of(word)
        known, strings = _NUMBERS[tags] & (lengths <= _KNOWN), _STRINGS[tags] & (lengths == 1)
        at = at + 1 + lengths
        if strings.any():
            at += np.where(strings, (word & _SHORT).view(np.int64), 0)
            known |= strings
        well[rows] = known & (at == ends)
        on = known & (at < ends)
        rows, at, ends = rows[on], at[on], ends[on]
    return well


def _short_size(words: Words) -> Positions:
    """Return the second byte of each word, a size after a tag."""
    sizes: Positions = (words >> _BYTE & _SHORT).view(np.int64)
    return sizes


_SHAPE: Final = Shape((_PAYLOAD_SIZE,), {_PROPERTIES: WHOLE_PAIR}, known=frozenset(_TAGS.values()))
_HEAD: Final = 4
_LARGEST: Final = 1 << 31
# Varints up to this length are sizes.
_LONGEST_SIZE: Final = 4
# A step costs the same for one batch as for hundreds, so a few very long batches are left to the codec.
_STEPS_EACH: Final = 200
# The size of the payload is usually this close (in bytes) to the metadata's start.
_NEAR: Final = 64
# A size up to this is one byte.
_LARGEST_BYTE: Final = 0x7F
_BEHIND: Final = max(_NEAR + MARGIN, REACH)
_NONE: Final = (np.zeros(0, np.int64),) * 5
_ONE: Final = np.uint64(1)


def _short_sizes() -> Positions:
    """Return a table from two bytes, read little-endian, to the short varint in them; -1 for none."""
    pairs = np.arange(1 << 16)
    numbers = pairs & 0x7F | pairs >> 1 & 0x3F80
    single = pairs & 0x80 == 0
    return np.where(single, pairs & 0x7F, np.where((pairs < 1 << 15) & (numbers > 0x7F), numbers, -1))


_SHORT_SIZES: Final = _short_sizes()

# For each message: size of the metadata, size of the payload, place of the field with that size. The last two
# are -1 if they are unknown.
_Sizes = tuple[Positions, Positions, Positions]
# Returns the sizes of the messages that begin `at` a place and end at one of `ends` at the latest.
_SizesOf = Callable[[WordReader, Positions, Positions], _Sizes]


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of batches, in order. Messages of batches that are not `whole` have arbitrary values.

    `rows` has the number of each message's batch, `places` its index in the batch. Integers of `fields` are
    the bits of the varint; strings are places in `heads`, payloads are places in `data`.
    """

    whole: Rows
    rows: Positions
    places: Positions
    heads: Heads
    fields: dict[str, FieldColumn]
    properties: list[InnerMessages]
    data: bytes
    payload_at: Positions
    payload_sizes: Positions


def split_batches(payloads: Sequence[Buffer], counts: Positions) -> Messages:
    """Split decompressed batches into messages; `counts` has their numbers of messages."""
    data, ends = _joined(payloads)
    for sizes_of in (_likely_sizes, _sizes_by_fields):
        whole, steps = _messages(data, ends, counts, sizes_of)
        steps = steps[:, np.argsort(steps[0], kind="stable")]
        walk = _walked(data, whole, steps, _TAGS.values(), _PROPERTIES)
        if whole.all():
            break
    rows, at, head_sizes, payload_sizes, _ = steps
    fields = {name: walk.columns[tag] for name, tag in _TAGS.items()}
    places = np.arange(len(rows)) - np.searchsorted(rows, rows)
    return Messages(
        whole, rows, places, Heads.within(data, at), fields, walk.inner, data, at + head_sizes, payload_sizes
    )


def whole_batches(payloads: Sequence[Buffer], counts: Positions) -> Rows:
    """Find the batches that are `whole` for `split_batches`, without keeping their messages."""
    data, ends = _joined(payloads)
    for sizes_of in (_likely_sizes, _sizes_by_fields):
        whole, steps = _messages(data, ends, counts, sizes_of)
        _, at, head_sizes, payload_sizes, size_at = steps
        after = size_at + 2 + (payload_sizes > _LARGEST_BYTE)
        usual = usual_metadata(WordReader(data), at, size_at, after, at + head_sizes)
        _walked(data, whole, steps[:, ~usual], (_PAYLOAD_SIZE,))
        if whole.all():
            break
    return whole


def _joined(payloads: Sequence[Buffer]) -> tuple[bytes, Positions]:
    """Concatenate batches; return the bytes, and the end of each batch."""
    sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
    return b"".join([*payloads, bytes(_BEHIND)]), np.cumsum(sizes)


def _messages(data: bytes, ends: Positions, counts: Positions, sizes_of: _SizesOf) -> tuple[Rows, Positions]:
    """Return (batches that are whole judging by sizes, the columns that `_steps` yields)."""
    whole, starts = np.zeros(len(ends), bool), np.concatenate([[0], ends[:-1]])[: len(ends)]
    steps = _steps(WordReader(data), starts, ends, counts, whole, sizes_of)
    return whole, np.stack([np.concatenate(lines) for lines in zip(_NONE, *steps, strict=True)])


def _walked(
    data: bytes, whole: Rows, steps: Positions, wanted: Iterable[int], gathered: int | None = None
) -> FieldWalk:
    """Decode the metadata of messages; if a message differs from its step, its batch is not `whole`."""
    rows, at, head_sizes, payload_sizes, _ = steps
    walk = FieldWalk(Heads.within(data, at), wanted, gathered)
    if rows.size:
        walk.run(0, common(head_sizes), _SHAPE)
    # If the size of the payload is there twice, the last one counts.
    decoded = walk.columns[_PAYLOAD_SIZE].values.view(np.int64)
    whole[rows[walk.odd | (decoded != payload_sizes)]] = False
    return walk


def _steps(
    words: WordReader, at: Positions, ends: Positions, counts: Positions, whole: Rows, sizes_of: _SizesOf
) -> Iterator[tuple[Positions, ...]]:
    """Yield, step by step, rows, places of their metadata, its sizes, those of the payloads, and `_Sizes.at`.

    `whole` becomes true in the rows whose last message ends with the batch.
    """
    rows = np.arange(len(at))
    for step in count():
        if rows.size * _STEPS_EACH <= step:
            break
        head, payload, size_at = sizes_of(words, at, ends)
        start = at + _HEAD
        following = start + head
        following += payload
        fits = (head > 0) & (payload >= 0) & (following <= ends)
        columns = (rows, start, head, payload, size_at)
        yield columns if fits.all() else tuple(column[fits] for column in columns)
        last = counts == step + 1
        on = fits & ~last & (following < ends)
        if on.all():
            at = following
            continue
        whole[rows[fits & last & (following == ends)]] = True
        rows, at, ends, counts = rows[on], following[on], ends[on], counts[on]


def _likely_sizes(words: WordReader, at: Positions, ends: Positions) -> _Sizes:
    """Return the number after the first byte that could be the tag of the payload's size.

    It may be another byte, so the caller has to compare the result with the decoded metadata.
    """
    windows = words.windows(at, _NEAR)
    head = windows.view(">i4")[:, 0].astype(np.int64)
    tags = windows == _PAYLOAD_SIZE
    tags[:, :_HEAD] = False
    first = np.packbits(tags, bitorder="little").view("<u8")
    # The bits up to the first one that is set.
    size_at = at + np.bitwise_count(first ^ (first - _ONE))
    payload = _SHORT_SIZES[words.pairs(size_at)]
    size_at -= 1
    far = np.flatnonzero((payload < 0) | (first == 0))
    if far.size:
        _, payload[far], size_at[far] = _sizes_by_fields(words, at[far], ends[far])
    return head, payload, size_at


def _sizes_by_fields(words: WordReader, at: Positions, ends: Positions) -> _Sizes:
    """Return the sizes found by walking the fields from the first one; their places are unknown."""
    head, start = words.sizes(at), at + _HEAD
    payload = _payload_sizes(words, start, np.minimum(start + head, ends))
    return head, payload, np.full(len(at), -1)


def _payload_sizes(words: WordReader, at: Positions, ends: Positions) -> Positions:
    """Return the payload size in the metadata in [at, ends), -1 if only the codec can find it.

    Clients write fields in the order of their numbers, so only properties and a key precede it.
    """
    sizes, rows = np.full(len(at), -1), np.flatnonzero(at < ends)
    at, ends = at[rows], ends[rows]
    while rows.size:
        word = words.words(at)
        tag = word.astype(np.uint8)
        numbers, lengths = _sizes(word >> np.uint64(8))
        reached = tag == _PAYLOAD_SIZE
        if reached.all():
            sizes[rows] = numbers
            break
        sizes[rows[reached]] = numbers[reached]
        at = at + 1 + lengths + numbers
        on = ((tag == _PROPERTIES) | (tag == _KEY)) & (numbers >= 0) & (at < ends)
        rows, at, ends = rows[on], at[on], ends[on]
    return sizes


def _sizes(words: Words) -> tuple[Positions, Place]:
    """Return (number, length in bytes) of the varint at the start of each word, -1 if it cannot be a size."""
    if not (words & np.uint64(0x80)).any():
        return (words & np.uint64(0x7F)).view(np.int64), 1
    values, lengths = short_varints(words)
    numbers = values.view(np.int64)
    if (lengths > _LONGEST_SIZE).any():
        numbers[values >= _LARGEST] = -1
    return numbers, lengths

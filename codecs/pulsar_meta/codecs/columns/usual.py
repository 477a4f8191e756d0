"""Find messages in batches whose metadata has the usual form, which is faster than decoding it.

Clients write fields in the order of their numbers: properties (with short keys and values), a key, the size
of the payload, and then numbers and short strings. All other metadata is not usual and has to be decoded by
`fields`.

Needs NumPy. Source: SingleMessageMetadata in PulsarApi.proto; protobuf encoding.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.fields import PAIR, SIZED, VARINT
from pulsar_meta.codecs.columns.frames import tags_of
from pulsar_meta.codecs.columns.words import EVERY, Positions, Rows, Selection, WordReader, Words, groups_of
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

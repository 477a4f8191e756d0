"""The messages of many batches at once: where each lies, and what its own metadata says.

All batches step from message to message together. A batch with anything out of the ordinary in it (a size
that does not fit, bytes left over, fewer messages than its entry says, fields that no schema knows) is not
`whole`, and has to be read by `frames.batch`, which is the truth for all.

Needs NumPy. Source: apache/pulsar Commands.deSerializeSingleMessageInBatch; SingleMessageMetadata in
PulsarApi.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.fields import FieldWalk, Found, Inner, Shape
from pulsar_meta.codecs.columns.frames import WHOLE_PAIR, tags_of
from pulsar_meta.codecs.columns.words import MARGIN, Heads, Positions, Rows, WordReader, common, short_varints
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.proto.PulsarApi_pb2 import SingleMessageMetadata

_TAGS: Final = tags_of(SingleMessageMetadata)
_PROPERTIES, _KEY, _PAYLOAD_SIZE = (_TAGS[name] for name in ("properties", "partition_key", "payload_size"))
_SHAPE: Final = Shape((_PAYLOAD_SIZE,), {_PROPERTIES: WHOLE_PAIR}, known=frozenset(_TAGS.values()))
_HEAD: Final = 4
_LARGEST: Final = 1 << 31
# A step costs the same for one batch as for hundreds: a few very long ones are left to the codec.
_STEPS_EACH: Final = 200
_NONE: Final[Positions] = np.zeros((4, 0), np.int64)


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of batches, batch by batch, each in its order; those of batches not `whole` mean nothing.

    `rows` has the number of each message's batch, `places` its place in it. Integers of `fields` are the
    bits of the varint, strings lie in `heads`; payloads in `data`.
    """

    whole: Rows
    rows: Positions
    places: Positions
    heads: Heads
    fields: dict[str, Found]
    properties: list[Inner]
    data: bytes
    payload_at: Positions
    payload_sizes: Positions


def split_batches(payloads: Sequence[Buffer], counts: Positions, *, with_fields: bool = True) -> Messages:
    """Return the messages of batches, of which `payloads` are the decompressed bytes, so many in each.

    Without `with_fields` their metadata is looked at, but nothing of it kept.
    """
    data = b"".join([*payloads, bytes(MARGIN)])
    sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
    ends = np.cumsum(sizes)
    whole = np.zeros(len(payloads), bool)
    steps = np.concatenate([_NONE, *_steps(WordReader(data), ends - sizes, ends, counts, whole)], axis=1)
    rows, at, head_sizes, payload_sizes = steps[:, np.argsort(steps[0], kind="stable")]
    heads = Heads.within(data, at)
    wanted = _TAGS if with_fields else {"payload_size": _PAYLOAD_SIZE}
    walk = FieldWalk(heads, wanted.values(), gathered=_PROPERTIES if with_fields else None)
    if rows.size:
        walk.run(0, common(head_sizes), _SHAPE)
    fields = {name: walk.found[tag] for name, tag in wanted.items()}
    # Of two sizes of a payload the later one counts.
    whole[rows[walk.odd | (fields["payload_size"].values.view(np.int64) != payload_sizes)]] = False
    places = np.arange(len(rows)) - np.searchsorted(rows, rows)
    return Messages(whole, rows, places, heads, fields, walk.inner, data, at + head_sizes, payload_sizes)


def _steps(
    words: WordReader, at: Positions, ends: Positions, counts: Positions, whole: Rows
) -> Iterator[Positions]:
    """Yield, step by step, lines of rows, places of their metadata, its sizes and those of the payloads.

    `whole` becomes true in the rows whose last message ends where the batch does.
    """
    rows, left = np.arange(len(at)), counts
    for step in count():
        if rows.size * _STEPS_EACH <= step:
            break
        head = words.sizes(at)
        start, fits = at + _HEAD, (head > 0) & (at + _HEAD + head <= ends)
        payload = _payload_sizes(words, start, np.where(fits, start + head, start))
        following, left = start + head + payload, left - 1
        fits &= (payload >= 0) & (following <= ends)
        found = np.stack([rows, start, head, payload])
        yield found if fits.all() else found[:, fits]
        last = left == 0
        on = fits & ~last & (following < ends)
        if on.all():
            at = following
            continue
        whole[rows[fits & last & (following == ends)]] = True
        rows, at, ends, left = rows[on], following[on], ends[on], left[on]


def _payload_sizes(words: WordReader, at: Positions, ends: Positions) -> Positions:
    """Return the size of the payload that metadata in [at, ends) says, -1 where only the codec can say it.

    Clients write fields in the order of their numbers: before it are at most properties and a key.
    """
    sizes, rows = np.full(len(at), -1), np.flatnonzero(at < ends)
    at, ends = at[rows], ends[rows]
    while rows.size:
        word = words.words(at)
        tag = word.astype(np.uint8)
        values, lengths = short_varints(word >> np.uint64(8))
        numbers = values.view(np.int64)
        numbers[values >= _LARGEST] = -1
        found = tag == _PAYLOAD_SIZE
        if found.all():
            sizes[rows] = numbers
            break
        sizes[rows[found]] = numbers[found]
        at = at + 1 + lengths + numbers
        on = ((tag == _PROPERTIES) | (tag == _KEY)) & (numbers >= 0) & (at < ends)
        rows, at, ends = rows[on], at[on], ends[on]
    return sizes

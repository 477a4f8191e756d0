"""Render the messages in blocks of entries: one line per message, or one document per entry.

The text is the same as `render.entries` makes for a single message. Entries that can't be opened here
(markers, chunks, encrypted entries, compacted batches, and everything unusual) are shown one by one.

Needs NumPy and PyArrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_meta.cli.render.entries import NONE, segment_of, transaction_of
from pulsar_meta.cli.render.entry_blocks import (
    Part,
    csv_cell,
    csv_properties,
    csv_text,
    json_number,
    json_parts,
    json_rows,
    metadata_members,
    plain_properties,
    timed_rows,
)
from pulsar_meta.cli.render.entry_cells import (
    LAST_TIME,
    BlockCells,
    Cells,
    FieldCells,
    digits,
    iso_times,
    joined,
    one_of,
)
from pulsar_meta.cli.render.text import one_line
from pulsar_meta.codecs.columns.batches import Messages, split_batches
from pulsar_meta.codecs.columns.words import Positions, Rows
from pulsar_meta.codecs.frames.row_schema import MESSAGE_FIELDS
from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.jobs.entries.block_check import closed_rows, opened_payloads, opened_sizes
from pulsar_meta.jobs.entries.entry_blocks import PresentBlock
from pulsar_meta.jobs.entry_reader import bounded
from pulsar_meta.proto.PulsarApi_pb2 import SingleMessageMetadata

# Estimated bytes of a line in addition to the text of its message.
LINE: Final = 256
_WIDE: Final = ("event_time", "sequence_id")
_FLAGS: Final = ("compacted_out", "null_value")


@dataclass(frozen=True, slots=True)
class Kind:
    """One row per message: of batches, or of entries with a single message.

    `own` are the cells of their own metadata, `entries` the rows of their entries in `cells`; `places` are
    their places in the batch, None without a batch.
    """

    cells: BlockCells
    own: FieldCells
    entries: Positions
    places: Positions | None
    indexes: Positions
    sizes: Positions

    def of_entry(self, column: Cells) -> Cells:
        """Return a column of entries as one of messages."""
        if self.places is None or isinstance(column, str):
            return column
        return column.take(pa.array(self.entries))

    def numbered(self) -> Rows:
        """Return which messages have an index."""
        present: Rows = self.cells.field("index").present[self.entries]
        return present


class OpenedBlock:
    """The messages of a block's entries in `shown`; rows of other entries have no meaning."""

    def __init__(self, cells: BlockCells, shown: Rows, max_size: int) -> None:
        """Open the entries in `shown`, payloads decompressed up to `max_size` bytes."""
        self.cells, self.shown = cells, shown.copy()
        batch = cells.field("num_messages_in_batch").present
        packed = cells.field("compression").values > 0
        self._sizes = cells.block.sizes - cells.headers.payload_at
        opened = np.flatnonzero(self.shown & (batch | packed))
        payloads = opened_payloads(cells.block, cells.headers, opened, max_size)
        numbers: list[int] = []
        batches: list[Buffer] = []
        for row, payload in zip(opened.tolist(), payloads, strict=True):
            if payload is None:
                self.shown[row] = False
            elif batch[row]:
                numbers.append(row)
                batches.append(payload)
            else:
                self._sizes[row] = len(payload)
        self._batch, self._rows = batch, np.array(numbers, np.int64)
        self._messages = split_batches(batches, cells.headers.message_counts()[self._rows])
        _leave_out(self._messages)
        self.shown[self._rows[~self._messages.whole]] = False

    def texts(self, lines: Callable[[Kind], Iterator[Cells]], separator: str) -> Cells:
        """Return the text of all messages of each entry, formatted by `lines`."""
        of_batches = self._of_batches()
        parts, owners = [joined(lines(of_batches))], [of_batches.entries]
        alone = np.flatnonzero(self.shown & ~self._batch)
        if alone.size:
            parts.append(joined(lines(self._alone())).take(pa.array(alone)))
            owners.append(alone)
        entries = np.concatenate(owners)
        order = np.argsort(entries, kind="stable")
        ends = np.searchsorted(entries[order], np.arange(self.cells.count + 1))
        each = pa.concat_arrays(parts).take(pa.array(order)) if alone.size else parts[0]
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), each), separator)

    def _of_batches(self) -> Kind:
        messages, headers = self._messages, self.cells.headers
        own = FieldCells(SingleMessageMetadata, messages.heads, messages.fields, messages.properties)
        entries = self._rows[messages.rows]
        last = self.cells.field("index").values.view(np.int64)[entries]
        before = np.maximum(headers.index_widths()[entries] - 1 - messages.places, 0)
        own.rows = messages.whole[messages.rows]
        return Kind(self.cells, own, entries, messages.places, last - before, messages.payload_sizes)

    def _alone(self) -> Kind:
        last = self.cells.field("index").values.view(np.int64)
        return Kind(self.cells, self.cells, np.arange(self.cells.count), None, last, self._sizes)


def _leave_out(messages: Messages) -> None:
    """Leave batches with a number that is too large for JSON to be shown one by one."""
    odd = np.zeros(len(messages.rows), bool)
    for name in _WIDE:
        odd |= messages.fields[name].values > MAX_SAFE_INTEGER
    messages.whole[messages.rows[odd]] = False


def plain_messages(block: PresentBlock, max_size: int) -> Iterator[Part]:
    """Yield the plain lines of each entry's messages."""
    cells = BlockCells(block)
    for rows, opened in _opened(cells, timed_rows(cells), max_size):
        yield rows.start, opened.shown[rows], opened.texts(_plain_columns, "")[rows]


def csv_messages(block: PresentBlock, max_size: int) -> Iterator[Part]:
    """Yield the lines of CSV of each entry's messages."""
    cells = BlockCells(block)
    for rows, opened in _opened(cells, cells.rows, max_size):
        yield rows.start, opened.shown[rows], opened.texts(_csv_columns, "")[rows]


def json_messages(block: PresentBlock, max_size: int) -> Iterator[Part]:
    """Yield the lines of NDJSON of entries with their messages."""
    cells = BlockCells(block)
    documents = joined(json_parts(cells))
    for rows, opened in _opened(cells, json_rows(cells), max_size):
        messages = opened.texts(_json_columns, ", ")[rows]
        parts = (documents[rows], '}, "messages": [', messages, "]}\n")
        yield rows.start, opened.shown[rows], joined(parts)


def _opened(cells: BlockCells, shown: Rows, max_size: int) -> Iterator[tuple[slice, OpenedBlock]]:
    """Yield rows, and the messages of those of them that are `shown` and can be opened."""
    shown = shown & ~closed_rows(cells.headers)
    sizes = opened_sizes(cells.block, cells.headers) + LINE * cells.headers.message_counts()
    for rows in bounded(np.where(shown, sizes, 0)):
        selected = np.zeros(cells.count, bool)
        selected[rows] = shown[rows]
        yield rows, OpenedBlock(cells, selected, max_size)


def _plain_columns(kind: Kind) -> Iterator[Cells]:
    cells, own = kind.cells, kind.own
    yield f"{cells.block.ledger_id}:"
    yield kind.of_entry(digits(cells.block.entry_ids))
    if kind.places is not None:
        yield ":"
        yield digits(kind.places)
    yield "\t"
    yield digits(kind.indexes, kind.numbered(), NONE)
    yield "\t"
    yield kind.of_entry(iso_times(cells.times()))
    yield "\t"
    yield kind.of_entry(cells.producer(lambda name: one_line(name) or NONE))
    yield "\t"
    yield _sequence_ids(kind)
    yield "\t"
    yield pc.fill_null(own.texts("partition_key", lambda key: one_line(str(key)) or NONE), NONE)
    yield "\t"
    yield _event_times(own.integers("event_time"))
    yield "\t"
    yield digits(kind.sizes)
    yield "\t"
    yield kind.of_entry(cells.verdict())
    yield "\tok\t"
    yield plain_properties(own)
    yield f"\t{NONE}\t"
    yield _notes(kind)
    yield "\n"


def _sequence_ids(kind: Kind) -> Cells:
    """Return the sequence id of each message, or its entry's if it has none."""
    own, of_entry = kind.own.digits("sequence_id"), kind.of_entry(kind.cells.digits("sequence_id"))
    return of_entry if isinstance(own, str) else pc.coalesce(own, of_entry)


def _event_times(times: Positions) -> Cells:
    if not times.any():
        return NONE
    shown = pc.if_else(pa.array(times <= LAST_TIME), iso_times(times), digits(times))
    return pc.if_else(pa.array(times != 0), shown, NONE)


def _notes(kind: Kind) -> Cells:
    """Return the notes of messages: transactions and flags that few have, and which segment all are in."""
    segment = list(segment_of(kind.cells.segment))
    most, least = (kind.cells.integers(f"txnid_{bits}_bits")[kind.entries] for bits in ("most", "least"))
    with_txn = kind.cells.field("txnid_most_bits").present[kind.entries]
    flags = {
        name: kind.own.field(name).values != 0 for name in _FLAGS if name in kind.own.kind.fields_by_name
    }
    noted = np.logical_or.reduce([with_txn, *flags.values()])
    plain = one_line(", ".join(segment)) or NONE
    if not noted.any():
        return plain
    notes = [plain]
    for row in np.flatnonzero(noted).tolist():
        txn = (
            {"txnid_most_bits": int(most[row]), "txnid_least_bits": int(least[row])} if with_txn[row] else {}
        )
        set_flags = [name for name, is_set in flags.items() if is_set[row]]
        notes.append(one_line(", ".join([*transaction_of(txn), *set_flags, *segment])))
    return one_of(notes, np.cumsum(noted) * noted)


def _csv_columns(kind: Kind) -> Iterator[Cells]:
    cells, own = kind.cells, kind.own
    made: dict[str, Callable[[], Cells]] = {
        "ledger_id": lambda: str(cells.block.ledger_id),
        "entry_id": lambda: kind.of_entry(digits(cells.block.entry_ids)),
        "message.batch_index": lambda: "" if kind.places is None else digits(kind.places),
        "message.index": lambda: digits(kind.indexes, kind.numbered()),
        "broker_timestamp": lambda: kind.of_entry(cells.digits("broker_timestamp")),
        "metadata.publish_time": lambda: kind.of_entry(cells.digits("publish_time")),
        "metadata.producer_name": lambda: kind.of_entry(cells.producer(csv_text)),
        "message.metadata.sequence_id": lambda: own.digits("sequence_id"),
        "message.metadata.key": lambda: own.texts("partition_key", csv_cell, special=","),
        "message.metadata.event_time": lambda: own.digits("event_time"),
        "message.payload_size": lambda: digits(kind.sizes),
        "frame_checksum": lambda: kind.of_entry(cells.verdict()),
        "digest": lambda: "ok",
        "message.metadata.properties": lambda: csv_properties(own),
    }
    for at, name in enumerate(MESSAGE_FIELDS):
        if at:
            yield ","
        yield made[name]() if name in made else csv_text(str(cells.segment.get(name, "")))
    yield "\n"


def _json_columns(kind: Kind) -> Iterator[Cells]:
    yield "{"
    if kind.places is not None:
        yield '"batch_index": '
        yield digits(kind.places)
        yield ", "
    yield from json_number('"index": ', kind.indexes, kind.numbered(), ", ")
    yield '"metadata": {'
    yield from metadata_members(kind.own)
    yield '}, "payload_size": '
    yield digits(kind.sizes)
    yield "}"

"""Render blocks of entries as lines of text and as Arrow tables, column by column.

The text is the same as `render.entries` makes for one entry; here thousands of lines are made at once.
Needs NumPy and PyArrow.
"""

from __future__ import annotations

import base64
import csv
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_meta.cli.render.entries import (
    NONE,
    PARQUET_TYPES,
    segment_of,
    shape,
    transaction_of,
)
from pulsar_meta.cli.render.entry_cells import (
    LAST_TIME,
    BlockCells,
    Cells,
    FieldCells,
    digits,
    iso_times,
    joined,
    json_value,
    one_of,
    replaced,
    spread,
)
from pulsar_meta.cli.render.parquet import Columns
from pulsar_meta.cli.render.tables import Lines
from pulsar_meta.cli.render.text import json_line, one_line
from pulsar_meta.codecs.columns.words import Positions, Rows
from pulsar_meta.codecs.frames.row_schema import ENTRY_FIELDS, arrow_type
from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER
from pulsar_meta.jobs.entries.entry_blocks import PresentBlock
from pulsar_meta.jobs.entries.entry_reading import Readable
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata

# Lines of neighbours: the first one's row, of which of them the line is right, and the lines.
Part = tuple[int, Rows, Cells]

# Only entries with one of these fields have a note; the fields that a note is made of, in addition to
# encryption keys; and a number that no field of a shown row has.
_NOTING: Final = ("marker_type", "encryption_keys", "num_chunks_from_msg", "txnid_most_bits")
_NOTED: Final = ("marker_type", "chunk_id", "num_chunks_from_msg", "txnid_most_bits", "txnid_least_bits")
_ABSENT: Final = np.iinfo(np.int64).min


def plain_lines(block: PresentBlock) -> Iterator[Part]:
    """Yield the plain lines of a block."""
    cells = BlockCells(block)
    yield 0, timed_rows(cells), joined(_plain_columns(cells), "\t", end="\n")


def timed_rows(cells: BlockCells) -> Rows:
    """Return the rows with a time that is one of a calendar."""
    times = cells.times()
    return cells.rows & (times > 0) & (times <= LAST_TIME)


def _plain_columns(cells: BlockCells) -> Iterator[Cells]:
    yield joined([f"{cells.block.ledger_id}:", digits(cells.block.entry_ids)])
    yield _index_ranges(cells)
    yield iso_times(cells.times())
    yield cells.producer(lambda name: one_line(name) or NONE)
    yield cells.digits("sequence_id")
    yield cells.digits("num_messages_in_batch", "1")
    yield digits(cells.headers.sizes - cells.headers.data_at)
    yield cells.compression(str.lower)
    yield cells.verdict()
    yield "ok"
    yield plain_properties(cells)
    yield _notes(cells)


def _index_ranges(cells: BlockCells) -> Cells:
    """Return the index of each entry, or the first and the last one of a batch."""
    rows, first, last = cells.several()
    return replaced(cells.digits("index", NONE), rows, lambda: joined([digits(first), "-", digits(last)]))


def plain_properties(cells: FieldCells) -> Cells:
    """Return the properties of rows as a plain line has them."""
    if not cells.properties.rows.size:
        return NONE
    return pc.fill_null(cells.properties.texts("", "=", "", " ", _plain_properties), NONE)


def _plain_properties(properties: dict[str, str]) -> str:
    return one_line(" ".join(f"{name}={value}" for name, value in properties.items())) or NONE


def _notes(cells: BlockCells) -> Cells:
    """Return the notes of rows: their kind, transaction and segment."""
    segment = list(segment_of(cells.segment))
    notes = [one_line(", ".join(segment)) or NONE]
    noted = np.flatnonzero(np.logical_or.reduce([cells.field(name).present for name in _NOTING]))
    numbers = [
        np.where(cells.field(name).present[noted], cells.integers(name, noted), _ABSENT) for name in _NOTED
    ]
    encrypted = cells.field("encryption_keys").present[noted]
    kinds, which = np.unique(np.stack([*numbers, encrypted], axis=1), axis=0, return_inverse=True)
    for *values, is_encrypted in kinds.tolist():
        has = {name: value for name, value in zip(_NOTED, values, strict=True) if value != _ABSENT}
        has["encryption_keys"] = is_encrypted
        notes.append(one_line(", ".join([*shape(has), *transaction_of(has), *segment])) or NONE)
    rows = np.zeros(cells.count, np.int64)
    rows[noted] = which + 1
    return one_of(notes, rows)


def csv_lines(block: PresentBlock) -> Iterator[Part]:
    """Yield the lines of CSV of a block."""
    cells = BlockCells(block)
    yield 0, cells.rows, joined(_csv_columns(cells), ",", end="\n")


def _csv_columns(cells: BlockCells) -> Iterator[Cells]:
    made: dict[str, Callable[[], Cells]] = {
        "ledger_id": lambda: str(cells.block.ledger_id),
        "entry_id": lambda: digits(cells.block.entry_ids),
        "index": lambda: cells.last_indexes,
        "first_index": cells.first_indexes,
        "last_index": lambda: cells.last_indexes,
        "broker_timestamp": lambda: cells.digits("broker_timestamp"),
        "metadata.producer_name": lambda: cells.producer(csv_text),
        "size": lambda: digits(cells.headers.sizes - cells.headers.data_at),
        "metadata.compression": lambda: cells.compression(str, ""),
        "frame_checksum": cells.verdict,
        "digest": lambda: "ok",
        "metadata.properties": lambda: csv_properties(cells),
    }
    for name in ENTRY_FIELDS:
        plain = name.removeprefix("metadata.")
        if name in made:
            yield made[name]()
        elif plain in MessageMetadata.DESCRIPTOR.fields_by_name and plain != name:
            yield cells.digits(plain)
        else:
            yield csv_text(str(cells.segment.get(name, "")))


def csv_properties(cells: FieldCells) -> Cells:
    """Return the properties of rows as a cell of CSV has them."""
    if not cells.properties.rows.size:
        return ""
    special = lambda properties: csv_text(json_line(properties))[2:-2]  # noqa: E731
    return cells.properties.texts('""', '"": ""', '""', ", ", special, ends=('"{', '}"'))


def csv_cell(value: Any) -> str:
    """Return a value of JSON as a cell of CSV."""
    return csv_text(value if isinstance(value, str) else json_line(value))


def csv_text(text: str) -> str:
    """Return a cell as CSV has it."""
    out = StringIO()
    # The writer quotes a cell that contains the line terminator.
    csv.writer(out, lineterminator="\n").writerow([text, ""])
    return out.getvalue()[:-2]


def json_lines(block: PresentBlock) -> Iterator[Part]:
    """Yield the lines of NDJSON of a block."""
    cells = BlockCells(block)
    yield 0, json_rows(cells), joined([*json_parts(cells), "}}\n"])


def json_rows(cells: BlockCells) -> Rows:
    """Return of which rows `json_parts` are right."""
    shown = cells.rows & (cells.block.entry_ids <= MAX_SAFE_INTEGER)
    if cells.block.ledger_id > MAX_SAFE_INTEGER:
        shown[:] = False
    return shown


def json_parts(cells: BlockCells) -> Iterator[Cells]:
    """Yield documents in parts, up to the last member of `metadata`; a part is null if a row lacks it."""
    segment = "".join(f"{json_line(name)}: {json_line(value)}, " for name, value in cells.segment.items())
    yield f'{{{segment}"ledger_id": {cells.block.ledger_id}, "entry_id": '
    yield digits(cells.block.entry_ids)
    yield ', "size": '
    yield digits(cells.headers.sizes - cells.headers.data_at)
    yield ', "frame_checksum": "'
    yield cells.verdict()
    yield '", "digest": "ok"'
    broker = cells.field("broker_timestamp").present
    yield from json_number(', "broker_timestamp": ', cells.integers("broker_timestamp"), broker)
    if cells.field("index").present.any():
        index, first = cells.last_indexes, cells.first_indexes()
        parts = (', "index": ', index, ', "first_index": ', first, ', "last_index": ', index)
        yield from parts if not index.null_count else [pc.binary_join_element_wise(*parts, "")]
    yield ', "metadata": {'
    yield from metadata_members(cells)


def metadata_members(cells: FieldCells) -> Iterator[Cells]:
    """Yield the members of metadata in parts; a part is null if a row lacks it.

    A comma follows each member up to the first one that all rows have, and precedes each later one.
    """
    key = cells.kind.fields_by_name["partition_key"]
    before, after = "", ", "
    for field in (*(field for field in cells.kind.fields if field is not key), key):
        if field.is_required and after:
            before, after = "", ""
        yield from _metadata_member(
            cells, field, f'{before}"{"key" if field is key else field.name}": ', after
        )
        before = "" if after else ", "


def _metadata_member(cells: FieldCells, field: Any, before: str, after: str) -> Iterator[Cells]:
    stored = cells.field(field.name) if field.name != "properties" else None
    if stored is None:
        if cells.properties.rows.size:
            special = lambda properties: json_line(properties)[1:-1]  # noqa: E731
            ends = (f"{before}{{", f"}}{after}")
            yield cells.properties.texts('"', '": "', '"', ", ", special, ends=ends)
        return
    present = stored.present & cells.rows
    if not present.any():
        return
    if isinstance(cells, BlockCells) and field.name == "producer_name":
        yield cells.producer(lambda name: f"{before}{json_line(name)}{after}")
    elif isinstance(cells, BlockCells) and field.name == "compression":
        yield cells.compression(lambda name: f'{before}"{name}"{after}', "")
    elif field.is_repeated:
        assert isinstance(cells, BlockCells)
        lists = [cells.metadata(row)[field.name] for row in np.flatnonzero(present).tolist()]
        yield spread(pa.array([f"{before}{json_line(properties)}{after}" for properties in lists]), present)
    elif field.cpp_type == field.CPPTYPE_BOOL:
        texts = ["", f"{before}false{after}", f"{before}true{after}"]
        yield one_of(texts, present * (1 + (stored.values != 0)))
    elif field.cpp_type == field.CPPTYPE_STRING:
        yield _json_texts(cells, field, before, after)
    else:
        yield from json_number(before, cells.integers(field.name), present, after)


def json_number(before: str, numbers: Positions, present: Rows, after: str = "") -> Iterator[Cells]:
    """Yield a member that is a number, in parts; a part is null in rows that are not `present`."""
    if present.all():
        yield from (before, digits(numbers), after)
    elif present.any():
        yield spread(joined([before, digits(numbers[present]), after]), present)


def _json_texts(cells: FieldCells, field: Any, before: str, after: str) -> Cells:
    """Return a member that is text or bytes, null if a row lacks it."""
    strings, numbers = cells.strings(field.name)
    if field.type == field.TYPE_BYTES:
        made = [f"{before}{_json_bytes(data)}{after}" for data in strings.each()]
        return pa.array(made, pa.string()).take(numbers)
    strange = np.flatnonzero(strings.strange).tolist()
    made = [f"{before}{json_line(json_value(strings.bytes_of(at)))}{after}" for at in strange]
    plain = joined([f'{before}"', strings.cells(), f'"{after}'])
    return replaced(plain, strings.strange, lambda: pa.array(made, pa.string())).take(numbers)


def _json_bytes(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def columns(block: PresentBlock) -> Iterator[Columns | Readable]:
    """Yield a block as columns of PARQUET_TYPES, and the entries in between that are shown one by one."""
    cells = BlockCells(block)
    block.count(cells.rows)
    table = pa.record_batch([_parquet_column(cells, name) for name in PARQUET_TYPES], list(PARQUET_TYPES))
    for start, end in _runs(cells.rows):
        if cells.rows[start]:
            yield Columns(table.slice(start, end - start).columns)
        else:
            yield from filter(None, map(block.entry, range(start, end)))


def _parquet_column(cells: BlockCells, name: str) -> Cells:
    numbers: dict[str, Callable[[], Positions]] = {
        "ledger_id": lambda: np.full(cells.count, cells.block.ledger_id),
        "entry_id": lambda: cells.block.entry_ids,
        "size": lambda: cells.headers.sizes - cells.headers.data_at,
    }
    made: dict[str, Callable[[], Cells]] = {
        "last_index": lambda: _parquet_column(cells, "index"),
        "first_index": lambda: pa.array(cells.first_index(), mask=~cells.field("index").present),
        "producer_name": lambda: _full(cells, cells.producer(str)),
        "key": lambda: cells.texts(
            "partition_key", lambda key: key if isinstance(key, str) else json_line(key)
        ),
        "compression": lambda: pc.if_else(
            pa.array(cells.field("compression").present),
            _full(cells, cells.compression(str)),
            pa.scalar(None, pa.string()),
        ),
        "frame_checksum": lambda: _full(cells, cells.verdict()),
        "digest": lambda: _full(cells, "ok"),
        "properties": lambda: cells.properties.maps(),
    }
    if name in numbers:
        return pa.array(numbers[name]())
    if name in made:
        return made[name]()
    if PARQUET_TYPES[name] == "string":
        return _full(cells, cells.segment.get(name))
    column = pa.array(cells.integers(name), mask=~cells.field(name).present)
    return column.cast(arrow_type(PARQUET_TYPES[name]))


def _full(cells: BlockCells, column: Cells) -> Cells:
    """Return a column, whose rows may have the same text or nothing."""
    if column is None:
        return pa.nulls(cells.count, pa.string())
    return pa.repeat(column, cells.count) if isinstance(column, str) else column


def _runs(rows: Rows) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of neighbours that are all in `rows`, or all not."""
    starts = np.flatnonzero(np.diff(rows, prepend=~rows[:1])).tolist()
    return pairwise([*starts, len(rows)])


def rendered(
    block: PresentBlock, lines: Callable[[PresentBlock], Iterator[Part]]
) -> Iterator[Lines | Readable]:
    """Yield a block as text, and the entries in between that are shown one by one, in order."""
    for first, shown, cells in lines(block):
        block.count(first + np.flatnonzero(shown))
        places = np.frombuffer(cells.buffers()[1], np.int32)[cells.offset : cells.offset + len(cells) + 1]
        text = memoryview(cells.buffers()[2])
        for start, end in _runs(shown):
            if shown[start]:
                yield Lines(str(text[places[start] : places[end]], "utf-8"))
            else:
                yield from filter(None, map(block.entry, range(first + start, first + end)))

"""Blocks of entries as text and as tables of Arrow: the same characters as row by row, made of columns.

`render.entries` says what an entry looks like; here the cells of thousands of entries are made together.
Cells that need a look at each character (escapes, other letters than ASCII) are made by the functions there.
Needs NumPy and PyArrow.
"""

from __future__ import annotations

import base64
import csv
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from io import StringIO
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import Message
from numpy.typing import NDArray

from pulsar_meta.cli.render.entries import (
    ENTRY_FIELDS,
    NONE,
    PARQUET_TYPES,
    segment_of,
    shape,
    transaction_of,
)
from pulsar_meta.cli.render.parquet import Columns
from pulsar_meta.cli.render.tables import Lines
from pulsar_meta.cli.render.text import json_line, one_line
from pulsar_meta.codecs.columns.fields import Found, Inner
from pulsar_meta.codecs.columns.headers import KEY, VALUE
from pulsar_meta.codecs.columns.words import Heads, Positions, Rows, number_texts
from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.entries.entry_blocks import PresentBlock
from pulsar_meta.jobs.entries.entry_reading import Readable
from pulsar_meta.proto.PulsarApi_pb2 import CompressionType, MessageMetadata

# Cells of one column, null where there is nothing.
Cells = Any
# Lines of neighbours: the first one's row, of which of them the line is right, and the lines.
Part = tuple[int, Rows, Cells]

# The last millisecond of the year 9999.
LAST_TIME: Final = 253_402_300_799_999
_DAY: Final = 86_400_000
# Of these a row has its own line made one by one: messages and lists in the metadata, but for properties.
LISTS: Final = ("encryption_keys", "replicate_to", "compacted_batch_indexes")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class FieldCells:
    """The cells of what metadata says, a row each. Of the rows that are not in `rows` they mean nothing."""

    def __init__(
        self, kind: type[Message], heads: Heads, fields: Mapping[str, Found], inner: list[Inner]
    ) -> None:
        """`kind` is the type of what lies in `heads`; `inner` has its properties."""
        self.kind, self.heads, self.inner = kind.DESCRIPTOR, heads, inner
        self.count = heads.count
        self.rows: Rows = np.ones(heads.count, bool)
        self._fields = fields

    def field(self, name: str) -> Found:
        """Return a field."""
        return self._fields[name]

    def integers(self, name: str) -> Positions:
        """Return the numbers of a field, as protobuf has them."""
        return _numbers(self.field(name), self.kind.fields_by_name.get(name))

    def digits(self, name: str) -> Cells:
        """Return the digits of a field."""
        return digits(self.integers(name), self.field(name).present)

    def texts(self, name: str, text: Callable[[Any], str], special: str = "") -> Cells:
        """Return what `text` makes of a string's value in JSON, null where a row does not have it.

        It leaves ASCII as it is, but for quotes, backslashes, controls, the character `special` and no text.
        """
        found = self.field(name)
        there = found.present & self.rows
        at, sizes = np.where(there, found.values.view(np.int64), 0), np.where(there, found.sizes, 0)
        strings = Strings(*self.heads.strings(np.arange(self.count), at, sizes))
        column, closer = strings.cells(there), there & (strings.strange | (sizes == 0))
        if special:
            closer |= pc.fill_null(pc.match_substring(column, special), False).to_numpy(zero_copy_only=False)
        if not closer.any():
            return column
        made = [text(_json_value(strings.bytes_of(row))) for row in np.flatnonzero(closer).tolist()]
        return pc.replace_with_mask(column, pa.array(closer), pa.array(made, pa.string()))

    @cached_property
    def properties(self) -> Properties:
        """The properties of all rows."""
        return Properties(self)


class BlockCells(FieldCells):
    """The cells of a block's rows, column by column.

    Of the rows that are not in `rows` they mean nothing: those are shown one by one.
    """

    def __init__(self, held: PresentBlock) -> None:
        headers = held.block.headers
        assert headers is not None
        super().__init__(MessageMetadata, headers.heads, headers.fields, headers.properties)
        self.block, self.segment, self.headers = held.block, held.segment, headers
        numbers, names = self._producers
        strange = [number for number, name in enumerate(names) if _REPLACEMENT in name]
        self.rows = held.block.whole & ~np.isin(numbers, strange)

    def producer(self, text: Callable[[str], str]) -> Cells:
        """Return what `text` makes of each producer's name."""
        numbers, names = self._producers
        return pa.array([text(name) for name in names], pa.string()).take(pa.array(numbers))

    def compression(self, text: Callable[[str], str]) -> Cells:
        """Return what `text` makes of each compression's name, NONE where there is none."""
        names = pa.array([text(CompressionType.Name(number)) for number in CompressionType.values()])
        return names.take(pa.array(self.field("compression").values.view(np.int64) * self.rows))

    def verdict(self) -> Cells:
        """Return what became of each frame's checksum."""
        return pc.if_else(pa.array(self.headers.has_checksum), "ok", "absent")

    def first_index(self) -> Positions:
        """Return the index of each entry's first message."""
        last = self.field("index").values.view(np.int64)
        first: Positions = np.maximum(last - self.headers.index_widths() + 1, 0)
        return first

    def times(self) -> Positions:
        """Return the broker's time of each entry, the producer's where it has none."""
        broker, published = self.field("broker_timestamp"), self.field("publish_time")
        return np.where(broker.present, broker.values, published.values).view(np.int64)

    @cached_property
    def _producers(self) -> tuple[Positions, tuple[str, ...]]:
        name = self.headers.fields["producer_name"]
        at = name.values.view(np.int64)
        return number_texts(self.headers.heads, at, name.sizes, self.block.whole)


class Properties:
    """The properties of rows: keys and values one after the other, those of a row in its own order."""

    def __init__(self, cells: FieldCells) -> None:
        self._cells = cells
        parts = [_Parts.of(inner.rows, inner.found) for inner in cells.inner]
        self._parts = _Parts.joined(parts, cells.rows)
        self.rows = self._parts.rows
        heads = cells.heads
        self.keys = Strings(*heads.strings(self.rows, self._parts.key_at, self._parts.key_sizes))
        self.values = Strings(*heads.strings(self.rows, self._parts.value_at, self._parts.value_sizes))
        self._ends = np.searchsorted(self.rows, np.arange(cells.count + 1))

    def texts(
        self, before: str, between: str, after: str, comma: str, special: Callable[[Any], str]
    ) -> Cells:
        """Return the properties of each row as one text, empty where it has none.

        `special` makes it of a dictionary, where characters or names need a closer look.
        """
        each = pc.binary_join_element_wise(before, self.keys.cells(), between, self.values.cells(), after, "")
        lists = pa.ListArray.from_arrays(pa.array(self._ends, pa.int32()), each)
        texts = pc.binary_join(lists, comma)
        strange = np.zeros(self._cells.count, bool)
        strange[self.rows[self.keys.strange | self.values.strange | self._repeated]] = True
        if not strange.any():
            return texts
        made = [special(self.of_row(row)) for row in np.flatnonzero(strange).tolist()]
        return pc.replace_with_mask(texts, pa.array(strange), pa.array(made, pa.string()))

    def maps(self) -> Cells:
        """Return the properties of each row as a map, empty where it has none."""
        keys, values, ends = self.keys.texts(), self.values.texts(), self._ends
        first, last = _same_names(self.rows, keys)
        if len(first) < len(self.rows):
            keys, values = keys.take(pa.array(first)), values.take(pa.array(last))
            ends = np.searchsorted(self.rows[first], np.arange(self._cells.count + 1))
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, values)

    def some(self) -> Rows:
        """Return which rows have any."""
        return np.diff(self._ends) > 0

    def of_row(self, row: int) -> dict[str, str]:
        """Return the properties of one row; of two of one name the later counts."""
        places = range(int(self._ends[row]), int(self._ends[row + 1]))
        return {
            self.keys.bytes_of(at).decode(errors="backslashreplace"): self.values.bytes_of(at).decode(
                errors="backslashreplace"
            )
            for at in places
        }

    @cached_property
    def _repeated(self) -> Rows:
        """Where a row has had a property of the same name before."""
        repeated = np.ones(len(self.rows), bool)
        repeated[_same_names(self.rows, self.keys.as_bytes())[0]] = False
        return repeated


def _same_names(rows: Positions, names: Cells) -> tuple[Positions, Positions]:
    """Return where each name of a row is for the first time, in their order, and where for the last."""
    coded = names.dictionary_encode()
    codes = rows * len(coded.dictionary) + coded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    changes = np.diff(codes[order], prepend=-1, append=-1) != 0
    first, last = order[changes[:-1]], order[changes[1:]]
    again = np.argsort(first)
    return first[again], last[again]


class _Parts:
    """Where the keys and values of properties lie, by rows."""

    def __init__(self, columns: list[Positions]) -> None:
        self.columns = columns
        self.rows, self.key_at, self.key_sizes, self.value_at, self.value_sizes = columns

    @classmethod
    def of(cls, rows: Positions, found: Any) -> _Parts:
        key, value = found[KEY], found[VALUE]
        return cls(
            [
                rows,
                key.values.view(np.int64),
                key.sizes,
                value.values.view(np.int64),
                value.sizes,
            ]
        )

    @classmethod
    def joined(cls, parts: list[_Parts], rows: Rows) -> _Parts:
        """Return the parts of some rows in their order."""
        if not parts:
            return cls([np.zeros(0, np.int64)] * 5)
        columns = [np.concatenate(same) for same in zip(*(part.columns for part in parts), strict=True)]
        kept = np.flatnonzero(rows[columns[0]])
        kept = kept[np.argsort(columns[0][kept], kind="stable")]
        return cls([column[kept] for column in columns])


class Strings:
    """Texts one after the other: `places` has where each begins, and last where they end."""

    def __init__(self, data: NDArray[np.uint8], places: Positions) -> None:
        self.data, self.places = data, places

    def cells(self, present: Rows | None = None) -> Cells:
        """Return the texts; of the strange ones no more than their lengths are right."""
        clean = np.where(_is_strange(self.data), np.uint8(0x3F), self.data)
        return _array(pa.string(), clean, self.places, present)

    def texts(self) -> Cells:
        """Return the texts as they are; what is no UTF-8 in them is escaped."""
        try:
            return self.as_bytes().cast(pa.string())
        except pa.ArrowInvalid:
            made = [self.bytes_of(at).decode(errors="backslashreplace") for at in range(len(self.places) - 1)]
            return pa.array(made, pa.string())

    @cached_property
    def strange(self) -> Rows:
        """Which texts have a character that JSON or a line escapes, or that is not ASCII."""
        found = np.zeros(len(self.places) - 1, bool)
        at = np.flatnonzero(_is_strange(self.data))
        found[np.searchsorted(self.places, at, "right") - 1] = True
        return found

    def as_bytes(self) -> Cells:
        """Return the texts as their bytes."""
        return _array(pa.binary(), self.data, self.places)

    def bytes_of(self, at: int) -> bytes:
        """Return the bytes of one text."""
        return self.data[self.places[at] : self.places[at + 1]].tobytes()


def _is_strange(data: NDArray[np.uint8]) -> Rows:
    strange: Rows = _STRANGE[data]
    return strange


_STRANGE: Final = np.array([not 32 <= code < 127 or chr(code) in '"\\' for code in range(256)])


def _array(kind: Any, data: NDArray[np.uint8], places: Positions, present: Rows | None = None) -> Cells:
    """Return an array of Arrow over texts one after the other."""
    there = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    offsets = pa.py_buffer(np.ascontiguousarray(places, np.int32))
    return pa.Array.from_buffers(kind, len(places) - 1, [there, offsets, pa.py_buffer(data)])


def _numbers(found: Found, field: Any) -> Positions:
    """Return the numbers of a varint field by its type; without one it is an int64."""
    bits = found.values
    if field is None or field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
        return bits.view(np.int64)
    small = np.uint32 if field.cpp_type == field.CPPTYPE_UINT32 else np.int32
    numbers: Positions = bits.astype(small).astype(np.int64)
    return numbers


def digits(numbers: Positions, present: Rows | None = None) -> Cells:
    """Return numbers as text, null in rows that are not `present`."""
    mask = None if present is None else ~present
    return pa.array(numbers, mask=mask).cast(pa.string())


def _plain_columns(cells: BlockCells) -> Iterator[Cells]:
    headers = cells.headers
    yield f"{cells.block.ledger_id}:"
    yield digits(cells.block.entry_ids)
    yield "\t"
    index, first = cells.field("index"), cells.first_index()
    last = index.values.view(np.int64)
    shown = digits(last, index.present)
    several = index.present & (first != last)
    if several.any():
        ranges = pc.binary_join_element_wise(digits(first), shown, "-")
        shown = pc.if_else(pa.array(several), ranges, shown)
    yield pc.fill_null(shown, NONE)
    yield "\t"
    yield iso_times(cells.times())
    yield "\t"
    yield cells.producer(lambda name: one_line(name) or NONE)
    yield "\t"
    yield cells.digits("sequence_id")
    yield "\t"
    yield pc.fill_null(cells.digits("num_messages_in_batch"), "1")
    yield "\t"
    yield digits(headers.sizes - headers.data_at)
    yield "\t"
    yield cells.compression(lambda name: f"{name.lower()}\t")
    yield cells.verdict()
    yield "\tok\t"
    yield plain_properties(cells)
    yield "\t"
    yield _notes(cells)
    yield "\n"


def plain_properties(cells: FieldCells) -> Cells:
    """Return the properties of rows as a plain line has them."""
    if not cells.properties.rows.size:
        return NONE
    texts = cells.properties.texts("", "=", "", " ", _plain_properties)
    return pc.if_else(pa.array(cells.properties.some()), texts, NONE)


def _plain_properties(properties: dict[str, str]) -> str:
    return one_line(" ".join(f"{name}={value}" for name, value in properties.items())) or NONE


def _notes(cells: BlockCells) -> Cells:
    """Return the notes of rows: what few entries are, made one by one, and which segment they are in."""
    segment = list(segment_of(cells.segment))
    marker, keys = cells.field("marker_type"), cells.field("encryption_keys")
    chunked = cells.field("num_chunks_from_msg").present & (cells.integers("num_chunks_from_msg") > 1)
    transaction = cells.field("txnid_most_bits")
    noted = marker.present | keys.present | chunked | transaction.present
    if not noted.any():
        return one_line(", ".join(segment)) or NONE
    names = (
        "marker_type",
        "encryption_keys",
        "chunk_id",
        "num_chunks_from_msg",
        "txnid_most_bits",
        "txnid_least_bits",
    )
    numbers = {name: cells.integers(name) for name in names}
    notes = []
    for row in np.flatnonzero(noted).tolist():
        has = {name: int(numbers[name][row]) for name in names if cells.field(name).present[row]}
        notes.append(one_line(", ".join([*shape(has), *transaction_of(has), *segment])))
    column = pa.array([one_line(", ".join(segment)) or NONE] * cells.count)
    return pc.replace_with_mask(column, pa.array(noted), pa.array(notes, pa.string()))


def iso_times(times: Positions) -> Cells:
    """Return times in [0, LAST_TIME] as text; every other one as if it were 0."""
    times = np.where((times < 0) | (times > LAST_TIME), 0, times)
    days, rest = np.divmod(times, _DAY)
    known, which = np.unique(days, return_inverse=True)
    dates = [str(iso_time(day * _DAY))[:11] for day in known.tolist()]
    text = np.empty((len(times), 24), np.uint8)
    text[:, :11] = _letters(dates)[which]
    minutes, rest = np.divmod(rest, 60_000)
    seconds, milliseconds = np.divmod(rest, 1000)
    text[:, 11:17] = _MINUTES[minutes]
    text[:, 17:20] = _SECONDS[seconds]
    text[:, 20:] = _MILLISECONDS[milliseconds]
    return _array(pa.string(), text.ravel(), np.arange(len(times) + 1) * 24)


def _letters(texts: list[str]) -> NDArray[np.uint8]:
    """Return texts of one length as rows of letters."""
    return np.frombuffer("".join(texts).encode(), np.uint8).reshape(len(texts), -1)


_MINUTES: Final = _letters([f"{hour:02}:{minute:02}:" for hour in range(24) for minute in range(60)])
_SECONDS: Final = _letters([f"{second:02}." for second in range(60)])
_MILLISECONDS: Final = _letters([f"{part:03}Z" for part in range(1000)])


def _csv_columns(cells: BlockCells) -> Iterator[Cells]:
    made: dict[str, Callable[[], Cells]] = {
        "ledger_id": lambda: str(cells.block.ledger_id),
        "entry_id": lambda: digits(cells.block.entry_ids),
        "index": lambda: cells.digits("index"),
        "first_index": lambda: digits(cells.first_index(), cells.field("index").present),
        "last_index": lambda: cells.digits("index"),
        "broker_timestamp": lambda: cells.digits("broker_timestamp"),
        "metadata.producer_name": lambda: cells.producer(csv_text),
        "size": lambda: digits(cells.headers.sizes - cells.headers.data_at),
        "metadata.compression": lambda: pc.if_else(
            pa.array(cells.field("compression").present), cells.compression(str), ""
        ),
        "frame_checksum": cells.verdict,
        "digest": lambda: "ok",
        "metadata.properties": lambda: csv_properties(cells),
    }
    for at, name in enumerate(ENTRY_FIELDS):
        if at:
            yield ","
        plain = name.removeprefix("metadata.")
        if name in made:
            column = made[name]()
        elif plain in MessageMetadata.DESCRIPTOR.fields_by_name and plain != name:
            column = cells.digits(plain)
        else:
            column = csv_text(str(cells.segment.get(name, "")))
        yield column if isinstance(column, str) else pc.fill_null(column, "")
    yield "\n"


def csv_properties(cells: FieldCells) -> Cells:
    """Return the properties of rows as a cell of CSV has them."""
    if not cells.properties.rows.size:
        return ""
    texts = cells.properties.texts('""', '"": ""', '""', ", ", lambda some: csv_text(json_line(some))[2:-2])
    wrapped = pc.binary_join_element_wise('"{', texts, '}"', "")
    return pc.if_else(pa.array(cells.properties.some()), wrapped, "")


def csv_cell(value: Any) -> str:
    """Return a value of JSON as a cell of CSV."""
    return csv_text(value if isinstance(value, str) else json_line(value))


def csv_text(text: str) -> str:
    """Return a cell as CSV has it."""
    out = StringIO()
    # What a line ends with is quoted within it.
    csv.writer(out, lineterminator="\n").writerow([text, ""])
    return out.getvalue()[:-2]


def _json_members(cells: BlockCells) -> Iterator[Cells]:
    """Yield the members of documents before `metadata`, null where a row does not have one."""
    for name, value in cells.segment.items():
        yield f"{json_line(name)}: {json_line(value)}"
    yield f'"ledger_id": {cells.block.ledger_id}'
    yield member("entry_id", digits(cells.block.entry_ids))
    yield member("size", digits(cells.headers.sizes - cells.headers.data_at))
    yield pc.if_else(
        pa.array(cells.headers.has_checksum), '"frame_checksum": "ok"', '"frame_checksum": "absent"'
    )
    yield '"digest": "ok"'
    if cells.field("broker_timestamp").present.any():
        yield member("broker_timestamp", cells.digits("broker_timestamp"))
    if cells.field("index").present.any():
        index = cells.digits("index")
        first = digits(cells.first_index(), cells.field("index").present)
        yield pc.binary_join_element_wise(
            '"index": ', index, ', "first_index": ', first, ', "last_index": ', index, ""
        )


def metadata_members(cells: FieldCells) -> Iterator[Cells]:
    """Yield the members of metadata, null where a row does not have one."""
    for field in cells.kind.fields:
        if field.name != "partition_key" and field.name not in LISTS:
            yield from _metadata_member(cells, field, field.name)
    yield from _metadata_member(cells, cells.kind.fields_by_name["partition_key"], "key")


def _metadata_member(cells: FieldCells, field: Any, name: str) -> Iterator[Cells]:
    if isinstance(cells, BlockCells) and field.name == "producer_name":
        yield cells.producer(lambda text: f'"producer_name": {json_line(text)}')
        return
    if field.name == "properties":
        if cells.properties.rows.size:
            texts = cells.properties.texts('"', '": "', '"', ", ", lambda some: json_line(some)[1:-1])
            wrapped = pc.binary_join_element_wise('"properties": {', texts, "}", "")
            yield pc.if_else(pa.array(cells.properties.some()), wrapped, pa.scalar(None, pa.string()))
        return
    found = cells.field(field.name)
    there = found.present & cells.rows
    if not there.any():
        return
    if isinstance(cells, BlockCells) and field.name == "compression":
        named = cells.compression(lambda text: f'"compression": "{text}"')
        yield pc.if_else(pa.array(there), named, pa.scalar(None, pa.string()))
    elif field.cpp_type == field.CPPTYPE_BOOL:
        yield member(name, pc.if_else(pa.array(found.values != 0, mask=~there), "true", "false"))
    elif field.cpp_type != field.CPPTYPE_STRING:
        yield member(name, cells.digits(field.name))
    else:
        yield member(name, _json_texts(cells, field, there))


def member(name: str, cells: Cells) -> Cells:
    """Return a member of a document, null where the cell is."""
    return pc.binary_join_element_wise(f'"{name}": ', cells, "")


def _json_texts(cells: FieldCells, field: Any, there: Rows) -> Cells:
    """Return the JSON of a field of text or of bytes."""
    found = cells.field(field.name)
    sizes = np.where(there, found.sizes, 0)
    at = np.where(there, found.values.view(np.int64), 0)
    texts = Strings(*cells.heads.strings(np.arange(cells.count), at, sizes))
    if field.type == field.TYPE_BYTES:
        strange, made = there, _json_bytes
    else:
        strange, made = texts.strange, _json_text
    plain = pc.binary_join_element_wise('"', texts.cells(there), '"', "")
    if not strange.any():
        return plain
    special = [made(texts.bytes_of(row)) for row in np.flatnonzero(strange).tolist()]
    return pc.replace_with_mask(plain, pa.array(strange), pa.array(special, pa.string()))


def _json_bytes(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def _json_text(data: bytes) -> str:
    return json_line(_json_value(data))


def _json_value(data: bytes) -> str | dict[str, str]:
    """Return a string of protobuf as JSON has it."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def plain_lines(held: PresentBlock) -> Iterator[Part]:
    """Yield the plain lines of a block."""
    cells = BlockCells(held)
    yield 0, timed_rows(cells), pc.binary_join_element_wise(*_plain_columns(cells), "")


def timed_rows(cells: BlockCells) -> Rows:
    """Return the rows with a time that is one of a calendar."""
    times = cells.times()
    return cells.rows & (times > 0) & (times <= LAST_TIME)


def csv_lines(held: PresentBlock) -> Iterator[Part]:
    """Yield the lines of CSV of a block."""
    cells = BlockCells(held)
    yield 0, cells.rows, pc.binary_join_element_wise(*_csv_columns(cells), "")


def json_lines(held: PresentBlock) -> Iterator[Part]:
    """Yield the lines of NDJSON of a block."""
    cells = BlockCells(held)
    yield 0, json_rows(cells), pc.binary_join_element_wise(*json_parts(cells), "}}\n", "")


def json_rows(cells: BlockCells) -> Rows:
    """Return of which rows `json_parts` are right."""
    shown = cells.rows & (cells.block.entry_ids <= MAX_SAFE_INTEGER)
    for name in LISTS:
        shown &= ~cells.field(name).present
    if cells.block.ledger_id > MAX_SAFE_INTEGER:
        shown[:] = False
    return shown


def json_parts(cells: BlockCells) -> tuple[str, Cells, str, Cells]:
    """Return documents up to the last member of `metadata`, in parts."""
    members = pc.binary_join_element_wise(*_json_members(cells), ", ", null_handling="skip")
    metadata = pc.binary_join_element_wise(*metadata_members(cells), ", ", null_handling="skip")
    return "{", members, ', "metadata": {', metadata


def columns(held: PresentBlock) -> Iterator[Columns | Readable]:
    """Yield a block as columns of PARQUET_TYPES, and the entries between that are to be shown one by one."""
    cells = BlockCells(held)
    held.count(cells.rows)
    table = pa.record_batch([_parquet_column(cells, name) for name in PARQUET_TYPES], list(PARQUET_TYPES))
    for start, end in _runs(cells.rows):
        if cells.rows[start]:
            yield Columns(table.slice(start, end - start).columns)
        else:
            yield from filter(None, map(held.entry, range(start, end)))


def _parquet_column(cells: BlockCells, name: str) -> Cells:
    numbers: dict[str, Callable[[], Positions]] = {
        "ledger_id": lambda: np.full(cells.count, cells.block.ledger_id),
        "entry_id": lambda: cells.block.entry_ids,
        "size": lambda: cells.headers.sizes - cells.headers.data_at,
    }
    made: dict[str, Callable[[], Cells]] = {
        "last_index": lambda: _parquet_column(cells, "index"),
        "first_index": lambda: pa.array(cells.first_index(), mask=~cells.field("index").present),
        "producer_name": lambda: cells.producer(str),
        "key": lambda: cells.texts(
            "partition_key", lambda key: key if isinstance(key, str) else json_line(key)
        ),
        "compression": lambda: pc.if_else(
            pa.array(cells.field("compression").present), cells.compression(str), pa.scalar(None, pa.string())
        ),
        "frame_checksum": cells.verdict,
        "digest": lambda: pa.array(["ok"]).take(pa.array(np.zeros(cells.count, np.int64))),
        "properties": lambda: cells.properties.maps(),
    }
    if name in numbers:
        return pa.array(numbers[name]())
    if name in made:
        return made[name]()
    if PARQUET_TYPES[name] == "string":
        value = cells.segment.get(name)
        return pa.array([value], pa.string()).take(pa.array(np.zeros(cells.count, np.int64)))
    column = pa.array(cells.integers(name), mask=~cells.field(name).present)
    return column.cast(pa.type_for_alias(PARQUET_TYPES[name]))


def _runs(rows: Rows) -> Iterator[tuple[int, int]]:
    """Yield where neighbours begin and end that are all in `rows`, or all are not."""
    starts = np.flatnonzero(np.diff(rows, prepend=~rows[:1])).tolist()
    return pairwise([*starts, len(rows)])


def rendered(
    held: PresentBlock, lines: Callable[[PresentBlock], Iterator[Part]]
) -> Iterator[Lines | Readable]:
    """Yield a block as text, and the entries between that are to be shown one by one, in order."""
    for first, shown, cells in lines(held):
        held.count(first + np.flatnonzero(shown))
        places = np.frombuffer(cells.buffers()[1], np.int32)[cells.offset : cells.offset + len(cells) + 1]
        text = memoryview(cells.buffers()[2])
        for start, end in _runs(shown):
            if shown[start]:
                yield Lines(str(text[places[start] : places[end]], "utf-8"))
            else:
                yield from filter(None, map(held.entry, range(first + start, first + end)))

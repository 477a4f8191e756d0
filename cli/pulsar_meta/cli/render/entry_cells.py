"""Columns of text from the headers of thousands of entries.

A text that many rows share is made once. Text with escapes or characters outside ASCII is made by the
functions that format one entry. Needs NumPy and PyArrow.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import Message
from numpy.typing import NDArray

from pulsar_meta.codecs.columns.fields import FieldColumn, InnerMessages
from pulsar_meta.codecs.columns.headers import KEY, VALUE
from pulsar_meta.codecs.columns.words import (
    EVERY,
    Heads,
    Positions,
    Rows,
    Selection,
    Words,
    number_strings,
    number_texts,
)
from pulsar_meta.codecs.frames.entry_json import metadata_to_json
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.entries.entry_blocks import PresentBlock
from pulsar_meta.proto.PulsarApi_pb2 import CompressionType, MessageMetadata

# The cells of a column, null for none; or one text that every row has.
Cells = Any

# The last millisecond of the year 9999.
LAST_TIME: Final = 253_402_300_799_999
_DAY: Final = 86_400_000
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def joined(columns: Iterable[Cells], separator: str = "", end: str = "") -> Cells:
    """Concatenate columns row by row; a null adds nothing. At least one column is not a constant text."""
    parts: list[Cells] = []
    for column in columns:
        if parts and isinstance(column, str) and isinstance(parts[-1], str):
            parts[-1] += separator + column
        elif separator or not isinstance(column, str) or column:
            parts.append(column)
    if end:
        parts[-1] = parts[-1] + end if isinstance(parts[-1], str) else joined([parts[-1], end])
    return pc.binary_join_element_wise(*parts, separator, null_handling="replace", null_replacement="")


def spread(cells: Cells, present: Rows) -> Cells:
    """Return the cells of the rows that are `present` as a column, null in the others."""
    if present.all():
        return cells
    return cells.take(pa.array(np.cumsum(present) - 1, mask=~present))


def replaced(column: Cells, rows: Rows, others: Callable[[], Cells]) -> Cells:
    """Return a column with other cells in some rows, which are only made if there are any."""
    return pc.replace_with_mask(column, pa.array(rows), others()) if rows.any() else column


def one_of(texts: list[str], numbers: NDArray[Any]) -> Cells:
    """Return the text of each row's number."""
    if _all_same(numbers):
        return texts[int(numbers[0])]
    return pa.array(texts, pa.string()).take(pa.array(numbers))


def _all_same(numbers: NDArray[Any]) -> bool:
    return numbers.size > 0 and bool((numbers == numbers[0]).all())


def digits(numbers: Positions, present: Rows | None = None, nothing: str = "") -> Cells:
    """Return numbers as text; rows that are not `present` are null, or `nothing` if that is not empty."""
    if present is None or present.all():
        return pa.array(numbers).cast(pa.string())
    if not present.any():
        return nothing
    shown = spread(pa.array(numbers[present]).cast(pa.string()), present)
    return pc.fill_null(shown, nothing) if nothing else shown


class FieldCells:
    """The cells of metadata, one row per message. Only rows in `rows` have a meaning."""

    def __init__(
        self, kind: type[Message], heads: Heads, fields: Mapping[str, FieldColumn], inner: list[InnerMessages]
    ) -> None:
        """`kind` is the type of the messages in `heads`; `inner` has their properties."""
        self.kind, self.heads, self.inner = kind.DESCRIPTOR, heads, inner
        self.count = heads.count
        self.rows: Rows = np.ones(heads.count, bool)
        self._fields = fields

    def field(self, name: str) -> FieldColumn:
        """Return a field."""
        return self._fields[name]

    def integers(self, name: str, rows: Selection | Rows = EVERY) -> Positions:
        """Return the numbers of a field in the given rows, by the field's protobuf type."""
        return _numbers(self.field(name).values[rows], self.kind.fields_by_name.get(name))

    def digits(self, name: str, nothing: str = "") -> Cells:
        """Return the digits of a field; rows without it are as in `digits`."""
        return digits(self.integers(name), self.field(name).present, nothing)

    def strings(self, name: str) -> tuple[Strings, Cells]:
        """Return the different values of a field of strings or bytes, and which of them each row has."""
        stored = self.field(name)
        present, starts = stored.present & self.rows, stored.values.view(np.int64)
        numbers, rows = number_strings(self.heads, starts, stored.sizes, present)
        strings = Strings(*self.heads.strings(rows, starts[rows], stored.sizes[rows]))
        return strings, pa.array(numbers, mask=~present)

    def texts(self, name: str, text: Callable[[Any], str], special: str = "") -> Cells:
        """Return a string field formatted by `text`, which takes its value in JSON; null if a row lacks it.

        `text` must not change ASCII except quotes, backslashes, controls, the character `special` and "".
        """
        strings, numbers = self.strings(name)
        column, closer = strings.cells(), strings.strange | (np.diff(strings.places) == 0)
        if special:
            closer |= pc.match_substring(column, special).to_numpy(zero_copy_only=False)
        made = [text(json_value(strings.bytes_of(at))) for at in np.flatnonzero(closer).tolist()]
        return replaced(column, closer, lambda: pa.array(made, pa.string())).take(numbers)

    @cached_property
    def properties(self) -> Properties:
        """The properties of all rows."""
        return Properties(self)


class BlockCells(FieldCells):
    """The cells of a block's rows, column by column.

    Rows that are not in `rows` have no meaning and are shown one by one.
    """

    def __init__(self, present: PresentBlock) -> None:
        block, headers = present.block, present.block.headers
        assert headers is not None
        super().__init__(MessageMetadata, headers.heads, headers.fields, headers.properties)
        self.block, self.segment, self.headers = block, present.segment, headers
        numbers, names = self._producers
        strange = [number for number, name in enumerate(names) if _REPLACEMENT in name]
        self.rows = block.whole & ~np.isin(numbers, strange) if strange else block.whole

    def producer(self, text: Callable[[str], str]) -> Cells:
        """Return each producer's name, formatted by `text`."""
        numbers, names = self._producers
        return one_of([text(name) for name in names], numbers)

    def compression(self, text: Callable[[str], str], nothing: str | None = None) -> Cells:
        """Return each compression's name, formatted by `text`; without one `nothing`, or that of NONE."""
        codes = self.field("compression")
        names = [text(CompressionType.Name(number)) for number in CompressionType.values()]
        none = names[0] if nothing is None else nothing
        return one_of([none, *names], (codes.values.view(np.int64) + 1) * (codes.present & self.rows))

    def verdict(self) -> Cells:
        """Return the verdict on each frame's checksum."""
        return one_of(["absent", "ok"], self.headers.has_checksum.view(np.int8))

    def several(self) -> tuple[Rows, Positions, Positions]:
        """Return which entries have more than one index, and of those the first and the last."""
        first, index = self.first_index(), self.field("index")
        last = index.values.view(np.int64)
        rows = index.present & (first != last)
        return rows, first[rows], last[rows]

    @cached_property
    def last_indexes(self) -> Cells:
        """The digits of the index of each entry's last message."""
        return self.digits("index")

    def first_indexes(self) -> Cells:
        """Return the digits of the index of each entry's first message."""
        rows, first, _ = self.several()
        return replaced(self.last_indexes, rows, lambda: digits(first))

    def first_index(self) -> Positions:
        """Return the index of each entry's first message."""
        last = self.field("index").values.view(np.int64)
        first: Positions = last - self.headers.index_widths() + 1
        return first

    def times(self) -> Positions:
        """Return the broker's time of each entry, or the producer's if the broker added none."""
        broker, published = self.field("broker_timestamp"), self.field("publish_time")
        return np.where(broker.present, broker.values, published.values).view(np.int64)

    def metadata(self, row: int) -> dict[str, Any]:
        """Return the complete metadata of an entry as JSON."""
        block, start = self.block, int(self.block.offsets[row])
        data = memoryview(block.data)[start + block.data_at : start + int(block.sizes[row])]
        return metadata_to_json(decode_frame(data, verify=False).metadata)

    @cached_property
    def _producers(self) -> tuple[Positions, tuple[str, ...]]:
        name = self.headers.fields["producer_name"]
        at = name.values.view(np.int64)
        return number_texts(self.headers.heads, at, name.sizes, self.block.whole)


class Properties:
    """The properties of rows: keys and values one after the other, those of a row in its own order."""

    def __init__(self, cells: FieldCells) -> None:
        self._count = cells.count
        parts = [_Parts.of(inner.rows, inner.columns) for inner in cells.inner]
        self._parts = _Parts.joined(parts, cells.rows)
        self.rows = self._parts.rows
        heads = cells.heads
        self.keys = Strings(*heads.strings(self.rows, self._parts.key_at, self._parts.key_sizes))
        self.values = Strings(*heads.strings(self.rows, self._parts.value_at, self._parts.value_sizes))
        self._ends = np.searchsorted(self.rows, np.arange(cells.count + 1))

    def texts(
        self,
        before: str,
        between: str,
        after: str,
        comma: str,
        special: Callable[[dict[str, str]], str],
        ends: tuple[str, str] = ("", ""),
    ) -> Cells:
        """Return the properties of each row as one text between two `ends`, null if it has none.

        `special` formats properties with escapes or repeated names.
        """
        non_empty = self.non_empty()
        each = joined([before, self.keys.cells(), between, self.values.cells(), after])
        places = np.append(self._ends[:-1][non_empty], len(self.rows))
        texts = pc.binary_join(pa.ListArray.from_arrays(pa.array(places, pa.int32()), each), comma)
        strange = np.zeros(self._count, bool)
        strange[self.rows[self.keys.strange | self.values.strange | self._repeated]] = True
        made = self._each(np.flatnonzero(strange), special)
        texts = replaced(texts, strange[non_empty], lambda: pa.array(made, pa.string()))
        return spread(joined([ends[0], texts, ends[1]]), non_empty)

    def maps(self) -> Cells:
        """Return the properties of each row as a map, empty if it has none."""
        keys, values, ends = self.keys.texts(), self.values.texts(), self._ends
        first, last = _same_names(self.rows, keys)
        if len(first) < len(self.rows):
            keys, values = keys.take(pa.array(first)), values.take(pa.array(last))
            ends = np.searchsorted(self.rows[first], np.arange(self._count + 1))
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, values)

    def non_empty(self) -> Rows:
        """Return the rows that have properties."""
        return np.diff(self._ends) > 0

    def _each(self, rows: Positions, text: Callable[[dict[str, str]], str]) -> list[str]:
        """Format the properties of some rows with `text`; if a name repeats, the last value counts."""
        known: dict[tuple[tuple[bytes, bytes], ...], str] = {}
        texts = []
        for first, end in zip(self._ends[rows].tolist(), self._ends[rows + 1].tolist(), strict=True):
            pairs = tuple(zip(self.keys.each(first, end), self.values.each(first, end), strict=True))
            if pairs not in known:
                known[pairs] = text({_readable(key): _readable(value) for key, value in pairs})
            texts.append(known[pairs])
        return texts

    @cached_property
    def _repeated(self) -> Rows:
        """The properties whose name occurs earlier in the same row."""
        repeated = np.ones(len(self.rows), bool)
        repeated[_same_names(self.rows, self.keys.as_bytes())[0]] = False
        return repeated


def _same_names(rows: Positions, names: Cells) -> tuple[Positions, Positions]:
    """Return the places of each name's first occurrence in a row, in order, and of its last one."""
    coded = names.dictionary_encode()
    codes = rows * len(coded.dictionary) + coded.indices.to_numpy()
    if (np.diff(np.sort(codes)) > 0).all():
        every = np.arange(len(codes))
        return every, every
    order = np.argsort(codes, kind="stable")
    changes = np.diff(codes[order], prepend=-1, append=-1) != 0
    first, last = order[changes[:-1]], order[changes[1:]]
    again = np.argsort(first)
    return first[again], last[again]


class _Parts:
    """The places of the keys and values of properties, by row."""

    def __init__(self, columns: list[Positions]) -> None:
        self.columns = columns
        self.rows, self.key_at, self.key_sizes, self.value_at, self.value_sizes = columns

    @classmethod
    def of(cls, rows: Positions, fields: Any) -> _Parts:
        key, value = fields[KEY], fields[VALUE]
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
    """Concatenated texts: `places` has the start of each, and finally the end of all."""

    def __init__(self, data: NDArray[np.uint8], places: Positions) -> None:
        self.data, self.places = data, places

    def __len__(self) -> int:
        return len(self.places) - 1

    def cells(self) -> Cells:
        """Return the texts; those that are `strange` have only the right length."""
        clean = np.where(self._is_strange, np.uint8(0x3F), self.data)
        return _array(pa.string(), clean, self.places)

    def texts(self) -> Cells:
        """Return the texts; bytes that are not UTF-8 are escaped."""
        try:
            return self.as_bytes().cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array(map(_readable, self.each()), pa.string())

    @cached_property
    def strange(self) -> Rows:
        """Which texts have a character that JSON or a line escapes, or that is not ASCII."""
        strange = np.zeros(len(self), bool)
        at = np.flatnonzero(self._is_strange)
        strange[np.searchsorted(self.places, at, "right") - 1] = True
        return strange

    def as_bytes(self) -> Cells:
        """Return the texts as their bytes."""
        return _array(pa.binary(), self.data, self.places)

    def each(self, first: int = 0, end: int | None = None) -> list[bytes]:
        """Return the bytes of each text, or of those from `first` on before `end`."""
        places = self.places[first : None if end is None else end + 1].tolist()
        data = self.data[places[0] : places[-1]].tobytes()
        return [data[start - places[0] : end - places[0]] for start, end in pairwise(places)]

    def bytes_of(self, at: int) -> bytes:
        """Return the bytes of one text."""
        return self.data[self.places[at] : self.places[at + 1]].tobytes()

    @cached_property
    def _is_strange(self) -> Rows:
        strange: Rows = _STRANGE[self.data]
        return strange


_STRANGE: Final = np.array([not 32 <= code < 127 or chr(code) in '"\\' for code in range(256)])


def _array(kind: Any, data: NDArray[np.uint8], places: Positions) -> Cells:
    """Return an array of Arrow over texts one after the other."""
    offsets = pa.py_buffer(np.ascontiguousarray(places, np.int32))
    return pa.Array.from_buffers(kind, len(places) - 1, [None, offsets, pa.py_buffer(data)])


def _readable(data: bytes) -> str:
    """Decode a text; bytes that are not UTF-8 are escaped."""
    return data.decode(errors="backslashreplace")


def _numbers(bits: Words, field: Any) -> Positions:
    """Return the numbers of a varint field by its type; without one it is an int64."""
    if field is None or field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
        return bits.view(np.int64)
    small = np.uint32 if field.cpp_type == field.CPPTYPE_UINT32 else np.int32
    numbers: Positions = bits.astype(small).astype(np.int64)
    return numbers


def iso_times(times: Positions) -> Cells:
    """Return times in [0, LAST_TIME] as text; every other one as if it were 0."""
    times = np.where((times < 0) | (times > LAST_TIME), 0, times)
    days, rest = np.divmod(times, _DAY)
    known, which = (days[:1], 0) if _all_same(days) else np.unique(days, return_inverse=True)
    minutes, rest = np.divmod(rest.astype(np.uint32), np.uint32(60_000))
    seconds, milliseconds = np.divmod(rest, np.uint32(1000))
    text = np.empty(len(times), _TIME)
    text["date"] = _letters([str(iso_time(day * _DAY))[:11] for day in known.tolist()])[which]
    text["minute"] = _MINUTES[minutes]
    text["second"] = _SECONDS[seconds]
    text["millisecond"] = _MILLISECONDS[milliseconds]
    return _array(pa.string(), text.view(np.uint8), np.arange(len(times) + 1) * _TIME.itemsize)


def _letters(texts: list[str]) -> NDArray[np.void]:
    """Return texts of equal length as items of that length, which are copied faster than characters."""
    return np.array([text.encode() for text in texts]).view(np.void)


_TIME: Final = np.dtype([("date", "V11"), ("minute", "V6"), ("second", "V3"), ("millisecond", "V4")])
_MINUTES: Final = _letters([f"{hour:02}:{minute:02}:" for hour in range(24) for minute in range(60)])
_SECONDS: Final = _letters([f"{second:02}." for second in range(60)])
_MILLISECONDS: Final = _letters([f"{part:03}Z" for part in range(1000)])


def json_value(data: bytes) -> str | dict[str, str]:
    """Convert a protobuf string to JSON; bytes that are not UTF-8 become base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}

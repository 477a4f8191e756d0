"""The headers of many entries as columns: one array per value, no Python object per entry.

    names = ["ledger_id", "entry_id", "last_index"]
    headers = reader_for(names).read(log, offsets, sizes)
    columns = columns_of(headers, names, headers.whole, row)
    columns["last_index"].values, columns["last_index"].present

`decode_row` returns the columns of one entry by the codecs for single entries, which defines the columns. It
also decodes the rows that `headers` can't decode together with the others. Needs NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.backends import Verdict
from pulsar_meta.codecs.columns.headers import EntryHeaders, HeaderReader
from pulsar_meta.codecs.columns.words import Positions, Rows, number_texts
from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.batch import unknown_compression
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.frames.frame import Frame, decode_frame
from pulsar_meta.codecs.frames.row_schema import HEADER_COLUMNS
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata

VERDICTS: Final[tuple[Verdict, ...]] = ("ok", "bad", "absent", "unchecked")

Value = int | bool | str | None
Row = dict[str, Value]

_OPTIONAL: Final = (
    "uncompressed_size", "event_time", "marker_type", "txnid_most_bits", "txnid_least_bits", "chunk_id",
)  # fmt: skip
_SIGN: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Column:
    """Values, and a mask of the rows that have one. A text is an index into `names`.

    Integers are int64; an unsigned number over 2⁶³-1 wraps, as it does in Java.
    """

    values: NDArray[Any]
    present: Rows
    names: tuple[str, ...] | None = None

    def tolist(self) -> list[Any]:
        """Return Python values, None in rows without one."""
        values = self.values.tolist()
        if self.names is not None:
            values = [self.names[value] for value in values]
        return [value if there else None for value, there in zip(values, self.present.tolist(), strict=True)]

    def with_values(self, rows: Sequence[int], values: Sequence[int | bool | str | None]) -> Column:
        """Return the column with other values in some rows; None removes a value."""
        changed, present = self.values.copy(), self.present.copy()
        names = list(self.names or ())
        numbers = {name: number for number, name in enumerate(names)}
        for row, value in zip(rows, values, strict=True):
            present[row] = value is not None
            if isinstance(value, str):
                if value not in numbers:
                    numbers[value] = len(names)
                    names.append(value)
                changed[row] = numbers[value]
            else:
                changed[row] = wrapped(value or 0)
        return Column(changed, present, None if self.names is None else tuple(names) or ("",))

    def chosen(self, rows: Rows | Positions) -> Column:
        """Return the column with only some rows, or with its rows in another order."""
        return Column(self.values[rows], self.present[rows], self.names)


def wrapped(value: int) -> int:
    """Return an unsigned 64-bit number as Java's long has it."""
    return value - 2 * _SIGN if value >= _SIGN else value


def join_columns(parts: Sequence[Column]) -> Column:
    """Return one column that has the rows of all `parts`; all are text or none is."""
    if len(parts) == 1:
        return parts[0]
    present = np.concatenate([part.present for part in parts])
    if parts[0].names is None:
        return Column(np.concatenate([part.values for part in parts]), present)
    numbers: dict[str, int] = {}
    values = []
    for part in parts:
        renumbered = [numbers.setdefault(name, len(numbers)) for name in part.names or ("",)]
        values.append(np.array(renumbered, np.int64)[part.values])
    return Column(np.concatenate(values), present, tuple(numbers))


def decode_row(
    data: memoryview,
    *,
    bookie: bool = True,
    digest_type: DigestType | None = None,
    verify: bool = False,
) -> Row:
    """Return the columns of one entry by name; missing values are None.

    `data` is a bookie entry, or a frame if `bookie` is false (then ids and digest are None). Bytes
    that are no entry or no frame give a row with `broken` true, never an error. Numbers are as the
    entry has them: unsigned ones up to 2⁶⁴-1.
    """
    row: Row = dict.fromkeys(HEADER_COLUMNS)
    row["broken"] = True
    try:
        if bookie:
            entry = decode_bookie_entry(data, digest_type)
            row["ledger_id"], row["entry_id"], data = entry.ledger_id, entry.entry_id, entry.data
            row["digest"] = entry.digest if verify else "unchecked"
        row["size"] = len(data)
        frame = decode_frame(data, verify=verify)
    except DecodeError:
        return row
    return row | _frame_columns(frame)


def _frame_columns(frame: Frame) -> Row:
    metadata, indexes = frame.metadata, frame.index_range
    optional = {name: getattr(metadata, name) if metadata.HasField(name) else None for name in _OPTIONAL}
    return optional | {
        "broken": False,
        "broker_timestamp": frame.broker_timestamp,
        "index": frame.index,
        "first_index": indexes[0] if indexes else None,
        "last_index": indexes[1] if indexes else None,
        "num_messages": frame.message_count,
        "publish_time": metadata.publish_time,
        "producer_name": _text(metadata.producer_name),
        "sequence_id": metadata.sequence_id,
        "compression": _compression_of(metadata),
        "encrypted": bool(metadata.encryption_keys),
        "has_metadata": frame.broker_metadata is not None,
        "frame_checksum": frame.checksum,
    }


def _compression_of(metadata: MessageMetadata) -> str:
    number = unknown_compression(metadata)
    return CODECS[metadata.compression] if number is None else f"unknown({number})"


def _text(value: str | bytes) -> str:
    """Return a string field; protobuf returns bytes if they are not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


_INT32: Final = frozenset({"marker_type", "chunk_id"})


def reader_for(
    names: Sequence[str], *, bookie: bool = True, digest_type: DigestType | None = None, verify: bool = False
) -> HeaderReader:
    """Return a reader that decodes the fields for these columns. Raises UsageError for an unknown column."""
    for name in names:
        if name not in HEADER_COLUMNS:
            raise UsageError(f"unknown column {name!r}: choose from {', '.join(HEADER_COLUMNS)}")
    fields: set[str] = set().union(*(_FIELDS.get(name, (name,)) for name in names))
    return HeaderReader(bookie=bookie, digest_type=digest_type, fields=fields, verify=verify)


def columns_of(
    headers: EntryHeaders, names: Sequence[str], whole: Rows, row: Callable[[int], Row]
) -> dict[str, Column]:
    """Return columns by name; `row` decodes the rows that are not `whole`."""
    columns = {name: column_of(headers, name) for name in names}
    numbers = np.flatnonzero(~whole).tolist()
    if not numbers:
        return columns
    rows = [row(number) for number in numbers]
    return {
        name: column.with_values(numbers, [values[name] for values in rows])
        for name, column in columns.items()
    }


def column_of(headers: EntryHeaders, name: str) -> Column:
    """Return a column; its values are arbitrary in rows that are not `whole`."""
    if name in _COMPUTED:
        return _COMPUTED[name](headers)
    field = headers.fields[name]
    values = field.values.view(np.int64)
    return Column(values.astype(np.int32).astype(np.int64) if name in _INT32 else values, field.present)


def _from_header(offset: int) -> Callable[[EntryHeaders], Column]:
    return lambda headers: Column(headers.header(offset), headers.every & headers.bookie)


def _in_every_row(values: Callable[[EntryHeaders], Positions | Rows]) -> Callable[[EntryHeaders], Column]:
    return lambda headers: Column(values(headers), headers.every)


def _producer_name(headers: EntryHeaders) -> Column:
    name = headers.fields["producer_name"]
    at = name.values.view(np.int64)
    numbers, names = number_texts(headers.heads, at, name.sizes, name.present & headers.whole)
    return Column(numbers, headers.every, names)


def _first_index(headers: EntryHeaders) -> Column:
    index = headers.fields["index"]
    return Column(index.values.view(np.int64) - headers.index_widths() + 1, index.present)


def _last_index(headers: EntryHeaders) -> Column:
    index = headers.fields["index"]
    return Column(index.values.view(np.int64), index.present)


def _compression(headers: EntryHeaders) -> Column:
    return Column(headers.fields["compression"].values.view(np.int64), headers.every, CODECS)


def _digest(headers: EntryHeaders) -> Column:
    verdict = VERDICTS.index("ok" if headers.verified else "unchecked")
    return Column(np.full(len(headers.sizes), verdict), headers.every & headers.bookie, VERDICTS)


def _frame_checksum(headers: EntryHeaders) -> Column:
    verdict, absent = VERDICTS.index("ok" if headers.verified else "unchecked"), VERDICTS.index("absent")
    return Column(np.where(headers.has_checksum, verdict, absent), headers.every, VERDICTS)


# Columns that are not simply the field of their name.
_COMPUTED: Final[dict[str, Callable[[EntryHeaders], Column]]] = {
    "ledger_id": _from_header(0),
    "entry_id": _from_header(8),
    "size": _in_every_row(lambda headers: headers.sizes - headers.data_at),
    "broken": _in_every_row(lambda headers: ~headers.every),
    "has_metadata": _in_every_row(lambda headers: headers.has_metadata),
    "encrypted": _in_every_row(lambda headers: headers.fields["encryption_keys"].present),
    "num_messages": _in_every_row(EntryHeaders.message_counts),
    "first_index": _first_index,
    "last_index": _last_index,
    "compression": _compression,
    "producer_name": _producer_name,
    "digest": _digest,
    "frame_checksum": _frame_checksum,
}
# The fields from which columns are computed. A required field makes sure that MessageMetadata is decoded.
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "ledger_id": (),
    "entry_id": (),
    "size": (),
    "has_metadata": (),
    "digest": (),
    "broken": ("sequence_id", "compression"),
    "frame_checksum": ("sequence_id",),
    "first_index": ("index", "num_messages_in_batch", "txnid_most_bits"),
    "last_index": ("index",),
    "num_messages": ("num_messages_in_batch",),
    "encrypted": ("encryption_keys",),
}

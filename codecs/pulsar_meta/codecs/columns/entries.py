"""The headers of many entries as columns: one array per value, no Python object per entry.

    names = ["ledger_id", "entry_id", "last_index"]
    headers = reader_for(names).read(log, offsets, sizes)
    columns = columns_of(headers, names, headers.whole, row)
    columns["last_index"].values, columns["last_index"].present

`column.decode_row` defines the columns, and decodes the rows that `headers` can't decode together with the
others. Needs NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column import (
    COMPRESSIONS,
    VERDICTS,
    Column,
    Row,
)
from pulsar_meta.codecs.columns.headers import EntryHeaders, HeaderReader
from pulsar_meta.codecs.columns.words import Positions, Rows, number_texts
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.frames.row_schema import HEADER_COLUMNS

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
    return Column(headers.fields["compression"].values.view(np.int64), headers.every, COMPRESSIONS)


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

"""The headers of entries as Arrow batches: what Spark's workers read, and what notebooks do. Needs Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from pulsar_meta.codecs.columns.column import COLUMN_TYPES, Column
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Coverage, Place
from pulsar_meta.jobs.entries.entry_reading import Presence, parts_of
from pulsar_meta.jobs.entry_reader import read_columns
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.stores.base import Store

TOPIC: Final = "topic"
COLUMNS: Final = (TOPIC, *COLUMN_TYPES)
_ARROW_TYPES: Final = {"integer": pa.int64(), "boolean": pa.bool_(), "text": pa.string()}


def checked_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns, all where none is given; UsageError for one that there is not."""
    for name in names:
        if name not in COLUMNS:
            raise UsageError(f"entries have no column {name!r}; there are {', '.join(COLUMNS)}")
    return tuple(names) or COLUMNS


def schema_of(names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of some columns, in their order."""
    return pa.schema([(name, _arrow_type(name)) for name in names])


def scan_entries(
    places: Iterable[Place],
    source: EntrySource,
    store: Store | None,
    names: Sequence[str],
    report: Report,
    coverage: Coverage,
    *,
    verify: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `names` of the entries of places, ledger by ledger in reading order.

    Within a ledger the order is that of the files that have it. An entry that cannot be read has `broken`
    true; what is missing is reported, and counted. `verify` looks at digests and checksums. UnreachableError.
    """
    for choice, limits in places:
        topic = choice.name if choice.is_topic else None
        for part, ledger in parts_of([(choice, limits)], source, store, report, coverage):
            presence = Presence(part, ledger, source, report, coverage)
            if not presence.begin():
                continue
            for found in read_columns(
                source,
                ledger.ledger_id,
                [name for name in names if name != TOPIC],
                part.first,
                part.last,
                digest_type=ledger.format.digest_type,
                verify=verify,
            ):
                entry_ids = found["entry_id"].values
                presence.count(len(entry_ids), presence.placed.count_of(entry_ids))
                yield record_batch(found, names, topic)
            presence.end()


def record_batch(columns: Mapping[str, Column], names: Sequence[str], topic: str | None) -> pa.RecordBatch:
    """Return the columns `names` as a batch; `topic` fills the column of that name."""
    rows = len(next(iter(columns.values())).present)
    arrays = [
        pa.repeat(pa.scalar(topic, pa.string()), rows)
        if name == TOPIC
        else arrow_array(columns[name], COLUMN_TYPES[name])
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def arrow_array(column: Column, kind: str) -> Any:
    """Return a column as an Arrow array, null where it has no value."""
    absent = None if column.present.all() else ~column.present
    if column.names is not None:
        return pa.array(column.names, pa.string()).take(pa.array(column.values, pa.int64(), mask=absent))
    return pa.array(column.values, _ARROW_TYPES[kind], mask=absent)


def _arrow_type(name: str) -> pa.DataType:
    return pa.string() if name == TOPIC else _ARROW_TYPES[COLUMN_TYPES[name]]

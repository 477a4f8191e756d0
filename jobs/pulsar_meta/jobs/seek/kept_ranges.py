"""Kept ranges: the index ranges of ledgers in a Parquet file, so that a later run need not read them again.

A range counts only while its ledger has as many entries as when it was read. Ranges that rest on entries that
are missing or unreadable are not kept, because another source may have these entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.jobs.seek.ranges import IndexRange
from pulsar_meta.jobs.seek.statuses import NO_INDEX

# A column of Parquet has signed numbers.
HIGHEST: Final = 2**63 - 1
COLUMNS: Final = ("cluster", "topic", "ledger_id", "entries", "low", "high", "head", "tail")


class KeptRanges:
    """The ranges of topics' ledgers, by cluster ("" without a name), topic and ledger id."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], dict[int, IndexRange]] = {}

    def of(self, cluster: str | None, topic: str) -> Mapping[int, IndexRange]:
        """Return the kept ranges of a topic, by ledger id."""
        return self._topics.get((cluster or "", topic), {})

    def keep(self, cluster: str | None, topic: str, ranges: Iterable[IndexRange]) -> None:
        """Replace the ranges of a topic."""
        self._topics[cluster or "", topic] = {
            ledger.ledger_id: ledger for ledger in ranges if _is_certain(ledger)
        }

    def write(self, file: IO[bytes]) -> None:
        """Write a Parquet file with one row per ledger."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [
            dict(zip(COLUMNS, (*name, *ledger[:-1]), strict=True))
            for name, ledgers in self._topics.items()
            for ledger in ledgers.values()
        ]
        types = (pa.string(), pa.string(), *[pa.int64()] * 4, pa.string(), pa.string())
        schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
        pq.write_table(pa.Table.from_pylist(rows, schema), file)


def read_kept_ranges(path: Path) -> KeptRanges:
    """Read a file that `KeptRanges.write` made. Raises DecodeError, and OSError from the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = KeptRanges()
    try:
        with path.open("rb") as file:
            rows: list[dict[str, Any]] = pq.read_table(file, columns=list(COLUMNS)).to_pylist()
        for row in rows:
            cluster, topic, *values = (row[name] for name in COLUMNS)
            ledger = IndexRange(*values)
            kept._topics.setdefault((cluster, topic), {})[ledger.ledger_id] = ledger
    except (pa.ArrowException, KeyError) as error:
        raise DecodeError(f"not a file of kept ranges: {error}", source=str(path)) from error
    return kept


def _is_certain(ledger: IndexRange) -> bool:
    read = all(obstacle in (None, NO_INDEX) for obstacle in (ledger.head, ledger.tail))
    return read and ledger.is_complete and (ledger.high is None or ledger.high <= HIGHEST)

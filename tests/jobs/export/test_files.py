"""A file of an export is complete even if two processes write it at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.jobs.export.files import write_file


def batch(number: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": [number] * rows})


def test_a_late_worker_of_a_killed_run_changes_nothing(tmp_path: Path) -> None:
    path, seen = tmp_path / "[1]" / "7-0-9.parquet", []
    path.parent.mkdir()
    (path.parent / ".7-0-9.parquet.0123.part").write_bytes(b"left by a kill")

    def slow() -> Iterator[pa.RecordBatch]:
        yield batch(1, 3)
        # Meanwhile the next run writes the same file.
        write_file(path, "parquet", [batch(2, 5)])
        seen.append(path.read_bytes())
        yield batch(1, 300)

    with pytest.raises(UnreachableError, match="cannot be written"):
        write_file(path, "parquet", slow())
    assert [path.read_bytes()] == seen
    assert pq.read_table(path).to_pydict() == {"number": [2] * 5}
    assert [path.name for path in path.parent.iterdir()] == [path.name]

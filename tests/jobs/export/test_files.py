"""Files of an export are complete, private, and below its directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_meta.codecs.errors import DecodeError, GuardError, UnreachableError, UsageError
from pulsar_meta.jobs.export.files import NAME, open_manifest, write_file


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


def test_a_file_of_an_earlier_run_is_removed_if_there_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "1-0-9.parquet"
    write_file(path, "parquet", [batch(1, 3)])
    assert write_file(path, "parquet", []) is None
    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_can_read_a_file(tmp_path: Path) -> None:
    path = tmp_path / "1-0-9.parquet"
    write_file(path, "parquet", [batch(1, 3)])
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("link", ["namespace=a", "namespace=a/name=b", "namespace=a/name=b/1.parquet"])
def test_a_symbolic_link_below_the_directory_is_refused(link: str, tmp_path: Path) -> None:
    outside, export = tmp_path / "outside", tmp_path / "export"
    outside.mkdir()
    (export / link).parent.mkdir(parents=True)
    (export / link).symlink_to(outside)
    with pytest.raises(GuardError, match="symbolic link"):
        write_file(export / "namespace=a" / "name=b" / "1.parquet", "parquet", [batch(1, 3)])
    assert not list(outside.iterdir())


@pytest.mark.parametrize("content", [b"a line\nhalf a li", b"half a li", b'{"x": 1}\n'])
def test_a_file_that_is_no_manifest_is_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises((DecodeError, GuardError, UsageError)), open_manifest(tmp_path, {}):
        pass
    assert (tmp_path / NAME).read_bytes() == content

"""Columns of ledgers equal the entries read one by one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.columns.entries import decode_row, wrapped
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.codecs.frames.row_schema import HEADER_COLUMNS
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.entry_reader import read_columns
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata
from tests.codecs.bookie_files.offload_objects import offloaded
from tests.entries.worn import Worn

UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"


def by_columns(source: EntrySource, ledger: int) -> list[dict[str, object]]:
    rows = []
    for columns in read_columns(source, ledger, HEADER_COLUMNS, verify=True):
        lists = {name: column.tolist() for name, column in columns.items()}
        rows += [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    return sorted(rows, key=lambda row: int(str(row["entry_id"])))


def by_entry(source: EntrySource, ledger: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for entry in source.read_many(ledger):
        row = decode_row(memoryview(entry.data), bookie=entry.bookie, verify=True)
        row |= {"ledger_id": ledger, "entry_id": entry.entry_id}
        rows.append({name: wrapped(value) if type(value) is int else value for name, value in row.items()})
    return rows


@pytest.mark.parametrize("name", ["pulsar-4.2.4-3bookies", "pulsar-4.2.4-killed", "pulsar-2.8.2"])
def test_every_ledger_of_a_disk_has_the_same_columns(capture: Callable[[str], Path], name: str) -> None:
    with open_entries([f"bookie-disk:{capture(name)}"]) as source:
        for ledger in source.ledgers():
            assert by_columns(source, ledger) == by_entry(source, ledger)


def test_entries_without_blocks_have_the_same_columns(capture: Callable[[str], Path], tmp_path: Path) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.0.7')}"]) as disk:
        ledger = max(disk.ledgers(), key=lambda ledger_id: disk.last_entry(ledger_id) or 0)
        frames = [bytes(entry.data)[36:] for entry in disk.read_many(ledger)]
        data, index = offloaded(frames, 1 << 20)
        (tmp_path / f"{UUID}-ledger-{ledger}").write_bytes(data)
        (tmp_path / f"{UUID}-ledger-{ledger}-index").write_bytes(index)
        urls = [f"offload:{tmp_path}"]
        with open_entries(urls) as source, open_entries([*urls, disk.url]) as joined:
            assert by_columns(source, ledger) == by_entry(source, ledger)
            assert by_columns(joined, ledger) == by_entry(joined, ledger)


def test_an_index_that_points_nowhere_gives_broken_rows(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "bookie"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", folder)
    log = max(folder.glob("current/*.log"), key=lambda path: path.stat().st_size)
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.truncate(size // 2)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        rows = [row for ledger in source.ledgers() for row in by_columns(source, ledger)]
    broken = [row for row in rows if row["broken"] and row["size"] is None]
    intact = [row for row in rows if not row["broken"]]
    assert len(broken) > 100
    assert len(intact) > 100
    assert all(row["entry_id"] is not None for row in broken)


def test_a_broken_entry_is_a_broken_row_and_the_others_are_read() -> None:
    frame = encode_frame(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"payload")
    lost = {3: DecodeError("broken"), 5: NotFoundError("gone")}
    source = Worn(10, lost, lambda entry_id: encode_bookie_entry(7, entry_id, entry_id - 1, 0, frame))
    rows = by_columns(source, 7)
    assert [row["entry_id"] for row in rows] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert [row["entry_id"] for row in rows if row["size"] is None] == [3]
    assert [row["entry_id"] for row in rows if row["broken"]] == [3]

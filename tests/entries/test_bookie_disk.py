"""Bookies' disks, intact and damaged, read with and without the index, and their journals."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import orjson
import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_disk import entry_at
from pulsar_meta.entries.sources import JoinedEntries, open_entries
from tests.contracts.entry_source import EntrySourceContract, Held

Capture = Callable[[str], Path]
Copy = Callable[[str], Path]


@cache
def entries_by_truth(capture: Path) -> dict[int, list[int]]:
    """Return all entries of the closed ledgers of ordinary topics, according to the running broker."""
    truth = orjson.loads((capture / "truth.json").read_bytes())
    entries: dict[int, list[int]] = {}
    for name in ("orders", "plain", "codec-zstd", "txn", "chunked", "late-index"):
        for ledger in truth[f"persistent://public/default/{name}"]["internalStats"]["ledgers"]:
            if ledger["entries"]:
                entries[ledger["ledgerId"]] = list(range(ledger["entries"]))
    assert len(entries) >= 6
    return entries


def listing(directory: Path) -> list[tuple[str, int, int, int]]:
    """Return each path below a directory with its size, time of change and number of links."""
    return [
        (str(path.relative_to(directory)), stat.st_size, stat.st_mtime_ns, stat.st_nlink)
        for path in sorted(directory.rglob("*"))
        for stat in [path.lstat()]
    ]


def everything(source: EntrySource) -> dict[tuple[int, int], bytes]:
    """Read all entries of a source."""
    return {
        (ledger_id, entry.entry_id): bytes(entry.data)
        for ledger_id in source.ledgers()
        for entry in source.read_many(ledger_id)
    }


@pytest.fixture
def copy(capture: Capture, tmp_path: Path) -> Copy:
    """Return a function that copies a capture's first bookie, so that the test can damage it."""

    def make(name: str) -> Path:
        shutil.copytree(capture(name) / "bookie0", tmp_path / "bookie")
        return tmp_path / "bookie"

    return make


class TestRealDisk(EntrySourceContract):
    """A disk with its RocksDB index."""

    @pytest.fixture
    def held(self, capture: Capture) -> Held:
        return entries_by_truth(capture("pulsar-4.2.4"))

    @pytest.fixture
    def source(self, capture: Capture) -> Iterator[EntrySource]:
        with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
            yield source


class TestScannedDisk(TestRealDisk):
    """The same disk without the index."""

    @pytest.fixture
    def source(self, copy: Copy) -> Iterator[EntrySource]:
        bookie = copy("pulsar-4.2.4")
        shutil.rmtree(bookie / "current" / "locations")
        with open_entries([f"bookie-disk:{bookie}"]) as source:
            yield source
            assert [note for note in source.notes if "scanning" in note]


class TestStripedDisks(EntrySourceContract):
    """Three bookies, each with two thirds of the entries."""

    @pytest.fixture
    def held(self, capture: Capture) -> Held:
        return entries_by_truth(capture("pulsar-4.2.4-3bookies"))

    @pytest.fixture
    def source(self, capture: Capture) -> Iterator[EntrySource]:
        disks = sorted(capture("pulsar-4.2.4-3bookies").glob("bookie*"))
        with open_entries([f"bookie-disk:{disk}" for disk in disks]) as source:
            yield source

    def test_a_single_disk_has_only_some_entries(self, capture: Capture, held: Held) -> None:
        with open_entries([f"bookie-disk:{capture('pulsar-4.2.4-3bookies') / 'bookie1'}"]) as alone:
            parts = {ledger_id: len(list(alone.entry_ids(ledger_id))) for ledger_id in held}
        assert 0 < sum(parts.values()) < sum(map(len, held.values()))

    def test_a_parent_directory_means_all_disks_below_it(self, capture: Capture, source: EntrySource) -> None:
        with open_entries([f"bookie-disk:{capture('pulsar-4.2.4-3bookies')}"]) as above:
            assert everything(above) == everything(source)


def test_entries_are_read_from_the_journal(copy: Copy, capture: Capture) -> None:
    truth = orjson.loads((capture("pulsar-4.2.4-killed") / "truth.json").read_bytes())
    messages = truth["persistent://public/default/last-words"]["messages"]
    positions = sorted({(message["l"], message["e"]) for message in messages})
    bookie = copy("pulsar-4.2.4-killed")
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        for position in positions:
            assert source.read(*position).ledger_id == position[0]
    (bookie / "apart" / "current").mkdir(parents=True)
    for journal in (bookie / "current").glob("*.txn"):
        journal.rename(bookie / "apart" / "current" / journal.name)
    with (
        open_entries([f"bookie-disk:{bookie}"]) as whole_disk,
        open_entries([f"bookie-disk:{bookie}/current?journal={bookie}/apart"]) as named,
        open_entries([f"bookie-disk:{bookie}/current"]) as without,
    ):
        assert named.read(*positions[-1]).entry_id == positions[-1][1]
        assert whole_disk.read(*positions[-1]).entry_id == positions[-1][1]
        with pytest.raises(NotFoundError):
            without.read(*positions[-1])


def test_journal_entries_before_the_mark_are_ignored(copy: Copy) -> None:
    bookie = copy("pulsar-4.2.4")
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        assert isinstance(source, JoinedEntries)
        marked = len(source.parts[-1].ledgers())
    (bookie / "current" / "lastMark").unlink()
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        assert isinstance(source, JoinedEntries)
        assert len(source.parts[-1].ledgers()) > marked


@pytest.mark.parametrize("name", ["pulsar-4.2.4-killed", "pulsar-2.8.2"])
def test_reading_changes_no_file(name: str, capture: Capture) -> None:
    bookie = capture(name) / "bookie0"
    before = listing(bookie)
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        assert everything(source)
        assert listing(bookie) == before
    assert listing(bookie) == before


@pytest.mark.parametrize("part", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("damage", ["gone", "cut", "garbled"])
def test_a_broken_index_is_replaced_by_scanning(copy: Copy, capture: Capture, part: str, damage: str) -> None:
    bookie = copy("pulsar-4.2.4")
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as intact:
        expected = everything(intact)
    for path in (bookie / "current" / "locations").glob(part):
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(data[: len(data) // 2])
        else:
            path.write_bytes(bytes(byte ^ 0x5A for byte in data[:400]) + data[400:])
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        scanned = everything(source)
        # A scan also finds entries that were deleted from the index but are still in the logs.
        assert expected.items() <= scanned.items()
        assert [note for note in source.notes if "scanning" in note]


def test_the_url_can_force_a_scan(capture: Capture) -> None:
    url = f"bookie-disk:{capture('pulsar-4.0.7') / 'bookie0'}"
    with open_entries([url]) as indexed, open_entries([f"{url}?index=scan"]) as scanned:
        assert everything(indexed).items() <= everything(scanned).items()


def test_deleted_ledgers_stay_deleted(copy: Copy) -> None:
    """RocksDB marks them with range tombstones; their records are still in the logs."""
    from rocksdict import Options, Rdict, WriteBatch

    bookie = copy("pulsar-4.2.4")
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        ledgers = source.ledgers()
    gone = ledgers[len(ledgers) // 2]
    database = Rdict(str(bookie / "current" / "locations"), Options(raw_mode=True))
    batch = WriteBatch(raw_mode=True)
    batch.delete_range(struct.pack(">qq", gone, 0), struct.pack(">qq", gone, 2**63 - 1))
    database.write(batch)
    database.close()
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        assert source.ledgers() == [ledger for ledger in ledgers if ledger != gone]
        assert source.last_entry(gone) is None


def test_a_broken_record_affects_no_other_entry(copy: Copy) -> None:
    bookie = copy("pulsar-4.2.4")
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        part, table = next(iter(source.located(source.ledgers()[3]) or ()))
        broken, location = table.entry_ids[0], table.locations[0]
        path = Path(part.name(location >> 32))
        before = everything(source)
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, (location & 0xFFFFFFFF) + 8, 77)
    path.write_bytes(data)
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        with pytest.raises(DecodeError, match="expected entry") as caught:
            source.read(table.ledger_id, broken)
        assert caught.value.source == str(path)
        assert caught.value.offset == location & 0xFFFFFFFF
        for (ledger_id, entry_id), expected in before.items():
            if (ledger_id, entry_id) != (table.ledger_id, broken):
                assert source.read(ledger_id, entry_id).data == expected


def test_a_missing_log_is_an_error(copy: Copy) -> None:
    bookie = copy("pulsar-4.2.4")
    (bookie / "current" / "2.log").unlink()
    with open_entries([f"bookie-disk:{bookie}"]) as source, pytest.raises(DecodeError, match=r"2\.log"):
        everything(source)


def test_logs_under_compaction_are_ignored(copy: Copy) -> None:
    bookie = copy("pulsar-4.2.4")
    current = bookie / "current"
    shutil.rmtree(current / "locations")
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        expected = everything(source)
    (current / "a.log.compacting").write_bytes((current / "2.log").read_bytes())
    (current / "b.log.2.compacted").write_bytes(b"half")
    (current / "c.log").write_bytes(b"")
    (current / "d.log").write_bytes(bytes(1 << 20))
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        assert everything(source) == expected
        assert source.faults == []
    (current / "e.log").write_bytes(b"no entry log at all" * 100)
    with open_entries([f"bookie-disk:{bookie}"]) as source:
        assert everything(source) == expected
        assert {Path(fault.source or "").name for fault in source.faults} == {"e.log"}


def test_columns_contain_each_entry_once(capture: Capture) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4-3bookies')}"]) as source:
        for ledger_id in source.ledgers():
            seen = [
                (entry_id, bytes(entry_at(files, ledger_id, entry_id, location)))
                for files, table in source.located(ledger_id) or ()
                for entry_id, location in zip(table.entry_ids, table.locations, strict=True)
            ]
            assert sorted(seen) == [(e.entry_id, bytes(e.data)) for e in source.read_many(ledger_id)]


class TestInterleavedStorage(EntrySourceContract):
    """Two ledger directories with `.idx` files, each index in another directory than its log."""

    @pytest.fixture
    def held(self) -> Held:
        return {0x1A2B: [0, 1, 3], 5: [0]}

    @pytest.fixture
    def source(self, tmp_path: Path, held: Held) -> Iterator[EntrySource]:
        first, second = tmp_path / "ledgers1" / "current", tmp_path / "ledgers2" / "current"
        for number, (ledger_id, entries) in enumerate(held.items()):
            log = bytearray(b"BKLO" + struct.pack(">i", 1) + bytes(1016))
            index = bytearray(1024)
            index[:12] = b"BKLE" + struct.pack(">ii", 0, 0)
            for entry_id in entries:
                body = encode_bookie_entry(ledger_id, entry_id, entry_id - 1, 0, b"data")
                log += struct.pack(">i", len(body)) + body
                index += bytes(1024 + entry_id * 8 - len(index))
                index += struct.pack(">q", number << 32 | len(log) - len(body))
            place = (first, second)[number] / f"{ledger_id >> 8:x}/{ledger_id & 0xFF:x}/{ledger_id:x}.idx"
            place.parent.mkdir(parents=True)
            place.write_bytes(index)
            # The log is in the other directory than its index.
            (second, first)[number].mkdir(exist_ok=True, parents=True)
            ((second, first)[number] / f"{number:x}.log").write_bytes(log)
        with open_entries([f"bookie-disk:{tmp_path}"]) as source:
            yield source


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("bookie-disk:", UsageError),
        ("bookie-disk:/nowhere?journals=/x", UsageError),
        ("bookie-disk:/nowhere?x", UsageError),
        ("bookie-disk:/nowhere", NotFoundError),
        ("bookie-disc:/nowhere", UsageError),
        ("/nowhere", UsageError),
    ],
)
def test_wrong_urls_are_refused(url: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        open_entries([url])


def test_a_directory_without_a_bookie_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    with pytest.raises(NotFoundError, match="no data of a bookie"):
        open_entries([f"bookie-disk:{tmp_path}"])
    with pytest.raises(UsageError):
        open_entries([])

"""Disks of bookies in rare states: we read the entries that the real bookies served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.bookie_files.journal import is_entry, journal_records
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.sources import open_entries
from tests.bookie_truth import differences
from tests.conftest import extract

FIXTURES = Path(__file__).parents[2] / "fixtures" / "bookies"
LAYOUTS = sorted(path.name.removesuffix(".tar.xz") for path in FIXTURES.glob("*.tar.xz"))
Disk = Callable[[str], Path]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """Return a function that unpacks the disk of a layout. Tests must not write to it."""
    base = tmp_path_factory.mktemp("bookies")

    def unpack(name: str) -> Path:
        if not (base / name).exists():
            extract(FIXTURES / f"{name}.tar.xz", base)
        return base / name

    return unpack


@pytest.mark.parametrize("scan", [False, True], ids=["index", "scan"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_all_entries_that_the_bookie_served_are_read(disk: Disk, name: str, scan: bool) -> None:
    assert differences(disk(name), scan=scan) == []


@pytest.mark.parametrize("name", LAYOUTS)
def test_only_corrupt_bytes_are_reported(disk: Disk, name: str) -> None:
    with open_entries([f"bookie-disk:{disk(name)}"]) as source:
        source.ledgers()
        faults = source.faults
    expected = ["an older journal in a reused file"] if name == "reused-within" else []
    assert [text for fault in faults for text in expected if text in str(fault)] == expected
    assert len(faults) == len(expected)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_the_fixtures_journals_have_the_named_format(disk: Disk, version: int) -> None:
    (journal,) = disk(f"journal-v{version}").glob("current/*.txn")
    assert journal.read_bytes()[:8] == b"BKLG" + version.to_bytes(4, "big")
    assert not list(journal.parent.glob("*.log"))


@pytest.mark.parametrize("name", ["reused-aligned", "reused-within"])
def test_the_fixtures_journals_end_with_records_of_an_older_journal(disk: Disk, name: str) -> None:
    newest = max(disk(name).glob("current/*.txn")).read_bytes()
    ledgers: list[int] = []
    reason = ""
    try:
        for record in filter(is_entry, journal_records(newest)):
            ledgers.append(record.ledger_id)
    except DecodeError as error:
        reason = str(error)
    stale = ledgers != sorted(ledgers)
    assert (stale, "a reused file" in reason) == (name == "reused-aligned", name == "reused-within")


@pytest.mark.parametrize("suffix", ["compacting", "compacted"])
def test_the_fixtures_have_a_compaction_under_way(disk: Disk, suffix: str) -> None:
    assert list(disk(suffix).glob(f"current/*.{suffix}"))


def test_the_fixtures_logs_were_rewritten_per_ledger(disk: Disk) -> None:
    logs = {int(path.stem, 16) for path in disk("per-ledger").glob("current/*.log")}
    assert len(logs) > 8
    assert set(range(max(logs))) - logs

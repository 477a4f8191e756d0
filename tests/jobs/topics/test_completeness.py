"""Cookies and indexes show what is missing of a bookie's disks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.topics.completeness import completeness_of, missing_logs

Capture = Callable[[str], Path]
COOKIE = '4\nbookieHost: "b:3181"\njournalDir: "/j"\nledgerDirs: "3\\t/data/l1\\t/data/l2\\t/data/l3"\n'


@pytest.fixture
def disk(capture: Capture, tmp_path: Path) -> Path:
    """A copy of the disk of a bookie with one directory."""
    return Path(shutil.copytree(capture("pulsar-4.2.4") / "bookie0", tmp_path / "bookie0"))


def gaps_of(path: Path, options: str = "") -> list[str]:
    """Return the gaps in a bookie's disks."""
    url = f"bookie-disk:{path}{options}"
    with open_entries([url]) as source:
        for ledger_id in source.ledgers():
            source.last_entry(ledger_id)
        return [str(gap) for gap in completeness_of(source).every_gap]


@pytest.mark.parametrize("name", ["pulsar-2.8.2", "pulsar-4.0.7", "pulsar-4.2.4-3bookies"])
def test_disks_of_captures_are_complete(capture: Capture, name: str) -> None:
    assert gaps_of(capture(name)) == []


def test_a_directory_of_the_cookie_that_is_not_given_is_named(disk: Path) -> None:
    (disk / "current" / "VERSION").write_text(COOKIE)
    # The first directory has everything, the second one is new and empty, and the third one is missing.
    (disk / "l1").mkdir()
    (disk / "current").rename(disk / "l1" / "current")
    (disk / "l2" / "current").mkdir(parents=True)
    (disk / "l2" / "current" / "VERSION").write_text(COOKIE)
    assert gaps_of(disk) == ["bookie b:3181, directory /data/l3 not given"]
    for journal in (disk / "l1" / "current").glob("*.txn"):
        journal.unlink()
    assert gaps_of(disk) == [
        "bookie b:3181, directory /data/l3 not given",
        "bookie b:3181, journal /j not given",
    ]


@pytest.mark.parametrize("moved", [False, True], ids=["same names", "other names"])
def test_indexes_and_journals_do_not_stand_for_a_ledger_directory(disk: Path, *, moved: bool) -> None:
    """Each kind of directory is on disks of its own, and the third ledger directory was not mounted."""
    parts = {part: [f"/data/{part}/{number}" for number in (1, 2, 3)] for part in ("ledgers", "index")}
    ledgers, indexes = ("\\t".join(["3", *paths]) for paths in parts.values())
    cookie = f'4\nbookieHost: "b:3181"\njournalDir: "/data/j/1"\nledgerDirs: "{ledgers}"\n'
    names = [*parts["ledgers"][:2], *parts["index"], "/data/j/1"]
    whole = disk / "current"
    for number, name in enumerate(names):
        directory = disk / (f"copy{number}" if moved else name[1:]) / "current"
        directory.mkdir(parents=True)
        pattern = ("*.log", "*.log", "locations", "locations", "locations", "*.txn")[number]
        for file in (*whole.glob(pattern), *(whole.glob("last*") if number < 2 else ())):
            (shutil.copytree if file.is_dir() else shutil.copy)(file, directory / file.name)
        (directory / "VERSION").write_text(f'{cookie}indexDirs: "{indexes}"\n')
    shutil.rmtree(whole)
    gap = "1 of /data/ledgers/1, /data/ledgers/2, /data/ledgers/3" if moved else "/data/ledgers/3"
    assert [each for each in gaps_of(disk) if "directory" in each] == [
        f"bookie b:3181, directory {gap} not given"
    ]


def test_a_disk_without_a_cookie_has_an_unknown_bookie(disk: Path) -> None:
    (disk / "current" / "VERSION").unlink()
    assert [gap.partition(",")[0] for gap in gaps_of(disk)] == ["a bookie without a VERSION file"]


def test_an_unusable_index_is_a_gap(disk: Path) -> None:
    for table in (disk / "current" / "locations").glob("*.sst"):
        table.write_bytes(b"")
    gaps = gaps_of(disk)
    assert len(gaps) == 1
    assert "index" in gaps[0]
    shutil.rmtree(disk / "current" / "locations")
    assert "there is none" in gaps_of(disk)[0]


def test_missing_entry_logs_that_the_index_refers_to_are_found(disk: Path) -> None:
    url = f"bookie-disk:{disk}"
    with open_entries([url]) as source:
        before = {ledger: list(missing_logs(source, ledger)) for ledger in source.ledgers()}
        assert not any(before.values())
        places = {ledger: next(iter(source.located(ledger) or ()), None) for ledger in source.ledgers()}
    ledger_id, number = next(
        (ledger_id, place[1].locations[0] >> 32) for ledger_id, place in places.items() if place is not None
    )
    (disk / "current" / f"{number:x}.log").unlink()
    with open_entries([url]) as source:
        missing = list(missing_logs(source, ledger_id))
    assert [(log.number, log.file) for log in missing] == [
        (number, str(disk / "current" / f"{number:x}.log"))
    ]
    assert missing[0].entry_ids
    assert missing[0].why == ""

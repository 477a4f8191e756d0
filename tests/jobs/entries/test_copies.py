"""`verify-entries` reads every copy of an entry that it is given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.entries.copy_check import disks_by_bookie
from tests.cli.program import as_text, pulsar_meta_here

Capture = Callable[[str], Path]
NAME = "pulsar-4.2.4-3bookies"
LEDGER, ENTRY = 24, 7


class Damaged:
    """A copy of a capture, whose entries can be damaged on single bookies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def damage(self, count: int) -> list[tuple[str, str, int]]:
        """Damage copies of an entry; return the bookie, file and offset of each."""
        damaged: list[tuple[str, str, int]] = []
        with open_entries([f"bookie-disk:{self.folder}"]) as source:
            for bookie, disk in disks_by_bookie(source).items():
                for files, table in disk.located(LEDGER, ENTRY, ENTRY) or ():
                    location = table.location(ENTRY)
                    if location is not None and len(damaged) < count:
                        damaged.append((bookie, files.name(location >> 32), location & 0xFFFFFFFF))
        for _, file, offset in damaged:
            data = bytearray(Path(file).read_bytes())
            data[offset + 60] ^= 0xFF
            Path(file).write_bytes(data)
        return damaged

    def verify(self, *options: str) -> tuple[int, list[dict[str, Any]], str]:
        """Return the exit code, the faults and stderr of `verify-entries`."""
        words = [
            "--entries",
            f"bookie-disk:{self.folder}",
            "--store",
            f"snapshot:{self.folder}/metadata.ndjson",
        ]
        done = as_text(pulsar_meta_here("verify-entries", "plain", *words, *options, "-o", "ndjson"))
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture
def cluster(capture: Capture, tmp_path: Path) -> Damaged:
    return Damaged(shutil.copytree(capture(NAME), tmp_path / "cluster"))


def test_intact_copies_are_counted(cluster: Damaged) -> None:
    code, faults, summary = cluster.verify()
    assert (code, faults) == (0, [])
    checked = json.loads(summary.splitlines()[-1])["checked"]
    assert checked["copies"] == 2 * checked["entries"] > 0


@pytest.mark.parametrize("options", [(), ("--jobs", "2"), ("--limit", "20")])
def test_one_bad_copy_is_named_with_its_place_and_repair(cluster: Damaged, options: tuple[str, ...]) -> None:
    [(bookie, file, offset)] = cluster.damage(1)
    code, faults, _ = cluster.verify(*options)
    [fault] = faults
    assert code == 1
    assert (fault["ledger_id"], fault["entry_id"], fault["layer"]) == (LEDGER, ENTRY, "copy")
    assert (fault["bookie"], fault["file"], fault["offset"]) == (bookie, file, offset)
    assert (fault["good"], fault["copies"]) == (1, 2)
    assert fault["repair"] == f"bookkeeper shell recover -ledger {LEDGER} {bookie}"
    assert fault["repair"] in fault["fault"]


def test_an_entry_without_a_good_copy_has_no_repair(cluster: Damaged) -> None:
    places = cluster.damage(2)
    code, faults, _ = cluster.verify()
    copies = [fault for fault in faults if fault["layer"] == "copy"]
    assert (code, len(copies)) == (1, 2)
    assert {(fault["bookie"], fault["file"], fault["offset"]) for fault in copies} == set(places)
    assert all("repair" not in fault and fault["good"] == 0 for fault in copies)
    # No copy can replace the entry, so its own faults are reported, too.
    assert "digest" in {fault["layer"] for fault in faults}


def test_one_copy_is_the_fast_form_and_says_so(cluster: Damaged) -> None:
    cluster.damage(1)
    _, faults, summary = cluster.verify("--one-copy")
    assert all(fault["layer"] != "copy" for fault in faults)
    result = json.loads(summary.splitlines()[-1])
    assert "copies" not in result["checked"]
    assert result["not_checked"]["other copies"] == "--one-copy"


def test_copies_on_disks_that_were_not_given_are_not_checked(cluster: Damaged) -> None:
    shutil.rmtree(cluster.folder / "bookie2")
    _, faults, summary = cluster.verify()
    assert not [fault for fault in faults if fault["layer"] == "copy"]
    assert "their disks were not given" in json.loads(summary.splitlines()[-1])["not_checked"].values()

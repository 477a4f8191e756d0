"""`verify-entries` prints a damaged entry log as one fault, and a few bad entries one by one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_rebuild_damaged_disks import (
    cut_a_log,
    exchange_logs,
    flip_an_id,
    largest_logs,
    remove_a_log,
    zero_a_part,
)
from tests.cli.values import Run

Capture = Callable[[str], Path]


def damaged(capture: Capture, tmp_path: Path, name: str, damage: Callable[[Path], None]) -> Path:
    for bookie in capture(name).glob("bookie*"):
        shutil.copytree(bookie, tmp_path / bookie.name)
    damage(tmp_path / "bookie0" / "current")
    return tmp_path


def faults(run: Run, disks: Path, *options: str) -> list[dict[str, Any]]:
    ran = run("verify-entries", "--entries", f"bookie-disk:{disks}", "-o", "ndjson", *options)
    assert ran.returncode == 1, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-4.2.4-3bookies"])
@pytest.mark.parametrize(
    ("damage", "logs", "others"),
    [(remove_a_log, 1, 0), (exchange_logs, 2, 0), (cut_a_log, 1, 1), (zero_a_part, 1, 3)],
)
def test_a_damaged_log_is_one_fault_that_counts_its_consequences(
    capture: Capture,
    run: Run,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    logs: int,
    others: int,
) -> None:
    disks = damaged(capture, tmp_path, name, damage)
    printed, listed = faults(run, disks), faults(run, disks, "--consequences")
    causes = [fault for fault in printed if fault["layer"] == "log"]
    assert len(causes) == logs
    # The first entry of the damaged part can have half of its bytes.
    assert len(printed) <= logs + others
    consequences = [fault for fault in listed if fault not in printed]
    assert sum(cause["consequences"] for cause in causes) == len(consequences) > 100
    entries = {(fault["ledger_id"], fault["entry_id"]) for fault in consequences}
    assert sum(cause["entries"] for cause in causes) == len(entries)
    assert sum(cause["lost"] for cause in causes) == (len(entries) if name == "pulsar-4.2.4" else 0)
    assert {cause["file"] for cause in causes} <= {
        str(disks / "bookie0" / "current" / log.name)
        for log in largest_logs(capture(name) / "bookie0" / "current")
    }


def test_a_single_bad_entry_stays_listed(capture: Capture, run: Run, tmp_path: Path) -> None:
    disks = damaged(capture, tmp_path, "pulsar-4.2.4", flip_an_id)
    [fault] = faults(run, disks)
    assert (fault["layer"], "consequences" in fault) == ("record", False)
    assert faults(run, disks, "--consequences") == [fault]


def test_the_table_names_the_log(capture: Capture, run: Run, tmp_path: Path) -> None:
    disks = damaged(capture, tmp_path, "pulsar-4.2.4", remove_a_log)
    ran = run("verify-entries", "--entries", f"bookie-disk:{disks}", "-o", "csv")
    assert b"2.log" in ran.stdout.splitlines()[1]

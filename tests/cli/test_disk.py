"""`ledgers` and `disk` on the disks of a capture, compared with the broker's statistics and the logs."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from rocksdict import Options, Rdict

from pulsar_meta.codecs.names import TopicName, ledger_path
from tests.cli.program import as_text, pulsar_meta_here
from tests.cli.test_summaries import snapshot_without
from tests.seek_truth import read_truth

Capture = Callable[[str], Path]
Line = dict[str, Any]


def run(*arguments: object) -> CompletedProcess[str]:
    return as_text(pulsar_meta_here(*arguments))


def rows_of(*arguments: object) -> list[Line]:
    done = run(*arguments, "-o", "ndjson")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def folder(capture: Capture) -> Path:
    return capture("pulsar-4.2.4")


@pytest.fixture
def disks(folder: Path) -> list[str]:
    return ["--entries", f"bookie-disk:{folder}/bookie0"]


@pytest.fixture
def store(folder: Path) -> list[str]:
    return ["--store", f"snapshot:{folder}/metadata.ndjson"]


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder / "bookie0", tmp_path / "bookie0")
    for path in (tmp_path / "bookie0").rglob("*"):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    return tmp_path / "bookie0"


def test_each_ledger_has_as_many_entries_as_the_broker_counted(folder: Path, disks: list[str]) -> None:
    lines = {line["ledger_id"]: line for line in rows_of("ledgers", *disks)}
    compared = 0
    for truth in read_truth(folder).values():
        for ledger in truth["internal-info"]["ledgers"]:
            if ledger.get("entries"):
                compared += 1
                line = lines[ledger["ledgerId"]]
                assert (line["entries"], line["first_entry"]) == (ledger["entries"], 0)
                # Each entry adds the size field, the bookie's header and a digest (CRC-32C or CRC-32).
                assert line["size"] - ledger["size"] in (
                    line["entries"] * (4 + 36),
                    line["entries"] * (4 + 40),
                )
    assert compared > 100
    orders = read_truth(folder)[str(TopicName.parse("orders"))]["messages"]
    first = next(message for message in orders if message["l"] == 18)
    assert lines[18]["first_time"] == first["bt"]
    assert all(set(line["files"]) <= {f"{number}.log" for number in range(8)} for line in lines.values())


def test_by_log_also_counts_entries_that_were_written_twice(disks: list[str]) -> None:
    by_index = {line["ledger_id"]: line for line in rows_of("ledgers", *disks)}
    lines = rows_of("ledgers", "--by-log", *disks)
    assert {line["read"] for line in lines} == {"scan"}
    by_log: dict[int, list[Line]] = {}
    for line in lines:
        by_log.setdefault(line["ledger_id"], []).append(line)
    assert by_log.keys() == by_index.keys()
    sizes = {ledger: sum(line["size"] for line in rows) for ledger, rows in by_log.items()}
    assert all(sizes[ledger] >= line["size"] for ledger, line in by_index.items())
    assert any(sizes[ledger] > line["size"] for ledger, line in by_index.items())
    (log,) = by_log[18]
    assert (log["entries"], log["size"]) == (by_index[18]["entries"], by_index[18]["size"])
    # A bookie opens a log when it starts, so four of them are empty.
    assert "checked: 8 logs, 223 ledgers" in run("ledgers", "--by-log", *disks).stderr


def test_the_map_of_a_sealed_log_is_used(copied: Path) -> None:
    """BookKeeper writes the ledgers map after the records of a log and its offset into the header."""
    words = ["ledgers", "--by-log", "--entries", f"bookie-disk:{copied}"]
    before = {(line["log"], line["ledger_id"]): line for line in rows_of(*words)}
    log = copied / "current" / "2.log"
    sizes = {ledger: line["size"] for (path, ledger), line in before.items() if path == str(log)}
    rows = b"".join(struct.pack(">qq", *row) for row in sizes.items())
    data = bytearray(log.read_bytes())
    data[4:20] = struct.pack(">iqi", 1, len(data), len(sizes))
    log.write_bytes(data + struct.pack(">iqqi", 20 + len(rows), -1, -2, len(sizes)) + rows)
    after = {(line["log"], line["ledger_id"]): line for line in rows_of(*words)}
    assert {place: line["size"] for place, line in after.items()} == {
        place: line["size"] for place, line in before.items()
    }
    assert {line["read"] for (path, _), line in after.items() if path == str(log)} == {"map"}
    by_log = {line["log"]: line for line in rows_of("disk", *words[2:])}
    assert by_log[str(log)]["sealed"]
    assert by_log[str(log)]["dead"] == 0


def test_every_byte_of_the_logs_is_live_or_dead(disks: list[str]) -> None:
    logs = rows_of("disk", *disks)
    ledgers = rows_of("ledgers", *disks)
    assert sum(line["live"] for line in logs) == sum(line["size"] for line in ledgers)
    for line in logs:
        assert line["size"] == (1024 + line["live"] + line["dead"] if line["size"] else 0)
    assert sum(line["dead"] for line in logs) > 0
    assert {line["orphan"] for line in logs} == {None}


def test_bytes_by_topic_add_up_to_all_bytes(disks: list[str], store: list[str]) -> None:
    rows = rows_of("disk", *disks, *store)
    assert sum(row["size"] for row in rows) == sum(line["size"] for line in rows_of("ledgers", *disks))
    marks = next(row for row in rows if row["name"] == str(TopicName.parse("marks")))
    assert (marks["role"], marks["ledgers"], marks["entries"]) == ("data", 80, 4000)
    assert {"data", "compacted", "schema", "delayed-index-bucket", "deleted"} == {row["role"] for row in rows}
    table = run("disk", *disks, *store, "-o", "csv").stdout
    assert [row["name"] for row in csv.DictReader(io.StringIO(table))] == [row["name"] or "" for row in rows]


def test_a_ledger_that_no_record_names_is_an_orphan(folder: Path, disks: list[str], tmp_path: Path) -> None:
    orders = TopicName.parse("orders")
    without = ["--store", snapshot_without(folder, tmp_path / "without.ndjson", orders.path)]
    rows = [row for row in rows_of("disk", *disks, *without) if row["role"] == "orphan"]
    assert [(row["name"], row["entries"]) for row in rows] == [(str(orders), 163)]
    logs = rows_of("disk", "--by", "log", *disks, *without)
    assert sum(line["orphan"] for line in logs) == rows[0]["size"]


def test_a_ledger_without_metadata_is_deleted(folder: Path, disks: list[str], tmp_path: Path) -> None:
    complete = ["--store", f"snapshot:{folder}/metadata.ndjson"]
    without = ["--store", snapshot_without(folder, tmp_path / "without.ndjson", ledger_path(18))]
    size = next(line["size"] for line in rows_of("ledgers", *disks) if line["ledger_id"] == 18)

    def deleted(store: list[str]) -> int:
        return sum(row["size"] for row in rows_of("disk", *disks, *store) if row["role"] == "deleted")

    assert deleted(without) - deleted(complete) == size


def test_subscriptions_retain_their_backlog(disks: list[str], store: list[str]) -> None:
    rows = {
        (row["topic"], row["cursor"]): row for row in rows_of("disk", "--by", "subscription", *disks, *store)
    }
    marks, orders = (str(TopicName.parse(name)) for name in ("marks", "orders"))
    all_of_marks = rows[marks, "untouched"]["size"]
    assert rows[marks, "huge"]["size"] == all_of_marks > rows[marks, "cumulative"]["size"] > 0
    assert (rows[marks, "done"]["size"], rows[marks, "huge"]["alone"]) == (0, 0)
    assert rows[orders, "batch-idx"]["alone"] == rows[orders, "batch-idx"]["size"] > 0
    assert rows[str(TopicName.parse("chunked")), None]["ledgers"] == 2


def test_subscriptions_are_listed_although_one_has_unknown_state(capture: Capture) -> None:
    """The disks lack the cursor ledger of one subscription; the others are still known."""
    killed = capture("pulsar-4.2.4-killed")
    words = ["--store", f"snapshot:{killed}/metadata.ndjson", "--entries", f"bookie-disk:{killed}/bookie0"]
    rows = rows_of("disk", "--by", "subscription", *words)
    reader = next(row for row in rows if row["cursor"] == "reader")
    assert reader["size"] > 0


def test_the_copies_of_every_bookie_are_counted(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    lines = [
        line for line in rows_of("ledgers", "--entries", f"bookie-disk:{folder}") if line["ledger_id"] == 19
    ]
    assert len({line["bookie"] for line in lines}) == 3
    assert sum(line["entries"] for line in lines) == 100


def test_a_broken_log_is_an_error_and_the_others_are_shown(copied: Path) -> None:
    log = copied / "current" / "4.log"
    log.write_bytes(b"NOPE" + log.read_bytes()[4:])
    for command in (["ledgers", "--by-log"], ["disk"]):
        done = run(*command, "--entries", f"bookie-disk:{copied}")
        assert done.returncode == 4
        assert f"{log}: expected an entry log's" in done.stderr
        assert "2.log" in done.stdout


def test_entries_whose_locations_have_no_record_are_counted(copied: Path) -> None:
    log = copied / "current" / "2.log"
    log.write_bytes(log.read_bytes()[:5000])
    lines = rows_of("ledgers", "--entries", f"bookie-disk:{copied}")
    count = sum(line["unsized"] for line in lines)
    assert count > 1000
    for command in ("ledgers", "disk"):
        done = run(command, "--entries", f"bookie-disk:{copied}")
        assert f"the bytes of {count} entries (the index points to no record)" in done.stderr
    log.unlink()
    done = run("ledgers", "--entries", f"bookie-disk:{copied}", "-o", "ndjson")
    assert done.returncode == 4
    assert done.stderr.count("2.log, which is missing") == 1


def test_an_empty_index_does_not_make_entries_dead(copied: Path, store: list[str]) -> None:
    shutil.rmtree(copied / "current" / "locations")
    Rdict(str(copied / "current" / "locations"), Options(raw_mode=True)).close()
    for by in ("topic", "log", "bookie"):
        done = run("disk", "--by", by, "--entries", f"bookie-disk:{copied}", *store)
        assert done.returncode == 4
        assert (
            f"{copied}/current/2.log: the index leads to none of its entries, but BookKeeper" in done.stderr
        )


def test_a_file_of_frames_is_no_disk(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes((5).to_bytes(4, "big") + b"12345")
    frames = ["--entries", f"frames:{tmp_path / 'f'}"]
    (line,) = rows_of("ledgers", *frames)
    assert (line["ledger_id"], line["entries"], line["size"]) == (0, 1, 5)
    assert rows_of("disk", *frames) == []


def test_invalid_arguments_are_explained(disks: list[str]) -> None:
    done = run("disk", "--by", "topic", *disks)
    assert (done.returncode, "add --store URL" in done.stderr) == (2, True)
    assert run("ledgers").returncode == 2
    assert run("ledgers", "--entries", "bookie-disk:/nowhere").returncode == 3

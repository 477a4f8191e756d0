"""`rebuild` on damaged disks keeps every readable entry, and reports the others with an exit code.

The test walks the records of the logs itself, to know which entries a damage leaves.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.values import Run

Entry = tuple[int, int]
Line = dict[str, Any]
# The readable entries with the bytes of their records, each with its offset in a log.
Records = Mapping[Entry, list[tuple[int, bytes]]]


def largest_logs(current: Path) -> list[Path]:
    return sorted(current.glob("*.log"), key=lambda path: -path.stat().st_size)


def records_of(log: Path) -> Iterator[tuple[Entry, int, bytes]]:
    """Yield the entries of an undamaged log with the offsets and bytes of their records."""
    data, at = log.read_bytes(), 1024
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size <= 0:
            return
        ledger_id, entry_id = struct.unpack_from(">qq", data, at + 4)
        if ledger_id >= 0:
            yield (ledger_id, entry_id), at, data[at : at + 4 + size]
        at += 4 + size


def every_record(disks: Path) -> Records:
    records: dict[Entry, list[tuple[int, bytes]]] = {}
    for log in disks.glob("*/current/*.log"):
        for entry, at, data in records_of(log):
            records.setdefault(entry, []).append((at, data))
    return records


def intact(records: Records, disks: Path) -> set[Entry]:
    logs = [log.read_bytes() for log in disks.glob("*/current/*.log")]
    return {
        entry
        for entry, places in records.items()
        if any(log[at : at + len(data)] == data for at, data in places for log in logs)
    }


def overwrite(log: Path, offset: int, data: bytes) -> None:
    with log.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def middle_record(current: Path) -> tuple[Path, int, bytes]:
    log = largest_logs(current)[0]
    records = list(records_of(log))
    _, offset, data = records[len(records) // 2]
    return log, offset, data


def remove_a_log(current: Path) -> None:
    largest_logs(current)[0].unlink()


def remove_a_small_log(current: Path) -> None:
    largest_logs(current)[1].unlink()


def cut_a_log(current: Path) -> None:
    log = largest_logs(current)[0]
    os.truncate(log, log.stat().st_size // 2)


def cut_the_last_log(current: Path) -> None:
    log = max(current.glob("*.log"), key=lambda path: int(path.stem, 16))
    os.truncate(log, 700)


def flip_a_byte(current: Path) -> None:
    log, offset, data = middle_record(current)
    overwrite(log, offset + len(data) - 3, bytes([data[-3] ^ 0x55]))


def flip_an_id(current: Path) -> None:
    log, offset, data = middle_record(current)
    overwrite(log, offset + 10, bytes([data[10] ^ 0x55]))


def spoil_a_size(current: Path) -> None:
    log, offset, _ = middle_record(current)
    overwrite(log, offset, b"\x7f\xff\xff\xff")


def zero_a_part(current: Path) -> None:
    log = largest_logs(current)[0]
    size = log.stat().st_size
    overwrite(log, size // 4, bytes(size // 4))


def spoil_a_header(current: Path) -> None:
    overwrite(largest_logs(current)[0], 0, b"GARBAGE!")


def exchange_logs(current: Path) -> None:
    first, second, *_ = largest_logs(current)
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def remove_the_index(current: Path) -> None:
    shutil.rmtree(current / "locations")


def empty_the_index(current: Path) -> None:
    from rocksdict import Options, Rdict

    remove_the_index(current)
    Rdict(str(current / "locations"), Options(raw_mode=True)).close()


def remove_rows_of_the_index(current: Path) -> None:
    from rocksdict import Options, Rdict

    index = Rdict(str(current / "locations"), Options(raw_mode=True))
    for key in list(index.keys()):
        if isinstance(key, bytes) and key[-1] % 7 == 3:
            del index[key]
    index.close()


def cut_the_index(current: Path) -> None:
    for table in (current / "locations").glob("*.sst"):
        os.truncate(table, table.stat().st_size // 2)


def remove_the_journals(current: Path) -> None:
    for journal in current.glob("*.txn"):
        journal.unlink()


def copy_the_bookie(current: Path) -> None:
    shutil.copytree(current.parent, current.parent.with_name("copy"))


def forbid_writing(current: Path) -> None:
    for folder, _, files in os.walk(current, topdown=False):
        for name in files:
            Path(folder, name).chmod(0o444)
        Path(folder).chmod(0o555)


# Each damage with the exit code of `rebuild`: 0 if every entry is left, 4 or 7 if not.
DAMAGES: list[tuple[Callable[[Path], None], int]] = [
    (remove_a_log, 7),
    (remove_a_small_log, 7),
    (cut_a_log, 7),
    (cut_the_last_log, 0),
    (flip_a_byte, 4),
    (flip_an_id, 4),
    (spoil_a_size, 4),
    (zero_a_part, 7),
    (spoil_a_header, 0),
    (exchange_logs, 0),
    (remove_the_index, 0),
    (empty_the_index, 0),
    (remove_rows_of_the_index, 0),
    (cut_the_index, 0),
    (remove_the_journals, 0),
    (copy_the_bookie, 0),
    (forbid_writing, 0),
]


def rebuilt(run: Run, disks: Path, target: Path) -> tuple[int, list[Line], str]:
    ran = run("rebuild", "--entries", f"bookie-disk:{disks}", "--output", str(target), "-o", "ndjson")
    return ran.returncode, [json.loads(line) for line in ran.stdout.splitlines()], ran.stderr.decode()


def entries_in(runs: Iterable[list[int]], ledger_id: int) -> set[Entry]:
    return {(ledger_id, entry_id) for first, last in runs for entry_id in range(first, last + 1)}


def held(lines: Iterable[Line]) -> set[Entry]:
    """Return the entries that brokers read with the rebuilt metadata."""
    entries = set[Entry]()
    for line in lines:
        if "ledger_id" in line and line["certainty"] != "refused":
            ledger_id = line["ledger_id"]
            entries |= entries_in([[0, line["last_entry"]]], ledger_id) - entries_in(
                line["missing"], ledger_id
            )
    return entries


def stated(lines: Iterable[Line]) -> set[Entry]:
    """Return the entries that the report calls unreadable."""
    unreadable = set[Entry]()
    for line in lines:
        unreadable |= entries_in(line.get("unreadable", ()), line.get("ledger_id", -1))
    return unreadable


@pytest.mark.parametrize(("damage", "code"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_every_readable_entry_is_kept_and_every_other_one_reported(
    capture: Callable[[str], Path], run: Run, tmp_path: Path, damage: Callable[[Path], None], code: int
) -> None:
    folder, disks = capture("pulsar-4.2.4"), tmp_path / "disks"
    shutil.copytree(folder / "bookie0", disks / "bookie0")
    records = every_record(disks)
    all_held = held(rebuilt(run, disks, tmp_path / "healthy")[1])
    damage(disks / "bookie0" / "current")
    left = intact(records, disks)
    exit_code, lines, messages = rebuilt(run, disks, tmp_path / "found")
    assert exit_code == code, messages
    # A few entries are only in the journal.
    in_logs = all_held & records.keys()
    assert held(lines) & in_logs == in_logs & left
    assert stated(lines) & in_logs == in_logs - left
    # A damaged file is one message, however many entries it has.
    assert messages.count('"error"') <= 2


OF_ONE_COPY = [
    remove_a_log, cut_a_log, flip_a_byte, zero_a_part, exchange_logs, empty_the_index, cut_the_index,
]  # fmt: skip


@pytest.mark.parametrize("damage", OF_ONE_COPY, ids=[damage.__name__ for damage in OF_ONE_COPY])
def test_damage_to_one_of_several_bookies_loses_nothing(
    capture: Callable[[str], Path], run: Run, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    disks = tmp_path / "disks"
    for bookie in capture("pulsar-4.2.4-3bookies").glob("bookie*"):
        shutil.copytree(bookie, disks / bookie.name)
    _, healthy, _ = rebuilt(run, disks, tmp_path / "healthy")
    damage(disks / "bookie0" / "current")
    _, lines, _ = rebuilt(run, disks, tmp_path / "found")
    assert lines == healthy


def test_ledgers_without_any_entry_are_reported_as_gone(
    capture: Callable[[str], Path], run: Run, tmp_path: Path
) -> None:
    disks = tmp_path / "disks"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", disks / "bookie0")
    _, healthy, _ = rebuilt(run, disks, tmp_path / "healthy")
    # Nothing but the states of ledgers shows what was in the rest of the log.
    cut_a_log(disks / "bookie0" / "current")
    remove_the_index(disks / "bookie0" / "current")
    exit_code, lines, messages = rebuilt(run, disks, tmp_path / "found")
    present = {line["ledger_id"] for line in lines if "ledger_id" in line}
    gone = {line["gone"] for line in lines if line["certainty"] == "gone"}
    assert gone == {line["ledger_id"] for line in healthy if "ledger_id" in line} - present
    assert (exit_code, f"no disk has an entry of {len(gone)} ledgers" in messages) == (4, True), messages


def test_a_missing_directory_of_the_cookie_ends_with_an_exit_code(
    capture: Callable[[str], Path], run: Run, tmp_path: Path
) -> None:
    disks = tmp_path / "disks"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", disks / "bookie0")
    cookie = disks / "bookie0" / "current" / "VERSION"
    cookie.write_text(cookie.read_text().replace('ledgerDirs: "1\\t', 'ledgerDirs: "2\\t/other/ledgers\\t'))
    exit_code, _, messages = rebuilt(run, disks, tmp_path / "found")
    assert (exit_code, "/other/ledgers" in messages) == (3, True), messages


def test_spark_is_not_used_if_an_index_lacks_entries(
    capture: Callable[[str], Path], run: Run, tmp_path: Path
) -> None:
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", tmp_path / "disks" / "bookie0")
    remove_rows_of_the_index(tmp_path / "disks" / "bookie0" / "current")
    disks, target = f"bookie-disk:{tmp_path / 'disks'}", tmp_path / "found"
    done = run("rebuild", "--entries", disks, "--output", str(target), "--engine", "spark")
    assert done.returncode == 0
    assert b"not using Spark, because the indexes of the disks lack entries" in done.stderr


@pytest.mark.parametrize(
    ("damage", "cause", "consequence"),
    [
        (zero_a_part, "entry-log-damaged", "ledger-end-short"),
        (empty_the_index, "bookie-index-damaged", "cursor-ledger-missing"),
    ],
)
def test_check_of_the_rebuilt_store_reports_the_damage_and_no_consequence(
    capture: Callable[[str], Path],
    run: Run,
    tmp_path: Path,
    damage: Callable[[Path], None],
    cause: str,
    consequence: str,
) -> None:
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", tmp_path / "disks" / "bookie0")
    damage(tmp_path / "disks" / "bookie0" / "current")
    rebuilt(run, tmp_path / "disks", tmp_path / "found")
    store, disks = f"snapshot:{tmp_path / 'found'}", f"bookie-disk:{tmp_path / 'disks'}"
    done = run("check", "--store", store, "--entries", disks, "-o", "ndjson")
    codes = {json.loads(line)["code"] for line in done.stdout.splitlines()}
    assert cause in codes
    assert consequence not in codes

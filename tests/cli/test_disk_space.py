"""`disk --by bookie` adds up to the disk; `--if-deleted` and `--if-retention` show what becomes free."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.names import TopicName, ledger_path
from tests.cli.test_disk import rows_of, run
from tests.cli.test_summaries import snapshot_without

Capture = Callable[[str], Path]
PARTS = ("live", "deleted", "orphan", "dead", "journals", "index", "other")
ORDERS = str(TopicName.parse("orders"))


def words_of(folder: Path) -> list[str]:
    return ["--entries", f"bookie-disk:{folder}", "--store", f"snapshot:{folder}/metadata.ndjson"]


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-4.2.4-3bookies", "pulsar-2.8.2"])
def test_the_space_of_a_bookie_adds_up_to_its_directory(capture: Capture, name: str) -> None:
    folder = capture(name)
    bookies = sorted(folder.glob("bookie*"))
    for words in (words_of(folder), words_of(folder)[:2]):
        rows = rows_of("disk", "--by", "bookie", *words)
        assert len(rows) == len(bookies)
        for row, bookie in zip(rows, bookies, strict=True):
            # Without a store, deleted and orphan are unknown.
            assert sum(row[part] or 0 for part in PARTS) == row["size"]
            for size, option in ((row["size"], "--apparent-size"), (row["allocated"], "--total")):
                command = ["du", "--summarize", "--block-size=1", option, str(bookie / "current")]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                assert int(done.stdout.split()[0]) == size
            assert row["held"] is None or 0 < row["held"] < row["live"]


def test_every_part_of_a_bookie_is_counted(capture: Capture, tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4")
    [before] = rows_of("disk", "--by", "bookie", *words_of(folder))
    assert all(before[part] > 0 for part in PARTS if part != "orphan")
    size = next(row["size"] for row in rows_of("ledgers", *words_of(folder)[:2]) if row["ledger_id"] == 18)
    for path, part in ((ledger_path(18), "deleted"), (TopicName.parse("orders").path, "orphan")):
        without = ["--store", snapshot_without(folder, tmp_path / f"{part}.ndjson", path)]
        [after] = rows_of("disk", "--by", "bookie", *words_of(folder)[:2], *without)
        assert after["size"] == before["size"]
        assert after[part] - before[part] >= size
        assert after["live"] + after[part] == before["live"] + before[part]
    done = run("disk", "--by", "bookie", *words_of(folder))
    assert done.stdout.split()[-1] == str(before["size"])


def test_a_subscription_that_alone_retains_data_would_free_it(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    subscriptions = rows_of("disk", "--by", "subscription", *words_of(folder))
    alone = next(row["alone"] for row in subscriptions if row["cursor"] == "batch-idx")
    rows = rows_of("disk", "--if-deleted", "batch-idx", *words_of(folder))
    assert {row["topic"] for row in rows} == {ORDERS}
    assert len({row["bookie"] for row in rows}) == len(rows) == 3
    assert sum(row["size"] for row in rows) == alone
    # This subscription has no backlog.
    assert rows_of("disk", "--if-deleted", "done", *words_of(folder)) == []


def test_a_shorter_retention_would_free_what_no_subscription_needs(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    rows = {row["topic"]: row for row in rows_of("disk", "--if-retention", "0", *words_of(folder))}
    chunked = str(TopicName.parse("chunked"))
    assert rows[chunked]["ledgers"] == 2
    assert ORDERS not in rows
    both = rows_of("disk", "--if-retention", "0", "--if-deleted", "batch-idx", *words_of(folder))
    assert {row["topic"] for row in both} == {*rows, ORDERS}
    assert rows_of("disk", "--if-retention", "520w", *words_of(folder)) == []


def test_changes_of_nothing_are_refused(capture: Capture) -> None:
    words = words_of(capture("pulsar-4.2.4"))
    done = run("disk", "--if-deleted", "nothing", *words)
    assert (done.returncode, "'nothing'" in done.stderr) == (3, True)
    assert run("disk", "--if-deleted", "done", "--by", "log", *words).returncode == 2
    assert run("disk", "--if-retention", "0", *words[:2]).returncode == 2

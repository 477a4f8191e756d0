"""`export` writes equal rows in every format, adds only new ones, and survives kills, damage and misuse."""

from __future__ import annotations

import base64
import csv
import fcntl
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.export.files import NAME
from tests.cli.program import pulsar_meta_here
from tests.message_truth import rows_of
from tests.seek_truth import bookie_urls, read_truth

Capture = Callable[[str], Path]
Done = subprocess.CompletedProcess[bytes]
DEFAULT = "persistent://public/default"
TOPICS = ["orders", "chunked", "we ird:näme", "parted", "codec-zstd"]
PARTED = [f"{DEFAULT}/parted-partition-{number}" for number in range(3)]


def places(folder: Path, bookies: Iterable[str] | None = None) -> list[str]:
    urls = bookie_urls(folder) if bookies is None else [f"bookie-disk:{folder / name}" for name in bookies]
    store = ["--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    return [*store, *(part for url in urls for part in ("--entries", url))]


def export(folder: Path, to: Path, *names: str, ends: int = 0, bookies: Iterable[str] | None = None) -> Done:
    done = pulsar_meta_here("export", *names, "--to", str(to), *places(folder, bookies))
    assert done.returncode == ends, done.stderr
    return done


def query_files(query: str, path: str) -> list[Any]:
    """Run a query over files with DuckDB."""
    import duckdb

    result = duckdb.sql(query, params=[path])
    assert result is not None
    return list(result.fetchall())


def manifest(to: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (to / NAME).read_text().splitlines()[1:]]


def exported(to: Path) -> list[dict[str, Any]]:
    """Read all rows of Parquet files with Arrow, sorted by topic, ledger and entry."""
    import pyarrow.dataset as ds

    table = ds.dataset(to, format="parquet", partitioning="hive").to_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        del row["namespace"], row["name"], row["partition"]
    return sorted(rows, key=place_of)


def place_of(row: Document) -> tuple[Any, ...]:
    return row["topic"], row["ledger_id"], row["entry_id"], row["batch_index"] or 0


def expected(folder: Path, topics: list[str], *, readable: bool = False) -> list[Document]:
    rows, _ = rows_of(folder, topics, readable=readable)
    return sorted(rows.values(), key=place_of)


@pytest.fixture(scope="module")
def folder(capture: Capture) -> Path:
    return capture("pulsar-4.2.4-killed")


@pytest.fixture(scope="module")
def parquet(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("export") / "parquet"
    export(folder, to, *TOPICS)
    return to


def test_parquet_has_every_message_and_the_manifest_agrees(folder: Path, parquet: Path) -> None:
    rows = expected(folder, TOPICS)
    assert exported(parquet) == rows
    pieces = manifest(parquet)
    assert sum(piece["rows"] for piece in pieces) == len(rows) > 5000
    for piece in pieces:
        data = (parquet / piece["file"]).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (piece["sha256"], piece["size"])


def test_duckdb_sees_partitions_as_columns(folder: Path, parquet: Path) -> None:
    counted = query_files(
        "select partition, count(*) from read_parquet(?, hive_partitioning=true) where name = 'parted'"
        " and namespace = 'public/default' group by 1 order by 1",
        f"{parquet}/**/*.parquet",
    )
    truth = read_truth(folder)
    assert counted == [(number, len(truth[topic]["messages"])) for number, topic in enumerate(PARTED)]


def test_ndjson_and_csv_have_the_same_rows(folder: Path, parquet: Path, tmp_path: Path) -> None:
    rows = expected(folder, ["orders", "parted"])
    export(folder, tmp_path / "json", "orders", "parted", "-o", "ndjson")
    export(folder, tmp_path / "csv", "orders", "parted", "-o", "csv")
    jsons, csvs = (tmp_path / "json").rglob("*.ndjson"), (tmp_path / "csv").rglob("*.csv")
    lines = [json.loads(line) for file in jsons for line in file.read_text().splitlines()]
    texts = [row for file in csvs for row in csv.DictReader(io.StringIO(file.read_text(), newline=""))]
    for written in (sorted(lines, key=place_of), sorted(texts, key=lambda row: place_of(numbered(row)))):
        assert len(written) == len(rows)
        for record, row in zip(written, rows, strict=True):
            properties = record["properties"]
            assert (json.loads(properties) if isinstance(properties, str) else properties) == dict(
                row["properties"]
            )
            assert base64.b64decode(record["payload"]) == row["payload"]
            assert (record["key"] or None) == row["key"]
            assert int(record["publish_time"]) == row["publish_time"]
    counted = query_files(
        "select count(*), min(entry_id) from read_json(?)", f"{tmp_path}/json/*/*/*/*.ndjson"
    )
    assert counted == [(len(rows), 0)]


def numbered(row: dict[str, str]) -> dict[str, Any]:
    return row | {name: int(row[name] or 0) for name in ("ledger_id", "entry_id", "batch_index")}


def test_a_second_run_exports_only_new_entries(capture: Capture, folder: Path, tmp_path: Path) -> None:
    older, to = capture("pulsar-4.2.4"), tmp_path / "out"
    export(older, to, "orders")
    before = {piece["file"]: (to / piece["file"]).stat().st_mtime_ns for piece in manifest(to)}
    assert b"0 pieces exported now" in export(older, to, "orders").stderr
    export(folder, to, "orders")
    new = [piece for piece in manifest(to) if piece["file"] not in before]
    assert sum(piece["rows"] for piece in new) == 50
    assert {file: (to / file).stat().st_mtime_ns for file in before} == before
    assert exported(to) == expected(folder, ["orders"])


def test_a_killed_export_is_resumed_to_the_same_files(folder: Path, parquet: Path, tmp_path: Path) -> None:
    to, program = tmp_path / "out", "from pulsar_meta.cli.app import main; main()"
    arguments = ["export", *TOPICS, "--to", str(to), *places(folder)]
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stderr=subprocess.DEVNULL)
    late = time.monotonic() + 60
    while process.poll() is None and not (
        (to / NAME).exists() and len((to / NAME).read_bytes().splitlines()) > 5
    ):
        assert time.monotonic() < late
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 5 <= len(manifest(to)) < len(manifest(parquet))
    with (to / NAME).open("ab") as out:
        out.write(b'{"topic": "half a l')
    export(folder, to, *TOPICS)
    by_file = [{piece["file"]: piece for piece in manifest(directory)} for directory in (to, parquet)]
    assert by_file[0] == by_file[1]
    assert exported(to) == exported(parquet)


def test_entries_of_missing_disks_are_reported_and_exported_later(capture: Capture, tmp_path: Path) -> None:
    folder, to = capture("pulsar-4.2.4-3bookies"), tmp_path / "out"
    done = export(folder, to, "plain", ends=3, bookies=["bookie0"])
    assert b"only bookies have them whose disks were not given" in done.stderr
    assert len(exported(to)) < 230
    export(folder, to, "plain")
    assert exported(to) == expected(folder, ["plain"])
    assert b"not checked" not in export(folder, to, "plain").stderr


def test_compacted_exports_the_latest_message_of_each_key(capture: Capture, tmp_path: Path) -> None:
    folder, to = capture("pulsar-4.2.4"), tmp_path / "out"
    latest: dict[str, Any] = {}
    for row in sorted(expected(folder, ["compacted"]), key=place_of):
        if row["key"] is not None:
            latest[row["key"]] = row
    latest = {key: row for key, row in latest.items() if row["payload"]}
    export(folder, to, "compacted", "--compacted")
    assert exported(to) == sorted(latest.values(), key=place_of)
    assert len(latest) > 5
    assert b"0 pieces exported now" in export(folder, to, "compacted", "--compacted").stderr


def test_readable_exports_only_messages_that_consumers_see(capture: Capture, tmp_path: Path) -> None:
    folder, topic = capture("transactions-4.2.4"), f"{DEFAULT}/money"
    export(folder, tmp_path / "out", "money", "--readable")
    readable = {
        (message["l"], message["e"], max(message["b"], 0))
        for message in read_truth(folder)[topic]["messages"]
    }
    assert {place_of(row)[1:] for row in exported(tmp_path / "out")} == readable
    export(folder, tmp_path / "all", "money")
    assert len(exported(tmp_path / "all")) > len(readable)


def test_messages_can_be_selected_by_index_time_and_properties(folder: Path, tmp_path: Path) -> None:
    rows = expected(folder, ["orders"])
    middle = rows[len(rows) // 2]
    selections = {
        ("--from-index", "3000"): [row for row in rows if row["index"] >= 3000],
        ("--where", "region=eu and not type=refund"): [
            row for row in rows if dict(row["properties"]).get("region") == "eu"
            and dict(row["properties"]).get("type") != "refund"
        ],
        ("--time", f"{middle['broker_timestamp']}"): [
            row for row in rows if row["broker_timestamp"] >= middle["broker_timestamp"]
        ],
        ("--time", f"..{middle['broker_timestamp']}"): [
            row for row in rows if row["broker_timestamp"] < middle["broker_timestamp"]
        ],
    }  # fmt: skip
    for number, (options, expected_rows) in enumerate(selections.items()):
        export(folder, tmp_path / str(number), "orders", *options)
        assert exported(tmp_path / str(number)) == expected_rows
        assert 0 < len(expected_rows) < len(rows)


def test_values_that_cannot_be_decoded_are_damage(capture: Capture, tmp_path: Path) -> None:
    done = export(capture("schemas-4.2.4"), tmp_path / "out", "public/typed", ends=4)
    assert b"persistent://public/typed/protobuf: 1 row with an error" in done.stderr
    rows = exported(tmp_path / "out")
    assert len(rows) == 97
    assert sum(row["value"] is not None for row in rows) > 90


def test_misuse_is_a_one_line_error(folder: Path, tmp_path: Path) -> None:
    to = tmp_path / "out"
    export(folder, to, "plain")
    cases: list[tuple[list[str], Path, int, bytes]] = [
        (["plain", "--where", "a=b"], to, 2, b"made otherwise: where was null"),
        (["7"], tmp_path / "new", 2, b"export needs topics"),
        (["nowhere"], tmp_path / "new", 3, b"nowhere"),
        ([], tmp_path / "new", 2, b"no topics given"),
        (["plain"], tmp_path, 2, b"not empty, and no export"),
        (["plain"], folder / "metadata.ndjson", 2, b"no directory"),
        (["plain", "--time", "5..3"], tmp_path / "new", 2, b"for seconds"),
        (["plain", "--columns", "nothing"], tmp_path / "new", 2, b"no column 'nothing'"),
        (["plain", "-o", "json"], tmp_path / "new", 2, b"json"),
        (["plain", "--output", "x"], tmp_path / "new", 2, b"replace --output by --to DIR"),
    ]
    for names, directory, code, message in cases:
        done = export(folder, directory, *names, ends=code)
        assert message in done.stderr
        assert b"Traceback" not in done.stderr
    with (to / NAME).open("ab") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        assert b"another export writes" in export(folder, to, "plain", ends=5).stderr
    with (to / NAME).open("ab") as out:
        out.write(b'{"topic": 1}\n')
    assert b"line " in export(folder, to, "plain", ends=4).stderr
    os.truncate(to / NAME, 0)
    assert b"1 piece read now" in export(folder, to, "plain").stderr or manifest(to)

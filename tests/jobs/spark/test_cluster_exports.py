"""Exports by a standalone Spark with two workers, from disks and from S3: killed, resumed and read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.jobs.export.files import NAME
from tests.cli.program import pulsar_meta_here
from tests.seek_truth import bookie_urls, read_truth
from tests.servers.s3 import BUCKET, client, offload, s3_server
from tests.servers.standalone_spark import both_worked, settings

pytestmark = [pytest.mark.spark, pytest.mark.interop]
PROGRAM = str(Path(sys.executable).parent / "pulsar-meta")
NAMESPACE = "public/default"
COLD = "persistent://public/default/codec-zstd"
PLAIN = [
    f"persistent://public/default/{name}" for name in ("orders", "plain", "chunked", "parted-partition-1")
]


def command(to: Path, names: str, places: list[str], cluster: str, conf: dict[str, str]) -> list[str]:
    options = [text for pair in conf.items() for text in ("--conf", "=".join(pair))]
    engine = ["--engine", "spark", "--master", cluster, *options]
    return [PROGRAM, "export", names, "--to", str(to), *places, *engine]


def where(folder: Path, urls: list[str]) -> list[str]:
    store = ["--store", f"snapshot:{folder / 'metadata.ndjson'}"]
    return [*store, *(part for url in urls for part in ("--entries", url))]


def by_file(to: Path) -> dict[str, Any]:
    lines = (to / NAME).read_text().splitlines()[1:]
    return {piece["file"]: piece for piece in map(json.loads, lines)}


def table(to: Path) -> Any:
    import pyarrow.dataset as ds

    places = [("topic", "ascending"), ("ledger_id", "ascending"), ("entry_id", "ascending")]
    rows = ds.dataset(to, format="parquet", partitioning="hive").to_table()
    return rows.sort_by([*places, ("batch_index", "ascending")])


def rows_by_topic(to: Path) -> dict[str, int]:
    import duckdb

    query = "select topic, count(*) from read_parquet(?, hive_partitioning=true) group by all"
    counts = duckdb.sql(query, params=[f"{to}/**/*.parquet"])
    assert counts is not None
    return dict(counts.fetchall())


def test_a_killed_export_is_resumed_and_equals_one_by_one_process(
    cluster: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, to, alone = capture("pulsar-4.2.4-killed"), tmp_path / "out", tmp_path / "alone"
    places = where(folder, bookie_urls(folder))
    words = command(to, NAMESPACE, places, cluster, settings())
    killed = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
    late = time.monotonic() + 200
    while not (to / NAME).exists() or len((to / NAME).read_bytes().splitlines()) < 3:
        assert killed.poll() is None
        assert time.monotonic() < late
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    begun = by_file(to)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    assert pulsar_meta_here("export", NAMESPACE, "--to", alone, *places).returncode == 0
    assert 0 < len(begun) < len(by_file(alone))
    assert (
        f"{len(by_file(alone)) - len(begun)} pieces exported now, {len(begun)} by earlier runs" in done.stderr
    )
    assert by_file(to) == by_file(alone)
    assert table(to).equals(table(alone))
    truth, rows = read_truth(folder), rows_by_topic(to)
    assert [rows[topic] for topic in PLAIN] == [len(truth[topic]["messages"]) for topic in PLAIN]
    both_worked(tmp_path, 2)


def test_messages_are_exported_from_objects_in_s3(
    cluster: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, to, alone = capture("pulsar-4.2.4-killed"), tmp_path / "out", tmp_path / "alone"
    truth = read_truth(folder)[COLD]
    with s3_server() as environment:
        for ledger in truth["internalStats"]["ledgers"]:
            if ledger["entries"]:
                offload(client(environment), folder, ledger["ledgerId"])
        conf = settings() | {f"spark.executorEnv.{name}": value for name, value in environment.items()}
        words = command(to, COLD, where(folder, [f"offload:s3://{BUCKET}"]), cluster, conf)
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False,
            env=dict(os.environ) | environment,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    disks = where(folder, bookie_urls(folder))
    assert pulsar_meta_here("export", COLD, "--to", alone, *disks).returncode == 0
    assert by_file(to) == by_file(alone)
    assert rows_by_topic(to) == {COLD: len(truth["messages"])}

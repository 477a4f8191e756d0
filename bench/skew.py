"""Measure whether a topic with nine tenths of the entries keeps one task busy after all others have ended.

    python -m bench.skew                        # 1 000 000 entries
    python -m bench.skew --entries 200000

The disk is generated: one topic has nine tenths of the entries in an open ledger, and a hundred topics share
the rest. Spark reads the messages on two cores, first with `pulsar_messages` and then with `export`, and
reports when each task began and how long it took. `entries per task` shows the smallest and the largest task,
`seconds per task` the shortest, the median and the longest; `busy` is the share of both cores' time, from the
begin of the first task to the end of the last, in which they had a task.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.rebuild import VERSION, frame

from pulsar_meta.codecs.bookie_files.entry_log import HEADER_SIZE
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.export.files import NAME
from pulsar_meta.jobs.spark.datasources import register
from pulsar_meta.jobs.spark.message_source import MessageSourceReader
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from tests.cli.program import pulsar_meta_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERS, CORES = 100, 2
MOST_TASKS = 100_000


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A finished task: when it began and how long it took, in seconds."""

    began: float
    seconds: float


def ledgers(entries: int) -> Iterator[tuple[int, int]]:
    """Yield (ledger, entries), the large ledger first."""
    yield 0, entries - entries // 10
    for number in range(1, OTHERS + 1):
        yield number, entries // 10 // OTHERS


def make_cluster(place: Path, entries: int) -> dict[str, str]:
    """Write the disk and the metadata; return them as options of a data source."""
    current = place / "bookie" / "current"
    current.mkdir(parents=True)
    (current / "VERSION").write_text(VERSION)
    with (current / "0.log").open("wb") as log, (place / "metadata.ndjson").open("w") as metadata:
        log.write(b"BKLO" + (1).to_bytes(4) + bytes(HEADER_SIZE - 8))
        for ledger, count in ledgers(entries):
            length = 0
            for entry in range(count):
                data = frame(ledger, entry)
                length += len(data)
                stored = encode_bookie_entry(ledger, entry, entry - 1, length, data, digest_type="CRC32C")
                log.write(len(stored).to_bytes(4) + stored)
            metadata.write(json.dumps(record(ledger, count, length)) + "\n")
    return {
        "store": f"snapshot:{place / 'metadata.ndjson'}",
        "entries": f"bookie-disk:{place / 'bookie'}?index=scan",
    }


def record(ledger: int, count: int, length: int) -> dict[str, Any]:
    """Return a topic's record as a line of a snapshot. The ledger of the large topic is open."""
    info = ManagedLedgerInfo()
    if ledger:
        info.ledgerInfo.add(ledgerId=ledger, entries=count, size=length, timestamp=1_700_000_000_000)
    else:
        info.ledgerInfo.add(ledgerId=ledger)
    path = TopicName.parse(f"persistent://big/data/topic-{ledger:03}").path
    return {"path": path, "version": 0, "value": b64encode(info.SerializeToString()).decode()}


def tasks_since(session: SparkSession, known: set[int]) -> list[TaskRun]:
    """Return the tasks of jobs that are not in `known`, and add the jobs to `known`."""
    context = session.sparkContext
    status, tasks_found = context._jsc.sc().statusStore(), []
    for job in set(context.statusTracker().getJobIdsForGroup(None)) - known:
        known.add(job)
        info = context.statusTracker().getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            tasks = status.taskList(stage, 0, MOST_TASKS)
            for task in map(tasks.apply, range(tasks.size())):
                tasks_found.append(TaskRun(task.launchTime().getTime() / 1e3, task.duration().get() / 1e3))
    return tasks_found


def row(name: str, entries: Sequence[int], tasks: Sequence[TaskRun]) -> str:
    """Format a line of the table."""
    span = max(task.began + task.seconds for task in tasks) - min(task.began for task in tasks)
    durations = sorted(task.seconds for task in tasks)
    seconds = f"{durations[0]:.2f} / {median(durations):.2f} / {durations[-1]:.2f}"
    sizes = f"{min(entries)} to {max(entries)}"
    busy = sum(durations) / (CORES * span)
    return f"| {name} | {len(tasks)} | {sizes} | {seconds} | {span:.1f} s | {busy:.0%} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="skew-") as made:
        options = make_cluster(Path(made), arguments.entries)
        with spark_session(SparkSettings(f"local[{CORES}]")) as session:
            # Python's workers start with the first job, so a small job is run before the measurement.
            session.sparkContext.parallelize(range(CORES), CORES).count()
            known: set[int] = set()
            tasks_since(session, known)
            print("| by | tasks | entries per task | seconds per task | total | busy |")
            print("|---|---:|---:|---:|---:|---:|")
            print(row("`pulsar_messages`", read(session, options), tasks_since(session, known)), flush=True)
            print(row("`export`", export(Path(made) / "out", options), tasks_since(session, known)))


def read(session: SparkSession, options: dict[str, str]) -> list[int]:
    """Add up the messages' bytes with the data source; return the entries of its tasks."""
    register(session)
    rows = session.read.format("pulsar_messages").options(**options, columns="topic,payload").load()
    rows.selectExpr("sum(length(payload))").collect()
    parts: Any = MessageSourceReader(options, ["topic", "payload"]).partitions()
    return [sum(span.entries for span in part.ranges) for part in parts]


def export(to: Path, options: dict[str, str]) -> list[int]:
    """Export all topics with the running session; return the entries of its files."""
    sources = ["--store", options["store"], "--entries", options["entries"]]
    done = pulsar_meta_here("export", "--all", "--to", to, "--engine", "spark", *sources)
    assert done.returncode == 0, done.stderr.decode()
    lines = [json.loads(line) for line in (to / NAME).read_text().splitlines()[1:]]
    return [line["counts"]["entries"] for line in lines]


if __name__ == "__main__":
    main()

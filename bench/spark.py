"""Compare `seek` by Spark with `seek` in one process, on a topic of many ledgers.

    python -m bench.spark                                   # 20 000 ledgers, 10⁶ entries, 100 000 questions
    python -m bench.spark --ledgers 2000 --entries 100000 --questions 10000

The topic is in a snapshot and on one bookie's disk with its index; no ledger has a first-index property, one
entry in ten is a batch of two to nine messages, and one index in fifty was never assigned. Each row is a
process of its own: `start` is the start of Java and of Spark, which is not in `seconds`; `sent` is the
largest number of bytes that Spark's scheduler sent to a task, without broadcasts (from Spark's log); `memory`
is the peak of the driver's Python in MB. `save` keeps the ranges in a file, which `kept` uses. Goals, on two
cores: 100 000 questions at least 1.5 times as fast as one process, two cores at least 1.7 times as fast as
one, and at most 16 KB sent to a task.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.seek.questions import INDEX, Question, SeekOptions
from pulsar_meta.jobs.seek.ranges import KeptRanges, read_kept_ranges
from pulsar_meta.jobs.seek.seek import Cluster, seek_clusters
from pulsar_meta.jobs.spark.seek import seek_with_spark
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.snapshot_writer import SnapshotWriter

TOPIC: Final = "persistent://bench/spark/topic"
GOAL_LOCAL, GOAL_CORES, GOAL_BYTES = 1.5, 1.7, 16 * 1024
HEADER_SIZE: Final = 1024
Row = tuple[str, int, int, str]
# What each row runs: engine, cores, share of the questions (0 is one question), if the ranges are kept.
ROWS: Final[tuple[Row, ...]] = (
    ("local", 1, 1, ""), ("spark", 1, 1, ""), ("spark", 2, 1, ""),
    ("spark", 2, 1, "save"), ("spark", 2, 1, "kept"), ("local", 1, 1, "kept"),
    ("local", 1, 0, ""), ("spark", 1, 0, ""), ("spark", 2, 0, ""), ("spark", 2, 0, "kept"),
)  # fmt: skip
# Spark's scheduler logs how many bytes it sends to each task.
LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = info
"""
_sent_re = re.compile(r"Starting task .* (\d+) bytes\)")


def entries_of(ledgers: int, entries: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield (ledger, entry, last index, frame)."""
    dice, index = random.Random(7), -1
    for number in range(entries):
        ledger, entry = (
            number * ledgers // entries,
            number - -(-(number * ledgers // entries) * entries // ledgers),
        )
        size = dice.randint(2, 9) if dice.random() < 0.1 else 1
        index += size + (dice.random() < 0.02)
        metadata = MessageMetadata(
            producer_name="p", sequence_id=number, publish_time=1_700_000_000_000 + number
        )
        if size > 1:
            metadata.num_messages_in_batch = size
        broker = BrokerEntryMetadata(broker_timestamp=1_700_000_000_000 + number, index=index)
        yield ledger, entry, index, encode_frame(metadata, b"payload", broker_metadata=broker)


def make(place: Path, ledgers: int, entries: int) -> int:
    """Write the bookie's disk with its index and the snapshot; return the topic's last index."""
    from rocksdict import Options, Rdict, WriteBatch

    current = place / "bookie" / "current"
    current.mkdir(parents=True)
    counts: dict[int, int] = {}
    database, batch = Rdict(str(current / "locations"), Options(raw_mode=True)), WriteBatch(raw_mode=True)
    last = -1
    with (current / "0.log").open("wb") as log:
        log.write(b"BKLO" + (1).to_bytes(4) + bytes(HEADER_SIZE - 8))
        at = HEADER_SIZE
        for ledger, entry, index, frame in entries_of(ledgers, entries):
            data = encode_bookie_entry(ledger, entry, entry - 1, len(frame), frame)
            log.write(len(data).to_bytes(4) + data)
            batch.put(struct.pack(">qq", ledger, entry), struct.pack(">q", at + 4))
            at += 4 + len(data)
            counts[ledger], last = entry + 1, index
    database.write(batch)
    database.flush()
    database.close()
    info = ManagedLedgerInfo()
    for ledger, count in counts.items():
        info.ledgerInfo.add(ledgerId=ledger, entries=count, size=100 * count, timestamp=1_700_000_000_000)
    writer = SnapshotWriter(place / "store.ndjson", {})
    writer.add(Versioned(TopicName.parse(TOPIC).path, info.SerializeToString(), 1))
    writer.finish({})
    return last


def run(place: Path, engine: str, cores: int, questions: int, last: int, ranges: str) -> dict[str, float]:
    """Answer the questions in this process or by its Spark, and return what that cost."""
    dice = random.Random(8)
    asked = [Question(TOPIC, INDEX, dice.randrange(last)) for _ in range(questions)]
    urls, file = (f"bookie-disk:{place / 'bookie'}",), place / "ranges.parquet"
    kept = {"": None, "save": KeptRanges(), "kept": read_kept_ranges(file) if ranges == "kept" else None}[
        ranges
    ]
    logging = place / "log4j2.properties"
    logging.write_text(LOGGING)
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging}",
    }
    settings = SparkSettings(master=f"local[{cores}]", verbose=True, conf=conf)
    begun = time.perf_counter()
    with open_store(f"snapshot:{place / 'store.ndjson'}") as store, open_entry_sources(urls, store) as source:
        clusters = [(Cluster(store, source, urls), asked)]
        if engine == "local":
            started = begun
            answers = list(seek_clusters(clusters, SeekOptions(), print, kept))
        else:
            with spark_session(settings) as session:
                session.sparkContext.parallelize(range(cores), cores).map(abs).count()
                started = time.perf_counter()
                answers = list(seek_with_spark(clusters, SeekOptions(), print, settings, kept))
                ended = time.perf_counter()
        ended = time.perf_counter() if engine == "local" else ended
    if ranges == "save" and kept is not None:
        with file.open("wb") as out:
            kept.write(out)
    return {
        "start": started - begun,
        "seconds": ended - started,
        "found": sum(answer["status"] == "found" for answer in answers),
        "read": sum(answer["entries_read"] for answer in answers),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measured(arguments: argparse.Namespace, place: Path, last: int, row: Row) -> dict[str, float]:
    """Run one row in a process of its own."""
    engine, cores, share, ranges = row
    words = [
        sys.executable, "-m", "bench.spark", "--child", str(place), engine, str(cores),
        str(arguments.questions if share else 1), str(last), ranges,
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    result["sent"] = max(map(int, _sent_re.findall(done.stderr)), default=0)
    return result


def main() -> None:
    """Make the topic, run each row, and print the table and the goals."""
    if "--child" in sys.argv:
        folder, engine, cores, questions, highest, ranges = sys.argv[2:]
        print(json.dumps(run(Path(folder), engine, int(cores), int(questions), int(highest), ranges)))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledgers", type=int, default=20_000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--questions", type=int, default=100_000)
    arguments = parser.parse_args()
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as made:
        last = make(Path(made), arguments.ledgers, arguments.entries)
        print(f"load of the machine before: {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}")
        print(f"{'engine':8}{'cores':>6}{'questions':>10}{'ranges':>8}{'start':>8}{'seconds':>9}{'found':>8}"
              f"{'sent':>8}{'memory':>8}")  # fmt: skip
        sent = 0
        for row in ROWS:
            result = measured(arguments, Path(made), last, row)
            seconds[row], sent = result["seconds"], max(sent, int(result["sent"]))
            print(
                f"{row[0]:8}{row[1]:6}{arguments.questions if row[2] else 1:10}{row[3] or '-':>8}"
                f"{result['start']:8.1f}{result['seconds']:9.1f}{result['found']:8.0f}{result['sent']:8.0f}"
                f"{result['memory']:8.0f}",
                flush=True,
            )
    local, two, single = (seconds[row] for row in (ROWS[0], ROWS[2], ROWS[1]))
    print(f"spark on two cores is {local / two:.2f} x as fast as one process (goal {GOAL_LOCAL})")
    print(f"spark on two cores is {single / two:.2f} x as fast as on one (goal {GOAL_CORES})")
    print(f"at most {sent} bytes sent to a task (goal {GOAL_BYTES})")


if __name__ == "__main__":
    main()

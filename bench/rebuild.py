"""Measure time and memory of `rebuild` on many ledgers, with one process and with Spark.

    python bench/rebuild.py                  # 10 000 and 100 000 ledgers
    python bench/rebuild.py --ledgers 5000

The disk is generated: one entry log with ten ledgers per topic and four entries per ledger, whose indexes and
sequence ids continue from ledger to ledger. The table shows processor seconds of all processes including
Spark's, wall-clock seconds, and the peak memory of the largest process.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from pulsar_meta.codecs.bookie_files.entry_log import HEADER_SIZE
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.frames.frame import encode_checksum, encode_prefix
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

PR_SET_CHILD_SUBREAPER = 36
PROGRAM = (sys.executable, "-m", "pulsar_meta")
LEDGERS_A_TOPIC, ENTRIES, START = 10, 4, 1_795_000_000_000
VERSION = (
    '5\nbookieHost: "127.0.0.1:3181"\njournalDir: "/journal"\nledgerDirs: "1\\t/ledgers"\n'
    'instanceId: "3bd56fad-fdde-43e4-8e23-2c7bbb2d005a"\n'
)


def frame(topic: int, index: int) -> bytes:
    """Build the `index`th message of a topic as its producer and broker write it."""
    sent = START + 1000 * index
    metadata = MessageMetadata(producer_name=f"producer-{topic}", sequence_id=index, publish_time=sent)
    metadata_bytes = metadata.SerializeToString()
    covered = len(metadata_bytes).to_bytes(4) + metadata_bytes + bytes(100)
    return encode_prefix(BrokerEntryMetadata(broker_timestamp=sent, index=index)) + (
        encode_checksum(covered) + covered
    )


def make_disk(folder: Path, ledgers: int) -> str:
    """Write a bookie's entry log with this many ledgers and return its URL."""
    (folder / "current").mkdir(parents=True)
    (folder / "current" / "VERSION").write_text(VERSION)
    with (folder / "current" / "0.log").open("wb") as log:
        log.write(b"BKLO" + (1).to_bytes(4) + bytes(HEADER_SIZE - 8))
        for ledger in range(ledgers):
            length = 0
            for entry in range(ENTRIES):
                index = ledger % LEDGERS_A_TOPIC * ENTRIES + entry
                data = frame(ledger // LEDGERS_A_TOPIC, index)
                length += len(data)
                stored = encode_bookie_entry(ledger, entry, entry - 1, length, data, digest_type="CRC32C")
                log.write(len(stored).to_bytes(4) + stored)
    return f"bookie-disk:{folder}?index=scan"


def adopt_orphans() -> None:
    """Make orphaned processes of Spark children of this process, so that their time is counted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def await_orphans() -> None:
    """Wait until no child is left."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def row(place: Path, url: str, ledgers: int, engine: str) -> str:
    """Run the program once and format a line of the table."""
    output = place / f"{ledgers}-{engine}.ndjson.zst"
    words = ["rebuild", "--entries", url, "--output", str(output), "-o", "csv", "--engine", engine]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False, cwd=place)
    clock = time.monotonic() - begun
    await_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stderr)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    kinds = Counter(line["certainty"] for line in csv.DictReader(done.stdout.splitlines()))
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"| {ledgers} | {engine} | {spent:.1f} s | {clock:.0f} s | {after.ru_maxrss >> 10} MB | {counts} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledgers", type=int, nargs="+", default=[10_000, 100_000])
    options = parser.parse_args()
    adopt_orphans()
    os.environ.pop("PULSAR_META_STORE", None)
    print("| ledgers | engine | processor | clock | peak | values |\n|---:|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory(prefix="rebuild-") as made:
        for ledgers in options.ledgers:
            url = make_disk(Path(made) / str(ledgers), ledgers)
            for engine in ("local", "spark"):
                print(row(Path(made), url, ledgers, engine), flush=True)


if __name__ == "__main__":
    main()

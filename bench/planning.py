"""Measure how Spark's tasks are planned for 10⁹ entries in 20 000 ledgers: time, number and size of tasks.

    python bench/planning.py                    # 20 000 ledgers
    python bench/planning.py --ledgers 2000

The metadata is generated: topic records as brokers write them, of which one topic has nine tenths of all
entries and an open last ledger, with 50 000 entries of 1 KB per ledger. Planning reads it from a snapshot
file and reads no entry. The last column is how many (pickled) bytes are sent to a task.
"""

from __future__ import annotations

import argparse
import base64
import json
import pickle
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.spark.entry_source import EntryReader
from pulsar_meta.jobs.spark.message_source import Held, MessageSourceReader
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo

LEDGERS = 20_000
ENTRIES = 50_000
SIZE = 1024
OTHERS = 400


def records(ledgers: int) -> Iterator[tuple[str, bytes]]:
    """Yield the records of topics: one has nine tenths of the ledgers, OTHERS share the rest."""
    shares = [ledgers - ledgers // 10, *[ledgers // 10 // OTHERS] * OTHERS]
    number = 0
    for topic, share in enumerate(shares):
        info = ManagedLedgerInfo()
        for at in range(share):
            last = at == share - 1 and topic == 0
            info.ledgerInfo.add(
                ledgerId=number, entries=0 if last else ENTRIES, size=0 if last else ENTRIES * SIZE,
                timestamp=0 if last else 1_700_000_000_000 + number,
            )  # fmt: skip
            number += 1
        yield TopicName.parse(f"persistent://big/data/topic-{topic}").path, info.SerializeToString()


def snapshot(folder: Path, ledgers: int) -> Path:
    """Write the metadata to a snapshot file and return its path."""
    path = folder / "metadata.ndjson"
    with path.open("w") as out:
        for name, value in sorted(records(ledgers)):
            line = {"path": name, "version": 0, "value": base64.b64encode(value).decode()}
            out.write(json.dumps(line) + "\n")
    return path


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledgers", type=int, default=LEDGERS)
    ledgers = parser.parse_args().ledgers
    with tempfile.TemporaryDirectory() as folder:
        frames = Path(folder) / "frames"
        frames.write_bytes(b"")
        options = {"store": f"snapshot:{snapshot(Path(folder), ledgers)}", "entries": f"frames:{frames}"}
        print(f"{ledgers} ledgers, {ledgers * ENTRIES:.1e} entries, one topic of 90 %")
        print("| source | planned in | tasks | entries per task (most) | bytes per task | sent to a task |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, kind in (("pulsar_entries", EntryReader), ("pulsar_messages", MessageSourceReader)):
            began = time.perf_counter()
            parts: Any = kind(options, ["topic", "ledger_id"]).partitions()
            spent = time.perf_counter() - began
            entries = [sum(entries_of(span) for span in part.ranges) for part in parts]
            sent = max(len(pickle.dumps(part)) for part in parts)
            print(
                f"| `{name}` | {spent:.2f} s | {len(parts)} | {max(entries)} | {max(entries) * SIZE >> 20} MB"
                f" | {sent} B |"
            )
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB")


def entries_of(part: Any) -> int:
    """Return how many entries a range has."""
    if isinstance(part, Held):
        return part.entries
    return int(part.last - part.first + 1)


if __name__ == "__main__":
    main()

"""Measure how time and memory grow with the entries that a command reads; growth.py does so for stores.

    python -m bench.growth_entries                  # 10 000, 100 000 and 1 000 000 entries
    python -m bench.growth_entries --sizes 1000 10000 100000
    python -m bench.growth_entries --only export seek --seconds 600

There is one topic, in ledgers of 50 000 entries of about 1 KB. Its records are in a snapshot, and its entries
in a bookie's log with an index. The table is that of growth.py, but per entry and without the memory of
mapped files. See bench/rebuild.py for `rebuild`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.commands import LEDGER_SIZE, START, real_frames, write_bookie
from bench.growth import line, measure
from bench.ledgers import add_index

from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.snapshot_writer import SnapshotWriter

TOPIC: Final = "bench/entries/topic"
FIRST_LEDGER: Final = 7
COMMANDS: Final = (
    *("dump-entries", "dump-entries -o ndjson", "dump-entries -o csv --deep", "dump-entries -o raw"),
    *(f"dump-entries {TOPIC}", "dump-entries -o parquet --output FILE.parquet", "verify-entries"),
    f"verify-entries {TOPIC}",
    *("ledgers", "ledgers --by-log", "disk", "disk --by log", "disk --by subscription"),
    *(f"seek {TOPIC} --index 1234", f"seek {TOPIC} --time {START + 1234}"),
    *(
        "check",
        f"check-index {TOPIC}",
        f"build-index {TOPIC} --dry-run",
        f"plan-batches {TOPIC} --keys region",
    ),
    *(f"export {TOPIC} --to FILE-parquet", f"export {TOPIC} --to FILE-ndjson -o ndjson"),
    f"show-cursor {TOPIC}",
)


def records(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield the (path, value) of a topic and its ledgers."""
    info, name = ManagedLedgerInfo(), TopicName.parse(TOPIC)
    for number, first in enumerate(range(0, count, LEDGER_SIZE)):
        ledger_id, entries = FIRST_LEDGER + number, min(LEDGER_SIZE, count - first)
        info.ledgerInfo.add(ledgerId=ledger_id, entries=entries, size=1000 * entries, timestamp=START + first)
        metadata = LedgerMetadataFormat(
            quorumSize=1,
            ackQuorumSize=1,
            ensembleSize=1,
            length=1000 * entries,
            lastEntryId=entries - 1,
            state=LedgerMetadataFormat.CLOSED,
            digestType=LedgerMetadataFormat.CRC32C,
            password=b"",
            ctime=START,
        )
        metadata.segment.add(firstEntryId=0, ensembleMember=["127.0.0.1:3181"])
        yield ledger_path(ledger_id), encode_ledger_metadata(LedgerMetadata(3, metadata))
    yield name.path, info.SerializeToString()


def make(place: Path, count: int) -> list[str]:
    """Write a log, its index and a snapshot; return the options that select them."""
    # Repeating the chunks of a message would make incomplete messages, which commands would report.
    frames = [
        frame for frame in real_frames(place) if decode_frame(frame[1]).metadata.num_chunks_from_msg < 2
    ]
    bookie = add_index(write_bookie(place / f"bookie-{count}", frames, count), count)
    writer = SnapshotWriter(place / f"{count}.ndjson", {})
    for path, value in sorted(records(count)):
        writer.add(Versioned(path, value, 1))
    writer.finish({})
    return ["--entries", f"bookie-disk:{bookie}", "--store", f"snapshot:{place / f'{count}.ndjson'}"]


def main() -> None:
    """Generate the logs, run the commands, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--only", nargs="+", help="commands by their first word")
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="growth-entries-") as made:
        place = Path(made)
        options = {size: make(place, size) for size in arguments.sizes}
        start = min(measure(["--version"], place, arguments.seconds).seconds for _ in range(3))
        heads = "".join(f"{size:>10}{'MB':>6}" for size in arguments.sizes)
        print(f"start {start:.2f} s\n{'command':70}{heads}{'exp':>6}{'B/entry':>8}", flush=True)
        for command in COMMANDS:
            if arguments.only and command.split()[0] not in arguments.only:
                continue
            runs = []
            for size, source in options.items():
                words = command.replace("FILE", str(place / f"{size}")).split()
                runs.append(measure([*words, *source], place, arguments.seconds, mapped=False))
                if runs[-1].code is None:
                    break
            print(line(command, arguments.sizes, runs, start), flush=True)


if __name__ == "__main__":
    main()

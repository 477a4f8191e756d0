"""Measure how time and memory grow with the entries, ledgers or cursors of one topic.

    python -m bench.growth_entries                  # 10 000, 100 000 and 1 000 000 entries
    python -m bench.growth_entries --by ledgers     # 100 to 100 000 ledgers of four entries
    python -m bench.growth_entries --by cursors     # 10 to 10 000 cursors of a topic with 1000 ledgers
    python -m bench.growth_entries --sizes 1000 10000 100000
    python -m bench.growth_entries --only export seek --seconds 600

There is one topic. By default its ledgers have 50 000 entries of about 1 KB. Its records are in a snapshot,
and its entries in a bookie's log with an index. The table is that of growth.py, but per entry, ledger or
cursor, and without the memory of mapped files. A snapshot is scanned or indexed as a whole, so even commands
about a single thing read all records. See bench/rebuild.py for `rebuild`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.commands import LEDGER_SIZE, START, real_frames, write_bookie
from bench.growth import line, measure
from bench.ledgers import add_index

from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
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
    *(f"show-cursor {TOPIC}", f"show-cursor {TOPIC} cursor-1", f"check {TOPIC}", f"whois {FIRST_LEDGER}"),
    *(f"get topic {TOPIC}", f"get cursor {TOPIC} cursor-1", f"get ledger {FIRST_LEDGER}"),
    *(f"ls -l topic {TOPIC}", f"tree topic {TOPIC}", f"top topic {TOPIC}", f"properties {TOPIC}"),
    f"compress-cursors --dry-run --compression lz4 --threshold 0 --topic {TOPIC}",
    f"compress-ledgers --dry-run --compression lz4 --threshold 0 --topic {TOPIC}",
    *(f"convert-cursor {TOPIC} --to ranges --dry-run", f"rm cursor {TOPIC} cursor-1 --dry-run"),
    f"set-property {TOPIC} {FIRST_LEDGER} a=b --dry-run",
    *(f"unset-property {TOPIC} {FIRST_LEDGER} a --dry-run", f"unset-property --topic {TOPIC} a --dry-run"),
    *(f"repair {verb} {TOPIC} --dry-run" for verb in ("topic-record", "termination", "compaction", "count")),
    *(f"repair {verb} {TOPIC} {FIRST_LEDGER} --dry-run" for verb in ("count", "missing-ledger")),
    *(f"repair ledger-metadata {FIRST_LEDGER} --dry-run", f"repair cursor {TOPIC} cursor-1 --dry-run"),
)
WITHOUT_ENTRIES: Final = (
    *("get", "ls", "tree", "top", "properties", "compress-cursors", "compress-ledgers", "rm"),
    *("set-property", "unset-property"),
)


class Growth(NamedTuple):
    """What grows: the default sizes, and how a size becomes entries, entries per ledger, and cursors."""

    sizes: tuple[int, ...]
    shape: Callable[[int], tuple[int, int, int]]


GROWTHS: Final = {
    "entries": Growth((10_000, 100_000, 1_000_000), lambda size: (size, LEDGER_SIZE, 2)),
    "ledgers": Growth((100, 1000, 10_000, 100_000), lambda size: (4 * size, 4, 2)),
    "cursors": Growth((10, 100, 1000, 10_000), lambda size: (4000, 4, size)),
}


def records(count: int, per_ledger: int, cursors: int) -> Iterator[tuple[str, bytes]]:
    """Yield the (path, value) of a topic, its ledgers and its cursors."""
    info, name = ManagedLedgerInfo(), TopicName.parse(TOPIC)
    for number, first in enumerate(range(0, count, per_ledger)):
        ledger_id, entries = FIRST_LEDGER + number, min(per_ledger, count - first)
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
    for number in range(cursors):
        cursor = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=FIRST_LEDGER, markDeleteEntryId=1)
        yield f"{name.path}/cursor-{number}", cursor.SerializeToString()


def make(place: Path, size: int, shape: tuple[int, int, int]) -> list[str]:
    """Write a log, its index and a snapshot; return the options that select the snapshot and the entries."""
    # Repeating the chunks of a message would make incomplete messages, which commands would report.
    frames = [
        frame for frame in real_frames(place) if decode_frame(frame[1]).metadata.num_chunks_from_msg < 2
    ]
    count, per_ledger, _ = shape
    bookie = add_index(write_bookie(place / f"bookie-{size}", frames, count, per_ledger), count, per_ledger)
    writer = SnapshotWriter(place / f"{size}.ndjson", {})
    for path, value in sorted(records(*shape)):
        writer.add(Versioned(path, value, 1))
    writer.finish({})
    return ["--store", f"snapshot:{place / f'{size}.ndjson'}", "--entries", f"bookie-disk:{bookie}"]


def main() -> None:
    """Generate the logs, run the commands, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--by", choices=GROWTHS, default="entries")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--only", nargs="+", help="commands by their first word")
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="growth-entries-") as made:
        place = Path(made)
        growth = GROWTHS[arguments.by]
        sizes = arguments.sizes or growth.sizes
        options = {size: make(place, size, growth.shape(size)) for size in sizes}
        start = min(measure(["--version"], place, arguments.seconds).seconds for _ in range(3))
        heads = "".join(f"{size:>10}{'MB':>6}" for size in sizes)
        print(f"start {start:.2f} s\n{'command':70}{heads}{'exp':>6}{'B/each':>8}", flush=True)
        for command in COMMANDS:
            if arguments.only and command.split()[0] not in arguments.only:
                continue
            runs = []
            for size, source in options.items():
                words = command.replace("FILE", str(place / f"{size}")).split()
                words += source[:2] if words[0] in WITHOUT_ENTRIES else source
                runs.append(measure(words, place, arguments.seconds, mapped=False))
                if runs[-1].code is None:
                    break
            print(line(command, sizes, runs, start), flush=True)


if __name__ == "__main__":
    main()

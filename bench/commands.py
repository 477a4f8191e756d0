"""Measure how fast commands on entries are: `python bench/commands.py [--entries 300000] [--only NAME…]`.

The unit is a loop in the same run that parses BrokerEntryMetadata and MessageMetadata of each entry with
protobuf and reads three fields of them. The table shows each command's speed as a share of the loop's, in
entries per second of processor time (user and system). Each command runs in a separate process, alternately
on a log of all entries and on a log of a tenth of them; the difference of the two is the time of nine tenths
without start-up and imports. All values are medians of --rounds rounds.

Commands use one process (--jobs 1), except in the last rows of each log. These rows compare wall-clock times
of --jobs processes and of one process on the complete log, which has an index by then. They need a machine
that does nothing else. With --before CHECKOUT, commands that have a goal relative to another checkout are
also measured there in the same rounds, on a tenth and a hundredth of the log.

The log consists of entries of a real bookie from fixtures/captures, between 700 and 1 500 bytes including
metadata and checksums. They are repeated in ledgers of 50 000 entries, with new ids, lengths, indexes and
digests.
"""

from __future__ import annotations

import argparse
import lzma
import os
import resource
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Final

import lz4.block

from pulsar_meta.access.processes import cores
from pulsar_meta.codecs.bookie_files.entry_log import HEADER_SIZE
from pulsar_meta.codecs.columns.records import find_records
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.batch import join_batch
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry, encode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame, encode_frame, encode_prefix, split_broker_metadata
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata

ROOT: Final = Path(__file__).parent.parent
CAPTURE: Final = "pulsar-4.2.4"
SMALLEST, LARGEST = 700, 1500
LEDGER_SIZE: Final = 50_000
BATCH: Final = 10
START: Final = 1_795_000_000_000
MAIN: Final = (sys.executable, "-c", "from pulsar_meta.cli.app import main; main()")


@dataclass(frozen=True)
class Row:
    """A line of the table: a command, the kind of log, and the share of the loop that it must reach.

    `times` is the required speed relative to --before. `by_clock` rows compare several processes with one.
    """

    name: str
    words: str
    goal: float | None
    log: str = "real"
    times: float | None = None
    by_clock: bool = False


@dataclass(frozen=True)
class Measured:
    """The results of a row: its share of the loop, entries per second, and speed relative to --before."""

    share: float
    rate: float
    times: float | None


ROWS: Final = (
    Row("dump-entries plain", "dump-entries", 0.35),
    Row("dump-entries csv", "dump-entries -o csv", 0.35),
    Row("dump-entries ndjson", "dump-entries -o ndjson", 0.18),
    Row("dump-entries json", "dump-entries -o json", None),
    Row("dump-entries parquet", "dump-entries -o parquet --output FILE", 0.6),
    Row("dump-entries raw", "dump-entries -o raw", 0.6),
    Row("verify-entries", "verify-entries", 0.6),
    Row("dump-entries plain, batches", "dump-entries", None, "batches"),
    Row("dump-entries --deep plain, batches", "dump-entries --deep", None, "batches", 5),
    Row("dump-entries --deep csv, batches", "dump-entries --deep -o csv", None, "batches", 5),
    Row("dump-entries --deep ndjson, batches", "dump-entries --deep -o ndjson", None, "batches", 5),
    Row("verify-entries, batches", "verify-entries", None, "batches"),
    Row("dump-entries plain, jobs", "dump-entries", None, by_clock=True),
    Row("dump-entries raw, jobs", "dump-entries -o raw", None, by_clock=True),
    Row("verify-entries, jobs", "verify-entries", None, by_clock=True),
    Row("--deep ndjson, batches, jobs", "dump-entries --deep -o ndjson", None, "batches", by_clock=True),
)


def real_frames(place: Path) -> list[tuple[BrokerEntryMetadata | None, bytes, int]]:
    """Return the entries of a capture of about 1 KB as (broker metadata, remaining bytes, messages)."""
    with (
        lzma.open(ROOT / "fixtures" / "captures" / f"{CAPTURE}.tar.xz") as compressed,
        tarfile.open(fileobj=compressed) as archive,
    ):
        archive.extractall(place)
    frames = []
    with open_entries([f"bookie-disk:{place / CAPTURE / 'bookie0'}"]) as source:
        for ledger_id in source.ledgers():
            for raw in source.read_many(ledger_id):
                if not SMALLEST <= len(raw.data) <= LARGEST:
                    continue
                data = decode_bookie_entry(raw.data).data
                try:
                    frame = decode_frame(data)
                except DecodeError:
                    continue
                broker, at = split_broker_metadata(data)
                if frame.index is not None:
                    frames.append((broker, bytes(data[at:]), frame.index_width))
    return frames


def batch_frames() -> list[tuple[BrokerEntryMetadata | None, bytes, int]]:
    """Build batches of ten messages of about 100 bytes with a key, in LZ4, like a Java producer does."""
    frames: list[tuple[BrokerEntryMetadata | None, bytes, int]] = []
    for number in range(500):
        messages = []
        for at in range(BATCH):
            single = SingleMessageMetadata(
                partition_key=f"key-{number % 17}", sequence_id=number * BATCH + at
            )
            text = f"message {at} of batch {number}: " + "abcdefghij" * 5
            messages.append((single, text.encode() + os.urandom(20).hex().encode()))
        payload = join_batch(messages)
        metadata = MessageMetadata(
            producer_name="standalone-0-17",
            sequence_id=number * BATCH,
            highest_sequence_id=number * BATCH + BATCH - 1,
            publish_time=START + number,
            num_messages_in_batch=BATCH,
            compression="LZ4",
            uncompressed_size=len(payload),
        )
        compressed = lz4.block.compress(payload, store_size=False)
        frames.append(
            (BrokerEntryMetadata(broker_timestamp=1, index=1), encode_frame(metadata, compressed), BATCH)
        )
    return frames


def write_bookie(
    place: Path,
    frames: list[tuple[BrokerEntryMetadata | None, bytes, int]],
    count: int,
    per_ledger: int = LEDGER_SIZE,
) -> Path:
    """Write a ledger directory with one entry log of `count` entries, in ledgers of `per_ledger`."""
    current = place / "current"
    current.mkdir(parents=True)
    with (current / "0.log").open("wb") as log:
        log.write(b"BKLO" + (1).to_bytes(4) + bytes(HEADER_SIZE - 8))
        length, index = 0, -1
        for number, (broker, remainder, width) in enumerate(islice(cycle(frames), count)):
            ledger, entry = divmod(number, per_ledger)
            if not entry:
                length = 0
            index += width
            if broker is not None:
                broker.broker_timestamp, broker.index = START + number, index
            frame = encode_prefix(broker) + remainder
            length += len(frame)
            data = encode_bookie_entry(ledger + 7, entry, entry - 1, length, frame)
            log.write(len(data).to_bytes(4) + data)
    return place


def write_index(place: Path) -> None:
    """Write the index of locations that a bookie keeps for its log."""
    from rocksdict import Options, Rdict

    current = place / "current"
    records = find_records((current / "0.log").read_bytes())
    database = Rdict(str(current / "locations"), Options(raw_mode=True))
    # This is log 0, so a location is just the offset.
    for number, offset in enumerate(records.offsets.tolist()):
        ledger, entry = divmod(number, LEDGER_SIZE)
        database[struct.pack(">qq", ledger + 7, entry)] = struct.pack(">q", offset)
    database.close()


def places_of(log: Path) -> tuple[bytes, list[tuple[int, int, int, int]]]:
    """Return the bytes of a log, and for each entry the start and end of its two messages."""
    data, places = log.read_bytes(), []
    records = find_records(data)
    for offset in records.offsets.tolist():
        start = offset + 36
        if data[start : start + 2] == b"\x0e\x02":
            start += 6
            end = start + int.from_bytes(data[start - 4 : start])
        else:
            end = start
        at = end + 6 if data[end : end + 2] == b"\x0e\x01" else end
        places.append((start, end, at + 4, at + 4 + int.from_bytes(data[at : at + 4])))
    return data, places


def loop_seconds(data: bytes, places: list[tuple[int, int, int, int]]) -> float:
    """Return the processor time of the loop that is the unit of the table."""
    started = time.process_time()
    for broker_at, broker_end, at, end in places:
        broker = BrokerEntryMetadata.FromString(data[broker_at:broker_end])
        message = MessageMetadata.FromString(data[at:end])
        _ = broker.index, message.publish_time, message.producer_name
    return time.process_time() - started


def clock_seconds(words: str, place: Path, jobs: int) -> float:
    """Run a command and return its wall-clock time, including start-up; raise if it fails."""
    arguments = [*words.split(), "--jobs", str(jobs), "--entries", f"bookie-disk:{place}"]
    started = time.perf_counter()
    subprocess.run([*MAIN, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def command_seconds(words: str, place: Path, made: Path, checkout: str | None) -> float:
    """Run a command and return its processor time; raise if it fails."""
    arguments = [*words.replace("FILE", str(made)).split(), "--entries", f"bookie-disk:{place}"]
    environment = dict(os.environ, PULSAR_META_JOBS="1")
    if checkout is not None:
        roots = sorted({str(root.parent) for root in Path(checkout).glob("*/pulsar_meta")})
        environment["PYTHONPATH"] = os.pathsep.join(roots)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*MAIN, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{words}: exit {done.returncode}: {done.stderr.decode()[-300:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def shares(options: argparse.Namespace, place: Path) -> Iterator[tuple[Row, Measured]]:
    """Yield each row with its results."""
    rows = [row for row in ROWS if not options.only or any(only in row.name for only in options.only)]
    makers: dict[str, Callable[[], list[tuple[BrokerEntryMetadata | None, bytes, int]]]] = {
        "real": lambda: real_frames(place / "capture"),
        "batches": batch_frames,
    }
    for kind, make in makers.items():
        rows_of_log = [row for row in rows if row.log == kind]
        if not rows_of_log:
            continue
        frames = make()
        large = write_bookie(place / f"{kind}-large", frames, options.entries)
        small = write_bookie(place / f"{kind}-small", frames, options.entries // 10)
        tiny = small
        if options.before:
            tiny = write_bookie(place / f"{kind}-tiny", frames, options.entries // 100)
        counts = {large: options.entries, small: options.entries // 10, tiny: options.entries // 100}
        size = (large / "current" / "0.log").stat().st_size // options.entries
        print(f"{kind}: {options.entries} entries of {size} bytes, {len(frames)} different ones", flush=True)
        data, places = places_of(large / "current" / "0.log")
        for row in rows_of_log:
            if row.by_clock:
                if not (large / "current" / "locations").exists():
                    write_index(large)
                print(_by_clock(row, large, options), flush=True)
                continue
            loop_shares, rates, times = [], [], []
            for _ in range(options.rounds):
                loop = loop_seconds(data, places) / len(places)
                each = _each(row, counts, (large, small), place / "made", options.checkout)
                loop_shares.append(loop / each)
                rates.append(1 / each)
                if options.before and row.times:
                    times.append(_each(row, counts, (small, tiny), place / "made", options.before) / each)
            yield row, Measured(median(loop_shares), median(rates), median(times) if times else None)


def _by_clock(row: Row, log: Path, options: argparse.Namespace) -> str:
    """Measure a row that compares several processes with one, and format its line."""
    pairs = [
        (clock_seconds(row.words, log, 1), clock_seconds(row.words, log, options.jobs))
        for _ in range(options.rounds)
    ]
    single, several = (median(each) for each in zip(*pairs, strict=True))
    times = median(one_process / all_processes for one_process, all_processes in pairs)
    return (
        f"  {row.name:36}{single:7.2f} s with one process,"
        f" {several:.2f} s with {options.jobs}: {times:.2f} × as fast"
    )


def _each(
    row: Row, counts: dict[Path, int], logs: tuple[Path, Path], made: Path, checkout: str | None
) -> float:
    """Return the seconds per entry, from the difference between two logs."""
    first, second = (command_seconds(row.words, log, made, checkout) for log in logs)
    return (first - second) / (counts[logs[0]] - counts[logs[1]])


def main() -> None:
    """Create the logs and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=cores(), help="processes of the rows by the clock")
    parser.add_argument("--only", nargs="+", help="only rows whose name contains one of these words")
    parser.add_argument("--checkout", help="measure the commands of another checkout")
    parser.add_argument("--before", help="also measure another checkout, and compare")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="commands-") as made:
        for row, result in shares(options, Path(made)):
            goal = "" if row.goal is None else f"goal {row.goal:.2f}"
            line = f"  {row.name:36}{result.share:7.3f} of the loop  {goal:10}{result.rate:12,.0f} entries/s"
            if result.times is not None:
                line += f"  {result.times:6.1f} × before" + (f", goal {row.times} ×" if row.times else "")
            print(line, flush=True)


if __name__ == "__main__":
    main()

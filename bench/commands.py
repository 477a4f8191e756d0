"""How fast the commands that people type are: `python bench/commands.py [--entries 300000] [--only NAME…]`.

The unit is a loop in the same run that parses BrokerEntryMetadata and MessageMetadata of each entry with
protobuf and reads three fields of them. A command's speed is given as a share of the loop's: entries a second
over entries a second, of processor time (user and system) each. A command runs in a process of its own, over
a log of all entries and over one of a tenth, in turns; the difference is what the other nine tenths take, so
that start-up and imports are not counted. Medians of --rounds rounds.
Each command is one process (--jobs 1), but for the last rows of a log: those are by the clock, with the
processes of --jobs and with one, in turns, over the whole log, which has its index by then. They need a
machine that does nothing else.
With --before, another checkout, commands that have to be so many times as fast are measured there too, in
the same rounds, over a tenth of the log and a hundredth.

The log is a real bookie's, from fixtures/captures: entries between 700 and 1 500 bytes, with their metadata,
payloads and checksums, over and over in ledgers of 50 000; ids, lengths, indexes and digests go on.
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
from pulsar_meta.entries.registry import open_entries
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
    """A line of the table: a command over a kind of log, and the share of the loop that it has to reach.

    `times` is how many times as fast as before it has to be. `by_clock`: several processes against one.
    """

    name: str
    words: str
    goal: float | None
    log: str = "real"
    times: float | None = None
    by_clock: bool = False


@dataclass(frozen=True)
class Measured:
    """What a row's command reaches: its share of the loop, entries a second, and times as fast as before."""

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
    """Return (broker's part, what follows it, messages) of a capture's entries of about 1 KB."""
    with (
        lzma.open(ROOT / "fixtures" / "captures" / f"{CAPTURE}.tar.xz") as packed,
        tarfile.open(fileobj=packed) as archive,
    ):
        archive.extractall(place)
    found = []
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
                    found.append((broker, bytes(data[at:]), frame.index_width))
    return found


def batch_frames() -> list[tuple[BrokerEntryMetadata | None, bytes, int]]:
    """Return batches of ten messages of about 100 bytes with a key, LZ4, as a Java producer makes them."""
    found: list[tuple[BrokerEntryMetadata | None, bytes, int]] = []
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
        packed = lz4.block.compress(payload, store_size=False)
        found.append(
            (BrokerEntryMetadata(broker_timestamp=1, index=1), encode_frame(metadata, packed), BATCH)
        )
    return found


def write_bookie(
    place: Path, frames: list[tuple[BrokerEntryMetadata | None, bytes, int]], count: int
) -> Path:
    """Write a ledger directory with one entry log of `count` entries."""
    current = place / "current"
    current.mkdir(parents=True)
    with (current / "0.log").open("wb") as log:
        log.write(b"BKLO" + (1).to_bytes(4) + bytes(HEADER_SIZE - 8))
        length, index = 0, -1
        for number, (broker, rest, width) in enumerate(islice(cycle(frames), count)):
            ledger, entry = divmod(number, LEDGER_SIZE)
            if not entry:
                length = 0
            index += width
            if broker is not None:
                broker.broker_timestamp, broker.index = START + number, index
            frame = encode_prefix(broker) + rest
            length += len(frame)
            data = encode_bookie_entry(ledger + 7, entry, entry - 1, length, frame)
            log.write(len(data).to_bytes(4) + data)
    return place


def write_index(place: Path) -> None:
    """Write the index of locations that a bookie has beside its log."""
    from rocksdict import Options, Rdict

    current = place / "current"
    records = find_records((current / "0.log").read_bytes())
    database = Rdict(str(current / "locations"), Options(raw_mode=True))
    # Log 0: a location is the offset alone.
    for number, offset in enumerate(records.offsets.tolist()):
        ledger, entry = divmod(number, LEDGER_SIZE)
        database[struct.pack(">qq", ledger + 7, entry)] = struct.pack(">q", offset)
    database.close()


def places_of(log: Path) -> tuple[bytes, list[tuple[int, int, int, int]]]:
    """Return the bytes of a log, and where in them the two messages of each entry begin and end."""
    data, found = log.read_bytes(), []
    records = find_records(data)
    for offset in records.offsets.tolist():
        start = offset + 36
        if data[start : start + 2] == b"\x0e\x02":
            start += 6
            end = start + int.from_bytes(data[start - 4 : start])
        else:
            end = start
        at = end + 6 if data[end : end + 2] == b"\x0e\x01" else end
        found.append((start, end, at + 4, at + 4 + int.from_bytes(data[at : at + 4])))
    return data, found


def loop_seconds(data: bytes, places: list[tuple[int, int, int, int]]) -> float:
    """Return the processor time of the loop that is the unit."""
    started = time.process_time()
    for broker_at, broker_end, at, end in places:
        broker = BrokerEntryMetadata.FromString(data[broker_at:broker_end])
        message = MessageMetadata.FromString(data[at:end])
        _ = broker.index, message.publish_time, message.producer_name
    return time.process_time() - started


def clock_seconds(words: str, place: Path, jobs: int) -> float:
    """Return the time that a command takes by the clock, start-up included; it must end well."""
    arguments = [*words.split(), "--jobs", str(jobs), "--entries", f"bookie-disk:{place}"]
    started = time.perf_counter()
    subprocess.run([*MAIN, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def command_seconds(words: str, place: Path, made: Path, checkout: str | None) -> float:
    """Return the processor time of a command; it must end well."""
    arguments = [*words.replace("FILE", str(made)).split(), "--entries", f"bookie-disk:{place}"]
    environment = dict(os.environ, PULSAR_META_JOBS="1")
    if checkout is not None:
        roots = sorted({str(found.parent) for found in Path(checkout).glob("*/pulsar_meta")})
        environment["PYTHONPATH"] = os.pathsep.join(roots)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*MAIN, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{words}: exit {done.returncode}: {done.stderr.decode()[-300:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def shares(asked: argparse.Namespace, place: Path) -> Iterator[tuple[Row, Measured]]:
    """Yield each row with what its command reaches."""
    rows = [row for row in ROWS if not asked.only or any(only in row.name for only in asked.only)]
    makers: dict[str, Callable[[], list[tuple[BrokerEntryMetadata | None, bytes, int]]]] = {
        "real": lambda: real_frames(place / "capture"),
        "batches": batch_frames,
    }
    for kind, make in makers.items():
        mine = [row for row in rows if row.log == kind]
        if not mine:
            continue
        frames = make()
        large = write_bookie(place / f"{kind}-large", frames, asked.entries)
        small = write_bookie(place / f"{kind}-small", frames, asked.entries // 10)
        tiny = write_bookie(place / f"{kind}-tiny", frames, asked.entries // 100) if asked.before else small
        counts = {large: asked.entries, small: asked.entries // 10, tiny: asked.entries // 100}
        size = (large / "current" / "0.log").stat().st_size // asked.entries
        print(f"{kind}: {asked.entries} entries of {size} bytes, {len(frames)} different ones", flush=True)
        data, places = places_of(large / "current" / "0.log")
        for row in mine:
            if row.by_clock:
                if not (large / "current" / "locations").exists():
                    write_index(large)
                print(_by_clock(row, large, asked), flush=True)
                continue
            found, rates, times = [], [], []
            for _ in range(asked.rounds):
                loop = loop_seconds(data, places) / len(places)
                each = _each(row, counts, (large, small), place / "made", asked.checkout)
                found.append(loop / each)
                rates.append(1 / each)
                if asked.before and row.times:
                    times.append(_each(row, counts, (small, tiny), place / "made", asked.before) / each)
            yield row, Measured(median(found), median(rates), median(times) if times else None)


def _by_clock(row: Row, log: Path, asked: argparse.Namespace) -> str:
    """Return the line of a row that compares several processes with one."""
    pairs = [
        (clock_seconds(row.words, log, 1), clock_seconds(row.words, log, asked.jobs))
        for _ in range(asked.rounds)
    ]
    one, several = (median(each) for each in zip(*pairs, strict=True))
    times = median(alone / shared for alone, shared in pairs)
    return (
        f"  {row.name:36}{one:7.2f} s by one process, {several:.2f} s by {asked.jobs}: {times:.2f} × as fast"
    )


def _each(
    row: Row, counts: dict[Path, int], logs: tuple[Path, Path], made: Path, checkout: str | None
) -> float:
    """Return the seconds that an entry takes, by what the first log takes more than the second."""
    first, second = (command_seconds(row.words, log, made, checkout) for log in logs)
    return (first - second) / (counts[logs[0]] - counts[logs[1]])


def main() -> None:
    """Make the logs and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=cores(), help="processes of the rows by the clock")
    parser.add_argument("--only", nargs="+", help="rows whose name has one of these in it")
    parser.add_argument("--checkout", help="measure the commands of another checkout")
    parser.add_argument("--before", help="measure another checkout, too, and compare")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="commands-") as made:
        for row, found in shares(asked, Path(made)):
            goal = "" if row.goal is None else f"goal {row.goal:.2f}"
            line = f"  {row.name:36}{found.share:7.3f} of the loop  {goal:10}{found.rate:12,.0f} entries/s"
            if found.times is not None:
                line += f"  {found.times:6.1f} × before" + (f", goal {row.times} ×" if row.times else "")
            print(line, flush=True)


if __name__ == "__main__":
    main()

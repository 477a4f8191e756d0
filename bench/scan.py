"""Compare scanning an entry log into columns with a loop over entries, with `cat`, and with Spark.

    python bench/scan.py [--entries 300000] [--size 1024] [--spark [--rounds 8]]

Entry logs are written with the project's own encoder to a temporary directory and read once, so that they are
in the page cache. Times are processor times, the best of three. Spark and the single process that it is
compared with are measured in wall-clock time, after start-up. The goals are columns at 5 times the speed of
the loop, 2 million entries of 1 KB per second and core, and Spark at 0.85 × cores if the partitions
aggregate.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import Pool
from pathlib import Path

from pulsar_meta.codecs.bookie_files.entry_log import HEADER_SIZE, Record, scan_records
from pulsar_meta.codecs.columns.entries import Column, Row, columns_of, decode_row, reader_for
from pulsar_meta.codecs.columns.records import find_records
from pulsar_meta.codecs.columns.words import Positions
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame, encode_frame
from pulsar_meta.codecs.frames.row_schema import HEADER_COLUMNS
from pulsar_meta.jobs.entry_reader import COLUMN_ROWS_AT_ONCE
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

CHECKED = ("ledger_id", "entry_id", "first_index", "last_index", "broken")
TIMES = 3
CORES = 2
PARTITIONS_PER_CORE = 4
# The loop is slow, so it reads only this many entries.
LOOPED = 50_000


def write_log(path: Path, count: int, size: int, *, vary: bool, ledger: int) -> None:
    """Write a log of `count` entries with `size` bytes of payload, or varying around this size."""
    chance = random.Random(ledger)
    payload = chance.randbytes(size * 2)
    metadata = MessageMetadata(producer_name="standalone-0-17", num_messages_in_batch=10, compression="LZ4")
    length = 0
    with path.open("wb") as log:
        log.write(b"BKLO" + (1).to_bytes(4) + bytes(HEADER_SIZE - 8))
        for entry in range(count):
            metadata.sequence_id, metadata.highest_sequence_id = entry * 10, entry * 10 + 9
            metadata.publish_time = 1_700_000_000_000 + entry
            metadata.uncompressed_size = size * 3
            broker = BrokerEntryMetadata(broker_timestamp=1_700_000_000_001 + entry, index=entry * 10 + 9)
            body = payload[: chance.randrange(size // 2, size * 3 // 2) if vary else size]
            frame = encode_frame(metadata, body, broker_metadata=broker, checksum=False)
            length += len(frame)
            data = encode_bookie_entry(ledger, entry, entry - 1, length, frame)
            log.write(len(data).to_bytes(4) + data)


def by_columns(path: Path, columns: tuple[str, ...] = CHECKED) -> tuple[int, int]:
    """Decode a log into columns; return the number of entries and the sum of their last indexes."""
    with mapped(path) as view:
        count, total = 0, 0
        for part in decoded(view, columns):
            count += len(part["last_index"].values)
            total += int(part["last_index"].values.sum())
        return count, total


def decoded(view: memoryview, names: tuple[str, ...]) -> Iterator[dict[str, Column]]:
    """Yield columns of a log's entries, as many rows at a time as the product decodes."""
    places, reader = find_records(view), reader_for(names, digest_type="CRC32C")
    for start in range(0, len(places.offsets), COLUMN_ROWS_AT_ONCE):
        stop = start + COLUMN_ROWS_AT_ONCE
        offsets, sizes = places.offsets[start:stop], places.sizes[start:stop]
        headers = reader.read(view, offsets, sizes)

        def row(at: int, offsets: Positions = offsets, sizes: Positions = sizes) -> Row:
            return decode_row(view[offsets[at] : offsets[at] + sizes[at]], digest_type="CRC32C")

        yield columns_of(headers, names, headers.whole, row)


def by_entry(path: Path, most: int = 2**63) -> tuple[int, int]:
    """Do the same for the first `most` entries, one at a time and without checksums."""
    count, total = 0, 0
    with mapped(path) as view:
        for record in scan_records(view):
            if isinstance(record, Record):
                count += 1
                total += _last_index(view[record.offset + 36 : record.offset + record.size])
            if count >= most:
                break
    return count, total


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Map a log into memory; the mapping ends when its last view is gone."""
    with path.open("rb") as file:
        yield memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


def _last_index(data: memoryview) -> int:
    frame = decode_frame(data, verify=False)
    indexes = frame.index_range
    return indexes[1] if indexes else 0


def measured(work: Callable[[], tuple[int, int]]) -> tuple[float, tuple[int, int]]:
    """Return the entries per second of processor time (the best of TIMES) and the answer."""
    best, answer = 0.0, (0, 0)
    for _ in range(TIMES):
        start = time.process_time()
        answer = work()
        best = max(best, answer[0] / (time.process_time() - start))
    return best, answer


def cat_seconds(path: Path) -> float:
    """Return the processor time of `cat FILE` through a pipe, which makes it copy the bytes."""
    best = float("inf")
    for _ in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(f"cat '{path}' | cat > /dev/null", shell=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best, used)
    return best


def one_log(path: Path, size: int) -> None:
    """Measure the loop, columns and cat on one log, and print the results."""
    loop, _ = measured(lambda: by_entry(path, LOOPED))
    columns, answer = measured(lambda: by_columns(path))
    all_columns, _ = measured(lambda: by_columns(path, HEADER_COLUMNS))
    assert answer == by_entry(path)
    cat = answer[0] / cat_seconds(path)
    for name, rate in (
        ("entry by entry", loop),
        ("columns of check-index", columns),
        ("all columns", all_columns),
    ):
        print(f"  {name:24}{rate / 1e6:8.3f} M entries/s/core{rate / loop:8.1f} x the loop")
    print(
        f"  {'cat | cat':24}{cat / 1e6:8.3f} M entries/s/core   columns take {cat / columns:.2f} x its time"
    )
    print(f"  ({answer[0]} entries of about {size} bytes, {path.stat().st_size / 1e6:.0f} MB)")


def rows_of(path: str) -> Iterator[tuple[int, int, int]]:
    """Yield a tuple for each entry of a log, as Spark would need for row-by-row processing."""
    with Path(path).open("rb") as file:
        data = file.read()
    for columns in decoded(memoryview(data), CHECKED):
        lists = (columns[name].tolist() for name in ("ledger_id", "entry_id", "last_index"))
        yield from zip(*lists, strict=True)


def share(paths: Iterable[Path]) -> Iterator[tuple[int, float]]:
    """Yield the entries of one partition and the processor time that reading them took."""
    start = time.process_time()
    count = sum(by_columns(path)[0] for path in paths)
    yield count, time.process_time() - start


def by_spark(paths: list[Path], rounds: int) -> None:
    """Measure Spark on all logs, `rounds` times, against one process, in wall-clock time after start-up.

    Cores that share caches and memory, or are used by others, give less than their number. Plain processes
    on the same logs, one per core, show how much is possible.
    """
    from pulsar_meta.jobs.engine import SparkSettings
    from pulsar_meta.jobs.spark.session import spark_session

    work = paths * rounds
    count = sum(entries for entries, _ in share(paths)) * rounds
    with Pool(CORES) as pool:
        plain, used_plain = timed(lambda: pool.map(total, [work[at::CORES] for at in range(CORES)]), count)
    with spark_session(SparkSettings(f"local[{CORES}]")) as session:
        context = session.sparkContext
        partitions = context.parallelize(work, CORES * PARTITIONS_PER_CORE)
        # Start-up is complete when each worker has done some of the work.
        context.parallelize(paths, CORES * PARTITIONS_PER_CORE).mapPartitions(share).collect()
        single, used_single = timed(lambda: list(share(work)), count)
        aggregated, used = timed(partitions.mapPartitions(share).collect, count)
        start = time.perf_counter()
        names = context.parallelize([str(path) for path in paths], len(paths))
        assert names.flatMap(rows_of).count() == count // rounds
        one_by_one = time.perf_counter() - start
    print(f"{count} entries, {len(paths)} logs {rounds} times over:")
    for name, seconds, on_cpu in (
        ("one process", single, used_single),
        (f"{CORES} plain processes", plain, used_plain),
        ("Spark, aggregated", aggregated, used),
    ):
        print(f"  {name:24}{seconds:7.2f} s, the processor for {on_cpu:.2f} s", end="")
        print(f"{single / seconds / CORES:8.2f} x {CORES} cores")
    print(f"  Spark takes {aggregated / plain:.2f} x the time of the plain processes")
    print(f"  {'Spark, rows one by one':24}{one_by_one:7.2f} s for one time", end="")
    print(f"{single / rounds / one_by_one / CORES:8.2f} x {CORES} cores")


def total(paths: Iterable[Path]) -> tuple[int, float]:
    """Return the first item of `share`."""
    return next(share(paths))


def timed(work: Callable[[], list[tuple[int, float]]], count: int) -> tuple[float, float]:
    """Scan `count` entries; return the wall-clock and the processor seconds."""
    start = time.perf_counter()
    shares = work()
    seconds = time.perf_counter() - start
    assert sum(entries for entries, _ in shares) == count
    return seconds, sum(used for _, used in shares)


def main() -> None:
    """Create the logs and print the results."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--entries", type=int, default=300_000)
    options.add_argument("--size", type=int, default=1024)
    options.add_argument(
        "--spark", action="store_true", help="also measure Spark, on eight logs of --entries each"
    )
    options.add_argument("--rounds", type=int, default=8, help="how often Spark reads the logs (default: 8)")
    options_given = options.parse_args()
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="scan-") as folder:
        for vary in (False, True):
            path = Path(folder) / f"{int(vary)}.log"
            write_log(path, options_given.entries, options_given.size, vary=vary, ledger=5)
            print("entries of one size:" if not vary else "entries of all sizes:")
            one_log(path, options_given.size)
        if options_given.spark:
            paths = [Path(folder) / "0.log"]
            for number in range(1, 8):
                paths.append(Path(folder) / f"spark-{number}.log")
                write_log(paths[-1], options_given.entries, options_given.size, vary=True, ledger=number)
            by_spark(paths, options_given.rounds)


if __name__ == "__main__":
    main()

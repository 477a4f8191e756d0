"""Measure how fast `check` is, how much memory it needs, and when it prints its first finding.

    python -m bench.check                                # 10 000, 100 000 and 1 000 000 values
    python -m bench.check --values 10000000 --rounds 1   # takes half an hour
    python -m bench.check --spark                        # also with Spark
    python -m bench.check --checkout DIR                 # also the program of another checkout

`tests/large_store.py` generates RocksDB databases as a standalone has them, with topics of two ledgers and
three subscriptions, ledger metadata, partitioned topics and schemas. Every 997th topic is damaged. The table
shows the processor seconds of the complete process (the fewest of several rounds) and its peak memory in MB,
both including start-up. `first` is the wall-clock time until the first line of findings.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.growth import in_new_process

from tests.large_store import topic_name, topics_for, write_rocksdb

MAIN = ("-c", "from pulsar_meta.cli.app import main; main()")
DAMAGED_EVERY = 997


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: processor seconds, peak memory in bytes, seconds until the first line, and lines printed."""

    seconds: float
    peak: int
    first: float
    lines: int


def measure(python: str, words: Sequence[str], place: Path) -> Measured:
    """Run the program once."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PULSAR_META_")}
    environment = inherited | {"XDG_STATE_HOME": str(place), "XDG_CONFIG_HOME": str(place)}
    begun = time.monotonic()
    with (
        (place / "stderr").open("wb") as stderr,
        subprocess.Popen(
            [python, *MAIN, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
            env=environment,
        ) as child,
    ):  # fmt: skip
        assert child.stdout is not None
        lines = int(bool(child.stdout.readline()))
        first = time.monotonic() - begun
        lines += sum(1 for _ in child.stdout)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise SystemExit((place / "stderr").read_text())
    return Measured(usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, first, lines)


def row(name: str, values: int, runs: Sequence[Measured]) -> str:
    """Format a line of the table, with the fewest seconds of the rounds."""
    seconds, first = min(run.seconds for run in runs), min(run.first for run in runs)
    peak = max(run.peak for run in runs)
    return (
        f"{values:>10}  {name:28}{seconds:8.2f} s {1e6 * seconds / values:7.1f} us/value"
        f"{peak >> 20:7} MB   first {first:6.2f} s {runs[0].lines:7} findings"
    )


def rows(options: argparse.Namespace, values: int, place: Path) -> None:
    """Measure one store size and print its lines."""
    store = in_new_process(write_rocksdb, place / f"{values}.rocksdb", topics_for(values), DAMAGED_EVERY)
    everything = ("check", "-o", "ndjson", "--min-age", "0", "--store", store)
    programs = [("", sys.executable)]
    if options.checkout:
        programs.append((" (other)", str(Path(options.checkout, ".venv", "bin", "python"))))
    commands = [("check", everything), ("check TOPIC", (*everything, str(topic_name(0))))]
    runs: dict[str, list[Measured]] = {}
    for _ in range(options.rounds):
        for suffix, python in programs:
            for name, words in commands:
                runs.setdefault(name + suffix, []).append(measure(python, words, place))
    if options.spark:
        runs["check --engine spark"] = [measure(sys.executable, (*everything, "--engine", "spark"), place)]
    for name, measured in runs.items():
        print(row(name, values, measured), flush=True)


def main() -> None:
    """Generate the stores, check them, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--checkout")
    options = parser.parse_args()
    for values in options.values:
        with tempfile.TemporaryDirectory(prefix="check-") as made:
            rows(options, values, Path(made))


if __name__ == "__main__":
    main()

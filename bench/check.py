"""How fast `check` is, how much memory it takes, and when its first finding comes.

    python -m bench.check                                # 10 000, 100 000 and 1 000 000 values
    python -m bench.check --values 10000000 --rounds 1   # takes half an hour
    python -m bench.check --spark                        # all of it by Spark, too
    python -m bench.check --checkout DIR                 # the program of another checkout, beside this one

The databases are a standalone's (RocksDB), as `tests/large_store.py` makes them: topics with two ledgers and
three subscriptions, their ledgers' metadata, partitioned topics, schemas; every 997th topic has a wound.
Seconds and memory are those of the whole process, start included: seconds of the processor (of several
rounds the fewest), the peak in MB. `first` is when the first line of findings came, by the clock.
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

from bench.growth import made_apart

from tests.large_store import topic_name, topics_for, write_rocksdb

MAIN = ("-c", "from pulsar_meta.cli.app import main; main()")
WOUNDED_EVERY = 997


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: seconds of the processor, peak memory in bytes, seconds to the first line, lines."""

    seconds: float
    peak: int
    first: float
    lines: int


def measure(python: str, words: Sequence[str], place: Path) -> Measured:
    """Run the program once."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PULSAR_META_")}
    environment = kept | {"XDG_STATE_HOME": str(place), "XDG_CONFIG_HOME": str(place)}
    begun = time.monotonic()
    with (
        (place / "stderr").open("wb") as talk,
        subprocess.Popen(
            [python, *MAIN, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=talk,
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


def row(name: str, values: int, found: Sequence[Measured]) -> str:
    """Return a line of the table: the fewest seconds of the rounds."""
    seconds, first = min(one.seconds for one in found), min(one.first for one in found)
    peak = max(one.peak for one in found)
    return (
        f"{values:>10}  {name:28}{seconds:8.2f} s {1e6 * seconds / values:7.1f} us/value"
        f"{peak >> 20:7} MB   first {first:6.2f} s {found[0].lines:7} findings"
    )


def rows(asked: argparse.Namespace, values: int, place: Path) -> None:
    """Measure one size."""
    store = made_apart(write_rocksdb, place / f"{values}.rocksdb", topics_for(values), WOUNDED_EVERY)
    everything = ("check", "-o", "ndjson", "--min-age", "0", "--store", store)
    programs = [("", sys.executable)]
    if asked.checkout:
        programs.append((" (other)", str(Path(asked.checkout, ".venv", "bin", "python"))))
    commands = [("check", everything), ("check TOPIC", (*everything, str(topic_name(0))))]
    found: dict[str, list[Measured]] = {}
    for _ in range(asked.rounds):
        for suffix, python in programs:
            for name, words in commands:
                found.setdefault(name + suffix, []).append(measure(python, words, place))
    if asked.spark:
        found["check --engine spark"] = [measure(sys.executable, (*everything, "--engine", "spark"), place)]
    for name, measured in found.items():
        print(row(name, values, measured), flush=True)


def main() -> None:
    """Generate the stores, check them, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--checkout")
    asked = parser.parse_args()
    for values in asked.values:
        with tempfile.TemporaryDirectory(prefix="check-") as made:
            rows(asked, values, Path(made))


if __name__ == "__main__":
    main()

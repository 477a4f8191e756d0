"""Damage copies of captures, once and in pairs, and compare the report of `check` with the expected one.

    python -m tests.damage FOLDER... [--seed N] [--count N] [--store-only]

FOLDER is an unpacked capture with its disks. Exits with 1 if a finding is missing or unexplained.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.codes import Severity
from tests.damage import DAMAGE, Disks, check_findings, healthy_store, trials
from tests.damage.harmless import HARMLESS
from tests.damage.scalable_damage import SCALABLE_DAMAGE, SHADOW_DAMAGE


def main() -> None:
    """Run the trials on the captures that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--store-only", action="store_true")
    options = parser.parse_args()
    wrong = 0
    for folder in options.folders:
        store, urls = healthy_store(folder), (f"bookie-disk:{folder}",)
        with ExitStack() as stack:
            opened = None if options.store_only else stack.enter_context(open_entries(urls))
            disks = None if opened is None else Disks(opened, urls)
            errors = [
                finding for finding in check_findings(store, opened) if finding.severity is Severity.ERROR
            ]
            print(f"{folder.name}: {len(errors)} errors in the capture itself")
            tried = 0
            for trial in trials(
                store, options.seed, options.count, DAMAGE | HARMLESS | SCALABLE_DAMAGE | SHADOW_DAMAGE, disks
            ):
                tried += 1
                wrong += bool(trial.faults)
                for fault in trial.faults:
                    print(f"  {trial.name}: {fault}")
        print(f"{folder.name}: {tried} tried")
    print(f"wrong: {wrong}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

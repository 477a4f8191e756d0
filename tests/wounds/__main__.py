"""Wounds made on copies of captures, one at a time and in pairs, and what the doctor says of them.

    python -m tests.wounds FOLDER... [--seed N] [--count N] [--store-only]

FOLDER is an unpacked capture, its disks in it. Ends with exit code 1 where a finding is missing, or one is
there that nothing explains.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.check.codes import Severity
from tests.wounds import WOUNDS, Disks, examined, healthy, trials
from tests.wounds.harmless import HARMLESS
from tests.wounds.of_segments import OF_SEGMENTS, OF_SHADOWS


def main() -> None:
    """Try wounds on captures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--store-only", action="store_true")
    options = parser.parse_args()
    wrong = 0
    for folder in options.folders:
        store, urls = healthy(folder), (f"bookie-disk:{folder}",)
        with ExitStack() as stack:
            opened = None if options.store_only else stack.enter_context(open_entries(urls))
            disks = None if opened is None else Disks(opened, urls)
            errors = [one for one in examined(store, opened) if one.severity is Severity.ERROR]
            print(f"{folder.name}: {len(errors)} errors in the capture itself")
            tried = 0
            for one in trials(
                store, options.seed, options.count, WOUNDS | HARMLESS | OF_SEGMENTS | OF_SHADOWS, disks
            ):
                tried += 1
                wrong += bool(one.faults)
                for fault in one.faults:
                    print(f"  {one.name}: {fault}")
        print(f"{folder.name}: {tried} tried")
    print(f"wrong: {wrong}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

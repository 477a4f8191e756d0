"""More lines in order than memory should hold: sorted in runs, which a temporary file keeps, then merged."""

from __future__ import annotations

import heapq
import marshal
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import IO, Final

# Lines that are sorted at once, and that are read back at once of each run.
RUN: Final = 1 << 16
BLOCK: Final = 1 << 9
# Where a block lies in the file: offset and length.
Place = tuple[int, int]


def in_order(lines: Iterable[str], key: Callable[[str], str]) -> Iterator[str]:
    """Yield `lines` ordered by `key`, equal ones as they came; where there are few, nothing is written."""
    rest = iter(lines)
    run = sorted(islice(rest, RUN), key=key)
    if len(run) < RUN:
        yield from run
        return
    with tempfile.TemporaryFile() as file:
        runs = []
        while run:
            runs.append(_write(file, run))
            run = sorted(islice(rest, RUN), key=key)
        file.flush()
        yield from heapq.merge(*(_read(file, places) for places in runs), key=key)


def _write(file: IO[bytes], run: list[str]) -> list[Place]:
    places = []
    for at in range(0, len(run), BLOCK):
        packed = marshal.dumps(run[at : at + BLOCK])
        places.append((file.tell(), len(packed)))
        file.write(packed)
    return places


def _read(file: IO[bytes], places: list[Place]) -> Iterator[str]:
    for offset, length in places:
        yield from marshal.loads(os.pread(file.fileno(), length, offset))

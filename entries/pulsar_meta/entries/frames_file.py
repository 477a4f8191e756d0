"""`frames:FILE`: a file of entry frames, each after its size (4 bytes, big-endian).

`FILE.idx` in the same directory has one JSON object per line, `{"ledger": …, "entry": …}`, in the order of
the frames. Without it, the frames are entries 0, 1, 2 and so on of ledger 0.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.entries.base import RawEntry
from pulsar_meta.entries.bookie_disk import LocatedEntries
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.locations import TableLocations

_SIZE: Final = struct.Struct(">I")


class FramesFile(LocatedEntries):
    """The frames of one file, as entries with `bookie` false. Ledgers can be incomplete."""

    whole_ledgers = False

    def __init__(self, url: str) -> None:
        """Map the file. Data after the last complete frame is reported in `faults`.

        Raises NotFoundError if there is no file, UsageError if it isn't a regular file, and DecodeError if no
        frame is complete or FILE.idx is invalid.
        """
        path = Path(url.partition(":")[2])
        if not path.exists():
            raise NotFoundError("no such file", source=str(path))
        if not path.is_file():
            raise UsageError("not a regular file", source=str(path))
        super().__init__(url, DataFiles({0: path}))
        self.index = index = TableLocations()
        offsets = self._frames()
        positions = _positions(path, len(offsets))
        if len(positions) > len(offsets) and not self.faults:
            self.faults.append(_too_few_frames(path, len(offsets), len(positions)))
        for offset, (ledger_id, entry_id) in zip(offsets, positions, strict=False):
            index.add(ledger_id, entry_id, offset)

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> None:
        """Return None, because the file has frames, not bookie entries."""

    def _entry(self, ledger_id: int, entry_id: int, location: int) -> RawEntry:
        view = self.files.view(0)
        size = _SIZE.unpack_from(view, location - 4)[0]
        data = bytes(view[location : location + size])
        self.files.check(0)
        return RawEntry(ledger_id, entry_id, data, bookie=False)

    def _frames(self) -> list[int]:
        """Return the offset of each complete frame, after its size. Raises DecodeError if there is none."""
        view, at = self.files.view(0), 0
        offsets: list[int] = []
        while at < len(view):
            left = len(view) - at - 4
            size = _SIZE.unpack_from(view, at)[0] if left >= 0 else 0
            if size > left:
                text = f"a frame claims {size} bytes, but only {max(left, 0)} are left"
                self.faults.append(DecodeError(text, offset=at, source=self.files.name(0)))
                break
            offsets.append(at + 4)
            at += 4 + size
        self.files.check(0)
        if self.faults and not offsets:
            raise self.faults[0]
        return offsets


def open_frames_file(url: str) -> FramesFile:
    """Open `frames:FILE`."""
    if not url.partition(":")[2]:
        raise UsageError("expected frames:FILE", source=url)
    return FramesFile(url)


def _too_few_frames(path: Path, frames: int, positions: int) -> DecodeError:
    """Describe a file that was truncated between two frames, which only its index shows."""
    return DecodeError(
        f"expected {positions} frames, as in {path.name}.idx, found {frames}", source=str(path)
    )


def _positions(path: Path, count: int) -> list[tuple[int, int]]:
    """List (ledger, entry) of each frame, from FILE.idx or counted from 0.

    FILE.idx may have more positions than the file has frames, because the file may be truncated. Raises
    DecodeError if FILE.idx is invalid or has fewer than `count` positions.
    """
    index = path.with_name(path.name + ".idx")
    if not index.is_file():
        return [(0, entry_id) for entry_id in range(count)]
    with index.open(encoding="utf-8") as lines:
        try:
            rows = [read_json_object(line) for line in lines if line.strip()]
            positions = [(_id(row["ledger"]), _id(row["entry"])) for row in rows]
        except (DecodeError, ValueError, KeyError) as error:
            raise DecodeError('expected lines {"ledger": N, "entry": N}', source=str(index)) from error
    if len(positions) < count:
        problem = f"expected {count} positions, one per frame, found {len(positions)}"
        raise DecodeError(problem, source=str(index))
    return positions


def _id(value: object) -> int:
    number = int(value) if isinstance(value, int | str) else -1
    if not 0 <= number < 2**63:
        raise ValueError
    return number

"""`frames:FILE`: entry frames one after the other, each after its 4-byte big-endian size.

`FILE.idx` beside it has one JSON object a line, `{"ledger": …, "entry": …}`, in the order of the frames.
Without it they are the entries 0, 1, 2 … of ledger 0.
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
    """The frames of one file; `bookie` is false in what is read. A ledger need not be there whole."""

    whole_ledgers = False

    def __init__(self, url: str) -> None:
        """Map the file. What follows the last complete frame is one of `faults`.

        Raises NotFoundError, UsageError (no regular file), DecodeError (no frame is complete, positions).
        """
        path = Path(url.partition(":")[2])
        if not path.exists():
            raise NotFoundError("no such file", source=str(path))
        if not path.is_file():
            raise UsageError("no regular file: frames are read from one", source=str(path))
        index = TableLocations()
        super().__init__(url, index, DataFiles({0: path}))
        offsets = self._frames()
        positions = _positions(path, len(offsets))
        if len(positions) > len(offsets) and not self.faults:
            self.faults.append(_too_few_frames(path, len(offsets), len(positions)))
        for offset, (ledger_id, entry_id) in zip(offsets, positions, strict=False):
            index.add(ledger_id, entry_id, offset)

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> None:
        """Return None: what lies there are frames, no bookie entries."""

    def _entry(self, ledger_id: int, entry_id: int, location: int) -> RawEntry:
        view = self.files.view(0)
        size = _SIZE.unpack_from(view, location - 4)[0]
        data = bytes(view[location : location + size])
        self.files.check(0)
        return RawEntry(ledger_id, entry_id, data, bookie=False)

    def _frames(self) -> list[int]:
        """Return the offset of each complete frame, past its size; DecodeError if there is none."""
        view, at = self.files.view(0), 0
        offsets: list[int] = []
        while at < len(view):
            left = len(view) - at - 4
            size = _SIZE.unpack_from(view, at)[0] if left >= 0 else 0
            if size > left:
                text = f"a frame claims {size} bytes, {max(left, 0)} are left"
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
    """Describe a file that was cut between two frames, which only its index shows."""
    return DecodeError(
        f"expected {positions} frames, as in {path.name}.idx, found {frames}", source=str(path)
    )


def _positions(path: Path, count: int) -> list[tuple[int, int]]:
    """List (ledger, entry) of each frame, from FILE.idx or counted.

    FILE.idx may have more positions than the file has frames, since the file may be cut.

    Raises DecodeError if FILE.idx can't be read or has fewer than `count` positions.
    """
    index = path.with_name(path.name + ".idx")
    if not index.is_file():
        return [(0, entry_id) for entry_id in range(count)]
    with index.open(encoding="utf-8") as lines:
        try:
            rows = [read_json_object(line) for line in lines if line.strip()]
            found = [(_id(row["ledger"]), _id(row["entry"])) for row in rows]
        except (DecodeError, ValueError, KeyError) as error:
            raise DecodeError('expected lines {"ledger": N, "entry": N}', source=str(index)) from error
    if len(found) < count:
        raise DecodeError(f"expected {count} positions, one per frame, found {len(found)}", source=str(index))
    return found


def _id(value: object) -> int:
    number = int(value) if isinstance(value, int | str) else -1
    if not 0 <= number < 2**63:
        raise ValueError
    return number

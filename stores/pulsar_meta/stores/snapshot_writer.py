"""Write the file of a `snapshot:` store line by line, so that it appears complete and can be resumed.

The file is called FILE.part until it is complete. If the process is killed, the next run reads the values
that can be recovered from that file. If the name ends in .zst, the file is compressed in frames that can be
read independently.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from pulsar_meta.access.files import private, replace_durably, sync_file
from pulsar_meta.codecs import backends
from pulsar_meta.codecs.backends import crc32c
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.snapshot_lines import (
    OrderTracker,
    Sums,
    footer_line,
    header_line,
    order_fields,
    value_line,
)
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.snapshot import SnapshotStore

ZSTD_LEVEL: Final = 3
# How many uncompressed bytes are lost if the process is killed.
FRAME_BYTES: Final = 1 << 20
PLAIN_BYTES: Final = 1 << 16


class SnapshotWriter:
    """The snapshot `target` while it is being written. `sums` covers the values added so far."""

    def __init__(self, target: Path, head: Document) -> None:
        """Begin the file with its header. Raises UsageError if the file can't be created."""
        self.target = target
        self.sums = Sums()
        self._part = part_of(target)
        # Keep the earlier part until the new one has everything that can be recovered from it.
        self._unfinished = self._part.with_name(self._part.name + ".new")
        try:
            self._file: IO[bytes] = open(self._unfinished, "wb", opener=private)  # noqa: SIM115
        except OSError as error:
            raise UsageError(f"cannot write: {error.strerror}", source=str(target)) from error
        packed = target.name.endswith(".zst")
        self._compress = backends.zstd().compressor(ZSTD_LEVEL, False) if packed else None
        self._frame = bytearray()
        self._order = OrderTracker()
        # The size and checksum of the data that is already in the file.
        self._size, self._checksum = 0, 0
        header = header_line(head)
        self._header_checksum = crc32c(header)
        self._write(header)

    def add(self, value: Versioned) -> None:
        """Write one value."""
        self.sums.add(value.path, value.value, ephemeral=value.ephemeral)
        self._order.add(value.path)
        times = value.created, value.modified
        self._write(value_line(value.path, value.value, value.version, *times, ephemeral=value.ephemeral))

    def take_its_name(self) -> None:
        """Rename the file to FILE.part, which replaces the part of an earlier run."""
        self._end_frame()
        sync_file(self._file)
        replace_durably(self._unfinished, self._part)
        self._unfinished = self._part

    def finish(self, facts: Document) -> None:
        """Write the footer, sync the file, and give it its final name."""
        self._end_frame()
        order = order_fields(self._order, self._size, self._checksum)
        self._write(footer_line(self.sums, {**facts, **order, "crc32c_header": self._header_checksum}))
        self._end_frame()
        sync_file(self._file)
        self._file.close()
        replace_durably(self._unfinished, self.target)
        self._part.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file as it is. Can be called after `finish`."""
        if not self._file.closed:
            self._end_frame()
            self._file.close()

    def _write(self, line: bytes) -> None:
        self._frame += line
        if len(self._frame) >= (PLAIN_BYTES if self._compress is None else FRAME_BYTES):
            self._end_frame()

    def _end_frame(self) -> None:
        if self._frame:
            data = bytes(self._frame)
            data = data if self._compress is None else self._compress(data)
            self._size, self._checksum = self._size + len(data), crc32c(data, before=self._checksum)
            self._file.write(data)
            self._frame.clear()
        self._file.flush()


def part_of(target: Path) -> Path:
    """Return the path of the file while it is incomplete."""
    return target.with_name(target.name + ".part")


def kept_values(target: Path) -> Iterator[Versioned]:
    """Yield the values that can be recovered from a killed run's part of `target`."""
    part = part_of(target)
    if part.exists() and part.stat().st_size:
        with SnapshotStore(f"snapshot:{part}?partial") as store:
            yield from store.scan()

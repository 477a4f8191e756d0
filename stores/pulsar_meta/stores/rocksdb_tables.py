"""The format of a RocksDB database's tables: an older RocksDB does not open tables of a newer format.

The last twelve bytes of a table are its format (uint32) and a magic number (uint64), little-endian.
Source: facebook/rocksdb table/format.cc (Footer).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from pulsar_meta.codecs.errors import UnreachableError

_FOOTER: Final = struct.Struct("<IQ")
_MAGIC: Final = 0x88E241B785F4CFF7


def table_formats(directory: Path) -> frozenset[int]:
    """Return the formats of the tables in a database's directory; UnreachableError."""
    found = set()
    for table in sorted(directory.glob("*.sst")):
        try:
            with table.open("rb") as file:
                file.seek(-_FOOTER.size, 2)
                form, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        except OSError as error:
            raise UnreachableError(f"cannot read it: {error.strerror}", source=str(table)) from error
        if magic == _MAGIC:
            found.add(form)
    return frozenset(found)

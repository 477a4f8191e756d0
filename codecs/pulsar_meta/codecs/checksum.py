"""CRC-32C (Castagnoli) over views, and the words in which a check is answered.

Source: RFC 3720 B.4; the value of "123456789" is 0xE3069283.
"""

from __future__ import annotations

from typing import BinaryIO, Final, Literal

from pulsar_meta.codecs.reader import Buffer

# What a frame's checksum can turn out to be; a digest can also stay unchecked for want of its password.
Verdict = Literal["ok", "bad", "absent", "unchecked"]

# The library takes nothing but `bytes`; views are copied through pieces of this size.
_PIECE: Final = 1 << 20


def crc32c(*parts: Buffer, before: int = 0) -> int:
    """Return the CRC-32C of `parts` as if they stood one after the other behind what has that of `before`."""
    import google_crc32c

    value = before
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE):
            value = google_crc32c.extend(value, bytes(view[start : start + _PIECE]))
    return int(value)


def crc32c_of_file(file: BinaryIO, size: int) -> int | None:
    """Return the CRC-32C of the first `size` bytes of a file, None where it has not so many; OSError."""
    import google_crc32c

    value, at = 0, 0
    file.seek(0)
    while at < size:
        piece = file.read(min(_PIECE, size - at))
        if not piece:
            return None
        value = google_crc32c.extend(value, piece)
        at += len(piece)
    return value

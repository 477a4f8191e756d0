"""CRC-32C (Castagnoli) over views, and the words in which a check is answered.

Source: RFC 3720 B.4; the value of "123456789" is 0xE3069283.
"""

from __future__ import annotations

from typing import Final, Literal

import google_crc32c

from pulsar_meta.codecs.reader import Buffer

# What a frame's checksum can turn out to be; a digest can also stay unchecked for want of its password.
Verdict = Literal["ok", "bad", "absent", "unchecked"]

# The library takes nothing but `bytes`; views are copied through pieces of this size.
_PIECE: Final = 1 << 20


def crc32c(*parts: Buffer) -> int:
    """Return the CRC-32C of `parts` as if they stood one after the other."""
    value = 0
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE):
            value = google_crc32c.extend(value, bytes(view[start : start + _PIECE]))
    return int(value)

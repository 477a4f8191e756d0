"""Limits on uncompressed sizes, because a few KB of compressed bytes can claim gigabytes.

Data that unpacks to less than `USUAL_RATIO` times its stored size is always accepted, because the stored
bytes already bound it.
"""

from __future__ import annotations

from typing import Final

from pulsar_meta.codecs.errors import LimitError

# The environment variable with which users of the program set the limit in bytes, and the default.
MAX_UNPACKED: Final = "PULSAR_META_MAX_UNPACKED"
DEFAULT_MAX_UNPACKED: Final = 512 << 20
# Brokers' records and logs compress to a tenth at most, ZooKeeper's snapshots to a thirtieth.
USUAL_RATIO: Final = 64


class Limits:
    """The limits of this process. `max_unpacked` is the size of an uncompressed file in bytes."""

    def __init__(self, max_unpacked: int = DEFAULT_MAX_UNPACKED) -> None:
        self.max_unpacked = max_unpacked

    def for_file(self, stored: int) -> int:
        """Return the largest uncompressed size that is accepted for `stored` compressed bytes."""
        return max(self.max_unpacked, stored * USUAL_RATIO)

    def check_file(self, stored: int, unpacked: int) -> None:
        """Raise LimitError if `stored` compressed bytes unpack to `unpacked` bytes, and that is too many."""
        limit = self.for_file(stored)
        if unpacked > limit:
            raise LimitError(
                f"{stored} compressed bytes unpack to more than {limit} bytes"
                f" (raise the limit with {MAX_UNPACKED})"
            )


# The program sets them when it starts.
LIMITS: Final = Limits()

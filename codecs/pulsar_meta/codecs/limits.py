"""Limits on uncompressed sizes, because a few KB of compressed bytes can claim gigabytes.

Data that unpacks to less than `USUAL_RATIO` times its stored size is always accepted, because the stored
bytes already bound it. Snappy has a lower ratio.
"""

from __future__ import annotations

from typing import Final

from pulsar_meta.codecs.errors import LimitError

# The environment variable with which users of the program set the limit in bytes, and the default.
MAX_UNPACKED: Final = "PULSAR_META_MAX_UNPACKED"
DEFAULT_MAX_UNPACKED: Final = 512 << 20
# Brokers' records and logs compress to a tenth at most, ZooKeeper's snapshots to a thirtieth.
USUAL_RATIO: Final = 64
# Snappy compresses to a 22nd at most, and ZooKeeper's snapshots of Pulsar's records to a seventh.
USUAL_SNAPPY_RATIO: Final = 16
# Values of so many bytes are not counted.
HARMLESS: Final = 1 << 18


class Limits:
    """The limits of this process, which all depend on `max_unpacked`, the bytes of an uncompressed file.

    A value of the metadata store may grow to 1/128 of it, because parsing needs many times its size. All
    values of a run that grew by more than `USUAL_RATIO` may have 1/8 of it together.
    """

    def __init__(self, max_unpacked: int = DEFAULT_MAX_UNPACKED) -> None:
        self.max_unpacked = max_unpacked
        self._spent: int | None = None

    def start_run(self, max_unpacked: int) -> None:
        """Set the limit, and count the values of a run. Without a run, each value is only checked alone."""
        self.max_unpacked, self._spent = max_unpacked, 0

    def for_file(self, stored: int, ratio: int = USUAL_RATIO) -> int:
        """Return the largest uncompressed size that is accepted for `stored` compressed bytes."""
        return max(self.max_unpacked, stored * ratio)

    def check_file(self, stored: int, unpacked: int, ratio: int = USUAL_RATIO) -> None:
        """Raise LimitError if `stored` compressed bytes unpack to `unpacked` bytes, and that is too many."""
        limit = self.for_file(stored, ratio)
        if unpacked > limit:
            raise _error(f"{stored} compressed bytes unpack to more than {limit} bytes")

    def check_value(self, stored: int, unpacked: int) -> None:
        """Raise LimitError if a value claims to unpack to too many bytes, alone or with the run's others."""
        if unpacked <= HARMLESS or unpacked <= stored * USUAL_RATIO:
            return
        limit = self.max_unpacked // 128
        if unpacked > limit:
            raise _error(f"{stored} bytes claim to unpack to {unpacked} bytes, the limit is {limit}")
        if self._spent is None:
            return
        total = self.max_unpacked // 8
        if self._spent + unpacked > total:
            raise _error(
                f"{stored} bytes claim to unpack to {unpacked} bytes, and this run's limit is {total}"
            )
        self._spent += unpacked


def _error(problem: str) -> LimitError:
    return LimitError(f"{problem} (raise the limit with {MAX_UNPACKED})")


# The program sets them when it starts.
LIMITS: Final = Limits()

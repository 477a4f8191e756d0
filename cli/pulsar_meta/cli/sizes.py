"""Numbers of bytes as a person reads them."""

from __future__ import annotations

from typing import Final

UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def size(count: int) -> str:
    """Return a number of bytes, 1024-based, with at most one decimal."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(UNITS))
    return f"{count / 1024**power:.1f}".removesuffix(".0") + f" {UNITS[power - 1]}"

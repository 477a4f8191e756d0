"""The bytes that decoders are given."""

from __future__ import annotations

from pulsar_meta.codecs.errors import DecodeError

Buffer = bytes | bytearray | memoryview


def byte_view(data: Buffer) -> memoryview:
    """Return `data` as a view of unsigned bytes; DecodeError where it is not one flat run of them."""
    view = memoryview(data)
    if view.format == "B" and view.contiguous and view.ndim == 1:
        return view
    raise DecodeError("expected a flat run of bytes")

"""A value as Pulsar's RocksDB store holds it: a header of big-endian numbers, then the bytes.

Source: apache/pulsar RocksdbMetadataStore.MetaValue: int32 header size (41; later versions may only make
it longer), int32 format (1 or more), int64 version, owner, created ms, modified ms, one byte "ephemeral".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Final, Self

from pulsar_meta.codecs.errors import DecodeError

HEADER: Final = struct.Struct(">iiqqqqb")
FORMAT: Final = 1

# Bare 8-byte numbers, no header: how often the store was opened, and the counter of sequential nodes.
INSTANCE_ID: Final = b"__metadata_instanceId_key"
SEQUENTIAL_ID: Final = b"__metadata_sequentialId_key"


@dataclass(frozen=True, slots=True)
class MetaValue:
    """The header's fields and the value. `owner` is the instance that wrote it last."""

    version: int
    owner: int
    created: int
    modified: int
    ephemeral: bool
    data: bytes = field(repr=False)
    extra: bytes = b""

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Take a stored value apart; DecodeError for a header that cannot be one."""
        if len(raw) < HEADER.size:
            raise DecodeError(f"expected a header of {HEADER.size} bytes, found {len(raw)}", offset=0)
        size, form, version, owner, created, modified, ephemeral = HEADER.unpack_from(raw)
        if not HEADER.size <= size <= len(raw):
            raise DecodeError(f"a header of {size} bytes in a value of {len(raw)}", offset=0)
        if form < FORMAT:
            raise DecodeError(f"expected format 1 or later, found {form}", offset=4)
        extra = raw[HEADER.size : size]
        return cls(version, owner, created, modified, ephemeral > 0, raw[size:], extra)

    def encode(self) -> bytes:
        """Return the stored form, with a longer header's additional bytes kept."""
        size = HEADER.size + len(self.extra)
        numbers = (self.version, self.owner, self.created, self.modified, self.ephemeral)
        return HEADER.pack(size, FORMAT, *numbers) + self.extra + self.data

    def followed_by(self, data: bytes, owner: int, now: int) -> Self:
        """Return what Pulsar's own client would store next: one version on, modified `now` (ms)."""
        return replace(self, version=self.version + 1, owner=owner, modified=now, data=data)

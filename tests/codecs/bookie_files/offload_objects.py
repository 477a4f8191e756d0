"""Builds offloaded objects byte by byte from the description of their format, without Pulsar's classes.

The jars of the offloaders are not published where tests can get them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo

PADDING = bytes.fromhex("FEDCDEAD")
Rows = list[tuple[int, int, int]]


def block(first: int, frames: Sequence[bytes], size: int | None = None, ledger: int | None = None) -> bytes:
    """Build a block of frames, padded to `size`. With `ledger` it has format 2."""
    body = b"".join(struct.pack(">iq", len(frame), first + at) + frame for at, frame in enumerate(frames))
    size = size or 128 + len(body)
    magic = 0xFBDBABCB if ledger is None else 0x26A66D32
    header = struct.pack(">Iqqq", magic, 128, size, first)
    header += b"" if ledger is None else struct.pack(">q", ledger)
    padding = PADDING * (size // 4)
    return (header.ljust(128, b"\0") + body + padding)[:size]


def blocks(
    frames: Sequence[bytes], largest: int, ledger: int | None = None, base: int = 0
) -> tuple[bytes, Rows]:
    """Cut a ledger into blocks as an offloader does; return them and their rows in the index."""
    data, rows, first = b"", Rows(), 0
    while first < len(frames):
        last, used = first, 128
        while last < len(frames) and used + 12 + len(frames[last]) <= largest:
            used += 12 + len(frames[last])
            last += 1
        assert last > first, "a frame is larger than a block"
        rows.append((first, len(rows) + 1, base + len(data)))
        data += block(first, frames[first:last], largest if last < len(frames) else used, ledger)
        first = last
    return data, rows


def pack_rows(rows: Rows) -> bytes:
    return b"".join(struct.pack(">qiq", *row) for row in rows)


def index(rows: Rows, data_size: int, last_entry: int, custom: Mapping[str, bytes] | None = None) -> bytes:
    """Build an index object of format 1."""
    ledger_metadata = LedgerMetadataFormat(
        quorumSize=2, ensembleSize=2, ackQuorumSize=2, length=data_size, lastEntryId=last_entry,
        state=LedgerMetadataFormat.CLOSED, digestType=LedgerMetadataFormat.CRC32C,
    )  # fmt: skip
    for key, value in (custom or {}).items():
        ledger_metadata.customMetadata.add(key=key, value=value)
    metadata = ledger_metadata.SerializeToString()
    body = struct.pack(">qqii", data_size, 128, len(rows), len(metadata)) + metadata + pack_rows(rows)
    return struct.pack(">Ii", 0xDE47DE47, 8 + len(body)) + body


def offloaded(
    frames: Sequence[bytes], largest: int = 4096, custom: Mapping[str, bytes] | None = None
) -> tuple[bytes, bytes]:
    """Build the data object and the index object of a ledger, in format 1."""
    data, rows = blocks(frames, largest)
    return data, index(rows, len(data), len(frames) - 1, custom)


def segments(ledgers: Mapping[int, Sequence[bytes]], largest: int = 4096) -> tuple[bytes, bytes]:
    """Build the data object and the index object of several ledgers, in format 2."""
    data, parts = b"", b""
    for ledger_id, frames in ledgers.items():
        ledger_blocks, rows = blocks(frames, largest, ledger_id, len(data))
        data += ledger_blocks
        info = ManagedLedgerInfo.LedgerInfo(ledgerId=ledger_id, entries=len(frames)).SerializeToString()
        parts += struct.pack(">qii", ledger_id, len(rows), len(info)) + info + pack_rows(rows)
    sizes = struct.pack(">qq", len(data), 128)
    return data, struct.pack(">Ii", 0x3D1FB0BC, 24 + len(parts)) + sizes + parts

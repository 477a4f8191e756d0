"""Offloaded objects built byte by byte from the format's description, not by Pulsar's own classes.

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
    """A block of frames; `ledger` makes it one of form 2, `size` pads it."""
    body = b"".join(struct.pack(">iq", len(one), first + at) + one for at, one in enumerate(frames))
    size = size or 128 + len(body)
    magic = 0xFBDBABCB if ledger is None else 0x26A66D32
    head = struct.pack(">Iqqq", magic, 128, size, first)
    head += b"" if ledger is None else struct.pack(">q", ledger)
    padding = PADDING * (size // 4)
    return (head.ljust(128, b"\0") + body + padding)[:size]


def blocks(
    frames: Sequence[bytes], largest: int, ledger: int | None = None, base: int = 0
) -> tuple[bytes, Rows]:
    """The blocks of a ledger as an offloader cuts them, and their rows in the index."""
    data, rows, first = b"", Rows(), 0
    while first < len(frames):
        last, used = first, 128
        while last < len(frames) and used + 12 + len(frames[last]) <= largest:
            used += 12 + len(frames[last])
            last += 1
        assert last > first, "a frame larger than a block"
        rows.append((first, len(rows) + 1, base + len(data)))
        data += block(first, frames[first:last], largest if last < len(frames) else used, ledger)
        first = last
    return data, rows


def packed(rows: Rows) -> bytes:
    return b"".join(struct.pack(">qiq", *row) for row in rows)


def index(rows: Rows, data_size: int, last_entry: int, custom: Mapping[str, bytes] | None = None) -> bytes:
    """An index object of form 1."""
    made = LedgerMetadataFormat(
        quorumSize=2, ensembleSize=2, ackQuorumSize=2, length=data_size, lastEntryId=last_entry,
        state=LedgerMetadataFormat.CLOSED, digestType=LedgerMetadataFormat.CRC32C,
    )  # fmt: skip
    for key, value in (custom or {}).items():
        made.customMetadata.add(key=key, value=value)
    metadata = made.SerializeToString()
    rest = struct.pack(">qqii", data_size, 128, len(rows), len(metadata)) + metadata + packed(rows)
    return struct.pack(">Ii", 0xDE47DE47, 8 + len(rest)) + rest


def offloaded(
    frames: Sequence[bytes], largest: int = 4096, custom: Mapping[str, bytes] | None = None
) -> tuple[bytes, bytes]:
    """(data object, index object) of a ledger, form 1."""
    data, rows = blocks(frames, largest)
    return data, index(rows, len(data), len(frames) - 1, custom)


def segments(ledgers: Mapping[int, Sequence[bytes]], largest: int = 4096) -> tuple[bytes, bytes]:
    """(data object, index object) of several ledgers, form 2."""
    data, parts = b"", b""
    for ledger_id, frames in ledgers.items():
        made, rows = blocks(frames, largest, ledger_id, len(data))
        data += made
        info = ManagedLedgerInfo.LedgerInfo(ledgerId=ledger_id, entries=len(frames)).SerializeToString()
        parts += struct.pack(">qii", ledger_id, len(rows), len(info)) + info + packed(rows)
    head = struct.pack(">qq", len(data), 128)
    return data, struct.pack(">Ii", 0x3D1FB0BC, 24 + len(parts)) + head + parts

"""The bookie entry: 32 bytes of header, a digest, and the client's data (for Pulsar: a frame).

    int64 ledger, int64 entry, int64 last-add-confirmed, int64 length, digest, data

`length` is the size of the data of this and all earlier entries in the ledger. The digest covers the header
and the data. Only clients compute and check it, bookies never do.

Sources: apache/bookkeeper proto/checksum/DigestManager.java, CRC32DigestManager.java,
CRC32CDigestManager.java, MacDigestManager.java, DummyDigestManager.java.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from dataclasses import dataclass, field
from typing import Final, Literal

from pulsar_meta.codecs.backends import Verdict, crc32c
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view

# The names of LedgerMetadataFormat.DigestType.
DigestType = Literal["CRC32C", "CRC32", "HMAC", "DUMMY"]

HEADER: Final = struct.Struct(">qqqq")
DIGEST_SIZES: Final[dict[DigestType, int]] = {"CRC32C": 4, "CRC32": 8, "HMAC": 20, "DUMMY": 0}


@dataclass(frozen=True, slots=True)
class BookieEntry:
    """A bookie entry; `data` is a view of the decoder's input.

    `digest_type` is the caller's, or the one that was detected. `length` counts the ledger's bytes of data up
    to and including this entry. `last_confirmed` is -1 if there is none.
    """

    ledger_id: int
    entry_id: int
    last_confirmed: int
    length: int
    digest_type: DigestType
    digest: Verdict
    data: memoryview = field(repr=False)


def decode_bookie_entry(
    data: Buffer, digest_type: DigestType | None = None, *, password: bytes | None = None
) -> BookieEntry:
    """Decode a bookie entry and check its digest.

    Without `digest_type`, the type is detected: the one whose digest matches, else one after which a frame
    begins, else CRC32C, Pulsar's default. An HMAC is checked with `password`. If that is None, the HMAC is
    checked with the empty password (Pulsar's default), and is "unchecked" if it does not match. Raises
    DecodeError if the bytes are too few.
    """
    view = byte_view(data)
    ledger_id, entry_id, last_confirmed, length = read_header(view)
    found, verdict = _examine(view, digest_type, password)
    start = HEADER.size + DIGEST_SIZES[found]
    return BookieEntry(ledger_id, entry_id, last_confirmed, length, found, verdict, view[start:])


def read_header(data: Buffer) -> tuple[int, int, int, int]:
    """Return (ledger, entry, last-add-confirmed, length). Raises DecodeError if there are under 32 bytes."""
    ledger_id, entry_id, last_confirmed, length = Reader(data).numbers(HEADER, "a bookie entry's header")
    return ledger_id, entry_id, last_confirmed, length


def encode_bookie_entry(
    ledger_id: int,
    entry_id: int,
    last_confirmed: int,
    length: int,
    data: Buffer,
    *,
    digest_type: DigestType = "CRC32C",
    password: bytes = b"",
) -> bytes:
    """Encode a bookie entry and compute its digest."""
    header = HEADER.pack(ledger_id, entry_id, last_confirmed, length)
    return header + _digest(digest_type, memoryview(header), memoryview(data), password) + bytes(data)


def _examine(
    view: memoryview, asked: DigestType | None, password: bytes | None
) -> tuple[DigestType, Verdict]:
    if asked is not None:
        return asked, _verdict(view, asked, password)
    for kind in ("CRC32C", "CRC32", "HMAC"):
        if len(view) >= HEADER.size + DIGEST_SIZES[kind] and _verdict(view, kind, password) == "ok":
            return kind, "ok"
    return _guess_by_frame(view)


def _guess_by_frame(view: memoryview) -> tuple[DigestType, Verdict]:
    """Choose the type after whose digest a frame begins. An HMAC may have an unknown password."""
    guesses: tuple[tuple[DigestType, Verdict], ...] = (
        ("CRC32C", "bad"), ("CRC32", "bad"), ("HMAC", "unchecked"), ("DUMMY", "absent"),
    )  # fmt: skip
    for kind, verdict in guesses:
        try:
            decode_frame(view[HEADER.size + DIGEST_SIZES[kind] :], verify=False)
        except DecodeError:
            continue
        return kind, verdict
    return ("CRC32C", "bad") if len(view) >= HEADER.size + DIGEST_SIZES["CRC32C"] else ("DUMMY", "absent")


def _verdict(view: memoryview, kind: DigestType, password: bytes | None) -> Verdict:
    size = DIGEST_SIZES[kind]
    start = HEADER.size + size
    if len(view) < start:
        raise DecodeError(
            f"expected {size} bytes of {kind} digest, found {len(view) - HEADER.size}", offset=32
        )
    if not size:
        return "absent"
    stored = bytes(view[HEADER.size : start])
    if _digest(kind, view[: HEADER.size], view[start:], password or b"") == stored:
        return "ok"
    return "unchecked" if kind == "HMAC" and password is None else "bad"


def _digest(kind: DigestType, header: memoryview, data: memoryview, password: bytes) -> bytes:
    if kind == "CRC32C":
        return crc32c(header, data).to_bytes(4, "big")
    if kind == "CRC32":
        return zlib.crc32(data, zlib.crc32(header)).to_bytes(8, "big")
    if kind == "HMAC":
        # BookKeeper derives the key from the password; its SHA-1 is part of the format.
        key = hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()
        mac = hmac.new(key, header, "sha1")
        mac.update(data)
        return mac.digest()
    return b""


def master_key(password: bytes) -> bytes:
    """Compute the master key that bookies store for a ledger's password."""
    # SHA-1 is part of BookKeeper's format.
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()

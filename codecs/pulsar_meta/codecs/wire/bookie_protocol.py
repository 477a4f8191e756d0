"""The read requests of the bookie's binary protocol, version 2. They never fence a ledger.

    int32 size of the rest, int32 (version << 24 | operation << 16 | flags), then
    read:        int64 ledger, int64 entry                        → int32 code, ledger, entry, bookie entry
    batch read:  ledger, entry, int64 request, int32 most entries, int64 most bytes
                                                 → int32 code, ledger, entry, request, (int32 size, entry)…

A bookie answers a read of entry -1 with its last entry of the ledger, and with -1 as the entry id. Flags are
always 0, because DO_FENCING is one of them.

Sources: apache/bookkeeper proto/BookieProtocol.java, proto/BookieProtoEncoding.java; BP-62 (batch read).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer, Reader

VERSION: Final = 2
READ: Final = 2
BATCH_READ: Final = 7
LAST_ENTRY: Final = -1

OK: Final = 0
NO_LEDGER: Final = 1
NO_ENTRY: Final = 2
BAD_REQUEST: Final = 100
IO_ERROR: Final = 101
UNAUTHORISED: Final = 102
BAD_VERSION: Final = 103

CODES: Final[dict[int, str]] = {
    OK: "ok",
    NO_LEDGER: "no such ledger",
    NO_ENTRY: "no such entry",
    BAD_REQUEST: "bad request",
    IO_ERROR: "input/output error",
    UNAUTHORISED: "not authorised",
    BAD_VERSION: "protocol version not known",
    104: "ledger is fenced",
    105: "bookie is read-only",
    106: "too many requests",
    107: "state of the ledger not known",
}

_READ: Final = struct.Struct(">iIqq")
_BATCH: Final = struct.Struct(">iIqqqiq")
_READ_ANSWER: Final = struct.Struct(">Iiqq")
_REQUEST_ID: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """A bookie's answer to a read or a batch read, with the bookie entries that it has.

    `entry_id` is that of the request (so -1 for the last entry); only batch reads have a `request_id`.
    """

    code: int
    ledger_id: int
    entry_id: int
    entries: tuple[memoryview, ...] = field(repr=False)
    request_id: int | None = None

    @property
    def reason(self) -> str:
        """The code in words."""
        return CODES.get(self.code, f"code {self.code}")


def encode_read(ledger_id: int, entry_id: int) -> bytes:
    """Encode a request for an entry, or for the bookie's last entry of the ledger (LAST_ENTRY)."""
    return _READ.pack(_READ.size - 4, _operation(READ), ledger_id, entry_id)


def encode_batch_read(ledger_id: int, first: int, request_id: int, most: int, most_bytes: int) -> bytes:
    """Encode a request for entries from `first` on: at most `most` entries and `most_bytes` bytes."""
    header = _operation(BATCH_READ)
    return _BATCH.pack(_BATCH.size - 4, header, ledger_id, first, request_id, most, most_bytes)


def decode_answer(body: Buffer) -> ReadAnswer:
    """Decode an answer (without its size). Raises DecodeError if it is not an answer to a read."""
    reader = Reader(body)
    header, code, ledger_id, entry_id = reader.numbers(_READ_ANSWER, "an answer")
    version, operation = header >> 24, (header >> 16) & 0xFF
    if version != VERSION or operation not in (READ, BATCH_READ):
        raise DecodeError(
            f"expected an answer to a read, found version {version}, operation {operation}", offset=0
        )
    if operation == READ:
        return ReadAnswer(code, ledger_id, entry_id, (reader.rest(),) if code == OK else ())
    (request_id,) = reader.numbers(_REQUEST_ID, "a batch answer's request id")
    entries = tuple(_sized_entries(reader)) if code == OK else ()
    return ReadAnswer(code, ledger_id, entry_id, entries, request_id)


def _sized_entries(reader: Reader) -> Iterator[memoryview]:
    while reader.left:
        yield reader.sized("an entry")


def _operation(number: int) -> int:
    return VERSION << 24 | number << 16

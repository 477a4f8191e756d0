"""The bookie's binary protocol, version 2, as far as reading goes. Nothing here can fence a ledger.

    int32 size of the rest, int32 (version << 24 | operation << 16 | flags), then
    read:        int64 ledger, int64 entry                        → int32 code, ledger, entry, bookie entry
    batch read:  ledger, entry, int64 request, int32 most entries, int64 most bytes
                                                 → int32 code, ledger, entry, request, (int32 size, entry)…

A reading of entry -1 is answered with the last entry that the bookie holds, and -1 as the entry.
Flags are always 0: DO_FENCING is one of them, and this module has no way to set it.

Sources: apache/bookkeeper proto/BookieProtocol.java, proto/BookieProtoEncoding.java; BP-62 (batch read).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer, byte_view

VERSION: Final = 2
READ: Final = 2
AUTH: Final = 3
BATCH_READ: Final = 7
LAST_ENTRY: Final = -1

OK: Final = 0
NO_LEDGER: Final = 1
NO_ENTRY: Final = 2
BAD_REQUEST: Final = 100
UNAUTHORISED: Final = 102
BAD_VERSION: Final = 103

CODES: Final[dict[int, str]] = {
    OK: "ok",
    NO_LEDGER: "no such ledger",
    NO_ENTRY: "no such entry",
    BAD_REQUEST: "bad request",
    101: "input/output error",
    UNAUTHORISED: "not authorised",
    BAD_VERSION: "protocol version not known",
    104: "ledger is fenced",
    105: "bookie is read-only",
    106: "too many requests",
    107: "state of the ledger not known",
}

_READ: Final = struct.Struct(">iIqq")
_BATCH: Final = struct.Struct(">iIqqqiq")
_OPERATION: Final = struct.Struct(">I")
_READ_ANSWER: Final = struct.Struct(">Iiqq")
_BATCH_ANSWER: Final = struct.Struct(">Iiqqq")
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """What a bookie answers to a read or a batch read: the entries it had, as bookie entries.

    `entry_id` is the one that was asked for (so -1 for the last entry); `request_id` only of batch reads.
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
    """Return the request to read one entry, the last one the bookie holds with LAST_ENTRY."""
    return _READ.pack(_READ.size - 4, _operation(READ), ledger_id, entry_id)


def encode_batch_read(ledger_id: int, first: int, request_id: int, most: int, most_bytes: int) -> bytes:
    """Return the request to read entries from `first` on: at most `most`, together at most `most_bytes`."""
    head = _operation(BATCH_READ)
    return _BATCH.pack(_BATCH.size - 4, head, ledger_id, first, request_id, most, most_bytes)


def decode_answer(body: Buffer) -> ReadAnswer:
    """Return what the bytes behind an answer's size say; DecodeError where they are no answer to a read."""
    view = byte_view(body)
    if len(view) < _READ_ANSWER.size:
        raise DecodeError(
            f"expected {_READ_ANSWER.size} bytes or more of an answer, found {len(view)}", offset=0
        )
    head, code, ledger_id, entry_id = _READ_ANSWER.unpack_from(view)
    version, operation = head >> 24, (head >> 16) & 0xFF
    if version != VERSION or operation not in (READ, BATCH_READ):
        raise DecodeError(
            f"expected an answer to a read, found version {version}, operation {operation}", offset=0
        )
    if operation == READ:
        data = view[_READ_ANSWER.size :]
        return ReadAnswer(code, ledger_id, entry_id, (data,) if code == OK else ())
    return _batch_answer(view, code)


def _batch_answer(view: memoryview, code: int) -> ReadAnswer:
    if len(view) < _BATCH_ANSWER.size:
        raise DecodeError(
            f"expected {_BATCH_ANSWER.size} bytes or more of an answer, found {len(view)}", offset=0
        )
    _, _, ledger_id, entry_id, request_id = _BATCH_ANSWER.unpack_from(view)
    entries = tuple(_sized_entries(view, _BATCH_ANSWER.size)) if code == OK else ()
    return ReadAnswer(code, ledger_id, entry_id, entries, request_id)


def _sized_entries(view: memoryview, at: int) -> Iterator[memoryview]:
    while at < len(view):
        left = len(view) - at - 4
        size = _SIZE.unpack_from(view, at)[0] if left >= 0 else -1
        if not 0 <= size <= left:
            raise DecodeError(f"an entry claims {size} bytes, {max(0, left)} are left", offset=at)
        yield view[at + 4 : at + 4 + size]
        at += 4 + size


def _operation(number: int) -> int:
    return VERSION << 24 | number << 16

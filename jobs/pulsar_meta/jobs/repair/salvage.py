"""Read what is left of a damaged record: truncated, followed by other bytes, or with a wrong envelope.

The envelope names a codec and the size of the message. If one of the two is wrong, the message itself may
still be intact. A truncated compressed message begins like the whole one, so its first fields can be read.

Sources: LZ4 block format (lz4/lz4, doc/lz4_Block_format.md), Snappy format (google/snappy,
format_description.txt).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from pulsar_meta.codecs.compression import CODECS, DEFAULT_MAX_SIZE
from pulsar_meta.codecs.documents.message_values import fits, fits_newer
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.envelope import MAGIC, is_enveloped, read_header
from pulsar_meta.codecs.protobuf.parse import VARINT, parse_message, parse_partly, read_field, read_varint

M = TypeVar("M", bound=Message)
_HEADER_AT: Final = 6
_MORE: Final = 15
_SHORTEST_MATCH: Final = 4
# Java ends the stream with a sync flush.
_ZLIB_FLUSHED: Final = b"\x00\x00\xff\xff"


@dataclass(frozen=True, slots=True)
class Salvaged(Generic[M]):
    """What a damaged record still contains.

    `message` may lack required fields if `complete` is False. `how` says how the bytes were decoded; it is
    empty if none could be.
    """

    message: M
    complete: bool
    how: str = ""


def salvage(kind: type[M], value: bytes) -> Salvaged[M]:
    """Decode as much as possible of a record that `decode_cursor` or `decode_managed_ledger` refuses."""
    if not is_enveloped(value):
        return _from_prefix(kind, value, "the fields before the damage are readable")
    claimed, body = _split(value)
    # Uncompressed bytes may end anywhere, so nothing tells whether they are truncated.
    for codec in sorted(CODECS[1:], key=lambda codec: codec != claimed):
        payload = _decompress(codec, body)
        if payload and _is_whole(kind, payload):
            return Salvaged(parse_message(kind, payload), complete=True, how=_how(codec, claimed, payload))
    for codec in [claimed, "none"] if claimed else CODECS:
        found = _from_prefix(kind, _prefix(codec, body), f"the {codec} data before the damage is readable")
        if found.how:
            return found
    return Salvaged(kind(), complete=False)


def _how(codec: str, claimed: str | None, payload: bytes) -> str:
    wrong = "size" if codec == claimed else "codec"
    return f"only the {wrong} in its envelope is wrong: as {codec}, it has {len(payload)} intact bytes"


def _is_whole(kind: type[M], payload: bytes) -> bool:
    name = kind.DESCRIPTOR.name
    return fits(name, payload) or fits_newer(name, payload)


def _from_prefix(kind: type[M], payload: bytes, how: str) -> Salvaged[M]:
    message, _ = parse_partly(kind, payload)
    return Salvaged(message, complete=False, how=how if message.ListFields() else "")


def _split(value: bytes) -> tuple[str | None, bytes]:
    """Return the codec that an envelope names, None if that is unreadable, and the compressed bytes."""
    try:
        header = read_header(value)
    except DecodeError:
        return None, value[_body_at(value) :]
    return header.codec, value[header.body_at :]


def _body_at(value: bytes) -> int:
    """Find the end of an envelope's header by its two fields, if its size is wrong or its codec unknown."""
    at = _HEADER_AT
    for _ in range(2):
        try:
            field = read_field(value, at)
        except DecodeError:
            break
        if field.wire_type != VARINT or field.number > 2:
            break
        at = field.end
    return min(at, len(value)) if value[:2] == MAGIC else 0


def _decompress(codec: str, body: bytes) -> bytes:
    """Decompress a whole body without its claimed size; b"" if it is damaged, truncated or too large."""
    match codec:
        case "lz4":
            return _whole_lz4(body)
        case "snappy":
            return _whole_snappy(body)
        case "zstd":
            return _whole_zstd(body)
    return _zlib_prefix(body) if _ends_as_zlib(body) else b""


def _ends_as_zlib(body: bytes) -> bool:
    """Return True if a stream is finished, or ends with a sync flush as those of Java do."""
    stream, rest = zlib.decompressobj(), body
    with suppress(zlib.error):
        while rest and not stream.eof:
            stream.decompress(rest, 1 << 16)
            rest = stream.unconsumed_tail
        return stream.eof or body.endswith(_ZLIB_FLUSHED)
    return False


def _whole_zstd(body: bytes) -> bytes:
    import zstandard

    try:
        if not 0 < zstandard.frame_content_size(body) <= DEFAULT_MAX_SIZE:
            return b""
        return bytes(zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False))
    except zstandard.ZstdError:
        return b""


def _whole_lz4(body: bytes) -> bytes:
    import lz4.block

    largest = min(DEFAULT_MAX_SIZE, 255 * len(body) + _HEADER_AT)
    try:
        return bytes(lz4.block.decompress(body, uncompressed_size=largest))
    except lz4.block.LZ4BlockError:
        return b""


def _whole_snappy(body: bytes) -> bytes:
    import snappy

    try:
        size, _ = read_varint(body, 0)
        return bytes(snappy.uncompress(body)) if size <= DEFAULT_MAX_SIZE else b""
    except (DecodeError, snappy.UncompressError):
        return b""


def _prefix(codec: str, body: bytes) -> bytes:
    """Decompress up to the first fault."""
    return _PREFIXES[codec](body)


def _zlib_prefix(body: bytes) -> bytes:
    stream, out = zlib.decompressobj(), bytearray()
    # Byte by byte, because an error discards what the same call has decompressed.
    for at in range(len(body)):
        try:
            out += stream.decompress(body[at : at + 1], DEFAULT_MAX_SIZE)
        except zlib.error:
            break
        if len(out) > DEFAULT_MAX_SIZE:
            return b""
    return bytes(out)


def _zstd_prefix(body: bytes) -> bytes:
    import zstandard

    out = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as stream:
            while len(out) <= DEFAULT_MAX_SIZE and (part := stream.read(1 << 16)):
                out += part
    except zstandard.ZstdError:
        pass
    return bytes(out)


def _lz4_prefix(body: bytes) -> bytes:
    out = bytearray()
    for literals, offset, size in _lz4_sequences(body):
        out += literals
        if not _copy(out, offset, size):
            break
    return bytes(out)


def _lz4_sequences(body: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the sequences of a block: literals, and offset and size of the match after them (0 for none)."""
    at = 0
    while at < len(body):
        token = body[at]
        count, at = _lz4_size(body, at + 1, token >> 4)
        literals, at = body[at : at + count], at + count
        if at + 2 > len(body):
            yield literals, 0, 0
            return
        offset = int.from_bytes(body[at : at + 2], "little")
        size, at = _lz4_size(body, at + 2, token & _MORE)
        # A size that is cut off is too small, but the fields before it are right.
        yield literals, offset, size + _SHORTEST_MATCH if at <= len(body) else 0


def _lz4_size(body: bytes, at: int, size: int) -> tuple[int, int]:
    """Read the rest of a size; the position is beyond the body if it is cut off."""
    if size < _MORE:
        return size, at
    while at < len(body):
        size, at = size + body[at], at + 1
        if body[at - 1] != 0xFF:
            return size, at
    return size, len(body) + 1


def _snappy_prefix(body: bytes) -> bytes:
    out = bytearray()
    try:
        _, at = read_varint(body, 0)
    except DecodeError:
        return b""
    while at < len(body) and len(out) <= DEFAULT_MAX_SIZE:
        tag = body[at]
        extra = (max(0, (tag >> 2) - 59), 1, 2, 4)[tag & 3]
        number, at = int.from_bytes(body[at + 1 : at + 1 + extra], "little"), at + 1 + extra
        if at > len(body):
            break
        if tag & 3 == 0:
            size = (number if extra else tag >> 2) + 1
            out += body[at : at + size]
            at += size
        elif tag & 3 == 1:
            if not _copy(out, tag >> 5 << 8 | number, (tag >> 2 & 7) + 4):
                break
        elif not _copy(out, number, (tag >> 2) + 1):
            break
    return bytes(out)


def _copy(out: bytearray, offset: int, size: int) -> bool:
    """Append `size` bytes that begin `offset` bytes before the end; return False if there are none."""
    if not size or not 0 < offset <= len(out) or len(out) + size > DEFAULT_MAX_SIZE:
        return False
    piece = bytes(out[-offset:])
    out += (piece * (size // len(piece) + 1))[:size]
    return True


_PREFIXES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "none": bytes,
    "lz4": _lz4_prefix,
    "zlib": _zlib_prefix,
    "zstd": _zstd_prefix,
    "snappy": _snappy_prefix,
}

"""Read what is left of a damaged record: truncated, followed by other bytes, or with a wrong envelope.

The envelope names a codec and the size of the message. If one of the two is wrong, the message itself may
still be intact. A truncated compressed message begins like the whole one, so its first fields can be read.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from pulsar_meta.codecs import backends
from pulsar_meta.codecs.compression import CODECS, DEFAULT_MAX_SIZE, zstd_header
from pulsar_meta.codecs.documents.message_values import fits, fits_newer
from pulsar_meta.codecs.errors import DecodeError, LimitError
from pulsar_meta.codecs.metadata.envelope import MAGIC, is_enveloped, open_envelope, read_header
from pulsar_meta.codecs.protobuf.parse import VARINT, parse_message, parse_partly, read_field, read_varint
from pulsar_meta.codecs.salvage import salvage as prefix_of

M = TypeVar("M", bound=Message)
_HEADER_AT: Final = 6
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
    """Decode as much as possible of a record that `decode_cursor` or `decode_managed_ledger` refuses.

    Raises LimitError if the record was only refused because it is too large, which is no damage.
    """
    if not is_enveloped(value):
        return _from_prefix(kind, value, "the fields before the damage are readable")
    try:
        open_envelope(value)
    except LimitError:
        raise
    except DecodeError:
        pass
    claimed, body = _split(value)
    # Uncompressed bytes may end anywhere, so nothing tells whether they are truncated.
    for codec in sorted(CODECS[1:], key=lambda codec: codec != claimed):
        payload = _decompress(codec, body)
        if payload and _is_whole(kind, payload):
            return Salvaged(parse_message(kind, payload), complete=True, how=_how(codec, claimed, payload))
    for codec in [claimed, "none"] if claimed else CODECS:
        found = _from_prefix(
            kind, prefix_of(codec, body, DEFAULT_MAX_SIZE), f"the {codec} data before the damage is readable"
        )
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
    return prefix_of("zlib", body, DEFAULT_MAX_SIZE) if _ends_as_zlib(body) else b""


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
    library = backends.zstd()
    try:
        size = zstd_header(body).content_size
        return library.decompress(body, size) if size and size <= DEFAULT_MAX_SIZE else b""
    except (DecodeError, library.error):
        return b""


def _whole_lz4(body: bytes) -> bytes:
    library = backends.lz4()
    largest = min(DEFAULT_MAX_SIZE, 255 * len(body) + _HEADER_AT)
    try:
        return library.decompress(body, largest)
    except library.error:
        return b""


def _whole_snappy(body: bytes) -> bytes:
    import snappy

    try:
        size, _ = read_varint(body, 0)
        return bytes(snappy.uncompress(body)) if size <= DEFAULT_MAX_SIZE else b""
    except (DecodeError, snappy.UncompressError):
        return b""

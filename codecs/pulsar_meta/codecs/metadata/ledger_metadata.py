"""Metadata of single ledgers: BookKeeper's LedgerMetadata, PIP-404 properties, and bookies' cookies.

LedgerMetadata begins with the line `BookieMetadataFormatVersion\\tN\\n` and has three formats: (1) lines of
text, (2) protobuf text format, (3) a varint length and a binary LedgerMetadataFormat.

Editing a ledger's properties changes nothing else in the serialized ManagedLedgerInfo. Pulsar rebuilds the
list of properties with a java.util.HashMap at each change, and so does this module, so the result equals
Pulsar's. It keeps three things that Pulsar would lose: unknown fields, duplicates of other keys, and the
order of the ledgers.

A cookie is a line with the layout version, then its fields, in protobuf text format since layout 4, or one
field per line in layout 3.

Sources: apache/bookkeeper meta/LedgerMetadataSerDe.java, bookie/Cookie.java, DataFormats.proto; apache/pulsar
ManagedLedgerImpl.asyncAddLedgerProperty, asyncRemoveLedgerProperty; PIP-404.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, decoding
from pulsar_meta.codecs.protobuf.parse import (
    BYTES,
    VARINT,
    Field,
    as_text,
    bytes_field,
    checked_line,
    parse_message,
    parse_partly,
    parse_text,
    print_text,
    read_varint,
    split_fields,
    write_varint,
)
from pulsar_meta.proto.DataFormats_pb2 import CookieFormat, LedgerMetadataFormat

HEADER: Final = b"BookieMetadataFormatVersion\t"
CURRENT_VERSION: Final = 3
# The last entry id that marks a ledger in recovery in format 1.
_IN_RECOVERY: Final = -102
_CLOSED: Final = "CLOSED"
_THIRD: Final = HEADER + b"3\n"
_number_re = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """A ledger's metadata, and the number of the format in which it is stored."""

    format_version: int
    metadata: LedgerMetadataFormat


def decode_ledger_metadata(data: bytes) -> LedgerMetadata:
    """Decode a value below /ledgers. Raises DecodeError if it is broken.

    Format 1 has no digest, password and ack quorum, so those fields are absent.
    """
    version, at = _read_header(data)
    with decoding(start=at):
        return LedgerMetadata(version, _read_body(version, data[at:]))


def ledger_message(data: bytes) -> LedgerMetadataFormat:
    """Decode only the message, with a fast path for format 3. Raises DecodeError if it is broken."""
    if data.startswith(_THIRD):
        with suppress(DecodeError):
            size, at = read_varint(data, len(_THIRD))
            if size == len(data) - at:
                return parse_message(LedgerMetadataFormat, data[at:])
    return decode_ledger_metadata(data).metadata


def salvage_ledger_metadata(data: bytes) -> LedgerMetadataFormat:
    """Read the fields before the damage in broken metadata of format 3. Required fields may be missing.

    Ensembles without all their bookies and pairs without a value are left out. The message is empty if no
    field is readable.
    """
    message = LedgerMetadataFormat()
    if not data.startswith(_THIRD):
        return message
    with suppress(DecodeError):
        size, at = read_varint(data, len(_THIRD))
        message, fault = parse_partly(LedgerMetadataFormat, data[at:])
        if fault is not None and size < len(data) - at:
            message, _ = parse_partly(LedgerMetadataFormat, data[at : at + size])
    segments = [one for one in message.segment if _is_complete(one, message.ensembleSize)]
    pairs = [pair for pair in message.customMetadata if pair.IsInitialized() and pair.HasField("value")]
    del message.segment[:], message.customMetadata[:]
    message.segment.extend(segments)
    message.customMetadata.extend(pairs)
    return message


def _is_complete(segment: LedgerMetadataFormat.Segment, ensemble_size: int) -> bool:
    return segment.HasField("firstEntryId") and len(segment.ensembleMember) == ensemble_size


def encode_ledger_metadata(ledger: LedgerMetadata) -> bytes:
    """Encode metadata in its format. Raises DecodeError if the format can't represent it."""
    header = HEADER + str(ledger.format_version).encode() + b"\n"
    if ledger.format_version == 3:
        body = ledger.metadata.SerializeToString()
        return header + write_varint(len(body)) + body
    if ledger.format_version == 2:
        return header + print_text(ledger.metadata).encode()
    if ledger.format_version == 1:
        return header + "\n".join(_lines(ledger.metadata)).encode()
    raise DecodeError(f"unknown LedgerMetadata format {ledger.format_version}: choose 1, 2 or 3")


def _read_header(data: bytes) -> tuple[int, int]:
    if not data.startswith(HEADER):
        raise DecodeError(f"not LedgerMetadata: expected {HEADER.decode().strip()!r} first", offset=0)
    end = data.find(b"\n", len(HEADER), len(HEADER) + 4)
    digits = data[len(HEADER) : end]
    if end < 0 or not digits.isdigit():
        raise DecodeError("LedgerMetadata: expected a version and a line feed", offset=len(HEADER))
    if int(digits) not in (1, 2, 3):
        raise DecodeError(f"LedgerMetadata: expected version 1 to 3, found {int(digits)}", offset=len(HEADER))
    return int(digits), end + 1


def _read_body(version: int, body: bytes) -> LedgerMetadataFormat:
    if version == 1:
        return _parse_lines(as_text(body, "LedgerMetadata"))
    if version == 2:
        return parse_text(LedgerMetadataFormat, as_text(body, "LedgerMetadata"))
    size, at = read_varint(body, 0)
    if size != len(body) - at:
        raise DecodeError(f"LedgerMetadata claims {size} bytes, {len(body) - at} follow", offset=0)
    return parse_message(LedgerMetadataFormat, body[at:])


def _parse_lines(text: str) -> LedgerMetadataFormat:
    lines = text.split("\n")
    if len(lines) < 4:
        raise DecodeError("LedgerMetadata: expected quorum, ensemble size, length and segments")
    metadata = LedgerMetadataFormat(state=LedgerMetadataFormat.OPEN)
    metadata.quorumSize = _number(lines[0], 32)
    metadata.ensembleSize = _number(lines[1], 32)
    metadata.length = _number(lines[2], 64)
    for at, line in enumerate(lines[3:], 3):
        # Java's split drops empty parts at the end.
        first, *bookies = line.rstrip("\t").split("\t")
        if bookies == [_CLOSED] and at == len(lines) - 1:
            _close(metadata, _number(first, 64))
        elif bookies:
            metadata.segment.add(firstEntryId=_number(first, 64), ensembleMember=bookies)
        elif line or at < len(lines) - 1:
            raise DecodeError(f"LedgerMetadata: expected entry and bookies, found {line[:40]!r}")
    return metadata


def _close(metadata: LedgerMetadataFormat, last_entry: int) -> None:
    if last_entry == _IN_RECOVERY:
        metadata.state = LedgerMetadataFormat.IN_RECOVERY
    else:
        metadata.state = LedgerMetadataFormat.CLOSED
        metadata.lastEntryId = last_entry


def _number(text: str, bits: int) -> int:
    if _number_re.fullmatch(text) and -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        return int(text)
    raise DecodeError(f"LedgerMetadata: expected a number of {bits} bits, found {text[:40]!r}")


def _lines(metadata: LedgerMetadataFormat) -> list[str]:
    lines = [str(metadata.quorumSize), str(metadata.ensembleSize), str(metadata.length)]
    for segment in metadata.segment:
        bookies = [checked_line(bookie, "LedgerMetadata", "\t\n") for bookie in segment.ensembleMember]
        lines.append("\t".join([str(segment.firstEntryId), *bookies]))
    if metadata.state == LedgerMetadataFormat.OPEN:
        return [*lines, ""]
    closed = metadata.state == LedgerMetadataFormat.CLOSED
    return [*lines, f"{metadata.lastEntryId if closed else _IN_RECOVERY}\t{_CLOSED}"]


def custom_metadata(metadata: LedgerMetadataFormat) -> dict[str, str]:
    """Return a ledger's custom metadata as text. Pulsar stores there for whom it created the ledger."""
    return {pair.key: pair.value.decode("utf-8", "replace") for pair in metadata.customMetadata}


LEDGER_INFO = 1
LEDGER_ID = 1
LEDGER_PROPERTIES = 6
KEY = 1
VALUE = 2


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of a property: set the key to `value`, or remove it if `value` is None."""

    key: str
    value: str | None


def ledger_ids(payload: bytes) -> list[int]:
    """Return the ids of the ledgers in a serialized ManagedLedgerInfo, in stored order."""
    return [_ledger_id(payload[field.content : field.end]) for field in _ledgers(payload)]


def edit_properties(payload: bytes, edits: Mapping[int, Iterable[Edit]]) -> bytes:
    """Apply edits (by ledger id) to a serialized ManagedLedgerInfo; unchanged ledgers keep their bytes.

    Raises NotFoundError if a ledger is not in it, DecodeError if it is broken or contains a ledger twice.
    """
    missing = set(edits) - set(ledger_ids(payload))
    if missing:
        raise NotFoundError(f"no ledger {', '.join(map(str, sorted(missing)))} in this topic")
    pieces, at, done = [], 0, set()
    for field in _ledgers(payload):
        info = payload[field.content : field.end]
        ledger = _ledger_id(info)
        if ledger in done:
            raise DecodeError(f"ledger {ledger} is in the list twice", offset=field.start)
        if ledger in edits:
            done.add(ledger)
            edited = _edit_ledger(info, edits[ledger])
            pieces += [payload[at : field.start], bytes_field(LEDGER_INFO, edited)]
            if edited == info:
                pieces[-1] = payload[field.start : field.end]
            at = field.end
    return b"".join([*pieces, payload[at:]])


def _ledgers(payload: bytes) -> list[Field]:
    return [f for f in split_fields(payload) if f.number == LEDGER_INFO and f.wire_type == BYTES]


def _ledger_id(info: bytes) -> int:
    ledger = None
    for field in split_fields(info):
        if field.number == LEDGER_ID and field.wire_type == VARINT:
            # The last value wins, as in every protobuf parser.
            ledger, _ = read_varint(info, field.content)
    if ledger is None:
        raise DecodeError("a LedgerInfo without ledgerId")
    return ledger - 2**64 if ledger >= 2**63 else ledger


def _edit_ledger(info: bytes, edits: Iterable[Edit]) -> bytes:
    fields = split_fields(info)
    properties = [f for f in fields if f.number == LEDGER_PROPERTIES and f.wire_type == BYTES]
    before = [(_key(info[f.content : f.end]), info[f.start : f.end]) for f in properties]
    after = before
    for edit in edits:
        after = _apply(after, edit)
    if sorted(after) == sorted(before):
        return info
    # At the first property, or after the last field that Pulsar writes before properties.
    at = properties[0].start if properties else max(f.end for f in fields if f.number < LEDGER_PROPERTIES)
    others = [(f.start, info[f.start : f.end]) for f in fields if f not in properties]
    first = [piece for start, piece in others if start < at]
    last = [piece for start, piece in others if start >= at]
    return b"".join([*first, *(entry for _, entry in after), *last])


def _apply(properties: list[tuple[str, bytes]], edit: Edit) -> list[tuple[str, bytes]]:
    keys = list(dict.fromkeys(key for key, _ in properties))
    if edit.value is None and edit.key not in keys:
        return properties
    if edit.key not in keys:
        keys.append(edit.key)
    capacity = grown_capacity(HASH_MAP_CAPACITY, len(keys))
    by_key: dict[str, list[bytes]] = {key: [] for key in keys}
    for key, entry in properties:
        by_key[key].append(entry)
    by_key[edit.key] = [] if edit.value is None else [_property(edit, by_key[edit.key])]
    return [(key, entry) for key in hash_map_order(keys, capacity) for entry in by_key[key]]


def _property(edit: Edit, stored: list[bytes]) -> bytes:
    content = bytes_field(KEY, edit.key.encode()) + bytes_field(VALUE, str(edit.value).encode())
    entry = bytes_field(LEDGER_PROPERTIES, content)
    # Setting the same value keeps the stored bytes, even if another writer encoded them differently.
    return stored[0] if len(stored) == 1 and _value(stored[0]) == edit.value else entry


def _key(content: bytes) -> str:
    return _text(content, KEY)


def _value(entry: bytes) -> str:
    (field,) = split_fields(entry)
    return _text(entry[field.content : field.end], VALUE)


def _text(content: bytes, number: int) -> str:
    texts = [
        content[f.content : f.end]
        for f in split_fields(content)
        if f.number == number and f.wire_type == BYTES
    ]
    if not texts:
        raise DecodeError(f"a ledger's property has no {'key' if number == KEY else 'value'}")
    try:
        return texts[-1].decode()
    except UnicodeDecodeError as error:
        raise DecodeError("a ledger's property is not UTF-8") from error


# Newer bookies write layout 5, which added indexDirs.
CURRENT_LAYOUT: Final = 5
_LINES_LAYOUT: Final = 3


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie: a bookie writes it to the store and to its directories, and compares them when it starts."""

    layout_version: int
    fields: CookieFormat


def decode_cookie(data: bytes) -> Cookie:
    """Decode a value at /ledgers/cookies/… or a file VERSION. Raises DecodeError if it is not a cookie."""
    first, newline, rest = as_text(data, "a cookie").partition("\n")
    if not (first.isascii() and first.isdigit() and len(first) < 4 and newline):
        raise DecodeError(f"not a cookie: expected its layout version, found {first[:40]!r}", offset=0)
    layout = int(first)
    if layout < _LINES_LAYOUT:
        raise DecodeError(f"a cookie of layout {layout}: only 3 and later are supported", offset=0)
    if layout > _LINES_LAYOUT:
        return Cookie(layout, parse_text(CookieFormat, rest))
    lines = rest.split("\n")
    if len(lines) != 4 or lines[3]:
        raise DecodeError("a cookie of layout 3: expected three lines, host, journal and ledger directories")
    return Cookie(layout, CookieFormat(bookieHost=lines[0], journalDir=lines[1], ledgerDirs=lines[2]))


def encode_cookie(cookie: Cookie) -> bytes:
    """Encode a cookie in its layout. Raises DecodeError if the layout can't represent it."""
    fields = cookie.fields
    if cookie.layout_version > _LINES_LAYOUT:
        return f"{cookie.layout_version}\n{print_text(fields)}".encode()
    lines = [str(cookie.layout_version), fields.bookieHost, fields.journalDir, fields.ledgerDirs, ""]
    return "\n".join(checked_line(line, "a cookie of layout 3", "\r\n") for line in lines).encode()


# The iteration order of a java.util.HashMap. Buckets that Java turns into trees (eight colliding keys in a
# table of 64 or more) are not imitated; their keys keep the order of insertion. Sources:
# java.lang.String.hashCode; OpenJDK java.util.HashMap (spread, resize).
HASH_MAP_CAPACITY: Final = 16


def string_hash(text: str) -> int:
    """Return String.hashCode as an unsigned 32-bit number (over the UTF-16 units)."""
    number = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        number = (31 * number + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return number


def grown_capacity(capacity: int, count: int) -> int:
    """Return the size of a hash table of initial size `capacity` after `count` keys were added."""
    while count * 4 > capacity * 3:
        capacity *= 2
    return capacity


def hash_map_order(keys: Sequence[str], capacity: int) -> list[str]:
    """Return `keys` (in order of insertion) in the iteration order of a table of size `capacity`."""
    return sorted(keys, key=lambda key: _bucket(string_hash(key), capacity))


def _bucket(number: int, capacity: int) -> int:
    return (number ^ number >> 16) & (capacity - 1)

"""BookKeeper's LedgerMetadata in its three forms.

All begin with the line `BookieMetadataFormatVersion\\tN\\n`.
1: lines of text. 2: protobuf text format. 3: a varint length and a binary LedgerMetadataFormat.
Source: apache/bookkeeper meta/LedgerMetadataSerDe.java, DataFormats.proto.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.protobuf.text_format import as_text, checked_line, parse_text, print_text
from pulsar_meta.codecs.protobuf.wire_fields import read_varint, write_varint
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat

HEADER: Final = b"BookieMetadataFormatVersion\t"
CURRENT_VERSION: Final = 3
# The last entry id that marks a ledger in recovery in form 1.
_IN_RECOVERY: Final = -102
_CLOSED: Final = "CLOSED"
_THIRD: Final = HEADER + b"3\n"
_number_re = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """A ledger's metadata and the number of the form in which it is stored."""

    format_version: int
    metadata: LedgerMetadataFormat


def decode_ledger_metadata(data: bytes) -> LedgerMetadata:
    """Return what a value below /ledgers says, or raise DecodeError.

    In form 1, which has no digest, password and acknowledgement quorum, those fields stay absent.
    """
    version, at = _read_header(data)
    with decoding(start=at):
        return LedgerMetadata(version, _read_body(version, data[at:]))


def ledger_message(data: bytes) -> LedgerMetadataFormat:
    """Return the message alone, quickly where it is in the form of today; DecodeError as the whole."""
    if data.startswith(_THIRD):
        with suppress(DecodeError):
            size, at = read_varint(data, len(_THIRD))
            if size == len(data) - at:
                return parse_message(LedgerMetadataFormat, data[at:])
    return decode_ledger_metadata(data).metadata


def encode_ledger_metadata(ledger: LedgerMetadata) -> bytes:
    """Return the bytes of the value in its form; DecodeError where the form cannot hold it."""
    header = HEADER + str(ledger.format_version).encode() + b"\n"
    if ledger.format_version == 3:
        body = ledger.metadata.SerializeToString()
        return header + write_varint(len(body)) + body
    if ledger.format_version == 2:
        return header + print_text(ledger.metadata).encode()
    if ledger.format_version == 1:
        return header + "\n".join(_lines(ledger.metadata)).encode()
    raise DecodeError(f"LedgerMetadata has the forms 1, 2 and 3, not {ledger.format_version}")


def _read_header(data: bytes) -> tuple[int, int]:
    if not data.startswith(HEADER):
        raise DecodeError(f"not LedgerMetadata: expected {HEADER.decode().strip()!r} first", offset=0)
    end = data.find(b"\n", len(HEADER), len(HEADER) + 4)
    digits = data[len(HEADER) : end]
    if end < 0 or not digits.isdigit():
        raise DecodeError("LedgerMetadata: expected a version and a line feed", offset=len(HEADER))
    if int(digits) not in (1, 2, 3):
        raise DecodeError(f"LedgerMetadata: version {int(digits)}, known are 1 to 3", offset=len(HEADER))
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
        # As Java's split, which drops the empty parts at the end.
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
    """Return a ledger's custom metadata as text: Pulsar notes there for whom it creates a ledger."""
    return {pair.key: pair.value.decode("utf-8", "replace") for pair in metadata.customMetadata}

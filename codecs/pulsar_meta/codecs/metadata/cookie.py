"""A bookie's cookie: a line with the layout version, then its fields.

From layout 4 on in protobuf's text format, in layout 3 a line each.
Source: apache/bookkeeper bookie/Cookie.java, DataFormats.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.protobuf.text_format import as_text, checked_line, parse_text, print_text
from pulsar_meta.proto.DataFormats_pb2 import CookieFormat

# What newer bookies write: 5 added indexDirs.
CURRENT_LAYOUT: Final = 5
_LINES_LAYOUT: Final = 3


@dataclass(frozen=True, slots=True)
class Cookie:
    """What a bookie wrote into the store and its directories to recognise itself by."""

    layout_version: int
    fields: CookieFormat


def decode_cookie(data: bytes) -> Cookie:
    """Return the cookie in a value at /ledgers/cookies/… or in a file VERSION; DecodeError if it is none."""
    first, newline, rest = as_text(data, "a cookie").partition("\n")
    if not (first.isascii() and first.isdigit() and len(first) < 4 and newline):
        raise DecodeError(f"not a cookie: expected its layout version, found {first[:40]!r}", offset=0)
    layout = int(first)
    if layout < _LINES_LAYOUT:
        raise DecodeError(f"a cookie of layout {layout}; 3 and later are known", offset=0)
    if layout > _LINES_LAYOUT:
        return Cookie(layout, parse_text(CookieFormat, rest))
    lines = rest.split("\n")
    if len(lines) != 4 or lines[3]:
        raise DecodeError("a cookie of layout 3: expected three lines, host, journal and ledger directories")
    return Cookie(layout, CookieFormat(bookieHost=lines[0], journalDir=lines[1], ledgerDirs=lines[2]))


def encode_cookie(cookie: Cookie) -> bytes:
    """Return the bytes of a cookie in its layout; DecodeError where the layout cannot hold it."""
    fields = cookie.fields
    if cookie.layout_version > _LINES_LAYOUT:
        return f"{cookie.layout_version}\n{print_text(fields)}".encode()
    lines = [str(cookie.layout_version), fields.bookieHost, fields.journalDir, fields.ledgerDirs, ""]
    return "\n".join(checked_line(line, "a cookie of layout 3", "\r\n") for line in lines).encode()

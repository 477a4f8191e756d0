"""Protobuf's text format, the format of BookKeeper's cookies and older ledger metadata.

Brokers before 1.20 also wrote managed ledgers in it. Source: protobuf.dev, "Text Format Language".
"""

from __future__ import annotations

import re
import warnings
from typing import TypeVar

from google.protobuf.message import Message

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.secrets import redact_text

M = TypeVar("M", bound=Message)

_name_re = re.compile(rb"\s*([A-Za-z]\w*)\s*[:{]")


def parse_text(kind: type[M], text: str) -> M:
    """Parse a message in text format. Raises DecodeError if it is broken or lacks a required field."""
    from google.protobuf import text_format

    message = kind()
    try:
        with warnings.catch_warnings():
            # Python only warns about an invalid octal escape.
            warnings.simplefilter("error")
            text_format.Parse(text, message)
    except (text_format.ParseError, ValueError, RecursionError, Warning) as error:
        # The error quotes the line, which may contain the ledger's password.
        reason = redact_text(" ".join(str(error).split()))
        raise DecodeError(f"not a {kind.DESCRIPTOR.name} in text format: {reason}") from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise DecodeError(f"not a {kind.DESCRIPTOR.name}: required {missing} missing", offset=len(text))
    return message


def print_text(message: Message) -> str:
    """Format `message` like Java's TextFormat."""
    from google.protobuf import text_format

    return text_format.MessageToString(message, as_utf8=False)


def as_text(data: bytes, what: str) -> str:
    """Decode UTF-8. Raises DecodeError, naming `what` was expected, if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"not {what}: not UTF-8 text", offset=error.start) from error


def looks_like_text(kind: type[Message], data: bytes) -> bool:
    """Return True if `data` is ASCII and begins with a field name of `kind`, like text format."""
    begins = _name_re.match(data)
    return begins is not None and data.isascii() and begins[1].decode() in kind.DESCRIPTOR.fields_by_name


def checked_line(text: str | bytes, what: str, forbidden: str = "\n") -> str:
    """Return `text`. Raises DecodeError if it is not UTF-8 or contains a character of `forbidden`."""
    if isinstance(text, bytes) or any(character in text for character in forbidden):
        raise DecodeError(f"{what}: {text!r} does not fit into a line of text")
    return text

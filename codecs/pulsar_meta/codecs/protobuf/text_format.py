"""Protobuf's text format, in which BookKeeper keeps cookies and older ledger metadata.

Also what brokers before 1.20 wrote for managed ledgers. Source: protobuf.dev, "Text Format Language".
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
    """Return the message that `text` describes; DecodeError if broken or a required field is missing."""
    from google.protobuf import text_format

    message = kind()
    try:
        with warnings.catch_warnings():
            # Python only warns of an octal escape that stands for no byte.
            warnings.simplefilter("error")
            text_format.Parse(text, message)
    except (text_format.ParseError, ValueError, RecursionError, Warning) as error:
        # It quotes the line, which may have the ledger's password.
        reason = redact_text(" ".join(str(error).split()))
        raise DecodeError(f"not a {kind.DESCRIPTOR.name} in text format: {reason}") from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise DecodeError(f"not a {kind.DESCRIPTOR.name}: required {missing} missing", offset=len(text))
    return message


def print_text(message: Message) -> str:
    """Return `message` as Java's TextFormat prints it."""
    from google.protobuf import text_format

    return text_format.MessageToString(message, as_utf8=False)


def as_text(data: bytes, what: str) -> str:
    """Return `data` as UTF-8 text, or raise DecodeError."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"not {what}: not UTF-8 text", offset=error.start) from error


def looks_like_text(kind: type[Message], data: bytes) -> bool:
    """Return whether `data` is ASCII that begins with the name of a field of `kind`, as text format does."""
    begins = _name_re.match(data)
    return begins is not None and data.isascii() and begins[1].decode() in kind.DESCRIPTOR.fields_by_name


def checked_line(text: str | bytes, what: str, forbidden: str = "\n") -> str:
    """Return `text` if it can stand in a line; DecodeError where a `forbidden` letter would break it."""
    if isinstance(text, bytes) or any(letter in text for letter in forbidden):
        raise DecodeError(f"{what}: {text!r} cannot stand in a line of text")
    return text

"""Read bytes that a tool printed as text: hexadecimal digits, base64, or escapes.

Base64 may have the standard or the URL-safe alphabet, may lack its padding, and may be broken into lines
(RFC 4648, RFC 2045). Escapes are those of Go's `%q`, C and Python: `\\xNN`, `\\NNN` (octal), `\\n`, `\\"` and
others; all other characters stand for their bytes in UTF-8. All three may be in quotes.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Final, Literal

from pulsar_meta.codecs.patterns import lazy_pattern

TextForm = Literal["hex", "base64", "escaped"]
TEXT_FORMS: Final[tuple[TextForm, ...]] = ("hex", "base64", "escaped")

_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_ESCAPE: Final = lazy_pattern(
    rb"\\(?:x([0-9A-Fa-f]{2})|([0-3][0-7]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([abfnrtv\\\"'0]))"
    rb"|\\"
)
_LETTERS: Final = dict(zip(b"abfnrtv\\\"'0", b"\a\b\f\n\r\t\v\\\"'\0", strict=True))


def text_to_bytes(text: bytes, form: TextForm) -> bytes:
    """Return the bytes that `text` describes. Raises ValueError."""
    if form == "hex":
        return _from_hex(_unquoted(text.strip()))
    if form == "base64":
        return any_base64(_unquoted(text.strip()))
    return _from_escapes(_unquoted(text.rstrip(b"\r\n")))


def any_base64(text: bytes) -> bytes:
    """Decode base64 of either alphabet, with or without padding and line breaks. Raises ValueError."""
    letters = b"".join(text.split()).translate(_STANDARD)
    bare = letters.rstrip(b"=")
    padding = b"=" * (-len(bare) % 4)
    if len(bare) < len(letters) and letters != bare + padding:
        raise ValueError("wrong padding")
    if len(padding) == 3:
        raise ValueError(f"{len(bare)} letters, which is one too many or three too few")
    return b64decode(bare + padding, validate=True)


def _from_hex(text: bytes) -> bytes:
    return bytes.fromhex(text.decode("ascii").removeprefix("0x"))


def _from_escapes(text: bytes) -> bytes:
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[bytes]) -> bytes:
    byte, octal, short, long, letter = match.groups()
    if byte is not None or octal is not None:
        return bytes([int(byte, 16) if octal is None else int(octal, 8)])
    if letter is not None:
        return bytes([_LETTERS[letter[0]]])
    if short is None and long is None:
        raise ValueError(f"invalid escape at byte {match.start()}")
    return chr(int(short or long, 16)).encode()


def _unquoted(text: bytes) -> bytes:
    """Remove the quotes of a JSON, Go, C or Python string, and Python's `b`."""
    quoted = re.fullmatch(rb"""b?(["'])(.*)\1""", text, re.DOTALL)
    return text if quoted is None else quoted[2]

"""Find and hide secrets in values and in text.

A secret is found by its name (a member of an object, the key of a property, `key=value` in text) or by its
own form (credentials in a URL, a bearer or basic header, a PEM block, a JSON web token, a cloud key).
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from functools import lru_cache
from typing import Annotated, Any, Final, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.patterns import lazy_pattern
from pulsar_meta.codecs.shapes import Either


class Redacted(TypedDict):
    """Replaces a secret. `text` is the string around the secret, with `***` for the secret itself."""

    redacted: bool
    text: NotRequired[str]


# Properties whose values may be redacted.
Texts = Annotated[dict[str, str], Either((dict[str, str | Redacted],))]
Numbers = Annotated[dict[str, int], Either((dict[str, int | Redacted],))]

# `encode` and `put` refuse it, because the secret is not known to them.
REDACTED: Final[Redacted] = {"redacted": True}
MASK: Final = "***"

# Parts of names of secrets, wherever they are in the name. `auth` alone is in too many harmless names.
_STEM: Final = (
    r"pass(?:word|wd|phrase|code)|pwd|secret|credential|jaas[-_.]?config|jwt"
    r"|(?:private|access|api|account|signing|encryption|shared|storage|master|sas|auth)[-_.]?key"
    r"|auth(?:entication)?[-_.]?(?:param|parameter|data|token|header)|authorization"
    r"|(?:access|refresh|id|auth|bearer|session|client|service|bot|admin|broker|sas|vault|api|security)[-_.]?token"
)
# These names are secrets only at their end: a token bucket is none, and neither is `signatureAlgorithm`.
_END: Final = r"tokens?|signature|sig|passw?"
_secret_name_re: Final = lazy_pattern(rf"(?i)(?:{_STEM})|(?:^|[^a-z]|(?<=[a-z])(?-i:(?=[A-Z])))(?:{_END})$")
# The names end with what they are about: a number, a switch, a place.
_harmless_end_re: Final = lazy_pattern(
    r"(?i)(?:policy|enabled?|required?|allowed|optional|provider|factory|class(?:name)?|type|algorithm|format"
    r"|count|size|bytes|length|millis|seconds|minutes|interval|timeout|ttl|expiry|version|claim|audience|issuer"
    r"|scope|mode|strategy|[_.-]id|(?-i:Id))s?$"
)
# A number in BookKeeper's ledger metadata that identifies the writer.
_PUBLIC: Final = frozenset({"cToken"})
# A name in text: letters, digits and the signs that join them.
_WORD: Final = r"[\w.$-]"
# One of these is in every text that has a secret. Looking for them first makes most texts cheap.
_HINTS: Final = (
    b"passw", b"passp", b"passc", b"pass=", b"pwd", b"secret", b"token", b"credential", b"auth", b"jaas",
    b"jwt", b"key", b"sig", b"://", b"bearer", b"basic", b"-----begin", b"eyj", b"akia", b"asia", b"aiza",
    b"gh", b"xox", b"glpat-", b"sk_", b"rk_", b"sg.", b"npm_", b"hf_", b"hvs.", b"ya29.", b"dop_v1_",
    b"pypi-", b"==",
)  # fmt: skip
# A quoted value ends at its quote, a list or an object at the end of the text, anything else at a separator.
_VALUE: Final = r"(?:\\?\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[\[{].*|[^\s,;&}\]\"'][^\r\n,;&}\]\"']*)"
_name_re: Final = lazy_pattern(rf"(?<!{_WORD})({_WORD}{{1,200}})\\?[\"']?\s{{0,9}}[:=]\s{{0,9}}")
_value_re: Final = lazy_pattern(_VALUE, re.DOTALL)
# The user and the password in front of the host of a URL.
_url_re: Final = lazy_pattern(r"(?P<scheme>\b[A-Za-z][\w+.-]{0,40}://)[^\s/?#@\"'<>]{1,4000}@")
_SHAPES: Final = lazy_pattern(
    r"-----BEGIN (?![A-Z ]*(?:CERTIFICATE|PUBLIC KEY))[A-Z0-9 ]{1,60}-----"
    r".*?(?:-----END [A-Z0-9 ]{1,60}-----|\Z)"
    r"|(?P<header>\b(?i:bearer|basic)\s{1,9})[A-Za-z0-9+/=._~-]{8,}"
    r"|\beyJ[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_-]{35}"
    r"|\b(?:gh[pousr]_|github_pat_)[0-9A-Za-z_]{20,}"
    r"|\bxox[abeoprs]-[0-9A-Za-z-]{10,}"
    r"|\bglpat-[0-9A-Za-z_-]{16,}"
    r"|\b[sr]k_(?:live|test)_[0-9A-Za-z]{12,}"
    r"|\bSG\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,}"
    r"|\b(?:npm_|hf_|dop_v1_|hvs\.|ya29\.|pypi-)[0-9A-Za-z_-]{20,}"
    r"|(?P<bytes>(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}==)",
    re.DOTALL,
)
_base64_re: Final = lazy_pattern(r"[A-Za-z0-9+/]{12,}={0,2}")
# Longer texts in base64 are data, such as a schema or a payload.
_LARGEST_BASE64: Final = 1 << 16


def redact(value: Any) -> Any:
    """Return a JSON value with `REDACTED` for each secret, and `REDACTED` with `text` for strings around one.

    Empty values, None and booleans are kept. Bytes in base64 are searched as text, too.
    """
    if isinstance(value, str):
        return _redact_string(value)
    if isinstance(value, list):
        return [member if type(member) is int else redact(member) for member in value]
    if not isinstance(value, dict):
        return value
    shown = {name: _redact_member(str(name), member) for name, member in value.items()}
    key = value.get("key", value.get("name"))
    if "value" in value and isinstance(key, str):
        shown["value"] = _redact_member(key, value["value"], base64=True)
    return shown


def mask(value: Any) -> Any:
    """Return a JSON value with `***` for each secret. Use it for output that is never written back."""
    return with_masks(redact(value))


def with_masks(value: Any, text: str = MASK) -> Any:
    """Return a redacted JSON value with strings for its secrets: `text`, or the string around the secret."""
    if isinstance(value, list):
        return [member if type(member) is int else with_masks(member, text) for member in value]
    if not isinstance(value, dict):
        return value
    if is_redacted(value):
        return value.get("text", text)
    return {name: with_masks(member, text) for name, member in value.items()}


def redact_text(text: str) -> str:
    """Return a text with `***` for each secret."""
    # As bytes, because letters beyond ASCII make `str.lower` slow.
    lowered = text.encode("utf-8", "surrogatepass").lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    text = _url_re.sub(rf"\g<scheme>{MASK}@", text)
    text = _SHAPES.sub(_masked_shape, text)
    return _mask_pairs(text)


def refuse_redacted(value: Any, path: str) -> None:
    """Raise DecodeError if a secret was redacted anywhere in `value`."""
    if is_redacted(value):
        raise DecodeError(f"{path}: a secret was redacted here (decode with --show-secrets)")
    if isinstance(value, dict):
        for name, member in value.items():
            refuse_redacted(member, f"{path}.{name}")
    elif isinstance(value, list):
        for at, member in enumerate(value):
            refuse_redacted(member, f"{path}[{at}]")


def is_redacted(value: Any) -> bool:
    """Return True if `value` is what `redact` puts in the place of a secret."""
    return isinstance(value, dict) and value.get("redacted") is True and value.keys() <= {"redacted", "text"}


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Return True if the value of a member or a property with this name is a secret."""
    if name in _PUBLIC or _harmless_end_re.search(name):
        return False
    return _secret_name_re.search(name) is not None


def _redact_member(name: str, value: Any, *, base64: bool = False) -> Any:
    if is_secret(name) and not isinstance(value, bool) and value not in (None, "", [], {}):
        return value if _is_harmless(name, value) else REDACTED.copy()
    return _redact_string(value) if base64 and isinstance(value, str) else redact(value)


def _is_harmless(name: str, value: Any) -> bool:
    """Return True for a path of a file that a name like `passwordFile` points to."""
    if not isinstance(value, str) or not value.startswith(("/", "file:")):
        return False
    return name.lower().endswith(("file", "path", "location", "dir")) and redact_text(value) == value


def _redact_string(value: str) -> Any:
    redacted = redact_text(value)
    if redacted != value:
        return {**REDACTED, "text": redacted} if redacted != MASK else REDACTED.copy()
    return REDACTED.copy() if _has_secret_in_base64(value) else value


def _masked_shape(found: re.Match[str]) -> str:
    # Keys of Azure are random bytes. Text of the same length is no key.
    if found["bytes"] and _text_in_base64(found["bytes"]) is not None:
        return found[0]
    return f"{found['header'] or ''}{MASK}"


def _has_secret_in_base64(value: str) -> bool:
    if len(value) % 4 or not 12 <= len(value) <= _LARGEST_BASE64 or not _base64_re.fullmatch(value):
        return False
    text = _text_in_base64(value)
    return text is not None and redact_text(text) != text


def _text_in_base64(value: str) -> str | None:
    try:
        return b64decode(value, validate=True).decode("utf-8")
    except (Error, UnicodeDecodeError):
        return None


def _mask_pairs(text: str) -> str:
    """Replace the value of each `name=value` and `name: value` whose name is that of a secret."""
    parts, done, at = [], 0, 0
    while (name := _name_re.search(text, at)) is not None:
        at = name.end()
        value = _value_re.match(text, at) if is_secret(name[1].strip("-_.$")) else None
        if value is not None:
            parts += [text[done:at], MASK]
            done = at = value.end()
    return "".join([*parts, text[done:]])

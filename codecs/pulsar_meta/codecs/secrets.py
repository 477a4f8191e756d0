"""Secrets in values: what stands in their place where they are not asked for.

A secret is known by its name: that of an object's member, or the key (or name) of a pair of key and value.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Final, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.shapes import Either


class Redacted(TypedDict):
    """Stands for a secret; `text` is the rest of a text in which there is one."""

    redacted: bool
    text: NotRequired[str]


# Properties, and beside the names of secrets among them that they are left out.
Texts = Annotated[dict[str, str], Either((dict[str, str | Redacted],))]
Numbers = Annotated[dict[str, int], Either((dict[str, int | Redacted],))]

# Stands for a secret in the JSON form. `encode` refuses it: the secret cannot be put back.
REDACTED: Final[Redacted] = {"redacted": True}

_NAME: Final = (
    r"(?:pass(?:word|wd|phrase)|secret(?:[-_.]?access)?(?:[-_.]?key)?|token|credential"
    r"|auth(?:entication)?[-_.]?(?:param|parameter|data)|(?:private|access|api)[-_.]?key|jaas[-_.]?config)s?"
)
_secret_re = re.compile(rf"(?i){_NAME}$")
# A number in BookKeeper's ledger metadata (the writer that created it), as any other id.
_PUBLIC: Final = frozenset({"cToken"})
# One of them is in every name, and they are looked for in a hundredth of the time.
_STEMS: Final = (
    b"passw", b"passp", b"secret", b"token", b"credential", b"auth", b"private", b"access", b"jaas",
    b"apikey", b"api-key", b"api_key", b"api.key",
)  # fmt: skip
# A secret's name and what follows it in text: in quotes, or to the end of the line or of the member; what
# begins as a list or an object goes on to the end.
_in_text_re = re.compile(
    rf"(?is)({_NAME}[\"']?\s*[:=]\s*)(?:\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[\[{{].*|[^\s,;}}\]][^\r\n,;}}\]]*)"
)


def redact(value: Any) -> Any:
    """Return a JSON value with every secret that is not empty replaced by `REDACTED`."""
    if isinstance(value, list):
        return [redact(member) for member in value]
    if not isinstance(value, dict):
        return value
    shown = {name: _shown(str(name), member) for name, member in value.items()}
    key = value.get("key", value.get("name"))
    if "value" in value and isinstance(key, str):
        shown["value"] = _shown(key, value["value"])
    return shown


def redact_text(text: str) -> str:
    """Return a text with `***` in the place of secrets."""
    # As bytes: letters beyond ASCII make `str.lower` slow.
    lowered = text.encode("utf-8", "surrogatepass").lower()
    if not any(stem in lowered for stem in _STEMS):
        return text
    return _in_text_re.sub(r"\1***", text)


def refuse_redacted(value: Any, path: str) -> None:
    """Raise DecodeError where a secret was taken out of `value`."""
    if isinstance(value, dict) and value.get("redacted") is True and value.keys() <= {"redacted", "text"}:
        raise DecodeError(f"{path}: a secret was redacted here (decode with --show-passwords)")
    if isinstance(value, dict):
        for name, member in value.items():
            refuse_redacted(member, f"{path}.{name}")
    elif isinstance(value, list):
        for at, member in enumerate(value):
            refuse_redacted(member, f"{path}[{at}]")


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Return whether what has this name is a secret."""
    return name not in _PUBLIC and _secret_re.search(name) is not None


def _shown(name: str, value: Any) -> Any:
    if is_secret(name) and not isinstance(value, bool) and value not in (None, "", [], {}):
        return REDACTED.copy()
    return redact(value)

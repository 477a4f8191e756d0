"""Secrets in values: what stands in their place where they are not asked for."""

from __future__ import annotations

import re
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError

# Stands for a secret in the JSON form. `encode` refuses it: the secret cannot be put back.
REDACTED: Final = {"redacted": True}

# Ledger passwords, what clients authenticate with, passwords and keys in cluster and offload settings.
_secret_re = re.compile(r"(?i)(password|secret|authenticationparameters|auth_?data|privatekey)$")


def redact(value: Any) -> Any:
    """Return a JSON value with every secret that is not empty replaced by `REDACTED`."""
    if isinstance(value, dict):
        return {name: _shown(str(name), member) for name, member in value.items()}
    return [redact(member) for member in value] if isinstance(value, list) else value


def refuse_redacted(value: Any, path: str) -> None:
    """Raise DecodeError where a secret was taken out of `value`."""
    if value == REDACTED:
        raise DecodeError(f"{path}: a secret was redacted here (decode with --show-passwords)")
    if isinstance(value, dict):
        for name, member in value.items():
            refuse_redacted(member, f"{path}.{name}")
    elif isinstance(value, list):
        for at, member in enumerate(value):
            refuse_redacted(member, f"{path}[{at}]")


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, str) and value and _secret_re.search(name):
        return dict(REDACTED)
    return redact(value)

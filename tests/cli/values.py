"""Values, the program's path and a function to empty a store, for tests of `decode`, `encode` and others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pulsar_meta.codecs.errors import ConflictError, GuardError, NotFoundError
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.stores.registry import open_store

PROGRAM: Final = Path(sys.executable).with_name("pulsar-meta")
LEDGER: Final = bytes.fromhex("0a090807100a18e8072001")
CURSOR: Final = bytes.fromhex("08ffffffffffffffffff01100718ffffffffffffffffff01")

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def payload(value: bytes) -> tuple[str | None, bytes]:
    """Return the codec of a value's envelope (None if it has none), and the payload."""
    envelope = open_envelope(value)
    return (None, value) if envelope is None else (envelope.codec, envelope.payload)


def clear_store(url: str) -> str:
    """Delete all values that can be deleted from a store that tests share; return its URL."""
    with open_store(url, read_only=False) as store:
        # Children are deleted before their parents.
        for value in sorted(store.scan(), key=lambda value: value.path, reverse=True):
            with suppress(NotFoundError, ConflictError, GuardError):
                store.delete(value.path, value.version)
    return url

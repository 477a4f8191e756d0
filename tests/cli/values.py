"""Two values, a store without any, and the program as the tests of `decode` and `encode` run it."""

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
    """Return the codec of a value's envelope, None for none, and the message in it."""
    envelope = open_envelope(value)
    return (None, value) if envelope is None else (envelope.codec, envelope.payload)


def emptied(url: str) -> str:
    """Take out of a store that tests share whatever may be taken out; return its URL."""
    with open_store(url, read_only=False) as store:
        # What lies below a path goes before it.
        for held in sorted(store.scan(), key=lambda held: held.path, reverse=True):
            with suppress(NotFoundError, ConflictError, GuardError):
                store.delete(held.path, held.version)
    return url

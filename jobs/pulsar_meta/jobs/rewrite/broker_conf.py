"""Settings of a broker.conf: what brokers compress, so that they do not undo what was chosen here."""

from __future__ import annotations

from pathlib import Path

from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.errors import DecodeError, decoding, unreadable
from pulsar_meta.codecs.java_properties import decode_properties, last_values
from pulsar_meta.jobs.rewrite.rules import DEFAULT_THRESHOLD
from pulsar_meta.jobs.topics.scope import Kind

MAX_SIZE = 16 << 20
_NAMES: dict[Kind, str] = {"cursor": "managedCursorInfoCompression", "ledger": "managedLedgerInfoCompression"}


def read_broker_conf(path: Path, kind: Kind) -> tuple[str, int]:
    """Return (codec, threshold in bytes) that brokers with this configuration write `kind` with.

    NotFoundError for a file that cannot be read, DecodeError for a setting no broker starts with, and for a
    file without the setting: brokers then write plainly, but more likely it is the wrong file.
    """
    settings = read_settings(path)
    name = f"{_NAMES[kind]}Type"
    if name not in settings:
        raise DecodeError(f"has no {name}; to brokers that is --compression none", source=str(path))
    codec = settings.get(name, "").strip().lower() or "none"
    if codec not in CODECS:
        raise DecodeError(f"{name}={settings[name]}: there are {', '.join(CODECS)}", source=str(path))
    name = f"{_NAMES[kind]}ThresholdInBytes"
    threshold = settings.get(name, "").strip() or str(DEFAULT_THRESHOLD)
    if not threshold.isdecimal():
        raise DecodeError(f"{name}={threshold}: not a size in bytes", source=str(path))
    return codec, int(threshold)


def read_settings(path: Path) -> dict[str, str]:
    """Return what a broker.conf sets; NotFoundError, UnreachableError, DecodeError where it is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise unreadable(error, str(path)) from error
    if len(data) > MAX_SIZE:
        raise DecodeError(f"over {MAX_SIZE} bytes: no broker.conf", source=str(path))
    with decoding(str(path)):
        return last_values(decode_properties(data))

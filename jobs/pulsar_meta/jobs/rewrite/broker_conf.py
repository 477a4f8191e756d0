"""The compression settings of a broker.conf, so that the brokers do not undo what was chosen here."""

from __future__ import annotations

from pathlib import Path

from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.java_properties import decode_properties, last_values
from pulsar_meta.jobs.rewrite.recompress import DEFAULT_THRESHOLD, Kind

_NAMES: dict[Kind, str] = {"cursor": "managedCursorInfoCompression", "ledger": "managedLedgerInfoCompression"}


def read_broker_conf(path: Path, kind: Kind) -> tuple[str, int]:
    """Return (codec, threshold in bytes) that brokers with this configuration write `kind` with.

    NotFoundError for a file that cannot be read, DecodeError for a setting no broker starts with.
    """
    try:
        settings = last_values(decode_properties(path.read_bytes()))
    except OSError as error:
        raise NotFoundError(f"cannot be read: {error.strerror}", source=str(path)) from error
    name = f"{_NAMES[kind]}Type"
    codec = settings.get(name, "").strip().lower() or "none"
    if codec not in CODECS:
        raise DecodeError(f"{name}={settings[name]}: there are {', '.join(CODECS)}", source=str(path))
    name = f"{_NAMES[kind]}ThresholdInBytes"
    threshold = settings.get(name, "").strip() or str(DEFAULT_THRESHOLD)
    if not threshold.isdecimal():
        raise DecodeError(f"{name}={threshold}: not a size in bytes", source=str(path))
    return codec, int(threshold)

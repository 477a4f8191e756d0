"""Runs beside a broker (`PulsarStandalone.call`): what its metadata store holds."""

from __future__ import annotations

from tests.servers.inside import broker


def stored(path: str) -> bytes:
    """Return the value at `path` as the broker's own store gives it."""
    found = broker().getLocalMetadataStore().get(path).get()
    return bytes(found.get().getValue())

"""What BookKeeper makes of ledger metadata and of digests. Runs inside a JVM."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from jpype import JClass

from tests.interop.oracle.java import buffer, drain, each, first_class, java_bytes


def parse_ledgers(values: list[bytes]) -> list[dict[str, Any] | str]:
    """Return what LedgerMetadataSerDe reads in each value, and what it writes for it again."""
    return each(values, _parse_ledger)


def parse_cookies(values: list[bytes]) -> list[bytes | str]:
    """Return what Cookie, having read each of them as a file VERSION, would write."""
    return each(values, _parse_cookie)


def digest(kind: str, password: bytes, entries: list[tuple[int, int, int, int, bytes]]) -> list[bytes | str]:
    """Return DigestManager's whole bookie entry for each (ledger, entry, last confirmed, length, data)."""
    return each(entries, lambda entry: _package(_manager(kind, password, entry[0]), *entry[1:]))


def verify(kind: str, password: bytes, entries: list[tuple[int, int, bytes]]) -> list[bytes | str]:
    """Return the data that DigestManager takes from each (ledger, entry, whole entry), or what it threw."""
    return each(
        entries,
        lambda entry: drain(
            _manager(kind, password, entry[0]).verifyDigestAndReturnData(entry[1], buffer(entry[2]))
        ),
    )


def _parse_ledger(value: bytes) -> dict[str, Any]:
    serde = JClass("org.apache.bookkeeper.meta.LedgerMetadataSerDe")()
    metadata = serde.parseConfig(java_bytes(value), 7, JClass("java.util.Optional").empty())
    ensembles = {
        int(entry.getKey()): [str(bookie) for bookie in entry.getValue()]
        for entry in metadata.getAllEnsembles().entrySet()
    }
    return {
        "format_version": int(metadata.getMetadataFormatVersion()),
        "ensemble": int(metadata.getEnsembleSize()),
        "write": int(metadata.getWriteQuorumSize()),
        "ack": int(metadata.getAckQuorumSize()),
        "state": str(metadata.getState()),
        "length": int(metadata.getLength()),
        "last": int(metadata.getLastEntryId()),
        "ensembles": ensembles,
        "custom": {
            str(key): bytes(metadata.getCustomMetadata().get(key)) for key in metadata.getCustomMetadata()
        },
        "digest": str(metadata.getDigestType()) if metadata.hasPassword() else None,
        "password": bytes(metadata.getPassword()) if metadata.hasPassword() else None,
        "again": bytes(serde.serialize(metadata)),
    }


def _parse_cookie(value: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "VERSION").write_bytes(value)
        cookie = JClass("org.apache.bookkeeper.bookie.Cookie").readFromDirectory(
            JClass("java.io.File")(folder)
        )
    return str(cookie).encode()


def _package(manager: Any, entry: int, confirmed: int, length: int, data: bytes) -> bytes:
    lists = JClass("org.apache.bookkeeper.util.ByteBufList")
    # From 4.16 on the request's key and flags are handed in; they count for protocol 2 only.
    more = () if _old(manager) else (java_bytes(b""), 0)
    packed = manager.computeDigestAndPackageForSending(entry, confirmed, length, buffer(data), *more)
    return drain(lists.coalesce(packed))


def _old(manager: Any) -> bool:
    return any(
        str(method.getName()) == "computeDigestAndPackageForSending" and len(method.getParameterTypes()) == 4
        for method in manager.getClass().getMethods()
    )


def _manager(kind: str, password: bytes, ledger: int) -> Any:
    types = first_class(
        "org.apache.bookkeeper.proto.DataFormats$LedgerMetadataFormat$DigestType",
        "org.apache.bookkeeper.proto.LedgerMetadataFormat$DigestType",
    )
    allocator = JClass("io.netty.buffer.UnpooledByteBufAllocator").DEFAULT
    managers = JClass("org.apache.bookkeeper.proto.checksum.DigestManager")
    return managers.instantiate(ledger, java_bytes(password), types.valueOf(kind), allocator, False)

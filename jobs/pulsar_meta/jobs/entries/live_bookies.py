"""The live bookies of a cluster, as its metadata store knows them."""

from __future__ import annotations

from functools import lru_cache
from time import monotonic
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.names import LEDGERS, ledger_of_path, ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.bookie_live import LiveBookies
from pulsar_meta.entries.ensemble import Ensembles, Segment
from pulsar_meta.proto.DataFormats_pb2 import BookieServiceInfoFormat, LedgerMetadataFormat
from pulsar_meta.stores.base import Store

BOOKIE_PROTOCOL: Final = "bookie-rpc"
# A closed ledger's metadata is not read again for so long. Not for ever: BookKeeper's recovery moves
# closed ledgers from bookies that are gone to others.
KEPT_SECONDS: Final = 60.0
KEPT_LEDGERS: Final = 10_000
_AVAILABLE: Final = (f"{LEDGERS}/available", f"{LEDGERS}/available/readonly")
_DIGESTS: Final[dict[int, DigestType]] = {
    LedgerMetadataFormat.CRC32: "CRC32",
    LedgerMetadataFormat.HMAC: "HMAC",
    LedgerMetadataFormat.CRC32C: "CRC32C",
    LedgerMetadataFormat.DUMMY: "DUMMY",
}


def open_live_bookies(store: Store, *, url: str = "bookie:") -> LiveBookies:
    """Return the entries of the bookies that `store` knows. Nothing is read before it is needed."""
    return LiveBookies(StoredCluster(store), url=url)


class StoredCluster:
    """Ledgers and bookies as the store has them; open ledgers move, so they are read again each time."""

    def __init__(self, store: Store) -> None:
        """`store` stays the caller's to close."""
        self._store = store
        self._closed: dict[int, tuple[float, Ensembles]] = {}
        self.address = lru_cache(maxsize=None)(self._address)

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers, in order."""
        ids = (ledger_of_path(found.path) for found in self._store.scan(LEDGERS))
        return sorted(ledger_id for ledger_id in ids if ledger_id is not None)

    def ensembles(self, ledger_id: int) -> Ensembles:
        """Return where a ledger's entries lie; NotFoundError, or DecodeError where the value is broken."""
        since, kept = self._closed.get(ledger_id, (0.0, None))
        if kept is not None and monotonic() - since < KEPT_SECONDS:
            return kept
        found = self._read(ledger_id)
        if found.last_entry is not None:
            if len(self._closed) >= KEPT_LEDGERS:
                self._closed.clear()
            self._closed[ledger_id] = (monotonic(), found)
        return found

    def _read(self, ledger_id: int) -> Ensembles:
        path = ledger_path(ledger_id)
        try:
            return ensembles_of(ledger_id, decode_ledger_metadata(self._store.read(path).value).metadata)
        except NotFoundError as error:
            raise NotFoundError(f"no ledger {ledger_id}", source=self._store.url) from error
        except DecodeError as error:
            raise DecodeError(error.message, offset=error.offset, source=path) from error

    def _address(self, bookie_id: str) -> tuple[str, int]:
        """Return host and port of a bookie: as it registered itself, else as its id says."""
        for parent in _AVAILABLE:
            try:
                value = self._store.read(f"{parent}/{bookie_id}").value
            except NotFoundError:
                continue
            found = registered_address(value)
            if found is not None:
                return found
        host, separator, port = bookie_id.rpartition(":")
        if separator and port.isdigit():
            return host, int(port)
        raise UnreachableError("not registered, so its address is not known", source=f"bookie {bookie_id}")


def ensembles_of(ledger_id: int, metadata: LedgerMetadataFormat) -> Ensembles:
    """Return where a ledger's entries lie; DecodeError where its metadata names no bookies."""
    segments = tuple(Segment(part.firstEntryId, tuple(part.ensembleMember)) for part in metadata.segment)
    quorum = metadata.quorumSize
    if not segments or not all(0 < quorum <= len(segment.members) for segment in segments):
        raise DecodeError(f"ledger {ledger_id} names no ensemble for its write quorum of {quorum}")
    closed = metadata.state == LedgerMetadataFormat.CLOSED
    return Ensembles(
        ledger_id=ledger_id,
        write_quorum=quorum,
        ack_quorum=metadata.ackQuorumSize or quorum,
        segments=segments,
        last_entry=metadata.lastEntryId if closed else None,
        digest_type=_DIGESTS[metadata.digestType] if metadata.HasField("digestType") else "CRC32",
        password=metadata.password if metadata.HasField("password") else None,
    )


def registered_address(value: bytes) -> tuple[str, int] | None:
    """Return host and port from a bookie's registration, None where it says nothing (old bookies)."""
    if not value:
        return None
    for endpoint in parse_message(BookieServiceInfoFormat, value).endpoints:
        if endpoint.protocol == BOOKIE_PROTOCOL:
            return endpoint.host, endpoint.port
    return None

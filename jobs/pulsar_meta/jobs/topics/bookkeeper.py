"""Read BookKeeper's metadata of ledgers and the registrations of bookies from the store.

Sources: apache/bookkeeper DataFormats.proto, LedgerMetadataSerDe; apache/pulsar managed-ledger
LedgerMetadataUtils.java (custom metadata of ledgers).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from time import monotonic
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, decoding
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.metadata.ledger_metadata import custom_metadata, decode_ledger_metadata
from pulsar_meta.codecs.names import (
    LEDGERS,
    LogKind,
    SnapshotKind,
    ledger_of_path,
    ledger_path,
    log_kind,
    snapshot_kind,
)
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.bookie_client import Ensembles, Segment
from pulsar_meta.entries.bookie_live import LiveBookies
from pulsar_meta.proto.DataFormats_pb2 import BookieServiceInfoFormat, LedgerMetadataFormat
from pulsar_meta.proto.PulsarApi_pb2 import MessageIdData
from pulsar_meta.stores.base import Store, Versioned, child_path

BOOKIE_PROTOCOL: Final = "bookie-rpc"
# The metadata of a closed ledger is cached for this long. It can change, because BookKeeper's recovery moves
# closed ledgers away from lost bookies.
KEPT_SECONDS: Final = 60.0
KEPT_LEDGERS: Final = 10_000
COMPACTED_TO: Final = "pulsar/compactedTo"
# Managed ledgers whose entries are not frames.
LOGS: Final[dict[LogKind, str]] = {
    "transaction-log": "the log of a transaction coordinator",
    "pending-acks": "acknowledgments in transactions",
}
_AVAILABLE: Final = (f"{LEDGERS}/available", f"{LEDGERS}/available/readonly")
_DIGESTS: Final[dict[int, DigestType]] = {
    LedgerMetadataFormat.CRC32: "CRC32",
    LedgerMetadataFormat.HMAC: "HMAC",
    LedgerMetadataFormat.CRC32C: "CRC32C",
    LedgerMetadataFormat.DUMMY: "DUMMY",
}


@dataclass(frozen=True, slots=True)
class EntryFormat:
    """How to read the entries of a ledger, as far as the store shows it.

    Digest type and password verify entries. `content` names the contents if the entries are not frames, and
    `frames` is True if they must be frames. `log` is the kind of log that the entries belong to, `snapshot`
    the kind of snapshot in the messages.
    """

    digest_type: DigestType | None = None
    password: bytes | None = None
    content: str | None = None
    frames: bool = False
    log: LogKind | None = None
    snapshot: SnapshotKind | None = None

    def of_topic(self, name: str) -> EntryFormat:
        """Add the format that follows from the name of the topic or managed ledger.

        The ledger's own metadata has precedence.
        """
        log = None if self.content else log_kind(name)
        if log is not None:
            return replace(self, content=LOGS[log], frames=False, log=log)
        return replace(self, snapshot=None if self.content else snapshot_kind(name))


@dataclass(frozen=True, slots=True)
class BookkeeperLedger:
    """BookKeeper's metadata of a ledger.

    `last_entry` is None while the ledger is open, -1 if it is empty. `length` is in bytes, None while it is
    open. `created` is in milliseconds, None if it was not recorded. `compacted_to` is the last entry that a
    compacted ledger covers.
    """

    ledger_id: int
    state: str
    last_entry: int | None
    write_quorum: int
    ack_quorum: int
    segments: tuple[Segment, ...]
    digest_type: DigestType | None
    password: bytes | None
    custom: Mapping[str, str]
    length: int | None = None
    created: int | None = None
    compacted_to: tuple[int, int] | None = None

    @property
    def format(self) -> EntryFormat:
        """How to read its entries."""
        content = _content(self.custom)
        frames = content is None and self.custom.get("component") == "managed-ledger"
        password = None if self.digest_type is None else self.password or b""
        owner = self.custom.get("pulsar/managed-ledger", self.custom.get("pulsar/compactedTopic", ""))
        return EntryFormat(self.digest_type, password, content, frames).of_topic(owner)

    def ensembles(self) -> Ensembles:
        """The bookies that store its entries. Raises DecodeError if the metadata does not name them."""
        quorum = self.write_quorum
        if not self.segments or not all(0 < quorum <= len(segment.members) for segment in self.segments):
            raise DecodeError(f"ledger {self.ledger_id} has no ensemble for its write quorum of {quorum}")
        return Ensembles(
            ledger_id=self.ledger_id,
            write_quorum=quorum,
            ack_quorum=self.ack_quorum or quorum,
            segments=self.segments,
            last_entry=self.last_entry,
            digest_type=self.digest_type or "CRC32",
            password=self.password,
        )


def read_bookkeeper_ledger(store: Store, ledger_id: int) -> BookkeeperLedger:
    """Read BookKeeper's metadata of a ledger. Raises NotFoundError, DecodeError."""
    try:
        record = store.read(ledger_path(ledger_id))
    except NotFoundError as error:
        raise NotFoundError(f"no ledger {ledger_id}", source=store.url) from error
    return bookkeeper_ledger_of(ledger_id, record)


def bookkeeper_ledger_of(ledger_id: int, record: Versioned) -> BookkeeperLedger:
    """Decode BookKeeper's record of a ledger. Raises DecodeError with the record's path."""
    with decoding(record.path):
        metadata = decode_ledger_metadata(record.value).metadata
    return ledger_in(ledger_id, metadata)


def ledger_in(ledger_id: int, metadata: LedgerMetadataFormat) -> BookkeeperLedger:
    """Convert BookKeeper's protobuf message to a BookkeeperLedger."""
    closed = metadata.state == LedgerMetadataFormat.CLOSED
    return BookkeeperLedger(
        ledger_id=ledger_id,
        state=LedgerMetadataFormat.State.Name(metadata.state),
        last_entry=metadata.lastEntryId if closed else None,
        write_quorum=metadata.quorumSize,
        ack_quorum=metadata.ackQuorumSize,
        segments=tuple(Segment(part.firstEntryId, tuple(part.ensembleMember)) for part in metadata.segment),
        digest_type=_DIGESTS[metadata.digestType] if metadata.HasField("digestType") else None,
        password=metadata.password if metadata.HasField("password") else None,
        custom=custom_metadata(metadata),
        length=metadata.length if closed else None,
        created=created_in(metadata),
        compacted_to=_compacted_to(metadata),
    )


def created_in(metadata: LedgerMetadataFormat) -> int | None:
    """The creation time of a ledger in milliseconds; None if it was not recorded."""
    return metadata.ctime if metadata.HasField("ctime") and metadata.ctime > 0 else None


def _compacted_to(metadata: LedgerMetadataFormat) -> tuple[int, int] | None:
    for pair in metadata.customMetadata:
        if pair.key == COMPACTED_TO:
            with suppress(DecodeError):
                message_id = parse_message(MessageIdData, pair.value)
                return message_id.ledgerId, message_id.entryId
    return None


def has_metadata(store: Store) -> bool:
    """True if the store has BookKeeper metadata. BookKeeper may use another store."""
    return newest_ledger(store) is not None


def newest_ledger(store: Store, below: str = LEDGERS) -> str | None:
    """The path of the ledger with the highest id; None if there are no ledgers.

    Ids over 31 bits have deeper paths.
    """
    for name in reversed(store.children(below)):
        path = child_path(below, name)
        if ledger_of_path(path) is not None:
            return path
        if name.isdigit() and (newest := newest_ledger(store, path)) is not None:
            return newest
    return None


def open_live_bookies(store: Store, *, url: str = "bookie:") -> LiveBookies:
    """Open the bookies that are registered in `store` as a source of entries.

    Nothing is read until it is needed.
    """
    return LiveBookies(StoredCluster(store), url=url)


class StoredCluster:
    """Ledgers and bookies in a store.

    Open ledgers are read again each time, because their ensembles change.
    """

    def __init__(self, store: Store) -> None:
        """The caller closes `store`."""
        self._store = store
        self._closed: dict[int, tuple[float, Ensembles]] = {}
        self.address = lru_cache(maxsize=None)(self._address)

    def ledgers(self) -> list[int]:
        """List the ids of all ledgers in ascending order."""
        ids = (ledger_of_path(stored.path) for stored in self._store.scan(LEDGERS))
        return sorted(ledger_id for ledger_id in ids if ledger_id is not None)

    def ensembles(self, ledger_id: int, *, again: bool = False) -> Ensembles:
        """The bookies that store a ledger's entries. Raises NotFoundError, DecodeError."""
        since, kept = self._closed.get(ledger_id, (0.0, None))
        if kept is not None and not again and monotonic() - since < KEPT_SECONDS:
            return kept
        ensembles = self._read(ledger_id)
        if ensembles.last_entry is not None:
            if len(self._closed) >= KEPT_LEDGERS:
                self._closed.clear()
            self._closed[ledger_id] = (monotonic(), ensembles)
        return ensembles

    def _read(self, ledger_id: int) -> Ensembles:
        ledger = read_bookkeeper_ledger(self._store, ledger_id)
        try:
            return ledger.ensembles()
        except DecodeError as error:
            raise DecodeError(error.message, source=ledger_path(ledger_id)) from error

    def _address(self, bookie_id: str) -> tuple[str, int]:
        """The host and port of a bookie, from its registration or else from its id."""
        for parent in _AVAILABLE:
            record = self._store.find(f"{parent}/{bookie_id}")
            address = None if record is None else registered_address(record.value)
            if address is not None:
                return address
        host, separator, port = bookie_id.rpartition(":")
        if separator and port.isdigit():
            return host, int(port)
        raise UnreachableError(
            "its address is unknown, because it is not registered", source=f"bookie {bookie_id}"
        )


def registered_address(value: bytes) -> tuple[str, int] | None:
    """The host and port in a bookie's registration; None if it has none, as with old bookies."""
    if not value:
        return None
    for endpoint in parse_message(BookieServiceInfoFormat, value).endpoints:
        if endpoint.protocol == BOOKIE_PROTOCOL:
            return endpoint.host, endpoint.port
    return None


def _content(custom: Mapping[str, str]) -> str | None:
    """Name the contents of a ledger without frames, from the custom metadata that Pulsar writes."""
    if "pulsar/cursor" in custom:
        return f"state of the cursor {custom['pulsar/cursor']}"
    match custom.get("component"):
        case "schema":
            return f"the schema of {custom.get('pulsar/schemaId')}"
        case "delayed-index-bucket":
            return "an index of delayed messages"
    return None

"""Topics in memory: a record in a store and entries in a source, with real frames and digests."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore


class MemoryEntries(EntrySource):
    """Entries in a dictionary, as a bookie stores them."""

    def __init__(self) -> None:
        self.url = "memory:"
        self.held: dict[int, dict[int, bytes]] = {}
        self.reads = 0

    def ledgers(self) -> list[int]:
        return sorted(self.held)

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        ids = sorted(self.held.get(ledger_id, {}))
        return (id_ for id_ in ids if first <= id_ and (last is None or id_ <= last))

    def last_entry(self, ledger_id: int) -> int | None:
        return max(self.held.get(ledger_id, {}), default=None)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        self.reads += 1
        try:
            return RawEntry(ledger_id, entry_id, self.held[ledger_id][entry_id])
        except KeyError:
            raise NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url) from None

    def put(self, ledger_id: int, entry_id: int, data: bytes) -> None:
        """Store an entry with this data from its client."""
        entry = encode_bookie_entry(ledger_id, entry_id, entry_id - 1, len(data), data)
        self.held.setdefault(ledger_id, {})[entry_id] = entry


class TopicBuilder:
    """Publishes to ledgers and numbers entries as a broker does."""

    def __init__(self, name: str, store: MemoryStore, source: MemoryEntries) -> None:
        self.topic = TopicName.parse(name)
        self.store = store
        self.source = source
        self.info = ManagedLedgerInfo()
        self.index = -1

    def ledger(self, ledger_id: int, **properties: str) -> None:
        """Begin a ledger."""
        ledger = self.info.ledgerInfo.add(ledgerId=ledger_id, timestamp=0)
        for key, value in properties.items():
            ledger.properties.add(key=key.replace("_", "-"), value=value)
        self.source.held[ledger_id] = {}

    def publish(
        self, time: int, batch: int | None = None, *, indexed: bool = True, txn: bool = False, behind: int = 0
    ) -> None:
        """Publish an entry with `batch` messages. The producer's clock is `behind` milliseconds late."""
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=time - behind)
        if batch is not None:
            metadata.num_messages_in_batch = batch
        if txn:
            metadata.txnid_most_bits, metadata.txnid_least_bits = 1, 2
        broker = None
        if indexed:
            self.index += 1 if txn else batch or 1
            broker = BrokerEntryMetadata(broker_timestamp=time, index=self.index)
        ledger_id = self.info.ledgerInfo[-1].ledgerId
        entries = self.source.held[ledger_id]
        frame = encode_frame(metadata, b"payload", broker_metadata=broker)
        entries[len(entries)] = encode_bookie_entry(
            ledger_id, len(entries), len(entries) - 1, len(frame), frame
        )

    def close_ledger(self, time: int) -> None:
        """Close the last ledger."""
        ledger = self.info.ledgerInfo[-1]
        ledger.entries, ledger.timestamp = len(self.source.held[ledger.ledgerId]), time

    def save(self) -> None:
        """Write the topic's record."""
        self.store.put(self.topic.path, self.info.SerializeToString(), ABSENT)

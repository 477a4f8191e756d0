"""Values of managed ledgers: the bytes at `/managed-ledgers/…/TOPIC` and what they say.

Source: apache/pulsar MLDataFormats.proto, MetaStoreImpl.java.
"""

from __future__ import annotations

from pulsar_meta.codecs.compression import DEFAULT_MAX_SIZE
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo


def decode_managed_ledger(data: bytes, *, max_size: int = DEFAULT_MAX_SIZE) -> ManagedLedgerInfo:
    """Return the message in a store value, plain or in an envelope; DecodeError where there is none.

    An empty value is a managed ledger that was just created: an empty message.
    """
    envelope = open_envelope(data, max_size=max_size)
    return parse_message(ManagedLedgerInfo, data if envelope is None else envelope.payload)


def ledgers_by_id(info: ManagedLedgerInfo) -> list[ManagedLedgerInfo.LedgerInfo]:
    """Return the ledgers in the order of their ids, in which they were written to.

    Brokers that offload or set ledger properties store them in the order of a hash map.
    """
    return sorted(info.ledgerInfo, key=lambda ledger: ledger.ledgerId)

"""What decoding the bytes of a value gives, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError

# Kinds that are kept as JSON: those of Pulsar 5 by what lies below /topics (PIP-460) and /txn (PIP-473).
BROKER_KINDS: Final = ("BrokerLookupData", "LocalBrokerData")
SCALABLE_KINDS: Final = ("ScalableTopic", "ScalableSubscription", "ScalableConsumer", "SegmentLoad")
TRANSACTION_KINDS: Final = (
    "Transaction",
    "TransactionOp",
    "TransactionEvent",
    "AbortedTransaction",
    "SegmentWatermark",
    "TransactionCoordinator",
    "TransactionSequence",
)
# Entries of transactions' logs, and the payloads of messages with snapshots of transaction buffers.
LOG_ENTRY_KINDS: Final = (
    "TransactionLogEntry",
    "PendingAckLogEntry",
    "TransactionBufferSnapshot",
    "TransactionBufferSnapshotIndexes",
    "TransactionBufferSnapshotSegment",
)
JSON_KINDS: Final = (*BROKER_KINDS, *SCALABLE_KINDS, *TRANSACTION_KINDS, "Json")


@dataclass(frozen=True, slots=True)
class Value:
    """A value in the JSON form of the commands.

    `same_bytes`: encoding `value` gives the bytes it came from. `error`: why `value` is only what could
    be read before a fault (None where it is whole). `text`: the stored text of a JSON value, where
    other programs would write what `value` says otherwise; or what stands for it where a secret is in it.
    """

    value: Any
    meaning: Any = field(default_factory=dict)
    same_bytes: bool = True
    error: DecodeError | None = None
    text: str | dict[str, Any] | None = field(default=None, repr=False)

"""What decoding the bytes of a value gives, whatever its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.secrets import Redacted
from pulsar_meta.codecs.shapes import Members

if TYPE_CHECKING:
    from google.protobuf.message import Message

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

ORDER_KEPT: Final = "order_kept"


class Ordered(TypedDict, total=False):
    """A value that is an object; `order_kept` is false where its fields stood in another order or form."""

    order_kept: bool


def value_shape(kind: str, message: type[Message], more: Mapping[str, Any] | None = None) -> Members:
    """Return the type of the values of `kind`: a message, and `more` members."""
    from pulsar_meta.codecs.protobuf.from_json import message_shape

    return message_shape(message, {ORDER_KEPT: bool, **(more or {})}, name=kind)


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
    text: str | Redacted | None = field(default=None, repr=False)

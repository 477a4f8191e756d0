"""The result of decoding a value, and the kinds of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.secrets import Redacted
from pulsar_meta.codecs.shapes import Members

if TYPE_CHECKING:
    from google.protobuf.message import Message

# Kinds that are stored as JSON. The kinds below /topics (PIP-460) and /txn (PIP-473), and
# policies of topics (PIP-469), are from Pulsar 5.
BROKER_KINDS: Final = ("BrokerLookupData", "LocalBrokerData")
SCALABLE_KINDS: Final = ("ScalableTopic", "ScalableSubscription", "ScalableConsumer", "SegmentLoad")
POLICIES_KINDS: Final = ("TopicPolicies",)
TRANSACTION_KINDS: Final = (
    "Transaction",
    "TransactionOp",
    "TransactionEvent",
    "AbortedTransaction",
    "SegmentWatermark",
    "TransactionCoordinator",
    "TransactionSequence",
)
# Entries of transaction logs, and payloads of messages with snapshots of transaction buffers.
LOG_ENTRY_KINDS: Final = (
    "TransactionLogEntry",
    "PendingAckLogEntry",
    "TransactionBufferSnapshot",
    "TransactionBufferSnapshotIndexes",
    "TransactionBufferSnapshotSegment",
)
# Messages in the topics of functions workers.
FUNCTION_KINDS: Final = ("FunctionMetaData", "FunctionAssignment", "FunctionRequest")
JSON_KINDS: Final = (*BROKER_KINDS, *SCALABLE_KINDS, *TRANSACTION_KINDS, *POLICIES_KINDS, "Json")

ORDER_KEPT: Final = "order_kept"


class Ordered(TypedDict, total=False):
    """A value that is an object; `order_kept` is false if its fields were stored in another order or form."""

    order_kept: bool


def value_shape(kind: str, message: type[Message], more: Mapping[str, Any] | None = None) -> Members:
    """Return the JSON type of a kind whose values are messages with `more` members."""
    from pulsar_meta.codecs.protobuf.from_json import message_shape

    return message_shape(message, {ORDER_KEPT: bool, **(more or {})}, name=kind)


@dataclass(frozen=True, slots=True)
class Value:
    """A decoded value in JSON form.

    `same_bytes`: encoding `value` returns the stored bytes. `error`: the fault before which `value` could be
    read, None if it is complete. `text`: the stored text of a JSON value, if other programs would change its
    spelling, or a placeholder if the text contains a secret.
    """

    value: Any
    meaning: Any = field(default_factory=dict)
    same_bytes: bool = True
    error: DecodeError | None = None
    text: str | Redacted | None = field(default=None, repr=False)

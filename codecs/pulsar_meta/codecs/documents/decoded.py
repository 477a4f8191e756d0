"""The types of the documents that `decode` prints and `encode` reads."""

from __future__ import annotations

from importlib import import_module
from types import NoneType
from typing import Annotated, Any, NotRequired, TypedDict

from pulsar_meta.codecs.documents.bookkeeper_values import LedgerMeaning
from pulsar_meta.codecs.documents.entry_values import EntryMeaning, FrameMeaning
from pulsar_meta.codecs.documents.kinds import FAMILIES
from pulsar_meta.codecs.documents.plain_values import BrokerMeaning
from pulsar_meta.codecs.documents.pulsar5_meaning import CounterMeaning, Pulsar5Meaning
from pulsar_meta.codecs.documents.transaction_values import LogMeaning
from pulsar_meta.codecs.metadata.managed_meaning import CursorMeaning, ManagedLedgerMeaning, PositionMeaning
from pulsar_meta.codecs.protobuf.to_json import UnknownField
from pulsar_meta.codecs.secrets import Redacted
from pulsar_meta.codecs.shapes import ByMember, Either
from pulsar_meta.codecs.wire.commands import CommandsMeaning


class StatePosition(PositionMeaning):
    """A cursor's state in its ledger; `position` is the position of the entry with the state."""

    position: NotRequired[str]


class CursorWithState(CursorMeaning):
    """Summary of a cursor's record, and of the state in its ledger if that was read."""

    ledger_state: NotRequired[StatePosition]


Meaning = (
    ManagedLedgerMeaning
    | CursorWithState
    | LedgerMeaning
    | FrameMeaning
    | EntryMeaning
    | BrokerMeaning
    | CommandsMeaning
    | Pulsar5Meaning
    | LogMeaning
    | CounterMeaning
)


class EnvelopeDocument(TypedDict):
    """The envelope of a compressed record; sizes are in bytes."""

    codec: str
    stored_size: int
    raw_size: int
    unknown_fields: NotRequired[list[UnknownField]]


class ValueFault(TypedDict):
    """The fault before which a value could be read; `offset` is in bytes."""

    error: str
    message: str
    offset: NotRequired[int]


class ValueSource(TypedDict):
    """The origin of a value; `path` and `version` are from its store."""

    source: str
    path: NotRequired[str]
    version: NotRequired[int]


def _values() -> dict[str, Any]:
    """Return the type of `value` for each kind; it is null if no part of the value could be read."""
    families = [
        import_module(f"pulsar_meta.codecs.documents.{name}") for name in dict.fromkeys(FAMILIES.values())
    ]
    shapes = {kind: shape for family in families for kind, shape in family.shapes().items()}
    return {kind: Either((shape, NoneType)) for kind, shape in shapes.items()}


class DecodedDocument(ValueSource):
    """One value. `value` has the fields of its .proto. `meaning` is a summary, which `encode` ignores.

    `get` adds the names of the topic and the cursor that a value belongs to.
    """

    topic: NotRequired[str]
    scalable_topic: NotRequired[str]
    cursor: NotRequired[str]
    kind: str | None
    envelope: EnvelopeDocument | None
    value: Annotated[Any, ByMember("kind", _values)]
    stored_text: NotRequired[str | Redacted]
    meaning: Meaning
    error: NotRequired[ValueFault]

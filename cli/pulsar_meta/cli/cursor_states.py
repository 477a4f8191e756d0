"""The states of cursors that are stored in the cursors' own ledgers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pulsar_meta.cli.values import place
from pulsar_meta.codecs.errors import NotFoundError, PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.metadata.managed_meaning import position_meaning
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.cursors import recovered
from pulsar_meta.jobs.values.value_inputs import ValueInput
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo
from pulsar_meta.stores.base import Store


@dataclass
class CursorStates:
    """Reads the states of cursors from their ledgers.

    `entries` opens the entry sources when the first state is needed; it is None if none are configured.
    `note` receives a message for each state that can't be shown because of that.
    """

    store: Store
    entries: Callable[[], EntrySource] | None
    note: Callable[[str], None]

    @cached_property
    def _bookkeeper(self) -> Store | None:
        return self.store if has_metadata(self.store) else None

    def add(self, value: ValueInput, document: Document) -> PulsarMetaError | None:
        """Add a cursor's state to its document, as a broker would recover it; return an error if it can't."""
        meaning = document.get("meaning") or {}
        if not meaning.get("snapshot_only"):
            return None
        location = f"its state is in ledger {meaning['cursor_ledger']}"
        if self.entries is None:
            self.note(f"{place(value)}: {location} and is not shown; add --entries URL")
            return None
        cursor = recovered(decode_cursor(value.data), self._bookkeeper, self.entries())
        state = cursor.state
        if isinstance(state.state, PositionInfo):
            position = {"position": f"{state.ledger_id}:{state.entry_id}"}
            meaning["ledger_state"] = position | position_meaning(state.state)
        if cursor.recovery.believed == "ledger":
            return None
        if state.fault is not None:
            return state.fault.within(place(value))
        lost = cursor.recovery.believed == "rewind" or state.state is not None
        reason = cursor.recovery.why if lost else f"{location}, but no source has entries of it"
        return NotFoundError(reason, source=place(value))

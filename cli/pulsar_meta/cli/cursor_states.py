"""The states of cursors that lie in ledgers of their own, beside what their records say."""

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
    """Looks into cursors' ledgers; `entries` opens them when one is needed, None where none were given.

    `note` is given what is not shown for that reason.
    """

    store: Store
    entries: Callable[[], EntrySource] | None
    note: Callable[[str], None]

    @cached_property
    def _bookkeeper(self) -> Store | None:
        return self.store if has_metadata(self.store) else None

    def add(self, value: ValueInput, document: Document) -> PulsarMetaError | None:
        """Add a cursor's true state to its document; return why it cannot be had."""
        meaning = document.get("meaning") or {}
        if not meaning.get("snapshot_only"):
            return None
        where = f"its state lies in ledger {meaning['cursor_ledger']}"
        if self.entries is None:
            self.note(f"{place(value)}: {where} and is not shown: give --entries URL")
            return None
        found = recovered(decode_cursor(value.data), self._bookkeeper, self.entries())
        state = found.state
        if isinstance(state.state, PositionInfo):
            position = {"position": f"{state.ledger_id}:{state.entry_id}"}
            meaning["ledger_state"] = position | position_meaning(state.state)
        if found.recovery.believed == "ledger":
            return None
        if state.fault is not None:
            return state.fault.within(place(value))
        lost = found.recovery.believed == "rewind" or state.state is not None
        why = found.recovery.why if lost else f"{where}, of which no source has an entry"
        return NotFoundError(why, source=place(value))

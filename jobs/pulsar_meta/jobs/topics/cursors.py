"""How far a subscription has come: the mark-delete position of its cursor."""

from __future__ import annotations

from collections.abc import Callable

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.metadata.cursor import STATE_IN_RECORD, decode_cursor, decode_position_info
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo
from pulsar_meta.stores.base import Store


def mark_delete(
    store: Store, source: EntrySource, topic: TopicName, cursor: str, note: Callable[[str], None]
) -> Position:
    """Return the last position of which the subscription has acknowledged it and all before it.

    A cursor that is in use keeps its state in a ledger of its own, whose last entry counts; where no
    source holds that ledger the record's position is older than the truth, and `note` is told.
    NotFoundError where the topic has no such cursor, DecodeError where its record is broken.
    """
    path = topic.cursor_path(cursor)
    try:
        record = decode_cursor(store.read(path).value)
    except NotFoundError as error:
        raise NotFoundError(f"no cursor {cursor!r}", source=str(topic)) from error
    except DecodeError as error:
        raise DecodeError(error.message, offset=error.offset, source=path) from error
    if record.cursorsLedgerId != STATE_IN_RECORD:
        state = _last_state(source, record.cursorsLedgerId)
        if state is not None:
            return Position(state.ledgerId, state.entryId)
        note(
            f"{topic}: the cursor {cursor!r} keeps its state in ledger {record.cursorsLedgerId}, which is "
            "not here: its position in the store may be older"
        )
    return Position(record.markDeleteLedgerId, record.markDeleteEntryId)


def _last_state(source: EntrySource, ledger_id: int) -> PositionInfo | None:
    last = source.last_entry(ledger_id)
    for entry_id in range(-1 if last is None else last, -1, -1):
        try:
            raw = source.read(ledger_id, entry_id)
            data = decode_bookie_entry(raw.data).data if raw.bookie else raw.data
            return decode_position_info(data)
        except (DecodeError, NotFoundError):
            continue
    return None

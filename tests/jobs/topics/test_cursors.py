"""The state of cursors, compared with what the broker reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.topics.cursors import cursor_of, cursor_state
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo
from pulsar_meta.stores.registry import open_store

TOPIC = TopicName.parse("last-words")


def test_the_state_of_a_cursor_is_the_last_entry_of_its_ledger(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4-killed")
    truth = orjson.loads((folder / "truth.json").read_bytes())
    reported = truth[str(TOPIC)]["internalStats"]["cursors"]["reader"]
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries([f"bookie-disk:{folder / 'bookie0'}"]) as source,
    ):
        state = cursor_state(store, source, TOPIC, "reader")
        assert (state.ledger_id, state.entry_id) == (
            reported["cursorLedger"],
            reported["cursorLedgerLastEntry"],
        )
        assert "{}:{}".format(*state.mark_delete) == reported["markDeletePosition"]
        assert isinstance(state.state, PositionInfo)
        assert acks_of(state.state).range_count == reported["totalNonContiguousDeletedMessagesRange"] == 3
        assert len(state.state.batchedEntryDeletionIndexInfo) == 45
        without = cursor_state(store, None, TOPIC, "reader")
        assert (without.state, without.ledger_id) == (None, reported["cursorLedger"])
        with pytest.raises(NotFoundError):
            cursor_state(store, source, TOPIC, "absent")


def test_a_cursor_record_names_the_ledger_of_its_state(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4-killed")
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        cursor = cursor_of(store.read(TOPIC.cursor_path("reader")))
    assert (cursor.topic, cursor.name, cursor.state_ledger) == (str(TOPIC), "reader", 375)
    assert cursor.acknowledged_ranges == 0

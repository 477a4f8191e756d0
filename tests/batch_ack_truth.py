"""Acknowledgements in a broker's memory, compared with those in cursor states."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from pulsar_meta.codecs.metadata.acks import Acks, unacked_indexes
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.topics.cursors import Recovery, recovered
from pulsar_meta.jobs.topics.topic import read_topic, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo
from pulsar_meta.stores.registry import open_store

Place = tuple[int, int]
_range_re = re.compile(r"\((-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]")


def differences(folder: Path) -> list[str]:
    """Describe the differences between a capture's truth and the cursor states."""
    truth = orjson.loads((folder / "truth.json").read_bytes())
    return [
        wrong
        for topic, facts in truth.items()
        for name, stats in facts["internalStats"]["cursors"].items()
        if name in facts["batchAcks"]
        for wrong in _compared(folder, topic, name, stats, facts["batchAcks"][name])
    ]


def _compared(
    folder: Path, topic: str, name: str, stats: dict[str, Any], batches: dict[str, list[int]]
) -> Iterable[str]:
    recovery, batch_acks = _read(folder, TopicName.parse(topic), name)
    ours = {
        "mark-delete": "{}:{}".format(*recovery.mark_delete) if recovery.mark_delete else None,
        "entries": _entries(recovery.acks or Acks()),
        "batches": batch_acks if recovery.believed == "ledger" else {},
        "batch count": recovery.batches,
    }
    theirs = {
        "mark-delete": stats["markDeletePosition"],
        "entries": _parsed_entries(stats["individuallyDeletedMessages"]),
        "batches": {place: _runs(words) for place, words in batches.items()},
        "batch count": len(batches),
    }
    for what, value in ours.items():
        if value != theirs[what]:
            yield f"{topic} {name} {what}: ours {value}, the broker's {theirs[what]}"


def _read(folder: Path, topic: TopicName, name: str) -> tuple[Recovery, dict[str, list[Place]]]:
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries([f"bookie-disk:{folder / 'bookie0'}"]) as source,
    ):
        ledgers = tuple(with_bookkeeper(store, read_topic(store, topic).ledgers, print))
        record = decode_cursor(store.read(topic.cursor_path(name)).value)
        result = recovered(record, store, source, ledgers)
    state = result.state.state
    batches = state.batchedEntryDeletionIndexInfo if isinstance(state, PositionInfo) else ()
    batch_acks = {
        f"{batch.position.ledgerId}:{batch.position.entryId}": unacked_indexes(batch) for batch in batches
    }
    return result.recovery, batch_acks


def _entries(acks: Acks) -> set[Place]:
    assert acks.spanning == []
    return {
        (ledger, entry)
        for ledger, ranges in acks.entries.items()
        for first, last in ranges
        for entry in range(first, last + 1)
    }


def _parsed_entries(text: str) -> set[Place]:
    """Parse entries from ranges like `[(7:3..7:5],(8:-1..8:2]]`, which exclude their lower end."""
    entries = set()
    for lower, first, upper, last in (map(int, match) for match in _range_re.findall(text)):
        assert lower == upper
        entries |= {(upper, entry) for entry in range(first + 1, last + 1)}
    return entries


def _runs(words: list[int]) -> list[Place]:
    """Return the runs of set bits, determined bit by bit."""
    bits = [at * 64 + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    runs: list[Place] = []
    for bit in bits:
        if runs and runs[-1][1] == bit - 1:
            runs[-1] = runs[-1][0], bit
        else:
            runs.append((bit, bit))
    return runs

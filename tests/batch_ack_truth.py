"""Acknowledgements as a broker has them in memory, against what a cursor's state says of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from pulsar_meta.codecs.metadata.acks import Acks, unacked_indexes
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.topics.cursors import Recovery, recovered
from pulsar_meta.jobs.topics.topic import read_topic, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo
from pulsar_meta.stores.registry import open_store

Place = tuple[int, int]
_range_re = re.compile(r"\((-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]")


def differences(folder: Path) -> list[str]:
    """Return in which cursors the capture's truth and what we read differ."""
    stated = orjson.loads((folder / "truth.json").read_bytes())
    return [
        wrong
        for topic, said in stated.items()
        for name, stats in said["internalStats"]["cursors"].items()
        if name in said["batchAcks"]
        for wrong in _compared(folder, topic, name, stats, said["batchAcks"][name])
    ]


def _compared(
    folder: Path, topic: str, name: str, stats: dict[str, Any], batches: dict[str, list[int]]
) -> Iterable[str]:
    found, held = _read(folder, TopicName.parse(topic), name)
    ours = {
        "mark-delete": "{}:{}".format(*found.mark_delete) if found.mark_delete else None,
        "entries": _entries(found.acks or Acks()),
        "batches": held if found.believed == "ledger" else {},
        "batch count": found.batches,
    }
    theirs = {
        "mark-delete": stats["markDeletePosition"],
        "entries": _told_entries(stats["individuallyDeletedMessages"]),
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
        found = recovered(record, store, source, ledgers)
    state = found.state.state
    batches = state.batchedEntryDeletionIndexInfo if isinstance(state, PositionInfo) else ()
    held = {
        f"{batch.position.ledgerId}:{batch.position.entryId}": unacked_indexes(batch) for batch in batches
    }
    return found.recovery, held


def _entries(acks: Acks) -> set[Place]:
    assert acks.spanning == []
    return {
        (ledger, entry)
        for ledger, ranges in acks.entries.items()
        for first, last in ranges
        for entry in range(first, last + 1)
    }


def _told_entries(text: str) -> set[Place]:
    """Return the entries of ranges like `[(7:3..7:5],(8:-1..8:2]]`, exclusive at their lower end."""
    found = set()
    for lower, first, upper, last in (map(int, match) for match in _range_re.findall(text)):
        assert lower == upper
        found |= {(upper, entry) for entry in range(first + 1, last + 1)}
    return found


def _runs(words: list[int]) -> list[Place]:
    """Return the runs of set bits, found bit by bit."""
    bits = [at * 64 + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    runs: list[Place] = []
    for bit in bits:
        if runs and runs[-1][1] == bit - 1:
            runs[-1] = runs[-1][0], bit
        else:
            runs.append((bit, bit))
    return runs

"""The size of an export's files is limited in entries and in bytes."""

from __future__ import annotations

from pathlib import Path

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.jobs.entries.entry_choice import Choice
from pulsar_meta.jobs.export.manifest import open_manifest
from pulsar_meta.jobs.export.plan import BYTES_A_FILE, ENTRIES_A_FILE, Piece, Wanted, plan_topic
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.stores.memory import MemoryStore
from tests.topic_builder import MemoryEntries

TOPIC = "persistent://public/default/large"


def fail(error: PulsarMetaError) -> None:
    raise error


def planned(ledger: Ledger, folder: Path) -> list[Piece]:
    choice = Choice(TOPIC, [ledger], is_topic=True)
    with open_manifest(folder, {}) as manifest:
        store, source = MemoryStore(), MemoryEntries()
        return list(plan_topic(choice, Wanted(), "parquet", store, source, manifest, fail))


def test_a_ledger_is_split_by_entries_and_by_bytes(tmp_path: Path) -> None:
    large = BYTES_A_FILE // 5
    for number, (entries, entry_size, files) in enumerate(
        [(12, large, [5, 5, 2]), (2, 9 * large, [1, 1]), (ENTRIES_A_FILE + 1, 10, [ENTRIES_A_FILE, 1])]
    ):
        ledger = Ledger(7, entries, "closed", entries * entry_size, topic=TOPIC)
        pieces = planned(ledger, tmp_path / str(number))
        assert [
            part.last + 1 - part.first for piece in pieces for part in piece.parts if part.last is not None
        ] == files
        # Each complete file costs about the same.
        assert abs(pieces[0].cost - ENTRIES_A_FILE) <= ENTRIES_A_FILE // 100

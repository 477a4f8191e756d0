"""The state that bookies record for a ledger in addition to its entries.

Tests with databases and journals of real bookies are in tests/jobs/rebuild.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import BookieLedgerState
from pulsar_meta.entries.bookie_disk import InterleavedStates, RocksdbStates
from pulsar_meta.entries.sources import merge_states


def test_the_header_of_an_index_file_is_read(tmp_path: Path) -> None:
    header = struct.pack(">4sii3sii", b"BKLE", 1, 3, b"key", 1, 0).ljust(1024, b"\0")
    folder = tmp_path / "3" / "e9"
    folder.mkdir(parents=True)
    (folder / "3e9.idx").write_bytes(header)
    states = InterleavedStates([tmp_path])
    assert states.state(0x3E9) == BookieLedgerState(b"key", fenced=True)
    assert states.state(1) is None
    (folder / "3e9.idx").write_bytes(header[:100])
    with pytest.raises(DecodeError):
        states.state(0x3E9)


def test_a_missing_database_has_no_state_and_a_broken_one_is_an_error(tmp_path: Path) -> None:
    assert RocksdbStates(tmp_path / "ledgers").state(1) is None
    (tmp_path / "ledgers").mkdir()
    (tmp_path / "ledgers" / "CURRENT").write_text("nonsense\n")
    with pytest.raises(DecodeError):
        RocksdbStates(tmp_path / "ledgers").state(1)


def test_states_of_several_places_are_merged() -> None:
    parts = [None, BookieLedgerState(None, fenced=True), BookieLedgerState(b"key", fenced=False)]
    assert merge_states(parts) == BookieLedgerState(b"key", fenced=True)
    assert merge_states([None]) is None

"""Notes that bookies store about a ledger in addition to its entries.

Tests with databases and journals of real bookies are in tests/jobs/rebuild.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.ledger_notes import InterleavedNotes, LedgerNote, RocksdbNotes, joined_note


def test_the_header_of_an_index_file_is_read(tmp_path: Path) -> None:
    header = struct.pack(">4sii3sii", b"BKLE", 1, 3, b"key", 1, 0).ljust(1024, b"\0")
    folder = tmp_path / "3" / "e9"
    folder.mkdir(parents=True)
    (folder / "3e9.idx").write_bytes(header)
    notes = InterleavedNotes([tmp_path])
    assert notes.note(0x3E9) == LedgerNote(b"key", fenced=True)
    assert notes.note(1) is None
    (folder / "3e9.idx").write_bytes(header[:100])
    with pytest.raises(DecodeError):
        notes.note(0x3E9)


def test_a_missing_database_has_no_notes_and_a_broken_one_is_an_error(tmp_path: Path) -> None:
    assert RocksdbNotes(tmp_path / "ledgers").note(1) is None
    (tmp_path / "ledgers").mkdir()
    (tmp_path / "ledgers" / "CURRENT").write_text("nonsense\n")
    with pytest.raises(DecodeError):
        RocksdbNotes(tmp_path / "ledgers").note(1)


def test_notes_of_several_places_are_combined() -> None:
    parts = [None, LedgerNote(None, fenced=True), LedgerNote(b"key", fenced=False)]
    assert joined_note(parts) == LedgerNote(b"key", fenced=True)
    assert joined_note([None]) is None

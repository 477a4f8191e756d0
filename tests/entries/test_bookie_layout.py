"""Bookies with several disks: cookies decide which directory has which index and mark."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.entries.bookie_layout import NOWHERE, find_bookies, place
from pulsar_meta.entries.sources import open_entries

COOKIE = (
    '5\nbookieHost: "b:3181"\njournalDir: "/d/j2,/d/j1"\n'
    'ledgerDirs: "2\\t/d/z/ledgers\\t/d/a/ledgers"\nindexDirs: "2\\t/d/i9\\t/d/i1"\n'
)


def make(root: Path, name: str, *files: str, cookie: str = COOKIE) -> Path:
    current = root / name / "current"
    current.mkdir(parents=True)
    (current / "VERSION").write_text(cookie)
    for file in files:
        (current / file).parent.mkdir(exist_ok=True, parents=True)
        (current / file).write_bytes(b"")
    return current


def test_cookies_assign_indexes_and_marks_to_disks(tmp_path: Path) -> None:
    for name in ("a/ledgers", "z/ledgers"):
        current = make(tmp_path, name, "0.log", "lastId")
        (current / "lastMark.0").write_bytes(struct.pack(">qq", 0x20, 512))
        (current / "lastMark.1").write_bytes(struct.pack(">qq", 0x10, 1024))
    for name in ("i1", "i9"):
        make(tmp_path, name, "locations/CURRENT")
    # The file ids of the two journals overlap, so only the order in the cookie assigns the marks.
    first, second = (make(tmp_path, name, "10.txn", "20.txn") for name in ("j2", "j1"))
    (bookie,) = find_bookies(tmp_path)
    databases = {ledger.parent.parent.name: bookie.database(ledger) for ledger in bookie.ledger_dirs}
    assert databases == {
        "z": tmp_path / "i9" / "current" / "locations",
        "a": tmp_path / "i1" / "current" / "locations",
    }
    assert bookie.mark(first) == (0x20, 512)
    assert bookie.mark(second) == (0x10, 1024)
    assert not bookie.interleaved


def test_an_ambiguous_index_is_not_assigned(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make(tmp_path, name, "0.log")
    for name in ("i1", "i9"):
        make(tmp_path, name, "locations/CURRENT")
    (bookie,) = find_bookies(tmp_path)
    assert [bookie.database(ledger) for ledger in bookie.ledger_dirs] == [None, None]


def test_the_newest_mark_of_all_ledger_directories_is_used(tmp_path: Path) -> None:
    cookie = COOKIE.replace("/d/j2,/d/j1", "/d/j")
    for name, mark in (("a", (5, 7)), ("b", (5, 9))):
        current = make(tmp_path, name, "0.log", cookie=cookie)
        (current / "lastMark").write_bytes(struct.pack(">qq", *mark))
    torn = make(tmp_path, "c", "0.log", cookie=cookie)
    (torn / "lastMark").write_bytes(b"\0\0\0")
    journal = make(tmp_path, "j", "5.txn", cookie=cookie)
    (bookie,) = find_bookies(tmp_path)
    assert bookie.mark(journal) == (5, 9)


def test_two_bookies_below_one_directory_are_two(tmp_path: Path) -> None:
    make(tmp_path, "one", "0.log", "5.txn")
    make(tmp_path, "two", "0.log", cookie=COOKIE.replace("b:3181", "c:3181"))
    assert [len(bookie.journal_dirs) for bookie in find_bookies(tmp_path)] == [1, 0]


@pytest.mark.parametrize("cookie", ["", "4\ngarbage", "\xff", "3\nhost\n/j\n1\t/d/x\n"])
def test_broken_cookies_are_tolerated(tmp_path: Path, cookie: str) -> None:
    make(tmp_path, "x", "0.log", cookie=cookie)
    (bookie,) = find_bookies(tmp_path)
    assert len(bookie.ledger_dirs) == 1


def test_a_new_bookie_with_only_a_journal_is_found(tmp_path: Path) -> None:
    journal = make(tmp_path, "j2", "5.txn")
    (bookie,) = find_bookies(tmp_path)
    assert (bookie.ledger_dirs, bookie.journal_dirs, bookie.mark(journal)) == ((), (journal,), None)
    with pytest.raises(NotFoundError):
        find_bookies(tmp_path / "j2" / "nothing")


def test_places() -> None:
    listed = [Path("/mnt/d1/bk/ledgers"), Path("/mnt/d2/bk/ledgers")]
    assert place(Path("/mnt/d2/bk/ledgers/current"), listed) == 1
    assert place(Path("copy/d1/bk/ledgers/current"), listed) == 0
    assert place(Path("copy/ledgers/current"), listed) == NOWHERE
    assert place(Path("copy/elsewhere/current"), listed) == NOWHERE
    assert place(Path("copy/current"), []) == NOWHERE


@pytest.mark.parametrize("name", ["VERSION", "0.log"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_not_read(tmp_path: Path, name: str, kind: str) -> None:
    current = make(tmp_path, "bookie", "0.log")
    (current / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(current / name)
    else:
        (current / name).symlink_to("/dev/zero")
    with pytest.raises(DecodeError, match="not an ordinary file") as caught:
        open_entries([f"bookie-disk:{current}?index=scan"])
    assert caught.value.source == str(current / name)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_mark_that_is_a_pipe_or_device_is_ignored(tmp_path: Path, kind: str) -> None:
    current = make(tmp_path, "bookie", "0.log", "1.txn")
    if kind == "pipe":
        os.mkfifo(current / "lastMark")
    else:
        (current / "lastMark").symlink_to("/dev/zero")
    (layout,) = find_bookies(tmp_path)
    assert layout.mark(current) is None


def test_a_log_with_an_impossible_number_is_a_fault(tmp_path: Path) -> None:
    current = make(tmp_path, "bookie", "0.log", "80000000.log")
    with open_entries([f"bookie-disk:{tmp_path}?index=scan"]) as source:
        assert source.ledgers() == []
        assert [fault.source for fault in source.faults] == [str(current / "80000000.log")]

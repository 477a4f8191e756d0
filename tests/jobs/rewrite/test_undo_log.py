from __future__ import annotations

import json
import os
import resource
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.jobs.rewrite.decision import Change, digest, keep
from pulsar_meta.jobs.rewrite.run import undo_path
from pulsar_meta.jobs.rewrite.run_files import StoreIdentity
from pulsar_meta.jobs.rewrite.undo_log import (
    ANSWERED_BYTES,
    ANSWERED_GROUPS,
    UndoLog,
    UndoRecord,
    read_backwards,
    read_header,
    read_records,
    undo_line,
)
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from tests.jobs.rewrite.conftest import MakeRun, all_upper, letters, upper

STORE = StoreIdentity("id", "dir:/x", "")


def test_the_undo_file_is_private_complete_and_never_overwritten(make_run: MakeRun, tmp_path: Path) -> None:
    store = letters()
    run = make_run(store)
    run.apply(all_upper(store), upper)
    run.undo.close()
    path = run.undo.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["store"] == {"instance_id": None, "url": "memory:", "chroot": ""}
    assert lines[-1] == {"end": True, "sum": lines[-1]["sum"]}
    records = list(read_records(path))
    assert [record.old for record in records] == [b"old"] * 10
    assert all(record.answered and record.sent == 1 and record.version == 0 for record in records)
    with pytest.raises(UsageError, match="never overwritten"):
        make_run(store)
    with pytest.raises(UsageError, match="is of the command 'test', not 'other'"):
        make_run(store, command="other", resume=True)
    with pytest.raises(GuardError):
        UndoLog(path, "test", STORE, resume=True)


def test_no_file_is_made_if_nothing_is_written(make_run: MakeRun) -> None:
    store = letters()
    run = make_run(store)
    run.apply([(seen, keep(seen, "already")) for seen in store.scan("/")], upper)
    assert not run.undo.written
    assert not run.undo.path.exists()


# A long one has to be removed, because the next record would not cover it. A power loss leaves zeros.
@pytest.mark.parametrize("tail", [b"", b"a" * 5000, bytes(5000), bytes(5000) + b'"}\n'])
def test_a_truncated_last_line_is_not_a_record(tmp_path: Path, tail: bytes) -> None:
    log = UndoLog(tmp_path / "u", "c", STORE)
    log.append([undo_line(Change("/a", 0, b"1", b"2"))])
    log.answer(0, [1])
    log.close()
    complete = (tmp_path / "u").read_bytes()
    with (tmp_path / "u").open("ab") as file:
        file.write(b'{"path":"/b","version":3,"old_sh' + tail)
    assert [record.path for record in read_records(tmp_path / "u")] == ["/a"]
    again = UndoLog(tmp_path / "u", "c", STORE, resume=True)
    again.append([undo_line(Change("/c", 0, None, b"2"))])
    again.close()
    added = (tmp_path / "u").read_bytes().removeprefix(complete)
    assert added.startswith(b'{"path":"/c",')
    assert added.count(b"\n") == 1
    assert [(r.path, r.answered, r.old) for r in read_records(tmp_path / "u")] == [
        ("/a", True, b"1"),
        ("/c", False, None),
    ]


def test_answers_are_written_in_the_order_of_the_records(tmp_path: Path) -> None:
    log = UndoLog(tmp_path / "u", "c", STORE)
    first, second = (log.append([undo_line(Change(path, 0, b"1", b"2"))]) for path in ("/a", "/b"))
    log.answer(second, [8])
    assert [record.answered for record in read_records(tmp_path / "u")] == [False, False]
    log.answer(first, [7])
    third = log.append([undo_line(Change("/c", 0, b"1", b"2"))])
    assert [record.sent for record in read_records(tmp_path / "u")] == [7, 8, None]
    log.answer(third, [9])
    log.close()
    records = list(read_records(tmp_path / "u"))
    assert [(record.path, record.sent) for record in records] == [("/a", 7), ("/b", 8), ("/c", 9)]
    assert list(read_backwards(tmp_path / "u")) == records[::-1]


@pytest.mark.parametrize(("size", "groups"), [(1, ANSWERED_GROUPS), (ANSWERED_BYTES // 2, 2)])
def test_the_number_of_unanswered_groups_is_bounded(tmp_path: Path, size: int, groups: int) -> None:
    log = UndoLog(tmp_path / "u", "c", STORE)
    line = undo_line(Change("/a", 0, b"1" * size, b"2"))
    numbers = []
    while not log.full:
        numbers.append(log.append([line]))
    assert len(numbers) == groups
    for number in numbers:
        log.answer(number, [1])
    assert not log.full
    log.close()


@pytest.mark.linux
def test_nothing_is_answered_after_a_record_that_did_not_fit(tmp_path: Path) -> None:
    """An answer after half a line would be ambiguous."""
    log = UndoLog(tmp_path / "u", "c", STORE)
    first = log.append([undo_line(Change("/a", 0, b"1", b"2"))])
    before = (tmp_path / "u").read_bytes()
    with Path("/dev/full").open("wb") as full, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_file", full)
        with pytest.raises(UnreachableError, match="cannot be written: No space left"):
            log.append([undo_line(Change("/b", 0, b"1", b"2"))])
        with suppress(OSError):
            full.close()
    log.answer(first, [1])
    log.close()
    assert (tmp_path / "u").read_bytes() == before


def test_nothing_follows_a_truncated_line(tmp_path: Path) -> None:
    """Even if there is room again, a file with half a line in its middle could not be undone."""
    log = UndoLog(tmp_path / "u", "c", STORE)
    first = log.append([undo_line(Change("/a", 0, b"1", b"2"))])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "u").stat().st_size + 9000, limits[1]))
    try:
        with pytest.raises(UnreachableError, match="cannot be written: File too large"):
            log.append([undo_line(Change(f"/{at}", 0, bytes(3000), b"2")) for at in range(5)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    cut = (tmp_path / "u").read_bytes()
    log.answer(first, [1])
    with pytest.raises(UnreachableError, match="cannot be written: File too large"):
        log.append([undo_line(Change("/b", 0, b"1", b"2"))])
    log.close()
    assert (tmp_path / "u").read_bytes() == cut
    assert not cut.endswith(b"\n")
    assert next(read_records(tmp_path / "u")).path == "/a"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "no JSON",
        '{"undo": 3, "store": {}}',
        '{"undo": 2, "store": {}}\n{"sent":[]}\n',
        '{"undo": 2, "store": {}}\n{"sent":[],"sum":"00"}\n',
        '{"undo": 1}',
        '{"undo": 1, "store": {}}\n{"path": "/a"}\n',
        '{"undo": 1, "store": {}}\n{"path": "/a", "version": 1, "old": "%%", "old_sha256": "x"}\n',
        '{"undo": 1, "store": {}}\n{"path": "/a", "version": 1, "old": "YQ==", "old_sha256": "x"}\n',
        '{"undo": 1, "store": {}}\n{"sent": [1]}\n',
        '{"undo": 1, "store": {}}\n17\n',
        '{"undo": 1, "store": {}}\n{\n',
    ],
)
def test_a_broken_undo_file_is_a_decode_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "undo"
    path.write_text(text)
    with pytest.raises(DecodeError):
        read_header(path)
        list(read_records(path))
    with pytest.raises(NotFoundError):
        read_header(tmp_path / "nowhere")


def test_the_unfinished_run_of_a_store_is_found(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no unfinished"):
        undo_path("c", STORE, named=None, resume=True)
    paths = []
    for finished, identity in ((False, STORE), (True, STORE), (False, StoreIdentity("other", "dir:/y", ""))):
        log = UndoLog(undo_path("c", identity, named=None, resume=False), "c", identity)
        log.append([undo_line(Change("/a", 0, b"1", b"2"))])
        if finished:
            log.finish()
        log.close()
        paths.append(log.path)
    assert len(set(paths)) == 3
    assert undo_path("c", STORE, named=None, resume=True) == paths[0]
    assert os.stat(paths[0].parent).st_mode & 0o077 == 0
    with pytest.raises(UsageError):
        undo_path("d", STORE, named=None, resume=True)


@given(
    st.lists(
        st.tuples(
            st.text(max_size=8), st.integers(-1, 2**63 - 1), st.none() | st.binary(), st.none() | st.binary()
        ),
        max_size=8,
    )
)
def test_appended_changes_are_read_back(changes: list[tuple[str, int, bytes | None, bytes | None]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        log = UndoLog(Path(name) / "u", "c", STORE)
        log.append([undo_line(Change(*each)) for each in changes])
        log.close()
        read = list(read_records(Path(name) / "u"))
    assert [(r.path, r.version, r.old, r.new_sha256) for r in read] == [
        (path, version, old, digest(new)) for path, version, old, new in changes
    ]


def test_the_undo_record_is_on_disk_before_the_value_is_sent(make_run: MakeRun, tmp_path: Path) -> None:
    class WatchingStore(MemoryStore):
        def put(self, path: str, value: bytes, expected: int) -> int:
            if undo.exists():
                if path not in recorded:
                    recorded.update((record.path, record) for record in read_records(undo))
                assert recorded[path].old == self.read(path).value
                assert recorded[path].new_sha256 == digest(value)
                seen.append(path)
            return super().put(path, value, expected)

    undo, seen, recorded = tmp_path / "undo.ndjson", list[str](), dict[str, UndoRecord]()
    store = WatchingStore()
    for number in range(1100):
        store.put(f"/v{number:05}", b"old", ABSENT)
    make_run(store).apply(all_upper(store), upper)
    assert len(seen) == 1100

"""An undo file that was changed after its run can do nothing that its command did not do."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError, GuardError
from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.rewrite.apply import Batches
from pulsar_meta.jobs.rewrite.decision import Change, Decided
from pulsar_meta.jobs.rewrite.rules import Recompression
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.rewrite.undo import put_back
from pulsar_meta.jobs.rewrite.undo_log import UndoLog, undo_line
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.directory import FilesStore
from pulsar_meta.stores.memory import MemoryStore
from tests.jobs.rewrite.conftest import MakeRun, decide

ORDERS = TopicName.parse("orders")
TOPIC, CURSOR = ORDERS.path, ORDERS.cursor_path("audit")
POLICIES = "/admin/policies/public/default"
REVERT = Recompression("cursor", "none")


@pytest.fixture
def undo_file(captured: MemoryStore, make_run: MakeRun) -> Path:
    """The undo file of a run of compress-cursors on a captured store."""
    run = make_run(captured, command="compress-cursors")
    run.apply(decide((v, REVERT(v)) for v in select(captured, Scope(), "cursor")), REVERT)
    run.undo.close()
    return run.undo.path


def planned(store: MemoryStore, file: Path) -> list[Decided]:
    """What `undo` would do with a file."""
    return list(put_back(store, file, any_version=False).decided(Batches(store, 1)))


def test_an_unchanged_file_is_undone(captured: MemoryStore, undo_file: Path) -> None:
    decided = planned(captured, undo_file)
    assert [decision.action for _, decision in decided] == ["rewrite"] * 37


def edited(line: bytes, **fields: object) -> bytes:
    return json.dumps(json.loads(line) | fields).encode() + b"\n"


def with_line(lines: list[bytes], at: int, line: bytes) -> list[bytes]:
    return [*lines[:at], line, *lines[at:]]


def test_a_changed_line_is_refused(captured: MemoryStore, undo_file: Path) -> None:
    lines = undo_file.read_bytes().splitlines(keepends=True)
    added = undo_line(Change(POLICIES, ABSENT, None, captured.read(POLICIES).value))
    changed = {
        "a line was added": with_line(lines, 1, added),
        "a line was added before the last": with_line(lines, -1, added),
        "a line was added at the end": [*lines, added],
        "a line was copied": with_line(lines, 2, lines[1]),
        "a line was removed": [*lines[:1], *lines[2:]],
        "two lines changed places": [lines[0], lines[2], lines[1], *lines[3:]],
        "another path": [lines[0], edited(lines[1], path=POLICIES), *lines[2:]],
        "another command": [edited(lines[0], command="restore"), *lines[1:]],
        "no record is left": [lines[0], *lines[-1:]],
    }
    for what, text in changed.items():
        undo_file.write_bytes(b"".join(text))
        with pytest.raises(DecodeError, match="its sum is wrong"):
            pytest.fail(f"{what}: {planned(captured, undo_file)}")


def test_a_changed_file_is_not_continued(captured: MemoryStore, undo_file: Path, make_run: MakeRun) -> None:
    lines = undo_file.read_bytes().splitlines(keepends=True)
    undo_file.write_bytes(b"".join([lines[0], edited(lines[1], version=17), *lines[2:-1]]))
    again = UndoLog(undo_file, "compress-cursors", read_identity(captured), resume=True)
    with closing(again), pytest.raises(DecodeError, match="its sum is wrong"):
        again.append([undo_line(Change("/a", 0, b"1", b"2"))])


def sealed(path: Path, store: MemoryStore, command: str, *changes: Change) -> Path:
    """Write an undo file with correct sums, as a careful attacker would."""
    with closing(UndoLog(path, command, read_identity(store))) as log:
        log.append([*map(undo_line, changes)])
        log.finish()
    return path


def replaced(path: str, old: bytes | None = b"old", new: bytes | None = b"new") -> Change:
    return Change(path, 0, old, new)


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("compress-cursors", replaced(CURSOR, old=None)),
        ("compress-cursors", replaced(CURSOR, new=None)),
        ("compress-cursors", replaced(TOPIC)),
        ("compress-cursors", replaced(POLICIES)),
        ("compress-ledgers", replaced(CURSOR)),
        ("compress-ledgers", replaced(ledger_path(7))),
        ("compress-ledgers", replaced(TOPIC, old=None)),
        ("convert-cursor", replaced(TOPIC)),
        ("build-index", replaced(CURSOR)),
        ("set-property", replaced(TOPIC, old=None)),
        ("unset-property", replaced(TOPIC, new=None)),
        ("rm", replaced(TOPIC)),
        ("rm", replaced(TOPIC, old=None)),
        ("put", replaced(TOPIC, new=None)),
        ("restore", replaced(TOPIC, new=None)),
        ("repair-cursor", replaced(TOPIC)),
        ("repair-cursor", replaced(POLICIES)),
        ("repair-ledger-metadata", replaced(TOPIC)),
        ("repair-schema", replaced(TOPIC)),
        ("repair-partitions", replaced(POLICIES)),
        ("repair-topic-record", replaced(POLICIES)),
        ("repair-plan", replaced(POLICIES)),
        ("put", replaced(TOPIC, old=None, new=None)),
        ("erase-everything", replaced(TOPIC)),
    ],
)
def test_what_a_command_does_not_do_is_refused(tmp_path: Path, command: str, change: Change) -> None:
    store = MemoryStore()
    with pytest.raises(GuardError, match="refusing to undo"):
        planned(store, sealed(tmp_path / "undo", store, command, change))
    # Files of the first release have no sums.
    text = (tmp_path / "undo").read_text().replace('"undo":2', '"undo":1')
    (tmp_path / "undo").write_text(text)
    with pytest.raises(GuardError, match="refusing to undo"):
        planned(store, tmp_path / "undo")


@pytest.mark.parametrize("command", ["restore", "put", "rm", "repair-plan", "undo"])
def test_other_files_of_the_file_system_are_never_written(tmp_path: Path, command: str) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"new")
    with FilesStore("files:/", read_only=False) as store:
        change = Change(str(file), store.read(str(file)).version, b"old", b"new")
        with closing(UndoLog(tmp_path / "undo", command, read_identity(store))) as log:
            log.append([undo_line(change)])
        with pytest.raises(GuardError, match="doesn't rewrite value files"):
            put_back(store, tmp_path / "undo", any_version=False)


@pytest.mark.parametrize("command", ["put", "rm"])
def test_a_command_that_writes_one_value_has_one(tmp_path: Path, command: str) -> None:
    store = MemoryStore()
    new = None if command == "rm" else b"new"
    changes = [replaced(TOPIC, new=new), replaced(CURSOR, new=new)]
    with pytest.raises(GuardError, match="audit is no change that the command of this file makes"):
        planned(store, sealed(tmp_path / "two", store, command, *changes))
    assert planned(store, sealed(tmp_path / "one", store, command, changes[0], changes[0]))


def info(*ledgers: int, **properties: str) -> bytes:
    message = ManagedLedgerInfo()
    for ledger_id in ledgers:
        ledger = message.ledgerInfo.add(ledgerId=ledger_id, entries=5, size=50)
        for key, value in properties.items():
            ledger.properties.add(key=key, value=value)
    return message.SerializeToString()


def cursor(entry_id: int) -> bytes:
    message = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=3, markDeleteEntryId=entry_id)
    return message.SerializeToString()


def in_ledger(ledger_id: int) -> bytes:
    return ManagedCursorInfo(cursorsLedgerId=ledger_id).SerializeToString()


@pytest.mark.parametrize(
    ("command", "path", "old", "new", "undone"),
    [
        ("compress-cursors", CURSOR, cursor(7), wrap_envelope(cursor(7), "zstd"), True),
        ("compress-cursors", CURSOR, wrap_envelope(cursor(7), "lz4"), cursor(7), True),
        ("compress-cursors", CURSOR, cursor(9), wrap_envelope(cursor(7), "zstd"), False),
        ("compress-cursors", CURSOR, b"garbage", wrap_envelope(cursor(7), "zstd"), False),
        ("convert-cursor", CURSOR, in_ledger(4), cursor(7), True),
        ("convert-cursor", CURSOR, cursor(9), cursor(7), False),
        ("compress-ledgers", TOPIC, info(3, 5), wrap_envelope(info(3, 5), "zstd"), True),
        ("compress-ledgers", TOPIC, info(3), wrap_envelope(info(3, 5), "zstd"), False),
        ("set-property", TOPIC, info(3, 5), info(3, 5, key="value"), True),
        ("unset-property", TOPIC, info(3, 5, key="value"), info(3, 5), True),
        ("build-index", TOPIC, info(3), info(3, 5, key="value"), False),
        ("build-index", TOPIC, b"garbage", info(3, 5, key="value"), False),
    ],
)
def test_an_old_value_that_the_command_does_not_replace_is_left_out(
    tmp_path: Path, command: str, path: str, old: bytes, new: bytes, undone: bool
) -> None:
    store = MemoryStore()
    store.put(path, new, ABSENT)
    file = sealed(tmp_path / "undo", store, command, Change(path, 0, old, new))
    [(_, decision)] = planned(store, file)
    assert (decision.action, decision.reason) == (("rewrite", None) if undone else ("skip", "altered"))

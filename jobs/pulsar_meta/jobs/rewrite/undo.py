"""Restore the values that a run overwrote, byte for byte, unless they have changed since.

An undo file brings old values, which nobody can compute again. So each record is compared with its command,
before the first value is written: `compress-cursors`, for example, never creates or removes a value, and its
values differ only in their codec.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, GuardError
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor, open_envelope
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, ledger_of_path, managed_ledger_places
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.rewrite.apply import READ_GROUP, Batches, chunks
from pulsar_meta.jobs.rewrite.decision import (
    ALTERED,
    Decided,
    Decision,
    by_rule,
    content,
    digest,
    keep,
    skip,
    write,
)
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.rewrite.run_files import check_identity, read_identity
from pulsar_meta.jobs.rewrite.undo_log import UndoRecord, read_backwards, read_header, read_records
from pulsar_meta.jobs.topics.owners import SCHEMAS
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned
from pulsar_meta.stores.directory import FilesStore

PARTITIONS: Final = "/admin/partitioned-topics"


def _is_topic(path: str) -> bool:
    return any(cursor is None for _, cursor in managed_ledger_places(path))


def _is_cursor(path: str) -> bool:
    return any(cursor is not None for _, cursor in managed_ledger_places(path))


def _below(*trees: str) -> Callable[[str], bool]:
    starts = tuple(f"{tree}/" for tree in trees)
    return lambda path: path.startswith(starts)


def _payload(value: bytes) -> bytes:
    envelope = open_envelope(value)
    return value if envelope is None else envelope.payload


def _same_payload(old: bytes, new: bytes) -> bool:
    return _payload(old) == _payload(new)


def _same_without_properties(old: bytes, new: bytes) -> bool:
    infos = [parse_message(ManagedLedgerInfo, _payload(value)) for value in (old, new)]
    for info in infos:
        for ledger in info.ledgerInfo:
            del ledger.properties[:]
    return infos[0] == infos[1]


def _moves_state(old: bytes, new: bytes) -> bool:
    return decode_cursor(old).cursorsLedgerId != STATE_IN_RECORD == decode_cursor(new).cursorsLedgerId


@dataclass(frozen=True, slots=True)
class Limits:
    """What a command changes: values at these paths, and whether it creates or removes some.

    `single` is True if it changes one value. `same` compares the old and the new value, None if they can
    differ in any way. `loses` is False if undoing it makes no data unreachable.
    """

    path: Callable[[str], bool] = lambda path: True
    creates: bool = False
    removes: bool = False
    replaces: bool = True
    single: bool = False
    same: Callable[[bytes, bytes], bool] | None = None
    loses: bool = True

    def fits(self, record: UndoRecord) -> bool:
        """Return True if the command can have made the change of a record."""
        if record.old is None:
            allowed = self.creates and record.new_sha256 is not None
        else:
            allowed = self.removes if record.new_sha256 is None else self.replaces
        return allowed and self.path(record.path)

    def fits_value(self, old: bytes | None, new: bytes | None) -> bool:
        """Return True if the command can have replaced `old` by `new`."""
        if self.same is None or old is None or new is None:
            return True
        try:
            return self.same(old, new)
        except DecodeError:
            return False


ANY: Final = Limits(creates=True, removes=True)
_RECORDS: Final = replace(ANY, path=_below(MANAGED_LEDGERS, LEDGERS))
_PROPERTIES: Final = Limits(_is_topic, same=_same_without_properties, loses=False)
_LIMITS: Final = {
    "compress-cursors": Limits(_is_cursor, same=_same_payload, loses=False),
    "compress-ledgers": Limits(_is_topic, same=_same_payload, loses=False),
    "convert-cursor": Limits(_is_cursor, same=_moves_state, loses=False),
    "build-index": _PROPERTIES,
    "set-property": _PROPERTIES,
    "unset-property": _PROPERTIES,
    "put": Limits(creates=True, single=True),
    "rm": Limits(removes=True, replaces=False, single=True),
    "restore": Limits(creates=True),
    "undo": ANY,
    "repair-cursor": replace(_RECORDS, path=_is_cursor),
    "repair-ledger-metadata": replace(_RECORDS, path=lambda path: ledger_of_path(path) is not None),
    "repair-partitions": replace(ANY, path=_below(PARTITIONS)),
    "repair-plan": replace(ANY, path=_below(MANAGED_LEDGERS, LEDGERS, SCHEMAS, PARTITIONS)),
    "repair-schema": replace(ANY, path=_below(SCHEMAS)),
}


def limits_of(command: object, store: Store) -> Limits:
    """Return the limits of a command in a store, by the name in an undo file.

    Raises GuardError for an unknown command, and for one that doesn't rewrite value files if the store is the
    file system.
    """
    name = str(command)
    limits = _LIMITS.get(name, _RECORDS if name.startswith("repair-") else None)
    if limits is None:
        raise GuardError(f"refusing to undo: there is no command {name!r}")
    if not isinstance(store, FilesStore):
        return limits
    if limits.same is None:
        raise GuardError(f"refusing to undo: {name} doesn't rewrite value files")
    return replace(limits, path=lambda path: True)


def put_back(store: Store, file: Path, *, other_store: bool = False, any_version: bool) -> Rewrite:
    """Make the rewrite of an undo file; `any_version` is that of `undone`.

    Raises GuardError if the file belongs to another store, or has a record of something that its command does
    not do.
    """
    header = read_header(file)
    check_identity(header["store"], read_identity(store), source=str(file), allowed=other_store)
    limits = limits_of(header.get("command"), store)
    return Rewrite(
        "undo",
        lambda batches: undone(file, batches, limits, any_version=any_version),
        by_rule(leave_touched),
        with_new=True,
    )


def undone(
    file: Path, batches: Batches, limits: Limits = ANY, *, any_version: bool = False
) -> Generator[Decided]:
    """Yield each current value of an undo file with a decision, last write first.

    In this order, descendants that the run created are removed before their parents. A value is unchanged if
    it has the bytes and the version of our write. With `any_version`, the bytes are enough, for example after
    a later run that was undone. Raises GuardError if a record is outside the `limits`.
    """
    for group in chunks(_in_effect(file, limits), READ_GROUP):
        values = batches.read([record.path for record in group])
        for record, seen in zip(group, values, strict=True):
            yield seen, _decide(record, seen, limits, any_version=any_version)


def leave_touched(seen: Versioned) -> Decision:
    """Skip a value that another client has written since."""
    return skip(seen, "touched", note="was changed by something else since; left as it is")


def _in_effect(file: Path, limits: Limits) -> Iterator[UndoRecord]:
    """Yield the records whose writes happened or may have happened, last one first.

    If a crash left several records of a path, only the last one counts.
    """
    waiting = _unanswered(_checked(file, limits))
    for record in read_backwards(file):
        happened = record.sent is not None if record.answered else waiting.pop(record.path, None) is not None
        if happened:
            yield record


def _checked(file: Path, limits: Limits) -> Iterator[UndoRecord]:
    """Yield the records of an undo file. Raises GuardError for one that its command can't have written."""
    first = None
    for record in read_records(file):
        first = record.path if first is None else first
        if not limits.fits(record) or (limits.single and record.path != first):
            text = f"refusing to undo: {record.path} is no change that the command of this file makes"
            raise GuardError(text, source=str(file))
        yield record


def _unanswered(records: Iterable[UndoRecord]) -> dict[str, UndoRecord]:
    """Map paths to the records that a stopped run left open, unless a later run wrote the path again."""
    unanswered: dict[str, UndoRecord] = {}
    for record in records:
        if not record.answered:
            unanswered[record.path] = record
        elif record.sent is not None:
            before = unanswered.get(record.path)
            if before is not None and before.old_sha256 == record.old_sha256:
                del unanswered[record.path]
    return unanswered


def _decide(record: UndoRecord, seen: Versioned, limits: Limits, *, any_version: bool) -> Decision:
    held = digest(content(seen))
    if held == record.old_sha256:
        return write(seen, record.old) if _may_come(record, seen) else keep(seen, "already")
    if held != record.new_sha256:
        return leave_touched(seen)
    if record.answered and record.sent != seen.version and not any_version:
        return skip(
            seen,
            "touched",
            note=(
                "has the bytes of this run, but was written again since (to restore it anyway, add"
                " --any-version)"
            ),
        )
    if not limits.fits_value(record.old, content(seen)):
        note = "the old value in the undo file is not one that its command replaces; left as it is"
        return skip(seen, ALTERED, note=note)
    return write(seen, record.old)


def _may_come(record: UndoRecord, seen: Versioned) -> bool:
    """Return whether a write of the killed run may still be on its way.

    Then the old bytes are written once more: the version moves, so that the late write meets a conflict.
    """
    return not record.answered and seen.version == record.version != ABSENT

"""Restore the values that a run overwrote, byte for byte, unless they have changed since.

All records are read and compared with the limits of their command before the first value is written.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

from pulsar_meta.codecs.errors import GuardError
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
from pulsar_meta.jobs.rewrite.undo_limits import ANY, Limits, limits_of
from pulsar_meta.jobs.rewrite.undo_log import UndoRecord, read_backwards, read_header, read_records
from pulsar_meta.stores.base import ABSENT, Store, Versioned


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
    return skip(seen, "touched", note="was written since by somebody else; left as it is")


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
        return skip(seen, "touched", note="has our bytes, but was written since (--any-version to go on)")
    if not limits.fits_value(record.old, content(seen)):
        note = "the old value in the undo file is not one that its command replaces; left as it is"
        return skip(seen, ALTERED, note=note)
    return write(seen, record.old)


def _may_come(record: UndoRecord, seen: Versioned) -> bool:
    """Return whether a write of the killed run may still be on its way.

    Then the old bytes are written once more: the version moves, so that the late write meets a conflict.
    """
    return not record.answered and seen.version == record.version != ABSENT

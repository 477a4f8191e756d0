"""Write every value of a store to the file of a `snapshot:` store, with or without secrets.

Stores without point-in-time reads (ZooKeeper, Oxia, a directory) are read twice. Values that changed in
between are
written as they were the second time, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NotRequired, TypedDict

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.snapshot_lines import Sums
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.rewrite.run_files import StoreDocument, read_identity
from pulsar_meta.jobs.values.places import long_buckets, read_counters
from pulsar_meta.jobs.values.remembered import Remembered
from pulsar_meta.stores.base import ABSENT, Store, Versioned
from pulsar_meta.stores.snapshot import SnapshotStore
from pulsar_meta.stores.snapshot_writer import SnapshotWriter, kept_values, part_of


@dataclass(frozen=True, slots=True)
class Taken:
    """What a snapshot holds: the sums of its values, how many a killed run had written, and what changed.

    `changed` counts values that were written, made or removed while the store was read; None where they are
    all as of one moment.
    """

    sums: Sums
    kept: int = 0
    changed: int | None = None


def take_snapshot(
    store: Store,
    target: Path,
    *,
    tool: str,
    resume: bool = False,
    hide: Callable[[Versioned], Versioned] | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> Taken:
    """Write every value of a store to `target`, which appears when it is whole; return what it holds.

    `tool` is who writes. `resume` goes on with what a killed run left. UsageError where there is something
    left and `resume` does not say so, or where the file cannot be written; UnreachableError from the store.
    """
    head = _head(store, tool, redacted=hide is not None)
    _check_target(target, head, resume=resume)
    begun = resume and next(kept_values(target), None) is not None
    with closing(SnapshotWriter(target, head)) as writer:
        if store.has_consistent_scans and not begun:
            writer.take_its_name()
            _write(writer, _counted(store.scan(), progress), hide)
            return _finish(writer, Taken(writer.sums))
        with Remembered() as seen:
            last = _keep(writer, target, seen) if resume else None
            kept = writer.sums.values
            writer.take_its_name()
            _write(writer, _noted(_counted(store.scan(after=last), progress), seen), hide)
            return _second_look(store, writer, head, seen, Taken(writer.sums, kept), hide)


Shown = Callable[[Versioned], Versioned] | None


class SnapshotFacts(TypedDict):
    """Of which store a snapshot is, when it was taken, and its counters; `rebuilt` from disks: of none."""

    store: NotRequired[StoreDocument]
    rebuilt: NotRequired[bool]
    taken: str | None
    counters: NotRequired[dict[str, int]]
    tool: str
    redacted: NotRequired[bool]


class SnapshotHead(SnapshotFacts):
    """The first line of a snapshot; `snapshot` is the number of the file's form."""

    snapshot: int


def _head(store: Store, tool: str, *, redacted: bool) -> SnapshotFacts:
    """Return what the first line says: which store this is a copy of, when it was taken, its counters."""
    origin = store.origin
    head: SnapshotFacts = {
        "store": origin.get("store") or read_identity(store).document(),
        "taken": origin.get("taken") or iso_time(time.time_ns() // 1_000_000),
        "counters": read_counters(store, long_buckets(store)),
        "tool": tool,
    }
    if redacted or origin.get("redacted"):
        head["redacted"] = True
    return head


def _check_target(target: Path, head: SnapshotFacts, *, resume: bool) -> None:
    if target.exists() and not target.is_file():
        raise UsageError("a snapshot goes to a regular file", source=str(target))
    part = part_of(target)
    if not part.exists():
        return
    if not resume:
        raise UsageError("left by a run that did not end: --resume goes on with it", source=str(part))
    with SnapshotStore(f"snapshot:{part}?partial") as left:
        before = left.origin
    same = all(before.get(name) == head.get(name) for name in ("store", "redacted"))
    if before and not same:
        raise UsageError("left by a run over another store, or with other options", source=str(part))


def _keep(writer: SnapshotWriter, target: Path, seen: Remembered) -> str | None:
    """Write what a killed run had; return the last path, None where it had nothing."""
    last = None
    for held in _noted(kept_values(target), seen):
        writer.add(held)
        last = held.path
    return last


def _write(writer: SnapshotWriter, values: Iterable[Versioned], shown: Shown) -> None:
    for held in values:
        writer.add(held if shown is None else shown(held))


def _second_look(
    store: Store, writer: SnapshotWriter, head: SnapshotFacts, seen: Remembered, taken: Taken, shown: Shown
) -> Taken:
    with Remembered() as newest:
        newest.add(changes_since(store, seen))
        taken = replace(taken, changed=len(newest))
        if not taken.changed:
            return _finish(writer, taken)
        writer.close()
        with closing(SnapshotWriter(writer.target, head)) as corrected:
            for held in kept_values(writer.target):
                if held.path not in newest:
                    corrected.add(held)
            _write(corrected, (held for held in newest if held.version != ABSENT), shown)
            return _finish(corrected, replace(taken, sums=corrected.sums))


def changes_since(store: Store, seen: Remembered) -> Iterator[Versioned]:
    """Yield what is in the store and was not seen with that version; what is gone comes as absent.

    What is seen again is forgotten.
    """
    for held in store.scan():
        before = seen.take(held.path)
        if before is None or before.version != held.version:
            yield held
    for gone in seen:
        yield Versioned(gone.path, b"", ABSENT)


def _finish(writer: SnapshotWriter, taken: Taken) -> Taken:
    writer.finish({} if taken.changed is None else {"changed_meanwhile": taken.changed})
    return taken


def _noted(values: Iterable[Versioned], seen: Remembered) -> Iterator[Versioned]:
    """Yield values, and have their versions remembered."""
    for held in values:
        seen.add([held._replace(value=b"")])
        yield held


def _counted(values: Iterable[Versioned], progress: Callable[[int], None]) -> Iterator[Versioned]:
    for held in values:
        progress(1)
        yield held

"""Send decided writes, one group at a time: check guards, sync undo records, then compare-and-set."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Final, Self, TypeVar

from pulsar_meta.codecs.errors import GuardError
from pulsar_meta.jobs.rewrite.decision import Anew, Change, Decided, Decision, Summary, content
from pulsar_meta.jobs.rewrite.guards import Guards, Refusal, Topics
from pulsar_meta.jobs.rewrite.undo_log import UndoLog, undo_line
from pulsar_meta.stores.base import ABSENT, Store, Versioned, parents_of

T = TypeVar("T")
R = TypeVar("R")

READ_GROUP = 256


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


class Batches:
    """Reads and writes groups of values: by the store's own pipelining, by threads, or one by one.

    Threads only where the store is on a network; `concurrency` is their number. `width` is how many requests
    are under way at once. Use as a context manager, or close it, also after an error.
    """

    def __init__(self, store: Store, concurrency: int) -> None:
        """Use `store`, of which at most `concurrency` requests are under way at once."""
        self.store = store
        self.networked = store.networked
        self.width = concurrency if self.networked or store.batches_requests else 1
        self._grouped = self.width > 1 and store.batches_requests
        # Its threads are started as they are needed.
        self._pool = ThreadPoolExecutor(self.width, "store") if self.networked and self.width > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sendings(self, changes: Sequence[Change]) -> Iterator[list[Change]]:
        """Yield the changes in parts that are sent together, which never have a path and its descendants."""
        for part in _apart(changes):
            if not self._grouped:
                yield from chunks(part, self.width)
                continue
            for _, run in groupby(part, lambda change: change.new is not None):
                yield list(run)

    def read(self, paths: Sequence[str]) -> list[Versioned]:
        """Read the values at `paths` in order, with version ABSENT for missing ones."""
        found = self.store.read_many(paths) if self._grouped else self._each(self.store.find, paths)
        return [held or Versioned(path, b"", ABSENT) for path, held in zip(paths, found, strict=True)]

    def write(self, changes: Sequence[Change]) -> list[int | None]:
        """Make the changes and return each new version (ABSENT for a deletion), None for a conflict."""
        puts = [(c.path, c.new, c.version) for c in changes if c.new is not None]
        deletions = [(c.path, c.version) for c in changes if c.new is None]
        written = iter(self.store.put_many(puts))
        gone = iter(self.store.delete_many(deletions))
        return [
            next(written) if change.new is not None else ABSENT if next(gone) else None for change in changes
        ]

    def children(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the names of the children of each path."""
        if self.store.batches_listings:
            return self.store.children_many(paths)
        return self._each(self.store.children, paths)

    def close(self) -> None:
        """Let the threads end."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _each(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if self._pool is None or len(items) == 1:
            return [call(item) for item in items]
        return list(self._pool.map(call, items))


def level_by_level(group: Sequence[Decided]) -> list[Decided]:
    """Return a group that only makes values, or only removes them, so that whole levels can go at once.

    Parents are made before what is below them and removed after it, as in the order that they came in.
    """
    if all(seen.version == ABSENT for seen, _ in group):
        return sorted(group, key=lambda one: one[0].path.count("/"))
    if all(decision.new is None for _, decision in group):
        return sorted(group, key=lambda one: -one[0].path.count("/"))
    return list(group)


def _apart(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield the changes in lists, none with a path and what lies below it where one of them comes or goes.

    Some stores make a parent with its first child, and keep it until its last one is gone.
    """
    part: list[Change] = []
    paths: set[str] = set()
    above: set[str] = set()
    for change in changes:
        if change.new is not None and change.version != ABSENT:
            part.append(change)
            continue
        parents = set(parents_of(change.path))
        if change.path in above or not paths.isdisjoint(parents):
            yield part
            part, paths, above = [], set(), set()
        part.append(change)
        paths.add(change.path)
        above |= parents
    if part:
        yield part


GROUP_VALUES: Final = 256
GROUP_BYTES: Final = 4 << 20
TRIES: Final = 4

EPHEMERAL: Final = Refusal("ephemeral", "belongs to a live session; ephemeral values are never written")


@dataclass(slots=True)
class Stop:
    """The signal that asked to stop, None while none did."""

    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a run may be: values a second (None: as fast as it goes), and requests under way at once.

    `largest` is the most values in a group.
    """

    rate: float | None = None
    concurrency: int = 64
    largest: int = GROUP_VALUES

    @property
    def group(self) -> int:
        """How many values are written between two looks at the clock."""
        return self.largest if self.rate is None else max(1, min(self.largest, int(self.rate / 4)))


@dataclass(frozen=True, slots=True)
class Admitted:
    """What the guards let through of `count` values: decisions, the writes they come to, their undo lines.

    `topics`: whose values these are, by path, for the guards' next look. `number`: the group's in the undo
    file, None while its lines are not there.
    """

    count: int
    decided: list[Decided]
    changes: list[Change]
    topics: Topics
    lines: list[bytes]
    number: int | None = None

    @property
    def only_replaces(self) -> bool:
        """Whether no value comes or goes, so that it does not matter what is written first."""
        return all(change.new is not None and change.version != ABSENT for change in self.changes)


@dataclass(slots=True)
class Sender:
    """Writes what was decided, in groups.

    Where a store takes groups, or is on a network, one group is filled while the one before is looked at by
    the guards and comes into the undo file, and the one before that is sent; two are never sent at once.
    `warn` gets a sentence for each value that is left alone and should not be, `advance` the number of values
    that are done. `strict`: a refused value ends the run with GuardError instead of being counted.
    """

    batches: Batches
    guards: Guards
    undo: UndoLog
    # Decides again about a value that has changed since it was read.
    decide: Anew
    speed: Speed = field(default_factory=Speed)
    stop: Stop = field(default_factory=Stop)
    summary: Summary = field(default_factory=Summary)
    warn: Callable[[str], None] = lambda text: None
    advance: Callable[[int], None] = lambda count: None
    strict: bool = False
    # Does what has to be in the store before these changes are.
    prepare: Callable[[Sequence[Change]], None] = lambda changes: None
    _group: list[Decided] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)
    _due: float = field(default_factory=time.monotonic, init=False)
    _threads: ThreadPoolExecutor | None = field(default=None, init=False)
    _admitted: Future[Admitted] | None = field(default=None, init=False)
    _sent: Future[None] | None = field(default=None, init=False)

    def send(self, decided: Iterable[Decided]) -> Summary:
        """Make the writes among the decisions; stops between two groups when asked to.

        GuardError while a migration runs, UnreachableError where the store went away: what was written until
        then is in the undo file.
        """
        self.guards.check_migration()
        self._threads = ThreadPoolExecutor(2, "sender") if self.batches.width > 1 else None
        try:
            for seen, decision in decided:
                self._take(seen, decision)
                if self.stop.signal is not None:
                    break
            self._flush()
            self._hand_on()
            self._settle()
        finally:
            if self._threads is not None:
                # After the groups that they are at.
                self._threads.shutdown(wait=True)
        if self.stop.signal is None:
            self.undo.finish()
        return self.summary

    def _take(self, seen: Versioned, decision: Decision) -> None:
        self.summary.see(seen, decision)
        if decision.note:
            self.warn(f"{seen.path}: {decision.note}")
        if decision.action != "rewrite":
            self.advance(1)
            return
        self._group.append((seen, decision))
        self._bytes += decision.size_before + decision.size_after
        if len(self._group) >= self.speed.group or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Send the current group. Raises the error of the group before."""
        group, self._group, self._bytes = level_by_level(self._group), [], 0
        if self._threads is None:
            self._deliver(self._recorded(self._admit(group)))
        else:
            self._hand_on()
            self._admitted = self._threads.submit(self._admit_ahead, group)

    def _hand_on(self) -> None:
        """Send the group that the guards have checked, after the one before is done."""
        admitted, self._admitted = self._admitted, None
        if admitted is not None and self._threads is not None:
            # An error of the group before is more important than one of this group.
            self._settle()
            ready = admitted.result()
            self._sent = self._threads.submit(self._deliver, self._recorded(ready))

    def _settle(self) -> None:
        """Return when nothing is under way."""
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.result()

    def _deliver(self, admitted: Admitted) -> None:
        """Send the allowed changes of a group, and again those that met a conflict."""
        pending = self._decide_anew(self._send(admitted))
        for _ in range(TRIES - 1):
            if not pending:
                break
            pending = self._decide_anew(self._send(self._recorded(self._admit(pending))))
        for _, decision in pending:
            self.summary.lose(decision)
        self.advance(admitted.count)

    def _send(self, admitted: Admitted) -> list[tuple[Decided, Versioned]]:
        """Write a group; return those that met a conflict, each with the value that is there now."""
        changes = admitted.changes
        if admitted.number is None:
            return []
        self._wait(len(changes))
        self.prepare(changes)
        versions, refused = self._write(changes, admitted.topics)
        found = self._look_again(changes, versions, refused)
        self.undo.answer(admitted.number, versions)
        for (seen, decision), version in zip(admitted.decided, versions, strict=True):
            if version is not None:
                self.summary.rewrite(decision)
            elif seen.path in refused:
                self._refuse(seen, decision, refused[seen.path])
        return [(admitted.decided[at], now) for at, now in found.items() if versions[at] is None]

    def _write(self, changes: list[Change], topics: Topics) -> tuple[list[int | None], dict[str, Refusal]]:
        """Write what no broker has loaded meanwhile: the undo records took their time.

        Looks again ahead of as many writes as are sent at once, so that none of them waits for another
        between the look and its sending. Returns the new versions and what was refused.
        """
        versions: list[int | None] = []
        refused: dict[str, Refusal] = {}
        for part in self.batches.sendings(changes):
            whose = {change.path: topics[change.path] for change in part if change.path in topics}
            late = self.guards.look(whose, self.batches.children)
            late |= self.guards.of_parents(part, late)
            done = iter(self.batches.write([change for change in part if change.path not in late]))
            versions += [None if change.path in late else next(done) for change in part]
            refused |= late
        return versions, refused

    def _look_again(
        self, changes: list[Change], versions: list[int | None], refused: Collection[str]
    ) -> dict[int, Versioned]:
        """Read the values that met a conflict, by their index in the group.

        A client that lost its connection repeats a write; where the first one had arrived, the repetition
        meets our own bytes: those were written after all, and `versions` gets theirs.
        """
        unsent = [change.path in refused for change in changes]
        places = [at for at, version in enumerate(versions) if version is None and not unsent[at]]
        values = self.batches.read([changes[at].path for at in places]) if places else []
        found = dict(zip(places, values, strict=True))
        for at, now in found.items():
            if content(now) == changes[at].new:
                versions[at] = now.version
        return found

    def _admit(self, group: list[Decided]) -> Admitted:
        """Return the changes of a group that the guards allow; count the others as refused."""
        changes = [Change.of(seen, decision) for seen, decision in group]
        topics = self.guards.topics_of(changes)
        refused = self.guards.recall(topics, self.batches.children) | self.guards.of_values(changes)
        refused |= {seen.path: EPHEMERAL for seen, _ in group if seen.ephemeral}
        refused |= self.guards.of_parents(changes, refused)
        for seen, decision in group:
            if seen.path in refused:
                self._refuse(seen, decision, refused[seen.path])
        allowed = [one for one in group if one[0].path not in refused]
        changes = [change for change in changes if change.path not in refused]
        return Admitted(len(group), allowed, changes, topics, [*map(undo_line, changes)])

    def _admit_ahead(self, group: list[Decided]) -> Admitted:
        """Prepare a group while the one before is sent.

        Values that come or go are undone in the order of the file, so that their groups are not mixed.
        """
        admitted = self._admit(group)
        return self._recorded(admitted) if admitted.only_replaces and not self.undo.full else admitted

    def _recorded(self, admitted: Admitted) -> Admitted:
        """Put the undo records of what is to be sent onto the disk, unless they are there."""
        if admitted.number is not None or not admitted.changes:
            return admitted
        return replace(admitted, number=self.undo.append(admitted.lines), lines=[])

    def _refuse(self, seen: Versioned, decision: Decision, refusal: Refusal) -> None:
        if self.strict:
            raise GuardError(refusal.text, source=seen.path)
        self.summary.refuse(decision, refusal.reason)
        self.warn(f"{seen.path}: {refusal.text}")

    def _decide_anew(self, conflicts: list[tuple[Decided, Versioned]]) -> list[Decided]:
        """Decide again about values that have changed; return those that need a write."""
        pending = []
        for (_, before), now in conflicts:
            decision = self.decide(now, before)
            if decision.action == "rewrite":
                pending.append((now, decision))
                continue
            self.summary.settle(now, decision)
            if decision.note:
                self.warn(f"{now.path}: {decision.note}")
        return pending

    def _wait(self, count: int) -> None:
        rate = self.speed.rate
        if rate is None:
            return
        now = time.monotonic()
        if self._due > now:
            time.sleep(self._due - now)
        self._due = max(self._due, now) + count / rate

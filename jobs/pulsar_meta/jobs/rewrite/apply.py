"""Sends what was decided: guards, undo records on disk, then compare-and-set, a group at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import GuardError
from pulsar_meta.jobs.rewrite.batches import Batches
from pulsar_meta.jobs.rewrite.decision import Change, Decided, Decision, Rule
from pulsar_meta.jobs.rewrite.guards import Guards, Refusal
from pulsar_meta.jobs.rewrite.interruption import Stop
from pulsar_meta.jobs.rewrite.tally import Tally
from pulsar_meta.jobs.rewrite.undo_file import UndoLog
from pulsar_meta.stores.base import ABSENT, Versioned

GROUP_VALUES: Final = 256
GROUP_BYTES: Final = 4 << 20
TRIES: Final = 4

EPHEMERAL: Final = Refusal("ephemeral", "belongs to a live session; ephemeral values are never written")


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


@dataclass(slots=True)
class Run:
    """One run of writes. `told` gets a sentence for each value that is left alone and should not be.

    `strict`: a refused value ends the run with GuardError instead of being counted.
    """

    guards: Guards
    undo: UndoLog
    speed: Speed = field(default_factory=Speed)
    stop: Stop = field(default_factory=Stop)
    tally: Tally = field(default_factory=Tally)
    told: Callable[[str], None] = lambda text: None
    watch: Callable[[int], None] = lambda count: None
    strict: bool = False

    def apply(self, decided: Iterable[Decided], again: Rule) -> Tally:
        """Make the writes among the decisions; `again` decides anew about a value that moved meanwhile.

        Stops between two groups when asked to. GuardError while a migration runs, UnreachableError where
        the store went away: what was written until then is in the undo file.
        """
        sender = _Sender(self, Batches(self.guards.store, self.speed.concurrency), again)
        self.guards.check_migration()
        try:
            for seen, decision in decided:
                sender.offer(seen, decision)
                if self.stop.signal is not None:
                    break
            sender.flush()
            sender.settle()
        finally:
            sender.close()
        if self.stop.signal is None:
            self.undo.finish()
        return self.tally


class _Sender:
    """The group that is being filled, and how it is sent.

    On a network a group is sent by a thread while the next one is filled; never two at once.
    """

    def __init__(self, run: Run, batches: Batches, again: Rule) -> None:
        self.run = run
        self.batches = batches
        self.again = again
        self.group: list[Decided] = []
        self.bytes = 0
        self.due = time.monotonic()
        self._thread = ThreadPoolExecutor(1, "sender") if batches.networked else None
        self._sent: Future[None] | None = None

    def offer(self, seen: Versioned, decision: Decision) -> None:
        run = self.run
        run.tally.see(decision)
        if decision.action != "rewrite":
            if decision.told:
                run.told(f"{seen.path}: {decision.told}")
            run.watch(1)
            return
        self.group.append((seen, decision))
        self.bytes += decision.size_before + decision.size_after
        if len(self.group) >= run.speed.group or self.bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what there is; an error of the group before is raised here."""
        group, self.group, self.bytes = self.group, [], 0
        if self._thread is None:
            self._deliver(group)
        else:
            self.settle()
            self._sent = self._thread.submit(self._deliver, group)

    def settle(self) -> None:
        """Return when nothing is under way."""
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.result()

    def close(self) -> None:
        """Let the threads end, after the group that they are at."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self.batches.close()

    def _deliver(self, group: list[Decided]) -> None:
        count = len(group)
        for _ in range(TRIES):
            if not group:
                break
            group = self._decide_again(self._send(group))
        for _, decision in group:
            self.run.tally.lose(decision)
        self.run.watch(count)

    def _send(self, group: list[Decided]) -> list[tuple[Decided, Versioned]]:
        """Write a group; return those that met a conflict, each with the value that is there now."""
        self._wait(len(group))
        allowed, changes = self._allowed(group)
        if not allowed:
            return []
        self.run.undo.append(changes)
        versions, refused = self._write(changes)
        found = self._look_again(changes, versions, refused)
        self.run.undo.answer(versions)
        for (seen, decision), version in zip(allowed, versions, strict=True):
            if version is not None:
                self.run.tally.rewrite(decision)
            elif seen.path in refused:
                self._refuse(seen, decision, refused[seen.path])
        return [(allowed[at], now) for at, now in found.items() if versions[at] is None]

    def _write(self, changes: list[Change]) -> tuple[list[int | None], dict[str, Refusal]]:
        """Write what no broker has loaded meanwhile: the undo records took their time.

        Looks again ahead of as many writes as are sent at once, so that none of them waits for another
        between the look and its sending. Returns the new versions and what was refused.
        """
        versions: list[int | None] = []
        refused: dict[str, Refusal] = {}
        for part in self.batches.sendings(changes):
            late = self.run.guards.look(part, self.batches.children)
            done = iter(self.batches.write([change for change in part if change.path not in late]))
            versions += [None if change.path in late else next(done) for change in part]
            refused |= late
        return versions, refused

    def _look_again(
        self, changes: list[Change], versions: list[int | None], refused: Collection[str]
    ) -> dict[int, Versioned]:
        """Read what met a conflict, by its place in the group.

        A client that lost its connection repeats a write; where the first one had arrived, the repetition
        meets our own bytes: those were written after all, and `versions` gets theirs.
        """
        unsent = [changes[at].path in refused for at in range(len(changes))]
        places = [at for at, version in enumerate(versions) if version is None and not unsent[at]]
        values = self.batches.read([changes[at].path for at in places]) if places else []
        found = {}
        for at, value in zip(places, values, strict=True):
            found[at] = value or Versioned(changes[at].path, b"", ABSENT)
            if (None if value is None else value.value) == changes[at].new:
                versions[at] = found[at].version
        return found

    def _allowed(self, group: list[Decided]) -> tuple[list[Decided], list[Change]]:
        """Return what may be written of a group, and the writes that it comes to."""
        changes = [Change.of(seen, decision) for seen, decision in group]
        guards = self.run.guards
        refused = guards.look(changes, self.batches.children) | guards.of_values(changes)
        refused |= {seen.path: EPHEMERAL for seen, _ in group if seen.ephemeral}
        for seen, decision in group:
            if seen.path in refused:
                self._refuse(seen, decision, refused[seen.path])
        allowed = [one for one in group if one[0].path not in refused]
        return allowed, [change for change in changes if change.path not in refused]

    def _refuse(self, seen: Versioned, decision: Decision, refusal: Refusal) -> None:
        if self.run.strict:
            raise GuardError(refusal.told, source=seen.path)
        self.run.tally.refuse(decision, refusal.reason)
        self.run.told(f"{seen.path}: {refusal.told}")

    def _decide_again(self, moved: list[tuple[Decided, Versioned]]) -> list[Decided]:
        """Decide anew about values that moved; those that need a write are returned."""
        pending = []
        for _, now in moved:
            decision = self.again(now)
            if decision.action == "rewrite":
                pending.append((now, decision))
            else:
                self.run.tally.settle(decision)
        return pending

    def _wait(self, count: int) -> None:
        rate = self.run.speed.rate
        if rate is None:
            return
        now = time.monotonic()
        if self.due > now:
            time.sleep(self.due - now)
        self.due = max(self.due, now) + count / rate

"""Decide what happens to each value of a restore, and how far the target's counters must be moved.

A ledger id that was given out before must not be reused, because its entries may still be on a disk and would
be
overwritten. So the next id is above the source's counter, every ledger that either store names, and every
ledger with
bytes on the given disks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.restore.survey import LedgerIds, Survey, named_ids
from pulsar_meta.jobs.rewrite.apply import READ_GROUP, Batches, chunks
from pulsar_meta.jobs.rewrite.decision import Change, Decided, Decision, keep, skip, write
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of
from pulsar_meta.jobs.values.places import IDGEN, PRODUCER_NAMES, bucket_path, read_counters
from pulsar_meta.stores.base import ABSENT, Store, Versioned, is_immutable


@dataclass(frozen=True, slots=True)
class Floors:
    """Which number has to come next at least, by the path of the counter.

    `counters`: as far as the stores were surveyed, and only where the target is not as far yet. `bucket` is
    the one in which a generator counts, 0 where ids are short; `reached` is how far the target's counters are
    at least once `counters` were moved; `moving`: the source may get ledgers meanwhile.
    """

    counters: dict[str, int] = field(default_factory=dict)
    bucket: int = 0
    reached: dict[str, int] = field(default_factory=dict)
    moving: bool = False

    def further(self, changes: Sequence[Change]) -> dict[str, int]:
        """Return what changes ask for beyond that."""
        if not self.moving:
            return {}
        ids = LedgerIds()
        for change in changes:
            # A broken record is only written where somebody insisted.
            with suppress(DecodeError):
                for ledger_id in named_ids(Versioned(change.path, change.new or b"", 0)):
                    ids.add(ledger_id)
        buckets = [bucket for bucket in ids.highest if bucket == 0 or bucket >= self.bucket]
        asked = {bucket_path(bucket) if bucket else IDGEN: ids.next_in(bucket) for bucket in buckets}
        return {path: floor for path, floor in asked.items() if floor > self.reached.get(path, 0)}


def floors_of(source: Store, target: Store, surveys: Sequence[Survey]) -> Floors:
    """Return how far the counters of `target` have to go.

    A target that counts nothing, on which no broker can live, has none. Ids of 63 bits get a counter
    only where either store has them already: a generator that meets `/ledgers/idgen-long` never goes back to
    short ones.
    """
    if not target.counts_sequences:
        return Floors()
    given = read_counters(source, {bucket for survey in surveys for bucket in survey.buckets})
    wanted = {IDGEN: max(given.get(IDGEN, 0), *(survey.ids.next_in(0) for survey in surveys))}
    bucket = _highest_bucket(surveys) if any(survey.long_ids for survey in surveys) else 0
    if bucket:
        path = bucket_path(bucket)
        wanted[path] = max(given.get(path, 0), *(survey.ids.next_in(bucket) for survey in surveys))
    wanted[PRODUCER_NAMES] = given.get(PRODUCER_NAMES, 0)
    there = {path: target.next_sequence(path) or 0 for path in wanted}
    counters = {path: floor for path, floor in wanted.items() if floor > there[path]}
    return Floors(counters, bucket, there | counters, moving=not is_immutable(source))


def missing_bucket(surveys: Sequence[Survey]) -> list[Versioned]:
    """Return the `HOB-` node that has to count from now on, where neither store has it and there is one."""
    if not any(survey.long_ids for survey in surveys):
        return []
    bucket = _highest_bucket(surveys)
    there = any(bucket in survey.buckets for survey in surveys)
    return [] if there else [Versioned(bucket_path(bucket), b"", 0)]


def _highest_bucket(surveys: Sequence[Survey]) -> int:
    """Return the bucket that a generator counts in, which is the highest there is; it begins with 1."""
    return max(1, *(bucket for survey in surveys for bucket in (*survey.buckets, *survey.ids.highest)))


SAME: Final = "same"
# Reasons for which a value is not as it is in the other store when the run ends.
DIFFERENT: Final = "different"
NO_PATH: Final = "no-path"


def restore_values(values: Callable[[], Iterable[Versioned]], floors: Floors, *, overwrite: bool) -> Rewrite:
    """Return what moves the counters of a store forward, and then brings values into it.

    What is there and equal is kept; what is there and different, too, unless `overwrite`. Nothing is removed.
    """

    def again(now: Versioned, before: Decision) -> Decision:
        # Whatever is decided again was to be written.
        return _decide(now, before.new or b"", overwrite=overwrite)

    return Rewrite(
        "restore",
        lambda batches: _decided(values(), batches, overwrite=overwrite),
        again,
        with_new=True,
        counters=floors.counters,
        further=floors.further,
    )


def _decided(values: Iterable[Versioned], batches: Batches, *, overwrite: bool) -> Generator[Decided]:
    for group in chunks(values, READ_GROUP):
        wrong = {held.path: why for held in group if (why := _no_path(batches.store, held.path)) is not None}
        here = iter(batches.read([held.path for held in group if held.path not in wrong]))
        for held in group:
            if held.path in wrong:
                seen = Versioned(held.path, b"", ABSENT)
                yield seen, skip(seen, NO_PATH, note=wrong[held.path])
            else:
                seen = next(here)
                yield seen, _decide(seen, held.value, overwrite=overwrite)


def _no_path(store: Store, path: str) -> str | None:
    """Return why nothing can be written at a path, None where it can."""
    try:
        store.check_path(path)
    except UsageError as error:
        return error.message
    return None


def _decide(seen: Versioned, value: bytes, *, overwrite: bool) -> Decision:
    if seen.version != ABSENT and seen.value == value:
        return keep(seen, SAME)
    if seen.version == ABSENT or overwrite:
        return write(seen, value)
    return skip(seen, DIFFERENT, note="has another value; left as it is (--overwrite replaces it)")


# `unindexed`: bytes lie in entry logs, but the index has no entry any more: the bookie deleted the ledger.
State = Literal["whole", "partly", "unindexed", "gone"]


@dataclass(slots=True)
class Remains:
    """Asks disks for ledgers. `unindexed_too`: what is in entry logs only comes back, too.

    `logged` are the ledgers of which entry logs have bytes; `counts` those that were asked for, by state.
    """

    source: EntrySource
    logged: set[int]
    unindexed_too: bool = False
    counts: Counter[State] = field(default_factory=Counter)
    _held: dict[int, int] = field(default_factory=dict)

    def left_out(self, ledgers: Iterable[tuple[int, Versioned | None]]) -> set[int]:
        """Return which of these ledgers, each with BookKeeper's record of it, are not to come back."""
        states = {ledger_id: self._state(ledger_id, record) for ledger_id, record in ledgers}
        self.counts.update(states.values())
        staying_out = {"gone"} if self.unindexed_too else {"gone", "unindexed"}
        return {ledger_id for ledger_id, state in states.items() if state in staying_out}

    def _state(self, ledger_id: int, record: Versioned | None) -> State:
        last = _last_entry(ledger_id, record)
        if last == -1:
            return "whole"
        here = self._entries_here(ledger_id)
        if not here:
            return "unindexed" if ledger_id in self.logged else "gone"
        return "whole" if last is None or here > last else "partly"

    def _entries_here(self, ledger_id: int) -> int:
        # Shadow topics name the ledgers of their source.
        if ledger_id not in self._held:
            self._held[ledger_id] = sum(1 for _ in self.source.entry_ids(ledger_id))
        return self._held[ledger_id]


def _last_entry(ledger_id: int, record: Versioned | None) -> int | None:
    """Return the last entry of a closed ledger (-1: it has none), None where that is not known."""
    try:
        return None if record is None else bookkeeper_ledger_of(ledger_id, record).last_entry
    except DecodeError:
        return None

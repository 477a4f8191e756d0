"""How far the counters of a store have to go before anything is brought into it.

A ledger id that was ever given out must not come again: its entries may still lie on a disk, and would be
overwritten. So the next one is behind everything that is known: the other store's own counter, every ledger
that either store names, and every ledger of which bytes lie on the disks at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.jobs.restore.survey import LedgerIds, Survey, named_ids
from pulsar_meta.jobs.rewrite.decision import Change
from pulsar_meta.jobs.values.counters import IDGEN, PRODUCER_NAMES, bucket_path, read_counters
from pulsar_meta.stores.base import Store, Versioned, stands_still


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
    return Floors(counters, bucket, there | counters, moving=not stands_still(source))


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

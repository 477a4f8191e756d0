"""How far the counters of a store have to go before brokers may use what was brought into it.

A ledger id that was ever given out must not come again: its entries may still lie on a disk, and would be
overwritten. So the next one is behind everything that is known: the other store's own counter, every ledger
that either store names, and every ledger of which bytes lie on the disks at hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_meta.jobs.restore.survey import Survey
from pulsar_meta.jobs.values.counters import IDGEN, PRODUCER_NAMES, bucket_path, read_counters
from pulsar_meta.stores.base import Store, Versioned


def counters_forward(source: Store, target: Store, surveys: Sequence[Survey]) -> dict[str, int]:
    """Return, by path, which number has to come next at least; only where the target is not as far yet.

    A target that counts nothing, on which no broker can live, has none.

    Ids of 63 bits get a counter only where either store has them already: a generator that meets
    `/ledgers/idgen-long` never goes back to short ones.
    """
    if not target.counts_sequences:
        return {}
    given = read_counters(source)
    wanted = {IDGEN: max(given.get(IDGEN, 0), *(survey.ids.next_in(0) for survey in surveys))}
    if any(survey.long_ids for survey in surveys):
        bucket = _highest_bucket(surveys)
        path = bucket_path(bucket)
        wanted[path] = max(given.get(path, 0), *(survey.ids.next_in(bucket) for survey in surveys))
    wanted[PRODUCER_NAMES] = given.get(PRODUCER_NAMES, 0)
    return {path: floor for path, floor in wanted.items() if floor > (target.next_sequence(path) or 0)}


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

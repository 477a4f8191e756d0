"""Count the round trips of an index search and of Pulsar's own algorithm, on 10⁹ entries in 20 000 ledgers.

    python bench/seek.py [--questions 2000] [--seed 7]

The source computes entries and stores none: the batch sizes of a ledger are a slice of a pool of random
sizes, so the index of any entry is a sum of pool prefixes. A round trip is one read request; a batch read
(BookKeeper v2) returns up to 100 neighbouring entries of one ledger in one round trip. Pulsar's algorithm is
getMessageIdByIndex (PIP-415, PersistentTopicsBase) with OpFindNewest.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Sequence
from itertools import accumulate

from pulsar_meta.jobs.seek.readings import LedgerRange, Reading, ReadingOrder, ReadRequest, by_index
from pulsar_meta.jobs.seek.search import TopicSearch

LEDGERS, PER_LEDGER, POOL, BATCH_READ = 20_000, 50_000, 1 << 21, 100
GOALS = {"all": (3, 8), "half": (3, 8), "none": (5, 8)}


def ones(_: random.Random) -> int:
    """Return 1, for unbatched entries."""
    return 1


def uniform(dice: random.Random) -> int:
    """Return a batch size of 1 to 1000."""
    return dice.randint(1, 1000)


def pareto(dice: random.Random) -> int:
    """Return a batch size that is mostly tiny and sometimes huge: Pareto 1.2, capped at 1000."""
    return min(int(dice.paretovariate(1.2)), 1000)


class CountingSource:
    """A topic whose entries are computed on request, deterministic for a seed."""

    def __init__(self, size: object, seed: int) -> None:
        dice = random.Random(seed)
        self.pool = list(accumulate((size(dice) for _ in range(POOL)), initial=0))  # type: ignore[operator]
        self.offsets = [dice.randrange(POOL - PER_LEDGER) for _ in range(LEDGERS)]
        sums = (self.pool[at + PER_LEDGER] - self.pool[at] for at in self.offsets)
        self.firsts = list(accumulate(sums, initial=0))
        self.total = LEDGERS * PER_LEDGER

    def reading(self, ledger: int, entry: int) -> Reading:
        """Return the reading of one entry."""
        at, base = self.offsets[ledger] + entry, self.firsts[ledger] - self.pool[self.offsets[ledger]]
        return Reading(
            ledger, entry, first_index=base + self.pool[at], last_index=base + self.pool[at + 1] - 1
        )

    def answer(self, request: ReadRequest) -> Sequence[Reading]:
        """Return the readings of a request's entries."""
        return [self.reading(request.ledger_id, entry) for entry in range(request.first, request.last + 1)]

    def order(self, properties: str) -> ReadingOrder:
        """Return the topic's ledgers in order, of which all, every other or none have a first index."""
        step = {"all": 1, "half": 2, "none": 0}[properties]
        return ReadingOrder(
            [
                LedgerRange(
                    ledger,
                    PER_LEDGER,
                    first_index=self.firsts[ledger] if step and ledger % step == 0 else None,
                )
                for ledger in range(LEDGERS)
            ],
            last_index=self.firsts[-1] - 1,
        )

    def last_index(self, ordinal: int) -> int:
        """Return the stored index of the entry at this ordinal."""
        return self.reading(*divmod(ordinal, PER_LEDGER)).last_index or 0


class CountingReads:
    """Reads entries of the counting source, without remembering any."""

    def __init__(self, source: CountingSource, entries_per_read: int) -> None:
        self.source = source
        self.entries_per_read = entries_per_read
        self.entries_read = 0
        self.round_trips = 0

    def read(self, request: ReadRequest) -> Sequence[Reading]:
        """Return what the entries of a request say."""
        self.round_trips += 1
        self.entries_read += request.last - request.first + 1
        return self.source.answer(request)


def ours(source: CountingSource, topic: TopicSearch, target: int) -> int:
    """Run one search, check its answer, and return its round trips."""
    outcome = topic.find(target)
    entry = outcome.reading
    assert entry is not None
    assert entry.first_index is not None
    assert entry.last_index is not None
    assert entry.first_index <= target <= entry.last_index
    assert entry == source.reading(entry.ledger_id, entry.entry_id)
    return outcome.round_trips


def pulsars(source: CountingSource, target: int) -> int:
    """Return how many entries Pulsar's algorithm reads for the first entry and OpFindNewest over all."""
    reads = 2
    if source.last_index(0) >= target:
        return reads
    low, high = 0, source.total - 1
    reads += 1
    if source.last_index(high) < target:
        return reads
    while low + 1 < high:
        middle = low + max((high - low) // 2, 1)
        reads += 1
        if source.last_index(middle) < target:
            low = middle
        else:
            high = middle
    return reads


def spread(values: Iterable[int]) -> tuple[int, int, int, float]:
    """Return median, 99th percentile, maximum and mean."""
    ordered = sorted(values)
    count = len(ordered)
    return ordered[count // 2], ordered[count * 99 // 100], ordered[-1], sum(ordered) / count


def main() -> None:
    """Print a line for each distribution of batches, properties and reader."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--questions", type=int, default=2000)
    options.add_argument("--seed", type=int, default=7)
    options_given = options.parse_args()
    print(f"{'batches':9}{'properties':12}{'reader':14}{'median':>7}{'p99':>5}{'max':>5}{'mean':>7}  goal")
    for size in (ones, uniform, pareto):
        source = CountingSource(size, options_given.seed)
        dice = random.Random(options_given.seed + 1)
        targets = [dice.randrange(source.firsts[-1]) for _ in range(options_given.questions)]
        for properties, (median, high) in GOALS.items():
            for per_read in (BATCH_READ, 1):
                topic = TopicSearch(source.order(properties), by_index, CountingReads(source, per_read))
                trip_spread = spread(ours(source, topic, target) for target in targets)
                met = "met" if trip_spread[0] <= median and trip_spread[1] <= high else "missed"
                goal = f"≤ {median}, ≤ {high}: {met}" if per_read > 1 else ""
                report(size.__name__, properties, f"{per_read} per trip", trip_spread, goal)
        report(size.__name__, "-", "Pulsar's", spread(pulsars(source, target) for target in targets), "")


def report(batches: str, properties: str, reader: str, trips: tuple[int, int, int, float], goal: str) -> None:
    """Print a line of the table."""
    print(f"{batches:9}{properties:12}{reader:14}{trips[0]:7}{trips[1]:5}{trips[2]:5}{trips[3]:7.2f}  {goal}")


if __name__ == "__main__":
    main()

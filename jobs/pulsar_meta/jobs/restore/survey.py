"""What is in the two stores of a restore, found in one pass over each before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from pulsar_meta.codecs.errors import DecodeError, GuardError
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, SHORT_LEDGER_LIMIT, ledger_of_path
from pulsar_meta.codecs.snapshot_lines import Sums
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rewrite.guards import MIGRATION, check_flag
from pulsar_meta.jobs.topics.owners import SCHEMAS, Report, named_by
from pulsar_meta.jobs.topics.topic import Report as AnyReport
from pulsar_meta.jobs.values.places import IDGEN_LONG, bucket_of, why_left_out
from pulsar_meta.stores.base import Store, Versioned, is_within
from pulsar_meta.stores.snapshot import check_sums


@dataclass(slots=True)
class LedgerIds:
    """The highest ids of ledgers that were met: of those below 2^31 - 1, and of longer ones by bucket."""

    highest: dict[int, int] = field(default_factory=dict)

    def add(self, ledger_id: int) -> None:
        """Take one more. What no generator gives out does not count."""
        bucket, low = divmod(ledger_id, 1 << 32)
        if bucket >= 0 and low < SHORT_LEDGER_LIMIT:
            self.highest[bucket] = max(low, self.highest.get(bucket, -1))

    def next_in(self, bucket: int) -> int:
        """Return the lowest number that is free in a bucket (0: the ids below 2^31 - 1) and behind all."""
        return self.highest.get(bucket, -1) + 1


@dataclass(slots=True)
class Survey:
    """What was met: how many values are to be copied, how many stay out and why, and which ledgers there are.

    `buckets` are the numbers of the `HOB-` nodes; `long_ids`: ledger ids of 63 bits are in use; `broken`
    counts records of which it is not known which ledgers they name. `bookkeeper`: its metadata is copied.
    """

    values: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    ids: LedgerIds = field(default_factory=LedgerIds)
    buckets: set[int] = field(default_factory=set)
    long_ids: bool = False
    broken: int = 0
    bookkeeper: bool = False

    def take(self, values: Iterable[Versioned], report: Report) -> None:
        """Look at values; which records are broken is reported."""
        for held in values:
            self._take_ids(held, report)
            bucket = bucket_of(held.path)
            self.long_ids |= held.path == IDGEN_LONG or bucket is not None
            if bucket is not None:
                self.buckets.add(bucket)

    def take_entries(self, source: EntrySource, report: AnyReport) -> set[int]:
        """Look at the ledgers on disks; return those of which entry logs have bytes, deleted ones too."""
        from pulsar_meta.jobs.disk.contents import entry_logs

        logged = {ledger_id for log in entry_logs(source, report) for ledger_id in log.ledgers}
        for ledger_id in (*source.ledgers(), *logged):
            self.ids.add(ledger_id)
        return logged

    def _take_ids(self, held: Versioned, report: Report) -> None:
        try:
            for ledger_id in named_ids(held):
                self.ids.add(ledger_id)
        except DecodeError as error:
            self.broken += 1
            report(error)


def named_ids(held: Versioned) -> Iterator[int]:
    """Yield the ids of the ledgers that a value is about; DecodeError where it is broken."""
    ledger_id = ledger_of_path(held.path)
    if ledger_id is not None:
        yield ledger_id
        return
    for owner in named_by(held, None, lambda path, why: None):
        yield owner.ledger_id


def survey_source(
    store: Store,
    report: Report,
    *,
    partial: bool = False,
    migrated: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> Survey:
    """Return what is in the store that values come from.

    GuardError for a copy without its secrets, and while a migration runs (unless `migrated`); DecodeError for
    a snapshot that was cut short or changed, unless `partial`.
    """
    if store.origin.get("redacted"):
        raise GuardError("its secrets were left out: it is for reading only", source=store.url)
    found, sums = Survey(), Sums()

    def counted(held: Versioned) -> Versioned:
        progress(1)
        sums.add(held.path, held.value, ephemeral=held.ephemeral)
        if held.path == MIGRATION and not migrated:
            check_flag(held.value, "what is to be restored", "it may be old, or half of it")
        why = why_left_out(held)
        found.values += why is None
        found.bookkeeper |= why is None and is_within(held.path, LEDGERS)
        found.left_out.update([] if why is None else [why])
        return held

    found.take(map(counted, store.scan()), report)
    if not partial:
        check_sums(store, sums)
    return found


def survey_target(store: Store, report: Report) -> Survey:
    """Return which ledgers the other store knows."""
    found = Survey()
    found.take(chain.from_iterable(map(store.scan, (LEDGERS, MANAGED_LEDGERS, SCHEMAS))), report)
    return found

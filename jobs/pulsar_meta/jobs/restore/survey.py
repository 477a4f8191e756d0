"""Survey both stores of a restore, in one pass over each, before anything is written."""

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
from pulsar_meta.jobs.topics.topic import Report as FaultReport
from pulsar_meta.jobs.values.places import IDGEN_LONG, bucket_of, why_left_out
from pulsar_meta.stores.base import Store, Versioned, is_within
from pulsar_meta.stores.snapshot import check_sums


@dataclass(slots=True)
class LedgerIds:
    """The highest ledger id that was seen, below 2^31 - 1, and per bucket for longer ids."""

    highest: dict[int, int] = field(default_factory=dict)

    def add(self, ledger_id: int) -> None:
        """Add an id. Ids that no generator assigns are ignored."""
        bucket, low = divmod(ledger_id, 1 << 32)
        if bucket >= 0 and low < SHORT_LEDGER_LIMIT:
            self.highest[bucket] = max(low, self.highest.get(bucket, -1))

    def next_in(self, bucket: int) -> int:
        """The lowest id in a bucket (0: the ids below 2^31 - 1) that is above all ids that were seen."""
        return self.highest.get(bucket, -1) + 1


@dataclass(slots=True)
class Survey:
    """A summary of a store: the number of values to copy, the number left out by reason, and the ledger ids.

    `buckets` are the numbers of the `HOB-` nodes. `long_ids` is True if ledger ids of 63 bits are in use.
    `broken` counts corrupt records, whose ledgers are unknown. `bookkeeper` is True if BookKeeper metadata is
    copied.
    """

    values: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    ids: LedgerIds = field(default_factory=LedgerIds)
    buckets: set[int] = field(default_factory=set)
    long_ids: bool = False
    broken: int = 0
    bookkeeper: bool = False

    def add(self, values: Iterable[Versioned], report: Report) -> None:
        """Add the ledger ids in values. Corrupt records go to `report`."""
        for stored in values:
            self._add_ids(stored, report)
            bucket = bucket_of(stored.path)
            self.long_ids |= stored.path == IDGEN_LONG or bucket is not None
            if bucket is not None:
                self.buckets.add(bucket)

    def add_disks(self, source: EntrySource, report: FaultReport) -> set[int]:
        """Add the ledgers on disks. Returns the ledgers with bytes in entry logs, including deleted ones."""
        from pulsar_meta.jobs.disk.contents import entry_logs

        logged = {ledger_id for log in entry_logs(source, report) for ledger_id in log.ledgers}
        for ledger_id in (*source.ledgers(), *logged):
            self.ids.add(ledger_id)
        return logged

    def _add_ids(self, stored: Versioned, report: Report) -> None:
        try:
            for ledger_id in ledgers_in(stored):
                self.ids.add(ledger_id)
        except DecodeError as error:
            self.broken += 1
            report(error)


def ledgers_in(stored: Versioned) -> Iterator[int]:
    """Yield the ids of the ledgers that a value describes or refers to. Raises DecodeError."""
    ledger_id = ledger_of_path(stored.path)
    if ledger_id is not None:
        yield ledger_id
        return
    for owner in named_by(stored, None, lambda path, why: None):
        yield owner.ledger_id


def survey_source(
    store: Store,
    report: Report,
    *,
    partial: bool = False,
    migrated: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> Survey:
    """Survey the store that values come from.

    Raises GuardError if it is a copy without secrets or if a migration is running (unless `migrated`), and
    DecodeError if it is a snapshot that was truncated or changed (unless `partial`).
    """
    if store.origin.get("redacted"):
        raise GuardError("refusing to restore a redacted copy, because it has no secrets", source=store.url)
    survey, sums = Survey(), Sums()

    def counted(stored: Versioned) -> Versioned:
        progress(1)
        sums.add(stored.path, stored.value, ephemeral=stored.ephemeral)
        if stored.path == MIGRATION and not migrated:
            check_flag(stored.value, "the source", "it may be outdated or incomplete")
        why = why_left_out(stored)
        survey.values += why is None
        survey.bookkeeper |= why is None and is_within(stored.path, LEDGERS)
        survey.left_out.update([] if why is None else [why])
        return stored

    survey.add(map(counted, store.scan()), report)
    if not partial:
        check_sums(store, sums)
    return survey


def survey_target(store: Store, report: Report) -> Survey:
    """Survey the ledger ids in the store that values are restored to."""
    survey = Survey()
    survey.add(chain.from_iterable(map(store.scan, (LEDGERS, MANAGED_LEDGERS, SCHEMAS))), report)
    return survey

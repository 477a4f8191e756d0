"""The values of a restore: those of the chosen topics, what happens to each, and the target's counters.

A ledger id must never be assigned twice, because entries of the first ledger may still be on a disk and would
be overwritten. So the next id is above the source's counter, above every ledger in either store, and above
every ledger with bytes on the given disks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.envelope import open_envelope, wrap_envelope
from pulsar_meta.codecs.names import SHORT_LEDGER_LIMIT, TopicName, ledger_path, split_managed_ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.restore.survey import LedgerIds, Survey, ledgers_in
from pulsar_meta.jobs.rewrite.apply import READ_GROUP, Batches, chunks
from pulsar_meta.jobs.rewrite.decision import NAMED, Change, Decided, Decision, keep, skip, write
from pulsar_meta.jobs.rewrite.readable import Readers, form_of
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.spill import Dedup
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of
from pulsar_meta.jobs.topics.owners import named_by
from pulsar_meta.jobs.topics.scope import POLICIES
from pulsar_meta.jobs.transactions.pending_acks import pending_logs
from pulsar_meta.jobs.values.places import IDGEN, PRODUCER_NAMES, bucket_path, read_counters
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned, is_immutable

LOCAL_POLICIES = "/admin/local-policies"


@dataclass(slots=True)
class TopicValues:
    """The values of `store` that belong to topics, each once. Ledgers precede the records that refer to them.

    `topics` are the records of topics. `entries` is used to read the state of cursors. With `remains`,
    ledgers of which nothing is left are left out, also from the topics' records. After `values` was consumed,
    `counts` has the numbers of topics, cursors, ledgers and schemas, and `missing` the number of ledgers
    without metadata.
    """

    store: Store
    topics: Iterable[Versioned]
    policies: bool = False
    entries: EntrySource | None = None
    remains: Remains | None = None
    counts: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    _given: set[str] = field(default_factory=set)

    def values(self) -> Iterator[Versioned]:
        """Yield the values; call it once. Raises NotFoundError if a topic is missing, and DecodeError."""
        for record in self.topics:
            if record.version == ABSENT:
                raise NotFoundError(f"nothing at {record.path}", source=self.store.url)
            topic = TopicName.from_path(record.path)
            if topic is not None and record.path not in self._given:
                yield from self._of_topic(topic)

    def _of_topic(self, topic: TopicName) -> Iterator[Versioned]:
        yield from self._once(self._above(topic))
        yield from self._with_ledgers([topic.schema_path], "schemas")
        cursors = self._cursors(topic)
        yield from self._with_ledgers([topic.path], "topics")
        yield from self._with_ledgers(cursors, "cursors")
        for cursor in cursors.values():
            # The messages that the subscription acknowledged in transactions.
            for log in pending_logs(topic, cursor):
                yield from self._with_ledgers([log.path], "topics")
                yield from self._with_ledgers(self._cursors(log), "cursors")

    def _cursors(self, topic: TopicName) -> dict[str, str]:
        """Map the paths of a topic's cursor records to subscription names."""
        paths = (f"{topic.path}/{name}" for name in self.store.children(topic.path))
        places = ((path, split_managed_ledger_path(path)) for path in paths)
        return {path: place[1] for path, place in places if place is not None and place[1] is not None}

    def _above(self, topic: TopicName) -> list[str]:
        """The paths of values that several topics share: policies, numbers of partitions, scalable topics."""
        of = topic.partitioned or topic
        paths = [of.partitioned_path]
        if topic.domain == "segment":
            paths.append(replace(topic, domain="topic", local=topic.local.rpartition("/")[0]).path)
        namespace = topic.namespace_name
        policies = [f"{POLICIES}/{topic.tenant}", f"{POLICIES}/{namespace}", f"{LOCAL_POLICIES}/{namespace}"]
        return [*policies, *paths] if self.policies else paths

    def _once(self, paths: Iterable[str]) -> Iterator[Versioned]:
        for path in paths:
            stored = None if path in self._given else self.store.find(path)
            self._given.add(path)
            if stored is not None:
                yield stored

    def _with_ledgers(self, paths: Iterable[str], kind: str) -> Iterator[Versioned]:
        for stored in self._once(paths):
            self.counts[kind] += 1
            yield from self._with_its_ledgers(stored)

    def _with_its_ledgers(self, stored: Versioned) -> Iterator[Versioned]:
        """Yield the BookKeeper metadata of the ledgers that a value refers to, then the value."""
        named = {owner.ledger_id for owner in named_by(stored, self.entries, lambda path, why: None)}
        records = {ledger_id: self.store.find(ledger_path(ledger_id)) for ledger_id in sorted(named)}
        self.counts["ledgers"] += len(records)
        left_out = set[int]() if self.remains is None else self.remains.left_out(records.items())
        for ledger_id, record in records.items():
            if record is None:
                self.missing += 1
            elif ledger_id not in left_out:
                yield record
        yield _without(stored, left_out) if left_out else stored


def _without(stored: Versioned, ledgers: set[int]) -> Versioned:
    """Remove ledgers from a topic's record, keeping its codec. Other values are not changed."""
    if TopicName.from_path(stored.path) is None:
        return stored
    envelope = open_envelope(stored.value)
    info = parse_message(ManagedLedgerInfo, stored.value if envelope is None else envelope.payload)
    kept = [ledger for ledger in info.ledgerInfo if ledger.ledgerId not in ledgers]
    del info.ledgerInfo[:]
    info.ledgerInfo.extend(kept)
    data = info.SerializeToString()
    if envelope is not None:
        data = wrap_envelope(data, envelope.codec, unknown=envelope.unknown)
    return stored._replace(value=data)


@dataclass(frozen=True, slots=True)
class CounterMinimums:
    """The minimum next number of each counter, by the counter's path.

    `counters` are the minimums from the surveys that exceed the target's counters. `bucket` is the bucket of
    the next ledger id, 0 for short ids. `reached` are the target's counters after `counters` were applied.
    `moving` is True if ledgers may be created in the source during the restore.
    """

    counters: dict[str, int] = field(default_factory=dict)
    bucket: int = 0
    reached: dict[str, int] = field(default_factory=dict)
    moving: bool = False

    def further(self, changes: Sequence[Change]) -> dict[str, int]:
        """The higher minimums that follow from the ledgers in `changes`."""
        if not self.moving:
            return {}
        ids = LedgerIds()
        for change in changes:
            # A corrupt record is only written if the operator insists.
            with suppress(DecodeError):
                for ledger_id in ledgers_in(Versioned(change.path, change.new or b"", 0)):
                    ids.add(ledger_id)
        buckets = [bucket for bucket in ids.highest if bucket == 0 or bucket >= self.bucket]
        wanted = {bucket_path(bucket) if bucket else IDGEN: ids.next_in(bucket) for bucket in buckets}
        return {path: minimum for path, minimum in wanted.items() if minimum > self.reached.get(path, 0)}


# A source's counter may exceed the highest known id by this much, because deleted ledgers had ids, too.
COUNTER_GAP: Final = 1_000_000
# Some servers need one write per number. More than this takes minutes, so it needs an option.
_MOST_WRITES: Final = 1_000_000
_WRITES_PER_SECOND: Final = 5_000


def counter_minimums(
    source: Store, target: Store, surveys: Sequence[Survey], *, trust_counters: bool = False
) -> CounterMinimums:
    """Compute the minimum of each counter of `target`.

    Raises GuardError for a counter of the source that is far above every known id, unless `trust_counters`
    is set, because a counter can't be lowered again, and for one that the target can't reach.

    There is none if the target has no counters, because then no broker can use it. A counter for ids of 63
    bits is set only if either store has such ids already, because a generator that finds
    `/ledgers/idgen-long` never returns to short ids.
    """
    if not target.counts_sequences:
        return CounterMinimums()
    given = read_counters(source, {bucket for survey in surveys for bucket in survey.buckets})
    wanted = {IDGEN: max(given.get(IDGEN, 0), *(survey.ids.next_in(0) for survey in surveys))}
    bucket = _highest_bucket(surveys) if any(survey.long_ids for survey in surveys) else 0
    if bucket:
        path = bucket_path(bucket)
        wanted[path] = max(given.get(path, 0), *(survey.ids.next_in(bucket) for survey in surveys))
    wanted[PRODUCER_NAMES] = given.get(PRODUCER_NAMES, 0)
    current = {path: target.next_sequence(path) or 0 for path in wanted}
    counters = {path: minimum for path, minimum in wanted.items() if minimum > current[path]}
    if not trust_counters:
        highest = max(survey.ids.next_in(0) for survey in surveys)
        _check_plausible(counters, {IDGEN: max(highest, current[IDGEN])}, source)
        _check_reachable(counters, current, target)
    if counters.get(IDGEN, 0) > SHORT_LEDGER_LIMIT:
        raise GuardError(f"no broker can use {counters[IDGEN]} as a ledger id of {IDGEN}", source=source.url)
    return CounterMinimums(counters, bucket, current | counters, moving=not is_immutable(source))


def _check_plausible(counters: Mapping[str, int], known: Mapping[str, int], source: Store) -> None:
    for path, minimum in counters.items():
        if path in known and minimum > known[path] + COUNTER_GAP:
            raise GuardError(
                f"refusing to raise the counter {path} to {minimum}: no ledger is known above {known[path]},"
                " and the counter can't be lowered again (--trust-counters)",
                source=source.url,
            )


def _check_reachable(counters: Mapping[str, int], current: Mapping[str, int], target: Store) -> None:
    if not target.counts_by_writes:
        return
    writes = sum(minimum - current[path] for path, minimum in counters.items())
    if writes > _MOST_WRITES:
        minutes = writes // _WRITES_PER_SECOND // 60 + 1
        raise GuardError(
            f"refusing to raise counters by {writes} single writes, which takes about {minutes} minutes"
            " (--trust-counters)",
            source=target.url,
        )


def missing_bucket(surveys: Sequence[Survey]) -> list[Versioned]:
    """The `HOB-` node of the next ledger id, if long ids are in use and neither store has the node."""
    if not any(survey.long_ids for survey in surveys):
        return []
    bucket = _highest_bucket(surveys)
    exists = any(bucket in survey.buckets for survey in surveys)
    return [] if exists else [Versioned(bucket_path(bucket), b"", 0)]


def _highest_bucket(surveys: Sequence[Survey]) -> int:
    """The bucket from which the next ledger id is taken: the highest one, at least 1."""
    return max(1, *(bucket for survey in surveys for bucket in (*survey.buckets, *survey.ids.highest)))


SAME: Final = "same"
# Reasons why a value still differs from the source when the run ends.
DIFFERENT: Final = "different"
NO_PATH: Final = "no-path"


@dataclass(slots=True)
class UnreadableValues:
    """Warns of the first restored values that brokers may not load.

    They are written all the same, because a subscription would be lost without its record. `readers` are
    the releases that will read them.
    """

    readers: Readers
    paths: list[str] = field(default_factory=list)

    def warning(self, path: str, value: bytes) -> str | None:
        """Return why brokers may not load a value, None if they can or if enough were named."""
        try:
            form = form_of(path, value)
            why = None if form is None else self.readers.why_not(form)
        except DecodeError as error:
            why = f"no broker can load it: {error.message}"
        if why is None:
            return None
        # Every pass over the values warns of the same ones.
        if path not in self.paths:
            if len(self.paths) == NAMED:
                return None
            self.paths.append(path)
        rest = "; further values of this kind are not listed" if [path] == self.paths[NAMED - 1 :] else ""
        return f"restored as it is, but {why}{rest}"


def restore_values(
    values: Callable[[], Iterable[Versioned]],
    minimums: CounterMinimums,
    unreadable: UnreadableValues,
    *,
    overwrite: bool,
) -> Rewrite:
    """Make the rewrite that raises the counters of a store and then writes values to it.

    Existing values are kept, unless they differ and `overwrite` is True. Nothing is removed. Values are
    written byte for byte, even if brokers may not load them. With `overwrite`, values that have changed since
    the first pass over the decisions are left alone.
    """
    start = StartVersions() if overwrite else None

    def decide_again(now: Versioned, before: Decision) -> Decision:
        # Only decisions to write are made again.
        new = before.new or b""
        return _leave_moved(now, new) if overwrite else _decide(now, new, overwrite=False)

    return Rewrite(
        "restore",
        lambda batches: _decided(values(), batches, unreadable, start),
        decide_again,
        with_new=True,
        counters=minimums.counters,
        further=minimums.further,
    )


class StartVersions:
    """The versions that the values to be written had in the first pass, using 12 bytes of memory for each."""

    def __init__(self) -> None:
        self._versions = Dedup()
        self._complete = False

    def has_moved(self, seen: Versioned) -> bool:
        """Return True if a value has another version than in the first pass. In the first pass, note it."""
        version = f"{seen.path} {seen.version}"
        if self._complete:
            return version not in self._versions
        self._versions.is_new(version)
        return False

    def end_pass(self) -> None:
        """Note that all values were seen."""
        self._complete = True


def _decided(
    values: Iterable[Versioned], batches: Batches, unreadable: UnreadableValues, start: StartVersions | None
) -> Generator[Decided]:
    """Yield each value with its decision. `start` is None if existing values are kept."""
    for group in chunks(values, READ_GROUP):
        invalid = {value.path: why for value in group if (why := _path_error(batches.store, value.path))}
        existing = iter(batches.read([value.path for value in group if value.path not in invalid]))
        for value in group:
            if value.path in invalid:
                seen = Versioned(value.path, b"", ABSENT)
                yield seen, skip(seen, NO_PATH, note=invalid[value.path])
            else:
                seen = next(existing)
                decision = _decide(seen, value.value, overwrite=start is not None)
                if decision.action == "rewrite":
                    decision = decision._replace(note=unreadable.warning(value.path, value.value))
                    if start is not None and start.has_moved(seen):
                        decision = _leave_moved(seen, value.value)
                yield seen, decision
    if start is not None:
        start.end_pass()


def _path_error(store: Store, path: str) -> str | None:
    """Explain why nothing can be written at a path; None if it can."""
    try:
        store.check_path(path)
    except UsageError as error:
        return error.message
    return None


def _leave_moved(seen: Versioned, value: bytes) -> Decision:
    if seen.version != ABSENT and seen.value == value:
        return keep(seen, SAME)
    verb = "removed" if seen.version == ABSENT else "written"
    return skip(seen, "moved", note=f"was {verb} by another client since the run began; left as it is")


def _decide(seen: Versioned, value: bytes, *, overwrite: bool) -> Decision:
    if seen.version != ABSENT and seen.value == value:
        return keep(seen, SAME)
    if seen.version == ABSENT or overwrite:
        return write(seen, value)._replace(readable=True)
    return skip(seen, DIFFERENT, note="has another value, which was kept; replace it with --overwrite")


# `unindexed`: entry logs have bytes of the ledger but the index has none, because the bookie deleted it.
State = Literal["whole", "partly", "unindexed", "gone"]


@dataclass(slots=True)
class Remains:
    """Finds out which ledgers are still on disks. With `unindexed_too`, bytes in entry logs are enough.

    `logged` are the ledgers with bytes in entry logs. `counts` has the number of ledgers per state.
    """

    source: EntrySource
    logged: set[int]
    unindexed_too: bool = False
    counts: Counter[State] = field(default_factory=Counter)
    _entries: dict[int, int] = field(default_factory=dict)

    def left_out(self, ledgers: Iterable[tuple[int, Versioned | None]]) -> set[int]:
        """Select the ledgers that are not restored, from (ledger id, BookKeeper metadata)."""
        states = {ledger_id: self._state(ledger_id, record) for ledger_id, record in ledgers}
        self.counts.update(states.values())
        lost = {"gone"} if self.unindexed_too else {"gone", "unindexed"}
        return {ledger_id for ledger_id, state in states.items() if state in lost}

    def _state(self, ledger_id: int, record: Versioned | None) -> State:
        last = _last_entry(ledger_id, record)
        if last == -1:
            return "whole"
        here = self._entries_here(ledger_id)
        if not here:
            return "unindexed" if ledger_id in self.logged else "gone"
        return "whole" if last is None or here > last else "partly"

    def _entries_here(self, ledger_id: int) -> int:
        # Several topics can have the same ledgers: shadow topics list those of their source.
        if ledger_id not in self._entries:
            self._entries[ledger_id] = sum(1 for _ in self.source.entry_ids(ledger_id))
        return self._entries[ledger_id]


def _last_entry(ledger_id: int, record: Versioned | None) -> int | None:
    """The last entry of a closed ledger, -1 if it is empty; None if unknown."""
    try:
        return None if record is None else bookkeeper_ledger_of(ledger_id, record).last_entry
    except DecodeError:
        return None

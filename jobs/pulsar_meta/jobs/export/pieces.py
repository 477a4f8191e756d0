"""Export topics in pieces, without those that are already exported. Each piece is a file and a manifest line.

With compaction, only the latest message of each key is exported. A message without payload deletes its key,
and messages without a key are dropped (PIP-318, Pulsar 3.2 and later). Hive, Spark and DuckDB read the names
of directories as columns.

Sources: Apache Hive (`name=value` directories, values percent-encoded); apache/pulsar PulsarApi.proto
(MessageIdData.partition), AbstractTwoPhaseCompactor.java (phaseOne), PIP-14.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Bound, Choice, Limits, Range
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.export.files import Done, Form, Manifest, Ranges, write_file
from pulsar_meta.jobs.messages.reading import MessageCounts, MessageOptions, MessageReader
from pulsar_meta.jobs.messages.stream import parts_of, reader_of, transactions_of
from pulsar_meta.jobs.pool import SharedWork
from pulsar_meta.jobs.seek.questions import FIRST_INDEX, INDEX, TIME, Kind, Question, SeekOptions
from pulsar_meta.jobs.seek.readings import AFTER_LAST, BEFORE_FIRST, FOUND, GAP
from pulsar_meta.jobs.seek.seek import Seeker, plan_of_ledgers
from pulsar_meta.jobs.topics.topic import MAX_ID, Ledger, Report, with_bookkeeper
from pulsar_meta.jobs.transactions.buffers import compacted_ledgers
from pulsar_meta.jobs.transactions.outcomes import Transactions
from pulsar_meta.stores.base import Store

# The topic is not partitioned, as in message ids. (Arrow can't infer the type of a column without values.)
NO_PARTITION: Final = "-1"


def directory_of(topic: str) -> str:
    """The directory of a topic's files, relative to the export (namespace, name, partition).

    The partition is the number of the partition, the range and number of a segment, or -1.
    """
    name = TopicName.parse(topic)
    local, partition = name.local, NO_PARTITION
    if name.domain == "segment":
        local, _, partition = name.local.rpartition("/")
    elif name.partitioned is not None:
        local, partition = name.partitioned.local, str(name.partition)
    return f"namespace={_quoted(name.namespace_name)}/name={_quoted(local)}/partition={partition}"


def _quoted(value: str) -> str:
    return quote(value, safe="")


# A file has at most so many entries, and so many bytes if the ledger's size is known; a ledger with
# more is cut.
ENTRIES_A_FILE: Final = 250_000
BYTES_A_FILE: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """The messages to export. Times are in milliseconds.

    They begin with the first entry at or after `since`, and end with the last one before `until`. With
    `compacted`, only the latest message of each key is exported, and with `readable`, only messages that
    consumers can see.
    """

    from_index: int | None = None
    since: int | None = None
    until: int | None = None
    compacted: bool = False
    readable: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a topic that becomes one `file`, whose name is relative to the export.

    It can be pickled.
    """

    topic: str
    parts: tuple[Range, ...]
    file: str
    scalable_topic: str | None = None
    transactions: Transactions | None = None

    @property
    def ranges(self) -> Ranges:
        """The ranges as in the manifest."""
        return tuple((part.ledger.ledger_id, part.first, part.last or 0) for part in self.parts)

    @property
    def cost(self) -> int:
        """The maximum number of entries; more if entries are so large that fewer fill a file."""
        return sum(
            ((part.last or 0) - part.first + 1) * ENTRIES_A_FILE // _entries_a_file(part.ledger)
            for part in self.parts
        )


def plan_topic(
    choice: Choice,
    wanted: Wanted,
    form: Form,
    store: Store,
    source: EntrySource,
    manifest: Manifest,
    report: Report,
) -> Iterator[Piece]:
    """Yield the pieces of a topic that are new or incomplete, in reading order.

    Faults are reported. Raises UnreachableError.
    """
    limits = limits_of(choice, wanted, source, report)
    if limits is None:
        return
    whole = replace(choice, ledgers=list(with_bookkeeper(store, choice.ledgers, report)))
    known = transactions_of(store, source, choice, report) if wanted.readable else None
    parts = _before_open(list(parts_of(whole, limits, source, report)), known)
    place = directory_of(choice.name)
    if wanted.compacted:
        piece = _latest(store, source, whole, parts, f"{place}/latest.{form}", manifest, report)
        pieces = [] if piece is None else [piece]
    else:
        done = [piece for piece in manifest.of_topic(choice.name) if piece.whole and manifest.is_there(piece)]
        pieces = [
            Piece(choice.name, (part,), f"{place}/{_file_name(part)}.{form}")
            for part in _left(parts, done, manifest.of_topic(choice.name))
        ]
    for piece in pieces:
        yield replace(piece, scalable_topic=choice.scalable_topic, transactions=known)


def limits_of(choice: Choice, wanted: Wanted, source: EntrySource, report: Report) -> Limits | None:
    """Convert the wanted messages to limits; None if there are none, or if a time is not found (reported)."""
    seeker = Seeker(plan_of_ledgers(choice.name, choice.ledgers, FIRST_INDEX), source, SeekOptions())
    first, last = None, None
    sides: tuple[tuple[Kind, int | None], ...] = ((INDEX, wanted.from_index), (TIME, wanted.since))
    for kind, target in sides:
        if target is None:
            continue
        answer = seeker.ask(Question(choice.name, kind, target))
        if answer["status"] == AFTER_LAST:
            return None
        if answer["status"] == FOUND:
            bound = Bound(answer["entry_id"], answer["ledger_id"])
            first = bound if first is None or bound.is_behind(first) else first
        elif answer["status"] not in (BEFORE_FIRST, GAP):
            report(NotFoundError(f"no entry for {kind} {target}: {answer['status']}", source=choice.name))
            return None
    if wanted.until is not None:
        answer = seeker.ask(Question(choice.name, TIME, wanted.until))
        if answer["status"] == FOUND:
            last = _ahead_of(answer["ledger_id"], answer["entry_id"])
        elif answer["status"] != AFTER_LAST:
            report(
                NotFoundError(f"no entry for {TIME} {wanted.until}: {answer['status']}", source=choice.name)
            )
            return None
    return Limits(first, last)


def _ahead_of(ledger_id: int, entry_id: int) -> Bound:
    """The position before an entry.

    Before the first entry of a ledger, it is the end of all earlier ledgers.
    """
    return Bound(entry_id - 1, ledger_id) if entry_id else Bound(MAX_ID, ledger_id - 1)


def _before_open(parts: list[Range], known: Transactions | None) -> list[Range]:
    """Cut the parts at the first open transaction, because the outcomes of later entries are undecided."""
    if known is None or known.first_open is None:
        return parts
    stop, kept = known.first_open, []
    for part in parts:
        ledger_id = part.ledger.ledger_id
        if ledger_id == stop.ledger_id:
            part = replace(part, last=min(part.last or 0, stop.entry_id - 1))
        if ledger_id <= stop.ledger_id and (part.last or 0) >= part.first:
            kept.append(part)
    return kept


def _left(parts: Sequence[Range], done: Sequence[Done], known: Sequence[Done]) -> Iterator[Range]:
    """Yield the remaining ranges: incomplete pieces, cut as before, and new entries."""
    whole = {piece.ranges for piece in done}
    exported: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for ledger_id, first, last in sorted({triple for piece in known for triple in piece.ranges}):
        exported[ledger_id].append((first, last))
    for part in parts:
        ledger_id, at, end = part.ledger.ledger_id, part.first, part.last or 0
        for first, last in exported.get(ledger_id, ()):
            if not at <= first <= end:
                continue
            yield from _cut(part, at, first - 1)
            if ((ledger_id, first, last),) not in whole:
                yield replace(part, first=first, last=last)
            at = last + 1
        yield from _cut(part, at, end)


def _cut(part: Range, first: int, last: int) -> Iterator[Range]:
    size = _entries_a_file(part.ledger)
    for at in range(first, last + 1, size):
        yield replace(part, first=at, last=min(at + size - 1, last))


def _entries_a_file(ledger: Ledger) -> int:
    return max(1, min(ENTRIES_A_FILE, int(BYTES_A_FILE / max(1.0, ledger.entry_size))))


def _latest(
    store: Store,
    source: EntrySource,
    choice: Choice,
    parts: list[Range],
    file: str,
    manifest: Manifest,
    report: Report,
) -> Piece | None:
    """The whole topic as one piece; None if it was already exported up to its current end."""
    older = [
        Range(ledger, 0, (source.last_entry(ledger.ledger_id) or 0), choice.segment)
        for ledger in with_bookkeeper(
            store, compacted_ledgers(store, source, TopicName.parse(choice.name)), report
        )
        if source.last_entry(ledger.ledger_id) is not None
    ]
    piece = Piece(choice.name, (*older, *parts), file)
    known = manifest.of_topic(choice.name)
    same = (done for done in known if done.ranges == piece.ranges and done.whole)
    return None if any(map(manifest.is_there, same)) or not piece.parts else piece


def _file_name(part: Range) -> str:
    return f"{part.ledger.ledger_id}-{part.first}-{part.last}"


_COLUMNS: Final = ("ledger_id", "entry_id", "batch_index", "key", "payload", "error")


def latest_positions(reader: MessageReader, parts: Iterable[Range]) -> frozenset[tuple[int, int, int]]:
    """Find the positions (ledger, entry, batch index or -1) of the latest message of each key.

    `parts` are in reading order. An unreadable message has no key, and deletes none.
    """
    options = replace(reader.options, columns=_COLUMNS, where=None, from_index=None)
    first = replace(reader, options=options, counts=MessageCounts())
    latest: dict[str, tuple[int, int, int]] = {}
    for part in parts:
        for batch in first.read(part):
            columns = (batch.column(name).to_pylist() for name in _COLUMNS)
            for ledger_id, entry_id, batch_index, key, payload, error in zip(*columns, strict=True):
                if key is None:
                    continue
                if payload or error is not None:
                    latest[key] = (ledger_id, entry_id, -1 if batch_index is None else batch_index)
                else:
                    latest.pop(key, None)
    return frozenset(latest.values())


# Exports pieces and yields the results in order.
Exporter = Callable[[Sequence[Piece]], Iterator["Exported"]]


@dataclass(frozen=True, slots=True)
class ExportJob:
    """The directory and format of the files, and the messages to export. It can be pickled."""

    directory: str
    form: Form
    options: MessageOptions
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported piece, and the counts of its messages."""

    done: Done
    counts: MessageCounts


def export_piece(job: ExportJob, store: Store | None, source: EntrySource, piece: Piece) -> Exported:
    """Read a piece and write its file. Raises UnreachableError from the sources, or if writing fails."""
    reader = reader_of(store, source, piece.topic, job.options, piece.transactions)
    if job.compacted:
        reader = replace(reader, options=replace(job.options, latest=latest_positions(reader, piece.parts)))
    batches = (batch for part in piece.parts for batch in reader.read(part))
    written = write_file(Path(job.directory) / piece.file, job.form, batches)
    counts = reader.counts
    done = Done(
        topic=piece.topic,
        ranges=piece.ranges,
        rows=counts.rows if written else 0,
        whole=counts.whole,
        scalable_topic=piece.scalable_topic,
        counts=counts.document(),
        errors=tuple(counts.first_errors),
    )
    if written is not None:
        done = replace(done, file=piece.file, sha256=written[0], size=written[1])
    return Exported(done, counts)


def export_here(job: ExportJob, store: Store, source: EntrySource) -> Exporter:
    """Make the exporter that reads `source` in this process."""

    def export(pieces: Sequence[Piece]) -> Iterator[Exported]:
        return (export_piece(job, store, source, piece) for piece in pieces)

    return export


def export_by_processes(
    job: ExportJob, sources: Sources, store: Store, source: EntrySource, jobs: int
) -> Exporter:
    """Make the exporter that reads `sources` in several processes. `source` is the same, opened here."""

    def here(piece: Piece) -> Exported:
        return export_piece(job, store, source, piece)

    def export(pieces: Sequence[Piece]) -> Iterator[Exported]:
        work = partial(export_opened, job)
        shared = SharedWork(jobs, sources.opened, source, work, here, lambda piece: piece.cost)
        return (exported for _, exported in shared.run(pieces))

    return export


def export_opened(job: ExportJob, opened: Opened, piece: Piece) -> Exported:
    """Export one piece in another process, which has opened the store and the entries."""
    return export_piece(job, opened.store, opened.entries, piece)


def run_export(pieces: Sequence[Piece], export: Exporter, manifest: Manifest) -> Iterator[Exported]:
    """Yield the result of each piece after adding it to the manifest."""
    for exported in export(pieces):
        manifest.add(exported.done)
        yield exported


def counts_of(pieces: Iterable[Done]) -> MessageCounts:
    """Read the counts of exported pieces from the manifest."""
    counts = MessageCounts()
    for piece in pieces:
        counts.merge(MessageCounts(**piece.counts, first_errors=list(piece.errors)))
    return counts

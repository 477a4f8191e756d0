"""Export the pieces of a plan. Each becomes a file, and then a line of the manifest.

With compaction, only the latest message of each key is exported. A message without payload deletes its key,
and messages without a key are dropped (PIP-318, Pulsar 3.2 and later).

Source: apache/pulsar AbstractTwoPhaseCompactor.java (phaseOne), PIP-14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Range
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.export.files import Form, write_file
from pulsar_meta.jobs.export.manifest import Done, Manifest
from pulsar_meta.jobs.export.plan import Piece
from pulsar_meta.jobs.messages.counts import MessageCounts
from pulsar_meta.jobs.messages.reading import MessageOptions, MessageReader
from pulsar_meta.jobs.messages.stream import reader_of
from pulsar_meta.jobs.pool import SharedWork
from pulsar_meta.stores.base import Store

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
        work = partial(export_in_process, job)
        shared = SharedWork(jobs, sources.opened, source, work, here, lambda piece: piece.cost)
        return (exported for _, exported in shared.run(pieces))

    return export


def export_in_process(job: ExportJob, opened: Opened, piece: Piece) -> Exported:
    """Export one piece in another process."""
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

"""Topics exported by several processes: a piece, which is a file, a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.export.plan import Piece
from pulsar_meta.jobs.export.run import Exported, Exporter, ExportJob, export_piece
from pulsar_meta.jobs.processes.messages import Write
from pulsar_meta.jobs.processes.pool import Pool, Shared
from pulsar_meta.stores.base import Store


def export_by_processes(
    job: ExportJob, sources: Sources, store: Store, source: EntrySource, jobs: int
) -> Exporter:
    """Return the exporter that has so many processes write files; `sources` are open here, too."""

    def here(piece: Piece, write: Write) -> Exported:
        return export_piece(job, store, source, piece)

    def export(pieces: Sequence[Piece]) -> Iterator[Exported]:
        with Pool() as pool:
            shared = Shared(jobs, sources, source, partial(export_one, job), here, _entries)
            yield from (exported for _, exported in pool.run(pieces, shared))

    return export


def _entries(piece: Piece) -> int:
    """Return how many entries a piece has at most."""
    return sum(last - first + 1 for _, first, last in piece.ranges)


def export_one(job: ExportJob, opened: Opened, piece: Piece, write: Write) -> Exported:
    """Export one piece."""
    return export_piece(job, opened.store, opened.entries, piece)

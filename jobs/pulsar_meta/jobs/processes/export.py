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
            work = partial(export_one, job)
            shared = Shared(jobs, sources, source, work, here, lambda piece: piece.cost)
            yield from (exported for _, exported in pool.run(pieces, shared))

    return export


def export_one(job: ExportJob, opened: Opened, piece: Piece, write: Write) -> Exported:
    """Export one piece."""
    return export_piece(job, opened.store, opened.entries, piece)

"""Topics exported by Spark: a piece, which is a file, a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.export.plan import Piece
from pulsar_meta.jobs.export.run import Exported, Exporter, ExportJob, export_piece
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import LEDGER_COST, Task, map_on_workers

# What a kill may lose.
JOB_SECONDS: Final = 60.0


def export_with_spark(job: ExportJob, sources: Sources, spark: SparkSettings) -> Exporter:
    """Return the exporter that sends pieces to Spark, whose workers write the files.

    It raises what opening the entries raises, and UnreachableError where Spark does not start.
    """

    def export(pieces: Sequence[Piece]) -> Iterator[Exported]:
        if not pieces:
            return
        tasks = [Task(sources, piece, LEDGER_COST + piece.cost) for piece in pieces]
        with spark_session(spark) as session:
            # Some at a time: what is killed goes on from there.
            work = partial(export_one, job)
            yield from map_on_workers(session, tasks, work, spark, streaming=True, job_seconds=JOB_SECONDS)

    return export


def export_one(job: ExportJob, opened: Opened, piece: Piece) -> Exported:
    """Export one piece."""
    return export_piece(job, opened.store, opened.entries, piece)

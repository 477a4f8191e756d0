"""Write entries in blocks, with one or several processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from pulsar_meta.cli.outputs import atomic_file, sibling_path
from pulsar_meta.cli.render.entries import parquet_row
from pulsar_meta.cli.render.entry_forms import Output, Rendering, frames
from pulsar_meta.cli.render.parquet import Columns
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_blocks import Patience, PresentBlock
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe
from pulsar_meta.jobs.entries.entry_portions import Portion, Portions, entries_of
from pulsar_meta.jobs.entries.entry_reading import Readable
from pulsar_meta.jobs.entries.entry_sources import Sources
from pulsar_meta.jobs.pool import SharedWork
from pulsar_meta.jobs.topics.topic import Report


def write_portions(
    shell: Shell, portions: Portions, look: DumpOptions, jobs: int, sources: Sources, source: EntrySource
) -> None:
    """Write entries in blocks, with several processes."""
    index = FrameIndex.of(shell) if shell.format is Format.RAW else FrameIndex(None)
    with shell.bytes_out() as out, TemporaryDirectory() as directory:
        rendering = Rendering(
            shell.format, look, directory, noted=index.path is not None, header=shell.has_header
        )
        heading, patience = [rendering.heading], Patience()

        def headed(*data: Buffer) -> None:
            out.writelines([*islice(heading, 1), *data])
            heading.clear()

        def here(portion: Portion) -> Output:
            return Output(rendering.write(source, portion, headed, patience), b"")

        shared = SharedWork(jobs, sources.opened, source, rendering, here, entries_of, at_once=True)
        for portion, output in shared.run(portions):
            if output.data:
                headed()
            output.write(out)
            portions.account(output.ranges)
            headed()
            for (part, _), entries in zip(portion, output.ranges, strict=True):
                index.note(part.ledger.ledger_id, entries.entry_ids)
    index.write()


def write_frames(shell: Shell, entries: Iterator[PresentBlock | Readable]) -> None:
    """Write entries in the format of `frames:`, and FILE.idx if the output is a file."""
    index = FrameIndex.of(shell)
    shell.emit_bytes(frames(entries, index.note))
    index.write()


def as_columns(
    entries: Iterator[PresentBlock | Readable], look: DumpOptions, report: Report
) -> Iterator[Document | Columns]:
    """Yield blocks as columns, and other entries as rows."""
    for item in entries:
        if isinstance(item, PresentBlock):
            from pulsar_meta.cli.render import entry_blocks

            for part in entry_blocks.columns(item):
                yield part if isinstance(part, Columns) else parquet_row(describe(*part, look, report))
        else:
            yield parquet_row(describe(*item, look, report))


@dataclass(slots=True)
class FrameIndex:
    """FILE.idx, with the position of each frame in FILE. `path` is None if the output is not a file."""

    path: Path | None
    lines: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, shell: Shell) -> FrameIndex:
        """Return the index file of the output."""
        return cls(None if shell.output is None else sibling_path(shell.output, ".idx"))

    def note(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Add the next frames."""
        if self.path is not None:
            self.lines += (f'{{"ledger": {ledger_id}, "entry": {entry_id}}}\n' for entry_id in entry_ids)

    def write(self) -> None:
        """Write the file."""
        if self.path is not None:
            with atomic_file(self.path, "w") as out:
                out.writelines(self.lines)

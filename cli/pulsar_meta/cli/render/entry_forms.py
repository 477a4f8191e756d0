"""Render blocks of entries as text or bytes, in this process or others."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import RawIOBase, TextIOWrapper
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, cast

from pulsar_meta.access.processes import portable
from pulsar_meta.cli.render.entries import each_message, entry_view, message_view
from pulsar_meta.cli.render.tables import (
    Format,
    Lines,
    View,
    csv_heading,
    plain_heading,
    write_csv,
    write_ndjson,
    write_plain,
)
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_blocks import Frames, Patience, PresentBlock, frames_of, read_present
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe
from pulsar_meta.jobs.entries.entry_reading import DataEntry, Portion, Readable, ReadRange, presence_in
from pulsar_meta.jobs.entries.entry_sources import Opened
from pulsar_meta.jobs.topics.topic import Report

# Forms that are rendered column by column, thousands of entries at a time.
IN_BLOCKS: Final = (Format.PLAIN, Format.CSV, Format.NDJSON)
# Receives the bytes of the output in order.
Write = Callable[[Buffer], object]
# Output of a portion up to this size is sent between processes. More goes through a file, which needs fewer
# copies.
OUTPUT_BYTES: Final = 1 << 20
# Receives a ledger id and entry ids of that ledger.
Note = Callable[[int, Iterable[int]], None]


def view_of(look: DumpOptions) -> View:
    """Return the view of messages if the payloads are opened, else of entries."""
    return message_view() if look.deep else entry_view()


def in_blocks(
    entries: Iterator[PresentBlock | Readable], form: Format, look: DumpOptions, report: Report
) -> Iterator[Document | Lines]:
    """Yield blocks as text, and other entries as documents (one per message, except for NDJSON)."""

    def described(entry: Readable) -> Iterator[Document]:
        document = describe(*entry, look, report)
        return each_message([document]) if look.deep and form is not Format.NDJSON else iter([document])

    for entry in entries:
        if not isinstance(entry, PresentBlock):
            yield from described(entry)
            continue
        if look.deep and entry.presence.ledger.format.snapshot is not None:
            yield from chain.from_iterable(map(described, entry.entries()))
            continue
        from pulsar_meta.cli.render import entry_blocks

        for part in entry_blocks.rendered(entry, _lines_of(form, look)):
            yield from [part] if isinstance(part, Lines) else described(part)


def _lines_of(form: Format, look: DumpOptions) -> Callable[[PresentBlock], Iterator[Any]]:
    """Return the function that renders a block as lines."""
    from pulsar_meta.cli.render import entry_blocks, message_blocks

    if not look.deep:
        return {
            Format.PLAIN: entry_blocks.plain_lines,
            Format.CSV: entry_blocks.csv_lines,
            Format.NDJSON: entry_blocks.json_lines,
        }[form]
    renderer = {
        Format.PLAIN: message_blocks.plain_messages,
        Format.CSV: message_blocks.csv_messages,
        Format.NDJSON: message_blocks.json_messages,
    }[form]
    return lambda block: renderer(block, look.max_size)


def frames(entries: Iterator[PresentBlock | Readable], note: Note) -> Iterator[Buffer]:
    """Yield entries in the form that `frames:` reads, and pass their ids to `note`."""

    def alone(entry: DataEntry) -> Iterator[Buffer]:
        note(entry.ledger_id, [entry.entry_id])
        yield len(entry.data).to_bytes(4, "big")
        yield entry.data

    for entry in entries:
        if not isinstance(entry, PresentBlock):
            yield from alone(entry[0])
            continue
        for piece in frames_of(entry):
            if isinstance(piece, Frames):
                note(entry.block.ledger_id, piece.entry_ids.tolist())
                yield piece.data
            else:
                yield from alone(piece[0])


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a portion: its first bytes, and a file with the rest if it is large."""

    ranges: list[ReadRange]
    data: bytes
    file: Path | None = None

    def write(self, out: IO[bytes]) -> None:
        """Write the output, and remove the file."""
        out.write(self.data)
        if self.file is not None:
            with self.file.open("rb") as rest:
                shutil.copyfileobj(rest, out, OUTPUT_BYTES)
            self.file.unlink()


@dataclass(frozen=True, slots=True)
class Rendering:
    """Renders portions of entries in a form, without a heading; large output goes to files in `directory`.

    If `noted` is set, the result has the ids of the entries that are written as frames. If `header` is set,
    the heading has the names of the columns for the plain form.
    """

    form: Format
    look: DumpOptions
    directory: str
    noted: bool = False
    header: bool = False

    @property
    def heading(self) -> bytes:
        """The bytes before the first portion."""
        if self.form is Format.CSV:
            return csv_heading(view_of(self.look)).encode()
        return plain_heading(view_of(self.look)).encode() if self.header else b""

    def __call__(self, opened: Opened, portion: Portion) -> Output:
        """Render a portion in another process."""
        pieces: list[bytes] = []
        size = 0
        with ExitStack() as stack:
            rest: IO[bytes] | None = None

            def write(data: Buffer) -> None:
                nonlocal rest, size
                size += memoryview(data).nbytes
                if rest is None and size > OUTPUT_BYTES:
                    made = NamedTemporaryFile(dir=self.directory, delete=False)  # noqa: SIM115
                    rest = stack.enter_context(made)
                if rest is None:
                    pieces.append(bytes(data))
                else:
                    rest.write(data)

            ranges = self.write(opened.entries, portion, write, Patience(0))
            return Output(ranges, b"".join(pieces), None if rest is None else Path(rest.name))

    def write(
        self, source: EntrySource, portion: Portion, write: Write, patience: Patience
    ) -> list[ReadRange]:
        """Write a portion; returns the results of its ranges, up to the first result with an error."""
        ranges: list[ReadRange] = []
        for part, ledger in portion:
            ranges.append(result := ReadRange())
            presence = presence_in(part, ledger, source, result.faults.append)
            try:
                self._write(read_present(presence, patience, with_headers=self._is_text), result, write)
            except Exception as error:  # noqa: BLE001 - raised once earlier faults are reported
                result.error = portable(error)
            result.held, result.expected = presence.held, presence.expected
            if result.error is not None:
                break
        return ranges

    @property
    def _is_text(self) -> bool:
        return self.form is not Format.RAW

    def _write(self, entries: Iterator[PresentBlock | Readable], result: ReadRange, write: Write) -> None:
        if not self._is_text:

            def note(ledger_id: int, entry_ids: Iterable[int]) -> None:
                if self.noted:
                    result.entry_ids += entry_ids

            for data in frames(entries, note):
                write(data)
            return
        with _as_text(write) as out:
            parts = in_blocks(entries, self.form, self.look, result.faults.append)
            match self.form:
                case Format.NDJSON:
                    write_ndjson(parts, out)
                case Format.CSV:
                    write_csv(parts, out, view_of(self.look), heading=False)
                case _:
                    write_plain(parts, out, view_of(self.look))


def _as_text(write: Write) -> IO[str]:
    """Return a text stream that writes to `write`."""
    return TextIOWrapper(cast("Any", _Bytes(write)), "utf-8", "backslashreplace")


class _Bytes(RawIOBase):
    """A stream that passes its bytes to a function."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._write(bytes(data))
        return len(data)

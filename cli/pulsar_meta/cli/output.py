"""How documents become text: one JSON form, one line form for pipes, one table for eyes."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import dumps

if TYPE_CHECKING:
    from rich.table import Table

Document = dict[str, Any]


class Format(StrEnum):
    """The forms that `-o` takes. Without it: a table on a terminal, plain lines in a pipe."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    PLAIN = "plain"
    RAW = "raw"
    CSV = "csv"
    PARQUET = "parquet"
    HTML = "html"


@dataclass(frozen=True, slots=True)
class View:
    """Documents as rows: the columns' names, and a document's cells in that order.

    `types` are Arrow's, by field of the document; without them there is no Parquet.
    """

    columns: Sequence[str]
    row: Callable[[Document], Sequence[str]]
    right: frozenset[str] = frozenset()
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Detail:
    """Documents as paragraphs: the lines in which a person reads one of them, or a whole HTML page."""

    lines: Callable[[Document], Iterable[str]]
    page: Callable[[Document], str] | None = None


def write_json(documents: Iterable[Document], out: IO[str], *, single: bool) -> None:
    """Write one document (`single`) or a list, streaming; an error midway leaves a valid list."""
    if single:
        for document in documents:
            out.write(dumps(document) + "\n")
        return
    separator = "["
    try:
        for document in documents:
            out.write(separator + dumps(document))
            separator = ",\n "
    finally:
        with suppress(BrokenPipeError):
            out.write("]\n" if separator != "[" else "[]\n")


def write_ndjson(documents: Iterable[Document], out: IO[str]) -> None:
    """Write a document a line."""
    for document in documents:
        out.write(dumps(document) + "\n")


# Control characters as escapes: bytes of others shall not steer a terminal.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_IN_A_CELL = str.maketrans(_CONTROLS | {9: "\\t", 10: "\\n", 13: "\\r", 92: "\\\\"})
_IN_A_LINE = str.maketrans({code: text for code, text in _CONTROLS.items() if code not in (9, 10)})


def one_line(cell: str) -> str:
    """Return `cell` without the characters that would break a line or a column, or steer a terminal."""
    return cell if cell.isprintable() and "\\" not in cell else cell.translate(_IN_A_CELL)


def harmless(text: str) -> str:
    """Return `text` with every control character but tabs and line ends as an escape."""
    return text if text.isprintable() else text.translate(_IN_A_LINE)


def write_plain(documents: Iterable[Document], out: IO[str], view: View | Detail) -> None:
    """Write a line a row, cells separated by tabs, no heading; or the lines of a detail."""
    for document in documents:
        if isinstance(view, View):
            out.write("\t".join(one_line(cell) for cell in view.row(document)) + "\n")
        else:
            out.writelines(harmless(line) + "\n" for line in view.lines(document))


def write_csv(documents: Iterable[Document], out: IO[str], view: View | Detail) -> None:
    """Write RFC 4180 rows under a heading."""
    if not isinstance(view, View):
        raise UsageError("these values have no columns: choose -o json, ndjson or plain")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(view.columns)
    writer.writerows(view.row(document) for document in documents)


def write_table(documents: Iterable[Document], out: IO[str], view: View | Detail) -> None:
    """Draw a table as wide as the terminal; ids are folded, never cut."""
    if isinstance(view, Detail):
        write_plain(documents, out, view)
        return
    from rich.console import Console

    # A terminal decides about colour; a file that was asked for as a table is wide enough for its rows.
    console = Console(file=out, width=None if out.isatty() else 200, highlight=False, soft_wrap=False)
    console.print(_table(documents, view))


def _table(documents: Iterable[Document], view: View) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in view.columns:
        table.add_column(column, justify="right" if column in view.right else "left", overflow="fold")
    for document in documents:
        table.add_row(*(escape(harmless(cell)) for cell in view.row(document)))
    return table


@contextmanager
def whole_file(path: Path, mode: str) -> Iterator[IO[Any]]:
    """Open `path` for writing so that it appears whole or not at all; until then an old file stays."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(partial, mode, encoding=None if "b" in mode else "utf-8") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror or error}", source=str(path)) from error
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def stdout_bytes(*, force: bool) -> IO[bytes]:
    """Return stdout for raw bytes; UsageError on a terminal, which bytes would leave unusable."""
    if sys.stdout.isatty() and not force:
        raise UsageError("raw bytes would garble the terminal: redirect them, use --output FILE, or --force")
    return sys.stdout.buffer

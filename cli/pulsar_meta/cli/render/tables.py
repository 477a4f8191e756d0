"""How documents become text: one JSON form, one line form for pipes, one table for eyes."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from textwrap import wrap
from typing import IO, Any, Final

from pulsar_meta.cli.render.pages import Section, table
from pulsar_meta.cli.render.text import (
    IN_JSON,
    cell_width,
    folded,
    harmless,
    in_a_cell,
    is_time,
    json_line,
    one_line,
)
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import LITERALS, Document, Style

# What a cell has where there is nothing to show.
NOTHING = ("", "-")
# In a table on a terminal columns are made no narrower than this; those of names, times and texts a bit more.
WORD_WIDTH: Final = 24
HOUR_WIDTH: Final = 13
NAME_WIDTH: Final = 16
TEXT_WIDTH: Final = 12
GAP: Final = "  "
_INDENTED: Final = Style(indent="  ")


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
    OPENMETRICS = "openmetrics"


@dataclass(frozen=True, slots=True)
class View:
    """Documents as rows.

    For eyes and for plain lines: the headings, and a document's cells in that order. `fields` are the columns
    of CSV: names of JSON fields, those within another as `outer.inner`. `types` are Arrow's, by field of the
    document; without them there is no Parquet. A table leaves columns that are `rare` out where all are 0.
    `title` is that of a page of HTML; without it there is none. There a column that `bars` names has a bar
    beside it, as long as the number in that field.
    """

    columns: Sequence[str]
    row: Callable[[Any], Sequence[str]]
    right: frozenset[str] = frozenset()
    types: Mapping[str, str] = field(default_factory=dict)
    fields: Sequence[str] = ()
    rare: frozenset[str] = frozenset()
    title: str = ""
    bars: Mapping[str, str] = field(default_factory=dict)

    def sections(self, documents: Iterable[Document]) -> Iterator[Section]:
        """Yield the documents as one table of a page."""
        shown = list(documents)
        bars = {name: [document.get(field) for document in shown] for name, field in self.bars.items()}
        yield table(self.columns, [self.row(one) for one in shown], right=self.right, bars=bars)


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a view that are text already, in the form that was asked for: plain, CSV or NDJSON."""

    text: str


@dataclass(frozen=True, slots=True)
class Detail:
    """Documents as paragraphs: the lines in which a person reads one of them.

    `fields` are the columns of CSV, `title` is that of a page, as in a View; there `drawing` yields what
    stands below the lines of a document.
    """

    lines: Callable[[Any], Iterable[str]]
    fields: Sequence[str] = ()
    title: str = ""
    drawing: Callable[[Any], Iterable[Section]] = lambda document: ()

    def sections(self, documents: Iterable[Document]) -> Iterator[Section]:
        """Yield the sections of a page: each document's lines, then its drawing."""
        for document in documents:
            yield Section(lines=list(self.lines(document)))
            yield from self.drawing(document)


def write_json(documents: Iterable[Document | Lines], out: IO[str], *, single: bool) -> None:
    """Write one document (`single`) or a list, streaming; an error midway leaves a valid list.

    On a terminal it is indented.
    """
    text = _indented if out.isatty() else _in_a_line
    if single:
        for document in documents:
            out.write(text(document) + "\n")
        return
    separator = "["
    try:
        for document in documents:
            out.write(separator + text(document).replace("\n", "\n "))
            separator = ",\n "
    finally:
        with suppress(BrokenPipeError):
            out.write("]\n" if separator != "[" else "[]\n")


def _in_a_line(document: Document | Lines) -> str:
    return document.text.removesuffix("\n") if isinstance(document, Lines) else json_line(document)


def _indented(document: Document | Lines) -> str:
    return harmless(_INDENTED.text(LITERALS.decode(_in_a_line(document))), IN_JSON)


def write_ndjson(documents: Iterable[Document | Lines], out: IO[str]) -> None:
    """Write a document a line."""
    for document in documents:
        out.write(document.text if isinstance(document, Lines) else json_line(document) + "\n")


def write_plain(documents: Iterable[Document | Lines], out: IO[str], view: View | Detail) -> None:
    """Write a line a row, cells separated by tabs, no heading; or the lines of a detail."""
    for document in documents:
        if isinstance(document, Lines):
            out.write(document.text)
        elif isinstance(view, View):
            out.write("\t".join(one_line(cell) or "-" for cell in view.row(document)) + "\n")
        else:
            out.writelines(harmless(line) + "\n" for line in view.lines(document))


def csv_heading(view: View | Detail) -> str:
    """Return the first line of CSV; UsageError where there are no columns."""
    if not view.fields:
        raise UsageError("these values have no columns: choose -o json, ndjson or plain")
    # Names of JSON's fields have nothing that is quoted.
    return ",".join(view.fields) + "\n"


def write_csv(
    documents: Iterable[Document | Lines], out: IO[str], view: View | Detail, *, heading: bool = True
) -> None:
    """Write RFC 4180 rows under the names of JSON's fields, nothing where a document lacks one.

    Objects and lists are JSON. To a terminal, what would steer it is written as escapes. `heading`: False
    for rows that go on below those of another call.
    """
    names = csv_heading(view) if heading else ""
    rows = (
        document if isinstance(document, Lines) else [_csv_cell(document, name) for name in view.fields]
        for document in documents
    )
    # What the first row costs is waited for before the heading stands there.
    first = list(islice(rows, 1))
    writer = csv.writer(out, lineterminator="\n")
    out.write(names)
    for row in chain(first, rows):
        if isinstance(row, Lines):
            out.write(row.text)
        else:
            writer.writerow([harmless(cell) for cell in row] if out.isatty() else row)


def _csv_cell(document: Document, name: str) -> str:
    value: Any = document
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return ""
    return value if isinstance(value, str) else json_line(value)


def write_table(documents: Iterable[Document], out: IO[str], view: View | Detail) -> None:
    """Draw a table for eyes, without columns that are empty in every row.

    On a terminal that it is too wide for, headings, texts and times are folded and the middle of long
    names is left out; where that is not enough, each row becomes a paragraph, with nothing left out.
    """
    if isinstance(view, Detail):
        write_plain(documents, out, view)
        return
    out.writelines(line + "\n" for line in table_lines(documents, view, width_of(out)))


def width_of(out: IO[str]) -> int | None:
    """Return how many columns lines may have: None where no terminal shows them."""
    return shutil.get_terminal_size().columns - 1 if out.isatty() else None


def table_lines(documents: Iterable[Document], view: View, width: int | None) -> Iterator[str]:
    """Yield the lines of a table, or of a paragraph for each row where it cannot be made that narrow."""
    rows = [[in_a_cell(cell) for cell in view.row(document)] for document in documents]
    shown = [
        at for at in range(len(view.columns)) if not rows or any(_says(row[at], view, at) for row in rows)
    ]
    columns = [_Column(view.columns[at], [row[at] for row in rows], view) for at in shown]
    if fit(columns, width):
        yield from map(str.rstrip, _drawn(columns))
        return
    for number, row in enumerate(rows):
        yield from ("",) * (number > 0)
        yield from _paragraph(row, view, shown, width)


def _says(cell: str, view: View, at: int) -> bool:
    return cell not in NOTHING and not (cell == "0" and view.columns[at] in view.rare)


class _Column:
    """A column on its way to a terminal: its heading, its cells, and how wide it is to be."""

    def __init__(self, name: str, cells: Sequence[str], view: View) -> None:
        self.name = name
        self.cells = cells
        self.right = name in view.right
        self.natural = max((cell_width(cell) for cell in cells), default=0)
        self.width = max(self.natural, cell_width(name))
        self.least = min(map(_least_width, cells), default=WORD_WIDTH)

    def fold_heading(self) -> None:
        """Be no wider than the cells and each word of the heading ask for."""
        self.width = max([self.natural, *map(cell_width, self.name.split())])

    def fold_times(self) -> None:
        """Be as narrow as an hour, where the cells are times."""
        if all(is_time(cell) or cell in NOTHING for cell in self.cells):
            self.least = HOUR_WIDTH

    def lines(self, text: str) -> list[str]:
        """Return the lines of a cell, each as wide as the column."""
        return [
            " " * (self.width - cell_width(line)) + line
            if self.right
            else line + " " * (self.width - cell_width(line))
            for line in folded(text, self.width)
        ]


def _least_width(cell: str) -> int:
    """Return how narrow a column with this cell may become: text is folded, names are shortened."""
    return TEXT_WIDTH if " " in cell else NAME_WIDTH if "/" in cell else WORD_WIDTH


def fit(columns: Sequence[_Column], width: int | None) -> bool:
    """Make columns narrower until they fit a `width` (None: any will do); False where they cannot."""
    if width is None or _together(columns) <= width:
        return True
    for column in columns:
        column.fold_heading()
    if _narrow(columns, width):
        return True
    for column in columns:
        column.fold_times()
    return _narrow(columns, width)


def _narrow(columns: Sequence[_Column], width: int) -> bool:
    while (over := _together(columns) - width) > 0:
        flexible = [column for column in columns if column.width > column.least]
        if not flexible:
            return False
        widest, *others = sorted(flexible, key=lambda column: -column.width)
        next_width = others[0].width if others else 0
        widest.width = max(widest.least, widest.width - over, min(next_width, widest.width - 1))
    return True


def _together(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _drawn(columns: Sequence[_Column]) -> Iterator[str]:
    yield from _row_lines([column.lines(column.name) for column in columns], columns)
    yield GAP.join("─" * column.width for column in columns)
    for row in zip(*(column.cells for column in columns), strict=True):
        cells = [column.lines(cell) for column, cell in zip(columns, row, strict=True)]
        yield from _row_lines(cells, columns)


def _row_lines(cells: Sequence[list[str]], columns: Sequence[_Column]) -> Iterator[str]:
    blank = [[" " * column.width] for column in columns]
    for at in range(max(map(len, cells), default=0)):
        yield GAP.join((lines[at:] or empty)[0] for lines, empty in zip(cells, blank, strict=True))


def _paragraph(row: Sequence[str], view: View, shown: Sequence[int], width: int | None) -> Iterator[str]:
    margin = max(len(view.columns[at]) for at in shown)
    room = max(TEXT_WIDTH, (width or 0) - margin - len(GAP))
    for at in shown:
        if row[at].strip() not in NOTHING:
            first, *others = wrap(row[at], room, break_long_words=False, break_on_hyphens=False)
            yield f"{view.columns[at]:>{margin}}{GAP}{first}"
            yield from (" " * margin + GAP + line for line in others)

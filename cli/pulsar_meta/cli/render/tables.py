"""Documents as text: JSON, CSV, lines for pipes or by a user's template, and tables for people."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from string import Formatter
from textwrap import wrap
from typing import IO, TYPE_CHECKING, Any, Final

from pulsar_meta.cli.render.text import (
    IN_JSON,
    Screen,
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

if TYPE_CHECKING:
    from pulsar_meta.cli.render.pages import Section

# Cells without content; the last one is the codecs of a value that is not compressed before and after.
NOTHING = ("", "-", "- -> -")
# Columns of a table on a terminal are not made narrower than this.
WORD_WIDTH: Final = 24
HOUR_WIDTH: Final = 13
NAME_WIDTH: Final = 16
TEXT_WIDTH: Final = 12
GAP: Final = "  "
_INDENTED: Final = Style(indent="  ")
# Returns the lines of a document for a terminal.
Block = Callable[[Any, Screen], Iterable[str]]


class Format(StrEnum):
    """The values of `-o`. By default a terminal gets a table, and a pipe gets plain lines."""

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

    Tables and plain lines have `columns` and the cells of `row`, in the same order; columns in `right` are
    aligned right. A table omits a column in `rare` if all its cells are 0. `fields` are the columns of CSV:
    names of JSON fields, nested ones as `outer.inner`. `types` are the Arrow types by field, needed for
    Parquet. `title` is the title of the HTML page, needed for HTML. If there is a `block`, a terminal shows
    it instead of a table. `bars` maps columns to the fields that are drawn next to them.
    """

    columns: Sequence[str]
    row: Callable[[Any], Sequence[str]]
    right: frozenset[str] = frozenset()
    types: Mapping[str, str] = field(default_factory=dict)
    fields: Sequence[str] = ()
    rare: frozenset[str] = frozenset()
    title: str = ""
    bars: Mapping[str, str] = field(default_factory=dict)
    block: Block | None = None

    def sections(self, documents: Iterable[Document]) -> Iterator[Section]:
        """Yield the documents as one table of an HTML page."""
        shown = list(documents)
        bars = {name: [document.get(field) for document in shown] for name, field in self.bars.items()}
        rows = [list(self.row(document)) for document in shown]
        for at, name in enumerate(self.columns):
            if not any(_has_text(row[at], self, at) for row in rows) and name in self.rare:
                for row in rows:
                    row[at] = ""
        from pulsar_meta.cli.render.pages import table

        yield table(self.columns, rows, right=self.right, bars=bars)


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a view that are already text in the requested form (plain, CSV or NDJSON)."""

    text: str


@dataclass(frozen=True, slots=True)
class Detail:
    """Documents as paragraphs.

    `lines` yields the text of a document, and `drawing` the sections below it on an HTML page. `fields` and
    `title` are those of a View.
    """

    lines: Callable[[Any], Iterable[str]]
    fields: Sequence[str] = ()
    title: str = ""
    drawing: Callable[[Any], Iterable[Section]] = lambda document: ()
    block: Block | None = None

    def sections(self, documents: Iterable[Document]) -> Iterator[Section]:
        """Yield the sections of an HTML page: each document's lines, then its drawing."""
        from pulsar_meta.cli.render.pages import Section

        for document in documents:
            yield Section(lines=list(self.lines(document)))
            yield from self.drawing(document)


def write_json(documents: Iterable[Document | Lines], out: IO[str], *, single: bool) -> None:
    """Write one document (`single`), or a list that stays valid if an error occurs midway.

    The JSON is indented on a terminal.
    """
    text = _indented if out.isatty() else _json_text
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


def _json_text(document: Document | Lines) -> str:
    return document.text.removesuffix("\n") if isinstance(document, Lines) else json_line(document)


def _indented(document: Document | Lines) -> str:
    return harmless(_INDENTED.text(LITERALS.decode(_json_text(document))), IN_JSON)


def write_ndjson(documents: Iterable[Document | Lines], out: IO[str]) -> None:
    """Write one document per line."""
    for document in documents:
        out.write(document.text if isinstance(document, Lines) else json_line(document) + "\n")


def plain_heading(view: View | Detail) -> str:
    """Return a line with the names of the columns. Raises UsageError if the view has no columns."""
    if isinstance(view, Detail):
        raise UsageError("--header needs columns, but this output is text: remove --header")
    return "\t".join(view.columns) + "\n"


def write_plain(
    documents: Iterable[Document | Lines], out: IO[str], view: View | Detail, *, header: bool = False
) -> None:
    """Write one line per row with tabs between cells, or the lines of a Detail.

    `header` writes the names of the columns first.
    """
    if header:
        out.write(plain_heading(view))
    for document in documents:
        if isinstance(document, Lines):
            out.write(document.text)
        elif isinstance(view, View):
            out.write("\t".join(one_line(cell) or "-" for cell in view.row(document)) + "\n")
        else:
            out.writelines(harmless(line) + "\n" for line in view.lines(document))


def csv_heading(view: View | Detail) -> str:
    """Return the first line of CSV. Raises UsageError if the view has no columns."""
    if not view.fields:
        raise UsageError("these values have no columns: choose -o json, ndjson or plain")
    # Names of JSON fields never need quotes.
    return ",".join(view.fields) + "\n"


def write_csv(
    documents: Iterable[Document | Lines], out: IO[str], view: View | Detail, *, heading: bool = True
) -> None:
    """Write RFC 4180 rows below the names of JSON fields; a cell is empty if the document lacks the field.

    Objects and lists are JSON. Characters that control a terminal are escaped on a terminal. Pass
    `heading=False` to continue the rows of an earlier call.
    """
    names = csv_heading(view) if heading else ""
    rows = (
        document if isinstance(document, Lines) else [_csv_cell(document, name) for name in view.fields]
        for document in documents
    )
    # Read the first row before the heading is written, so that an error leaves the output empty.
    first = list(islice(rows, 1))
    import csv

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
    """Draw a table without columns that are empty in every row.

    If a terminal is too narrow, headings, texts and times are folded and long names lose their middle. If
    that is not enough, or makes the table longer, each row becomes a paragraph with nothing left out. Without
    rows, nothing is written.
    """
    if view.block is not None:
        _write_blocks(documents, out, view.block)
        return
    if isinstance(view, Detail):
        write_plain(documents, out, view)
        return
    out.writelines(line + "\n" for line in table_lines(documents, view, width_of(out)))


def _write_blocks(documents: Iterable[Document], out: IO[str], block: Block) -> None:
    """Write each document as soon as it comes, with an empty line between documents."""
    screen, separator = Screen.of(out), ""
    for document in documents:
        out.write(separator + "\n".join(block(document, screen)) + "\n")
        separator = "\n"


def width_of(out: IO[str]) -> int | None:
    """Return the columns that lines may have; None if the output is not a terminal."""
    return shutil.get_terminal_size().columns - 1 if out.isatty() else None


def table_lines(documents: Iterable[Document], view: View, width: int | None) -> Iterator[str]:
    """Yield the lines of a table, or a paragraph for each row if that is shorter or no table fits `width`."""
    rows = [[in_a_cell(cell) for cell in view.row(document)] for document in documents]
    if not rows:
        return
    shown = [at for at in range(len(view.columns)) if any(_has_text(row[at], view, at) for row in rows)]
    columns = [_Column(view.columns[at], [row[at] for row in rows], view) for at in shown]
    drawn = [line.rstrip() for line in _drawn(columns)] if fit(columns, width) else None
    # A long text in a narrow column can need more lines than the paragraphs.
    if drawn is not None and len(drawn) <= 2 + len(rows) * (len(shown) + 1):
        yield from drawn
        return
    for number, row in enumerate(rows):
        yield from ("",) * (number > 0)
        yield from _paragraph(row, view, shown, width)


def _has_text(cell: str, view: View, at: int) -> bool:
    return cell not in NOTHING and not (cell == "0" and view.columns[at] in view.rare)


class _Column:
    """A column of a table on a terminal: its heading, cells, and width."""

    def __init__(self, name: str, cells: Sequence[str], view: View) -> None:
        self.name = name
        self.cells = cells
        self.right = name in view.right
        self.natural = max((cell_width(cell) for cell in cells), default=0)
        self.width = max(self.natural, cell_width(name))
        self.least = min(map(_least_width, cells), default=WORD_WIDTH)

    def fold_heading(self) -> None:
        """Shrink to the widest cell or word of the heading."""
        self.width = max([self.natural, *map(cell_width, self.name.split())])

    def fold_times(self) -> None:
        """Allow a column of times to become as narrow as the time of day."""
        if all(is_time(cell) or cell in NOTHING for cell in self.cells):
            self.least = HOUR_WIDTH

    def lines(self, text: str) -> list[str]:
        """Return the lines of a cell, each padded to the width of the column."""
        return [
            " " * (self.width - cell_width(line)) + line
            if self.right
            else line + " " * (self.width - cell_width(line))
            for line in folded(text, self.width)
        ]


def _least_width(cell: str) -> int:
    """Return the least width of a column with this cell; text can be folded, names can be shortened."""
    return TEXT_WIDTH if " " in cell else NAME_WIDTH if "/" in cell else WORD_WIDTH


def fit(columns: Sequence[_Column], width: int | None) -> bool:
    """Make columns narrower until they fit `width` (None if unlimited); returns False if they can't."""
    if width is None or _total_width(columns) <= width:
        return True
    for column in columns:
        column.fold_heading()
    if _narrow(columns, width):
        return True
    for column in columns:
        column.fold_times()
    return _narrow(columns, width)


def _narrow(columns: Sequence[_Column], width: int) -> bool:
    while (over := _total_width(columns) - width) > 0:
        flexible = [column for column in columns if column.width > column.least]
        if not flexible:
            return False
        widest, *others = sorted(flexible, key=lambda column: -column.width)
        next_width = others[0].width if others else 0
        widest.width = max(widest.least, widest.width - over, min(next_width, widest.width - 1))
    return True


def _total_width(columns: Sequence[_Column]) -> int:
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


NO_VALUE: Final = "-"
_ESCAPES: Final = {"t": "\t", "n": "\n", "\\": "\\"}
# Values for testing a template, by type; other types are numbers.
_EXAMPLES: Final[Mapping[str, object]] = {"string": "", "bool": True}


@dataclass(frozen=True, slots=True)
class Template:
    """A template, and the names of the fields in it."""

    text: str
    fields: frozenset[str]

    def line(self, document: Document) -> str:
        """Format a document as a line; `-` if it lacks a field of the template."""
        if any(name not in document for name in self.fields):
            return NO_VALUE
        values = {name: document[name] for name in self.fields}
        return self.text.format(
            **{name: one_line(value) if isinstance(value, str) else value for name, value in values.items()}
        )

    def view(self) -> Detail:
        """Return a view that formats documents by this template."""
        return Detail(self._lines)

    def _lines(self, document: Document) -> Iterator[str]:
        yield self.line(document)


def parse_template(text: str, types: Mapping[str, str]) -> Template:
    """Parse a template, in which `\\t`, `\\n` and `\\\\` are escapes.

    `types` has the types of the fields. Raises UsageError if the template is not valid or names another
    field.
    """
    text = re.sub(r"\\([tn\\])", lambda match: _ESCAPES[match[1]], text)
    try:
        parts = [(name, spec or "") for _, name, spec, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise UsageError(f"--format {text!r}: {error}") from error
    names = frozenset(name for name, _ in parts)
    unknown = sorted(names - frozenset(types))
    if unknown:
        raise UsageError(f"--format: no field {unknown[0]!r}: choose from {', '.join(sorted(types))}")
    if any(re.search(r"\d{4}|\{", spec) for _, spec in parts):
        raise UsageError(f"--format {text!r}: a width is a number up to 999")
    try:
        text.format(**{name: _EXAMPLES.get(kind, 0) for name, kind in types.items()})
    except (ValueError, LookupError) as error:
        raise UsageError(f"--format {text!r}: {error}") from error
    return Template(text, names)

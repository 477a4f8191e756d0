"""How documents become text: one JSON form, one line form for pipes, one table for eyes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Literal

from pulsar_meta.cli.render.text import IN_JSON, harmless, json_line, one_line
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document

if TYPE_CHECKING:
    from rich.table import Table

# What a cell has where there is nothing to show.
NOTHING = ("", "-")
# In a table on a terminal columns are folded to no less than this, the width of a time.
FOLDED_WIDTH = 24


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
    """Write one document (`single`) or a list, streaming; an error midway leaves a valid list.

    On a terminal it is indented.
    """
    text = _indented if out.isatty() else json_line
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


def _indented(document: Document) -> str:
    text = json.dumps(json.loads(json_line(document)), ensure_ascii=False, indent=2)
    return harmless(text, IN_JSON)


def write_ndjson(documents: Iterable[Document], out: IO[str]) -> None:
    """Write a document a line."""
    for document in documents:
        out.write(json_line(document) + "\n")


def write_plain(documents: Iterable[Document], out: IO[str], view: View | Detail) -> None:
    """Write a line a row, cells separated by tabs, no heading; or the lines of a detail."""
    for document in documents:
        if isinstance(view, View):
            out.write("\t".join(one_line(cell) or "-" for cell in view.row(document)) + "\n")
        else:
            out.writelines(harmless(line) + "\n" for line in view.lines(document))


def write_csv(documents: Iterable[Document], out: IO[str], view: View | Detail) -> None:
    """Write RFC 4180 rows under a heading; to a terminal, what would steer it as escapes."""
    if not isinstance(view, View):
        raise UsageError("these values have no columns: choose -o json, ndjson or plain")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(view.columns)
    rows = map(view.row, documents)
    writer.writerows(([harmless(cell) for cell in row] for row in rows) if out.isatty() else rows)


def write_table(documents: Iterable[Document], out: IO[str], view: View | Detail) -> None:
    """Draw a table for eyes, without columns that are empty in every row.

    Only wide columns are folded to fit a terminal; where that is not enough, each row becomes a paragraph.
    Nothing is cut.
    """
    if isinstance(view, Detail):
        write_plain(documents, out, view)
        return
    from rich.console import Console

    rows = [[harmless(cell) for cell in view.row(document)] for document in documents]
    shown = [at for at in range(len(view.columns)) if not rows or any(row[at] not in NOTHING for row in rows)]
    widths = {at: _width(at, rows, view) for at in shown}
    console = Console(file=out, highlight=False, width=None if out.isatty() else _whole(widths.values()))
    if _whole(min(width, FOLDED_WIDTH) for width in widths.values()) <= console.width:
        console.print(_table(rows, view, widths))
    else:
        out.write("\n".join("".join(_paragraph(row, view, shown)) for row in rows))


def _width(at: int, rows: Sequence[Sequence[str]], view: View) -> int:
    from rich.cells import cell_len

    return max(cell_len(text) for text in (view.columns[at], *(row[at] for row in rows)))


def _whole(widths: Iterable[int]) -> int:
    """Return how wide a table with columns so wide is: three between two of them, one at each end."""
    return sum(width + 3 for width in widths) - 1


def _table(rows: Sequence[Sequence[str]], view: View, widths: Mapping[int, int]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for at, width in widths.items():
        name, wide = view.columns[at], width > FOLDED_WIDTH
        justify: Literal["right", "left"] = "right" if name in view.right else "left"
        least = min(width, FOLDED_WIDTH)
        table.add_column(name, justify=justify, overflow="fold", no_wrap=not wide, min_width=least)
    for row in rows:
        table.add_row(*(escape(row[at]) for at in widths))
    return table


def _paragraph(row: Sequence[str], view: View, shown: Sequence[int]) -> Iterator[str]:
    margin = max(len(view.columns[at]) for at in shown)
    for at in shown:
        if row[at] not in NOTHING:
            yield f"{view.columns[at]:>{margin}}  {row[at]}\n"

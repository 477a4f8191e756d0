"""HTML pages: tables, bars and strips in one file that loads nothing from elsewhere.

The template (`page.html.j2`) escapes every text. Control characters are shown as escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pulsar_meta.cli.render.text import harmless, is_time, size
from pulsar_meta.codecs.json_text import Document

if TYPE_CHECKING:
    from jinja2 import Template


TEMPLATE: Final = "page.html.j2"
_code_re: Final = re.compile("`([^`]+)`")
Kind = Literal["text", "short", "number", "path", "time", "command", "chart", "heat"]
# Texts up to this length are not broken.
_SHORT: Final = 24


@dataclass(frozen=True, slots=True)
class Fact:
    """A line below the title."""

    text: str
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a drawing: its start and width as shares of the drawing (0 to 1)."""

    start: float
    width: float
    look: Literal["bar", "pale"] = "bar"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: text, or in a chart column the parts to draw, from bottom to top. `link` is an anchor, `level`
    the shade of a cell in a heat column (0 to 5).
    """

    text: str = ""
    parts: Sequence[Part] = ()
    warning: str = ""
    link: str = ""
    level: int = 0


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of a treemap: its place and size as shares of the picture (0 to 1), and its texts.

    `look` is the number of its colour, `title` its description, `texts` are the lines drawn in it.
    """

    x: float
    y: float
    width: float
    height: float
    look: int
    title: str
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    heading: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table, drawn in another colour if `stands_out` is set."""

    cells: Sequence[Cell]
    stands_out: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: a heading with an anchor, notes, lines of text, a table, or a treemap.

    `legend` names the colours of `tiles`; the first note describes them.
    """

    heading: str = ""
    notes: Sequence[str] = ()
    lines: Sequence[str] = ()
    columns: Sequence[Column] = ()
    rows: Sequence[Row] = ()
    anchor: str = ""
    tiles: Sequence[Tile] = ()
    legend: Sequence[str] = ()


def page(title: str, facts: Iterable[Fact], sections: Iterable[Section]) -> str:
    """Return the HTML of a page."""
    return _template().render(title=title, facts=list(facts), sections=list(sections))


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[str] = frozenset(),
    bars: Mapping[str, Sequence[float | None]] | None = None,
) -> Section:
    """Return a table as a section, without columns that are empty in every row.

    `right` names the number columns. `bars` maps a column to a number for each row; these are drawn next to
    the column as bars on one scale, and None draws no bar.
    """
    drawn: list[Column] = []
    cells: list[list[Cell]] = [[] for _ in rows]
    most = max((number for numbers in (bars or {}).values() for number in numbers if number), default=1)
    for at, name in enumerate(columns):
        texts = [row[at] for row in rows]
        if not any(texts):
            continue
        drawn.append(Column(name, _kind(texts, number=name in right)))
        for row, text in zip(cells, texts, strict=True):
            row.append(Cell(text))
        if bars and name in bars:
            drawn.append(Column("", "chart"))
            for row, number in zip(cells, bars[name], strict=True):
                row.append(Cell() if number is None else bar(number / most))
    return Section(columns=drawn, rows=list(map(Row, cells)))


def _kind(texts: Sequence[str], *, number: bool) -> Kind:
    if number:
        return "number"
    if all(is_time(text) for text in texts if text):
        return "time"
    if any(text.startswith("pulsar-meta ") for text in texts):
        return "command"
    if any("/" in text for text in texts):
        return "path"
    return "short" if all(len(text) <= _SHORT for text in texts) else "text"


def bar(share: float, pale: float = 0.0) -> Cell:
    """Return a bar that takes a share of its cell (0 to 1), over a pale bar."""
    return Cell(parts=[*([Part(0, pale, "pale")] if pale else []), Part(0, share)])


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    def breakable(text: str) -> Markup:
        """Let lines break between the parts of a path."""
        return Markup(escape(harmless(text)).replace("/", Markup("/<wbr>")))

    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        finalize=lambda value: harmless(value) if type(value) is str else value,
    )

    def marked(text: str) -> Markup:
        """Show Markdown code as code."""
        template = _code_re.sub(r"<code>\1</code>", str(escape(harmless(text))))
        return Markup(template)

    def command(text: str) -> Markup:
        """Let lines break before an option and between the parts of a path, but not after a hyphen."""
        words = (
            Markup('<span class="option">{}</span>').format(word) if word.startswith("-") else breakable(word)
            for word in text.split(" ")
        )
        return Markup(" ").join(words)

    environment.filters |= {"breakable": breakable, "marked": marked, "command": command}
    return environment.get_template(TEMPLATE)


NAMESPACES: Final = 40
# ZooKeeper closes the connection of a client that sends a larger request (jute.maxbuffer).
ZOOKEEPER_LIMIT: Final = 1 << 20


def top_page(document: Document, source: str) -> str:
    """Return the HTML page of a `top` document; `source` is the store's URL without credentials."""
    sections = (
        _histogram(document["histogram"]),
        _namespaces(document["namespaces"]),
        _biggest(document["biggest"]),
    )
    return page("Biggest metadata values", [Fact(source), *_total(document)], sections)


def bound_of(row: Document) -> str:
    """Return the name of a row of the histogram."""
    if row["at_most"] == 0:
        return "empty"
    return f"to {size(row['at_most'])}" if row["at_most"] else "more"


def _total(document: Document) -> Iterator[Fact]:
    total = document["total"]
    stored, raw = size(total["size"]), size(total["raw_size"])
    yield Fact(f"{total['count']} values, {stored} stored, {raw} unpacked.")
    over = sum(row["count"] for row in document["histogram"] if _is_over(row))
    if over:
        why = "ZooKeeper refuses requests of this size unless its jute.maxbuffer was raised"
        yield Fact(f"{over} over {size(ZOOKEEPER_LIMIT)}: {why}.", warns=True)


def _histogram(rows: Sequence[Document]) -> Section:
    counts, sizes = _most(rows, "count"), _most(rows, "size")
    cells = [
        Row(
            [
                Cell(bound_of(row)),
                Cell(str(row["count"])),
                bar(row["count"] / counts),
                Cell(size(row["size"])),
                bar(row["size"] / sizes),
            ],
            stands_out=_is_over(row),
        )
        for row in rows
    ]
    columns = [Column("size"), _number("values"), _CHART, _number("stored"), _CHART]
    return Section("By size", columns=columns, rows=cells)


def _namespaces(rows: Sequence[Document]) -> Section:
    most = max(_most(rows, "size"), _most(rows, "raw_size"))
    notes = ["The dark part of a bar is the stored size, the complete bar the size after decompression."]
    if len(rows) > NAMESPACES:
        notes.append(f"{len(rows) - NAMESPACES} smaller namespaces are not shown.")
    cells = [
        Row(
            [
                Cell(row["namespace"]),
                Cell(str(row["count"])),
                Cell(size(row["size"])),
                Cell(size(row["raw_size"])),
                bar(row["size"] / most, row["raw_size"] / most),
            ]
        )
        for row in rows[:NAMESPACES]
    ]
    columns = [Column("namespace", "path"), *map(_number, ("values", "stored", "unpacked")), _CHART]
    return Section("By namespace", notes, columns=columns, rows=cells)


def _biggest(values: Sequence[Document]) -> Section:
    cells = [
        Row(
            [
                Cell(size(value["size"])),
                Cell(size(value["raw_size"])),
                Cell(value["codec"] or ""),
                Cell(value["kind"] or "unknown"),
                Cell(_holds(value), warning=value.get("error", "")),
                Cell(value["path"]),
            ]
        )
        for value in values
    ]
    texts = [Column(name) for name in ("codec", "kind", "holds")]
    columns = [_number("stored"), _number("unpacked"), *texts, Column("where", "path")]
    return Section("Biggest values", columns=columns, rows=cells)


def _holds(value: Document) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in value["holds"].items())


def _most(rows: Iterable[Document], name: str) -> int:
    return max((row[name] for row in rows), default=0) or 1


def _is_over(row: Document) -> bool:
    return row["at_most"] is None or row["at_most"] > ZOOKEEPER_LIMIT


def _number(heading: str) -> Column:
    return Column(heading, "number")


_CHART: Final = Column("", "chart")

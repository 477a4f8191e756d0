"""The answer of `top` as a page: the biggest values, and how sizes are spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pulsar_meta.cli.render.pages import Cell, Column, Fact, Row, Section, bar, page
from pulsar_meta.cli.render.text import size
from pulsar_meta.codecs.json_text import Document

NAMESPACES: Final = 40
# Requests of ZooKeeper's clients over this size end their session (jute.maxbuffer).
ZOOKEEPER_LIMIT: Final = 1 << 20


def top_page(document: Document, source: str) -> str:
    """Return the page for a document of `top` about the store `source`, a URL without credentials."""
    sections = (
        _histogram(document["histogram"]),
        _namespaces(document["namespaces"]),
        _biggest(document["biggest"]),
    )
    return page("Biggest metadata values", [Fact(source), *_total(document)], sections)


def bound_of(row: Document) -> str:
    """Return how a class of sizes is called."""
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
    notes = ["The strong part of a bar is what is stored, the whole of it what that unpacks to."]
    if len(rows) > NAMESPACES:
        notes.append(f"{len(rows) - NAMESPACES} smaller ones are left out.")
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

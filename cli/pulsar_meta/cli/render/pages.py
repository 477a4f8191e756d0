"""The answer of `top` as one HTML page: charts drawn in it, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from pulsar_meta.cli.render.text import harmless, size
from pulsar_meta.codecs.json_text import Document

NAMESPACES: Final = 40
# Requests of ZooKeeper's clients over this size end their session (jute.maxbuffer).
ZOOKEEPER_LIMIT: Final = 1 << 20

_STYLE: Final = """\
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5b6168; --line: #d9dce0; --page: #ffffff;
  --bar: #2a6fb0; --pale: #a9c8e6; --warn: #b3401e }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #a0a7ae; --line: #3a3f45;
  --page: #16181b; --bar: #5fa3e0; --pale: #2d4a66; --warn: #f08a63 } }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem }
p { color: var(--soft); margin: .3rem 0 } .warn { color: var(--warn) }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th { color: var(--soft); font-weight: 500; text-align: left; white-space: nowrap }
th, td { padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
.path { overflow-wrap: anywhere; min-width: 16rem }
.chart { width: 34% } svg { display: block; width: 100%; height: 1rem; margin-top: .2rem }
.bar { fill: var(--bar) } .pale { fill: var(--pale) } .over .bar { fill: var(--warn) }
"""


def top_page(document: Document, source: str) -> str:
    """Return the page for a document of `top` about the store `source`, a URL without credentials."""
    title = "Biggest metadata values"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy"'
            " content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{title}</title><style>\n{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            f"<p>{_text(source)}</p>",
            *_total(document),
            *_histogram(document["histogram"]),
            *_namespaces(document["namespaces"]),
            *_biggest(document["biggest"]),
            "</body></html>\n",
        ]
    )


def bound_of(row: Document) -> str:
    """Return how a class of sizes is called."""
    if row["at_most"] == 0:
        return "empty"
    return f"to {size(row['at_most'])}" if row["at_most"] else "more"


def _total(document: Document) -> Iterator[str]:
    total = document["total"]
    yield (
        f"<p>{total['count']} values, {size(total['size'])} stored, {size(total['raw_size'])} unpacked.</p>"
    )
    over = sum(row["count"] for row in document["histogram"] if _is_over(row))
    if over:
        why = "ZooKeeper refuses requests of this size unless its jute.maxbuffer was raised"
        yield f'<p class="warn">{over} over {size(ZOOKEEPER_LIMIT)}: {why}.</p>'


def _histogram(rows: Sequence[Document]) -> Iterator[str]:
    counts, sizes = _most(rows, "count"), _most(rows, "size")
    yield "<h2>By size</h2>"
    yield from _table(
        ("size", "#values", "", "#stored", ""),
        (
            f'<tr{" class=over" if _is_over(row) else ""}><th scope="row">{bound_of(row)}</th>'
            f"{_number(row['count'])}{_bars(row['count'] / counts)}"
            f"{_number(size(row['size']))}{_bars(row['size'] / sizes)}</tr>"
            for row in rows
        ),
    )


def _namespaces(rows: Sequence[Document]) -> Iterator[str]:
    most = max(_most(rows, "size"), _most(rows, "raw_size"))
    yield "<h2>By namespace</h2>"
    yield "<p>The strong part of a bar is what is stored, the whole of it what that unpacks to.</p>"
    yield from _table(
        ("namespace", "#values", "#stored", "#unpacked", ""),
        (
            f'<tr><th scope="row" class="path">{_text(row["namespace"])}</th>{_number(row["count"])}'
            f"{_number(size(row['size']))}{_number(size(row['raw_size']))}"
            f"{_bars(row['size'] / most, row['raw_size'] / most)}</tr>"
            for row in rows[:NAMESPACES]
        ),
    )
    if len(rows) > NAMESPACES:
        yield f"<p>and {len(rows) - NAMESPACES} smaller ones</p>"


def _biggest(values: Sequence[Document]) -> Iterator[str]:
    yield "<h2>Biggest values</h2>"
    yield from _table(
        ("#stored", "#unpacked", "codec", "kind", "holds", "where"),
        (
            f"<tr>{_number(size(value['size']))}{_number(size(value['raw_size']))}"
            f"<td>{_text(value['codec'] or '')}</td><td>{_text(value['kind'] or 'unknown')}</td>"
            f'<td>{_holds(value)}</td><td class="path">{_path(value["path"])}</td></tr>'
            for value in values
        ),
    )


def _holds(value: Document) -> str:
    held = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in value["holds"].items())
    broken = f' <span class="warn">{_text(value["error"])}</span>' if "error" in value else ""
    return _text(held) + broken


def _table(heads: Iterable[str], rows: Iterable[str]) -> Iterator[str]:
    """Yield a table; a head that begins with # stands over numbers."""
    yield '<div class="wide"><table><thead><tr>'
    for head in heads:
        kind = ' class="number"' if head.startswith("#") else "" if head else ' class="chart"'
        yield f'<th scope="col"{kind}>{head.removeprefix("#")}</th>'
    yield "</tr></thead><tbody>"
    yield from rows
    yield "</tbody></table></div>"


def _bars(share: float, behind: float = 0.0) -> str:
    """Return a cell with a bar of that share of its width, over a pale one."""
    pale = f'<rect class="pale" width="{100 * behind:.2f}" height="10"/>' if behind else ""
    bar = f'<rect class="bar" width="{100 * share:.2f}" height="10"/>'
    drawing = f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{pale}{bar}</svg>'
    return f"<td>{drawing}</td>"


def _number(text: object) -> str:
    return f'<td class="number">{text}</td>'


def _most(rows: Iterable[Document], name: str) -> int:
    return max((row[name] for row in rows), default=0) or 1


def _is_over(row: Document) -> bool:
    return row["at_most"] is None or row["at_most"] > ZOOKEEPER_LIMIT


def _path(path: str) -> str:
    # Lines break between the parts.
    return _text(path).replace("/", "/<wbr>")


def _text(text: str) -> str:
    return escape(harmless(text))

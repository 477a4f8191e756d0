"""`top`: the biggest values of a store, and how sizes are spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, Any

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.options import AnyWhere, StoreUrl
from pulsar_meta.cli.render.pages import bound_of, top_page
from pulsar_meta.cli.render.tables import Detail
from pulsar_meta.cli.render.text import size
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.values.biggest import measure
from pulsar_meta.jobs.values.places import paths_of

BAR = 40


def top(
    shell: Shell,
    where: AnyWhere = None,
    store: StoreUrl = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many values.")] = 20,
    by_raw: Annotated[bool, typer.Option("--raw-size", help="Biggest when unpacked.")] = False,
) -> None:
    """Show the biggest values (stored and raw size, codec, what they hold) and how all sizes are spread.

    Examples:
      pulsar-meta top --store zk://zk1:2181 -n 50
      pulsar-meta top /managed-ledgers/public --store snapshot:all.ndjson.zst
      pulsar-meta top -o html --output sizes.html
    """
    with shell.store(store) as opened, shell.progress(unit="values") as progress:
        paths = paths_of(opened, where or ["/"])
        values = progressed(chain.from_iterable(map(opened.scan, paths)), progress.advance)
        document = measure(values, limit, by_raw=by_raw).document(opened.url)
        if where and not document["total"]["count"]:
            raise NotFoundError(f"nothing at or below {', '.join(paths)}", source=opened.url)
        view = Detail(top_lines, lambda told: top_page(told, redact(opened.url)))
        shell.emit([document], view, single=True)


def progressed(values: Iterable[Any], advance: Any) -> Iterator[Any]:
    """Yield `values`, telling `advance` of each."""
    for value in values:
        advance(1)
        yield value


def top_lines(document: Document) -> Iterator[str]:
    """Yield the lines in which a person reads the answer."""
    total = document["total"]
    yield f"{total['count']} values, {size(total['size'])} stored, {size(total['raw_size'])} unpacked"
    yield from _biggest(document["biggest"])
    yield ""
    yield "by size"
    most = max((row["count"] for row in document["histogram"]), default=1)
    for row in document["histogram"]:
        bar = "#" * max(1, row["count"] * BAR // most)
        yield f"  {bound_of(row):>10}  {row['count']:>9}  {size(row['size']):>9}  {bar}"
    yield ""
    yield "by namespace"
    for row in document["namespaces"]:
        raw = f"{size(row['raw_size']):>9} raw"
        yield f"  {size(row['size']):>9}  {raw}  {row['count']:>9}  {row['namespace']}"


def _biggest(values: list[Document]) -> Iterator[str]:
    for value in values:
        codec = f" {value['codec']}" if value["codec"] else ""
        holds = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in value["holds"].items())
        broken = f"  BROKEN: {value['error']}" if "error" in value else ""
        raw = f" ({size(value['raw_size'])} raw{codec})" if value["codec"] else ""
        yield f"  {size(value['size']):>9}{raw}  {value['path']}  {value['kind'] or 'unknown'}"
        if holds or broken:
            yield f"             {holds}{broken}"

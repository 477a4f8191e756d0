"""`diff` and `top`: compare two stores, and find the largest values of one."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Annotated

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import OptionalPlace, ShowSecrets, StoreUrl
from pulsar_meta.cli.render.metrics import top_text
from pulsar_meta.cli.render.pages import bound_of, top_page
from pulsar_meta.cli.render.rewriting import change_summary
from pulsar_meta.cli.render.tables import Detail, Format, View, write_table
from pulsar_meta.cli.render.text import checked_text, counted, size
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.cli.streams import write_json_message
from pulsar_meta.codecs.documents.document import DecodeOptions
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.values.biggest import measure
from pulsar_meta.jobs.values.comparison import Compared, Terms, compare
from pulsar_meta.jobs.values.places import places_below

COLUMNS = ["change", "path", "left", "right", "differences"]


class Ignored(StrEnum):
    """The values that a comparison can leave out."""

    EPHEMERAL = "ephemeral"
    PARENTS = "parents"
    BROKERS = "brokers"


def diff(
    shell: Shell,
    left: Annotated[str, typer.Argument(metavar="URL", help="A store, like --store.")],
    right: Annotated[str, typer.Argument(metavar="URL", help="The other store.")],
    ignore: Annotated[
        list[Ignored] | None,
        typer.Option(
            "--ignore",
            help="Leave out values of sessions, empty values of parents, or everything that restore leaves"
            " out (repeatable).",
        ),
    ] = None,
    bytes_too: Annotated[
        bool, typer.Option("--bytes", help="Report different bytes with equal meaning, too.")
    ] = False,
    versions: Annotated[bool, typer.Option("--versions", help="Compare versions, too.")] = False,
    show_secrets: ShowSecrets = False,
) -> None:
    """Compare two stores, value by value and field by field.

    Use it to see what changed since a snapshot, or to verify a move to another store. Each side can be a live
    store, a snapshot, or ZooKeeper's files. Prints values that only one side has, and the fields that differ.
    It also prints two sums for each side, which don't depend on the order of values; the second one leaves
    out ephemeral values and empty parents, which differ between kinds of stores. Exits with 1 if the stores
    differ.

    Examples:
      pulsar-meta diff snapshot:before.zst oxia://oxia:6648 --ignore parents
      pulsar-meta diff 'zk-files:/zookeeper?at=2026-05-01T03:00' zk://zk1:2181
    """
    left_out = set(ignore or ())
    terms = Terms(
        bytes=bytes_too,
        versions=versions,
        ephemeral=Ignored.EPHEMERAL not in left_out,
        parents=Ignored.PARENTS not in left_out,
        brokers=Ignored.BROKERS not in left_out,
        options=DecodeOptions(show_secrets=show_secrets),
    )
    compared = Compared()
    with shell.other_store(left) as left_store, shell.other_store(right) as right_store:
        shell.emit(
            compare(left_store, right_store, terms, compared),
            VIEW,
            about=lambda: (
                *map(redact, (left, right)),
                checked_text(_counts(compared), _not_compared(compared, left_out)),
            ),
        )
    _print_summary(shell, compared, left_out)
    if compared.differ:
        raise typer.Exit(Exit.FAULT)
    if not any(sums.values for sums in compared.sums):
        raise NotFoundError("neither store has values", source=" and ".join(map(redact, (left, right))))


def _counts(compared: Compared) -> dict[str, int]:
    return {
        "equal": compared.equal,
        "encoded differently": compared.same_meaning,
        "different": compared.different,
        "only left": compared.only_left,
        "only right": compared.only_right,
    }


def _not_compared(compared: Compared, left_out: set[Ignored]) -> dict[str, str]:
    reason = "--ignore " + " --ignore ".join(sorted(left_out))
    return {f"{compared.left_out} values": reason} if compared.left_out else {}


def _print_summary(shell: Shell, compared: Compared, left_out: set[Ignored]) -> None:
    shell.summary(_counts(compared), _not_compared(compared, left_out))
    if shell.is_json:
        write_json_message(compared.both_sums())
        return
    for side, sums in zip(("left: ", "right:"), compared.sums, strict=True):
        shell.note(f"{side} {sums.values} values, sum {sums.everything}, lasting {sums.lasting}")


def _row(document: Document) -> list[str]:
    sides = [_side(document.get(side)) for side in ("left", "right")]
    return [document["change"], document["path"], *sides, change_summary(document["differences"])]


def _side(value: Document | None) -> str:
    return "" if value is None else f"{value['size']} bytes, version {value['version']}"


VIEW = View(COLUMNS, _row, fields=COLUMNS, title="Differences of two stores")


# The table then fits a terminal with 60 columns.
BAR = 24


def top(
    shell: Shell,
    where: OptionalPlace = None,
    store: StoreUrl = None,
    limit: Annotated[int, typer.Option("--limit", "--count", "-n", min=0, help="Number of values.")] = 20,
    by_raw: Annotated[bool, typer.Option("--raw-size", help="Sort by uncompressed size.")] = False,
) -> None:
    """Show the largest values, and how sizes are distributed.

    Use it when a store is large or slow, or when values approach the size limit of ZooKeeper. It shows the
    stored and the uncompressed size, the codec and the contents of each value. Exits with 4 if one of the
    values that it shows can't be decoded, or if an uncompressed size is unknown.

    Examples:
      pulsar-meta top --store zk://zk1:2181 -n 50
      pulsar-meta top /managed-ledgers/public --store snapshot:all.ndjson.zst
      pulsar-meta top -o html --output sizes.html
      pulsar-meta top -o openmetrics --output pulsar_store.prom
    """
    with shell.store(store) as opened:
        shell.warn_of_old_parts(opened, (where or [])[1:2])
        paths = places_below(opened, where or ["/"])
        with shell.progress(unit="values") as progress:
            values = chain.from_iterable(map(opened.scan, paths))
            sizes = measure(values, limit, by_raw=by_raw, advance=progress.advance)
            document = sizes.document(opened.url)
        if not document["total"]["count"]:
            raise missing(opened, paths[0])
        _emit(shell, document, redact(opened.url))
    _report_broken(shell, document, sizes.unknown)


def _report_broken(shell: Shell, document: Document, unknown: int) -> None:
    """Report the values that can't be decoded, and the number of unknown sizes. Raises typer.Exit."""
    faults = Faults(shell)
    for value in document["biggest"]:
        if "error" in value:
            faults.report(DecodeError(value["error"], source=value["path"]))
    if unknown:
        sizes = f"{counted(unknown, 'values')} of unknown uncompressed size"
        faults.report(DecodeError(f"{sizes}: the header can't be decoded; the sum has the stored size"))
    faults.finish()


def _emit(shell: Shell, document: Document, source: str) -> None:
    """Write the result: as tables on a terminal; in lines and CSV, only the largest values."""
    match shell.format:
        case Format.TABLE:
            with shell.text_out() as out:
                total = document["total"]
                stored, raw = size(total["size"]), size(total["raw_size"])
                out.write(f"{counted(total['count'], 'values')}, {stored} stored, {raw} unpacked\n")
                for name, view in TABLES.items():
                    out.write("\n")
                    write_table(_with_most(document[name]), out, view)
        case Format.OPENMETRICS:
            with shell.text_out() as out:
                out.write(top_text(document, time.time()))
        case Format.HTML:
            with shell.text_out() as out:
                out.write(top_page(document, source))
        case Format.PLAIN | Format.CSV:
            shell.emit(document["biggest"], BIGGEST)
        case _:
            shell.emit([document], Detail(lambda answer: ()), single=True)


def _with_most(rows: Sequence[Document]) -> Iterator[Document]:
    most = max((row["count"] for row in rows if "count" in row), default=1)
    return ({**row, "most": most} for row in rows)


def _big_row(value: Document) -> list[str]:
    holds = [counted(count, _words(name)) for name, count in value["holds"].items()]
    broken = [f"BROKEN: {value['error']}"] if "error" in value else []
    sizes = [str(value["size"]), str(value["raw_size"]), value["codec"] or ""]
    return [*sizes, value["kind"] or "unknown", ", ".join(holds + broken), value["path"]]


def _words(name: str) -> str:
    """Split the name of a field, such as `acked_ranges` or `individualDeletedMessages`, into words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower()


def _class_row(row: Document) -> list[str]:
    bar = "#" * max(1, row["count"] * BAR // row["most"])
    return [bound_of(row), str(row["count"]), str(row["size"]), bar]


def _namespace_row(row: Document) -> list[str]:
    return [row["namespace"], str(row["count"]), str(row["size"]), str(row["raw_size"])]


SIZES = frozenset({"values", "stored (bytes)", "unpacked (bytes)"})
BIGGEST = View(
    ["stored (bytes)", "unpacked (bytes)", "codec", "kind", "holds", "path"],
    _big_row,
    SIZES,
    fields=("path", "name", "version", "kind", "codec", "size", "raw_size", "holds", "error"),
)
HISTOGRAM = View(["size", "values", "stored (bytes)", "share"], _class_row, SIZES)
NAMESPACES = View(["namespace", "values", "stored (bytes)", "unpacked (bytes)"], _namespace_row, SIZES)
TABLES = {"biggest": BIGGEST, "histogram": HISTOGRAM, "namespaces": NAMESPACES}

"""`ledgers`: what lies on disks, ledger by ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import PurePath
from typing import Annotated

import typer

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.text import unsized
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.jobs.disk.contents import ledger_lines, lines_by_log
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources


def ledgers(
    shell: Shell,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    by_log: Annotated[
        bool, typer.Option("--by-log", help="A line for each ledger in each entry log, deleted ones too.")
    ] = False,
) -> None:
    """List the ledgers that lie on disks, with entries, bytes, times and files.

    Bytes are those of records in the logs; the times those of the first and the last entry, where they are
    messages. With --by-log the logs themselves say what is in them: by the map at the end of a sealed one,
    which has no numbers of entries, else by their records. No store is needed (--store is for bookie:).

    Examples:
      pulsar-meta ledgers --entries bookie-disk:data/bookie
      pulsar-meta ledgers --by-log --entries bookie-disk:data/bookie -o csv
    """
    urls, faults = shell.entries_urls(entries), Faults(shell)
    with ExitStack() as stack:
        has_store = store is not None or shell.settings.store is not None
        opened = stack.enter_context(shell.store(store)) if has_store else None
        source = stack.enter_context(open_entry_sources(urls, opened))
        counts = Counter[str]()
        lines = (
            lines_by_log(source, faults, lambda: counts.update(logs=1))
            if by_log
            else ledger_lines(source, faults)
        )
        shell.emit(_counted(lines, counts), BY_LOG if by_log else VIEW)
        nouns = ("logs", "ledgers") if by_log else ("ledgers", "entries")
        shell.account({noun: counts[noun] for noun in nouns}, unsized(counts["unsized"]))
        faults.end(source)


def _counted(lines: Iterable[Document], counts: Counter[str]) -> Iterator[Document]:
    """Yield the lines and count, each ledger once, what comes by."""
    ledgers = set[int]()
    for line in lines:
        ledgers.add(line["ledger_id"])
        counts["entries"] += line["entries"] or 0
        counts["unsized"] += line.get("unsized", 0)
        yield line
    counts["ledgers"] = len(ledgers)


def _row(line: Document) -> list[str]:
    times = ("" if line[name] is None else iso_time(line[name]) or "" for name in ("first_time", "last_time"))
    numbers = (str(line[name]) for name in ("entries", "first_entry", "last_entry", "size"))
    return [str(line["ledger_id"]), line["bookie"] or "", *numbers, *times, ", ".join(line["files"])]


def _log_row(line: Document) -> list[str]:
    entries = "" if line["entries"] is None else str(line["entries"])
    name = PurePath(line["log"]).name
    return [name, line["bookie"] or "", str(line["ledger_id"]), entries, str(line["size"]), line["read"]]


VIEW = View(
    ["ledger", "bookie", "entries", "first", "last", "bytes", "first time", "last time", "files"],
    _row,
    frozenset({"ledger", "entries", "first", "last", "bytes"}),
    fields=(
        "ledger_id", "bookie", "entries", "first_entry", "last_entry", "size", "unsized", "first_time",
        "last_time", "files",
    ),
)  # fmt: skip
BY_LOG = View(
    ["log", "bookie", "ledger", "entries", "bytes", "read"],
    _log_row,
    frozenset({"ledger", "entries", "bytes"}),
    fields=("log", "bookie", "ledger_id", "entries", "size", "read"),
)

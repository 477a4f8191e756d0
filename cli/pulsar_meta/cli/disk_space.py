"""The tables of `disk` by bookie, and of the bytes that a change would free."""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.text import size
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import parse_duration
from pulsar_meta.jobs.disk.space import Change

_PARTS = ("live", "held", "deleted", "orphan", "dead", "journals", "index", "other", "size")


def change_of(deleted: Sequence[str], retention: str | None) -> Change | None:
    """Return the change that --if-deleted and --if-retention describe, or None without either."""
    if not deleted and retention is None:
        return None
    kept = None if retention is None else 0 if retention == "0" else parse_duration(retention) * 1000
    return Change(frozenset(deleted), kept)


def check_change(change: Change | None, by: str | None, *, has_store: bool) -> None:
    """Raise UsageError if a change is combined with --by, or there is no store."""
    if change is not None and by is not None:
        raise UsageError("--if-deleted and --if-retention can't be combined with --by: remove one of them")
    if change is not None and not has_store:
        raise UsageError("--if-deleted and --if-retention need the subscriptions: add --store URL")


def add_up(shell: Shell, rows: Sequence[Document], change: Change | None) -> None:
    """Print the totals of a table."""
    total = sum(row["size"] for row in rows)
    if change is not None:
        bookies = {row["bookie"]: 0 for row in rows}
        for row in rows:
            bookies[row["bookie"]] += row["size"]
        parts = [
            f"{size(freed)} on {bookie or 'a bookie without a cookie'}" for bookie, freed in bookies.items()
        ]
        shell.note(
            f"{size(total)} would become free: {', '.join(parts)}" if parts else "nothing would become free"
        )
        return
    parts = [
        f"{size(sum(row[name] or 0 for row in rows))} {name}"
        for name in _PARTS
        if name not in ("held", "size")
    ]
    shell.note(f"{size(total)}: {', '.join(parts)}")


def _numbers(row: Document, names: Sequence[str]) -> list[str]:
    return ["" if row[name] is None else str(row[name]) for name in names]


BOOKIES = View(
    ["bookie", *_PARTS[:-1], "bytes"],
    lambda row: [row["bookie"] or "", *_numbers(row, _PARTS)],
    frozenset({*_PARTS, "bytes"}),
    fields=("bookie", *_PARTS, "allocated"),
    title="Disk space by bookie",
    bars={"bytes": "size"},
)
FREED = View(
    ["topic", "bookie", "ledgers", "bytes"],
    lambda row: [row["topic"], row["bookie"] or "", *_numbers(row, ("ledgers", "size"))],
    frozenset({"ledgers", "bytes"}),
    fields=("topic", "bookie", "ledgers", "size"),
    title="Disk space that would become free",
    bars={"bytes": "size"},
)

"""Answers of `seek` as a table for eyes: positions and ranges in one cell, times as times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pulsar_meta.cli.output import Document, View
from pulsar_meta.codecs.times import iso_time


def table_view(answers: Sequence[Document]) -> View:
    """Return a view of the columns in which any of the answers has something."""
    shown = {name: cell for name, cell in COLUMNS.items() if any(map(cell, answers))}
    return View(tuple(shown), lambda answer: [cell(answer) for cell in shown.values()], NUMBERS)


def _text(field: str) -> Callable[[Document], str]:
    return lambda answer: str(answer.get(field, ""))


def _time(field: str) -> Callable[[Document], str]:
    return lambda answer: (
        (iso_time(int(answer[field])) or str(answer[field])) if answer.get(field) is not None else ""
    )


def _position(answer: Document) -> str:
    if "ledger_id" not in answer:
        return ""
    place = f":{answer['batch_index']}" if answer.get("batch_index", -1) >= 0 else ""
    return f"{answer['ledger_id']}:{answer['entry_id']}{place}"


def _indexes(answer: Document) -> str:
    if "last_index" not in answer:
        return ""
    first, last = answer["first_index"], answer["last_index"]
    return str(last) if first == last else f"{first}-{last}"


COLUMNS: Final[dict[str, Callable[[Document], str]]] = {
    "CLUSTER": _text("cluster"),
    "TOPIC": _text("topic"),
    "INDEX": _text("index"),
    "TIME": _time("time"),
    "STATUS": _text("status"),
    "POSITION": _position,
    "INDEXES": _indexes,
    "BROKER TIME": _time("broker_timestamp"),
    "PUBLISH TIME": _time("publish_time"),
    "READ": _text("entries_read"),
    "REASON": _text("reason"),
}
NUMBERS: Final = frozenset({"INDEX", "READ"})

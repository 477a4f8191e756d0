"""Answers of `seek`: lines, rows and columns for scripts, a table for eyes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.template import parse_template
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time

# The fields of an answer and, for Parquet, their types.
TYPES: Final = {
    "cluster": "string", "topic": "string", "index": "int64", "time": "int64", "status": "string",
    "ledger_id": "int64", "entry_id": "int64", "batch_index": "int32", "first_index": "int64",
    "last_index": "int64", "broker_timestamp": "int64", "publish_time": "int64", "clock": "string",
    "oldest_expired": "bool", "transaction": "string", "entries_read": "int64", "reason": "string",
    "snapshot": "string", "scalable_topic": "string",
}  # fmt: skip
FIELDS: Final = frozenset(TYPES)
POSITION: Final = parse_template("{ledger_id}:{entry_id}:{batch_index}", TYPES)


def table_view(answers: Sequence[Document]) -> View:
    """Return a view of the columns in which any of the answers has something."""
    shown = {name: cell for name, cell in TABLE.items() if any(map(cell, answers))}
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


TABLE: Final[dict[str, Callable[[Document], str]]] = {
    "cluster": _text("cluster"),
    "topic": _text("topic"),
    "index": _text("index"),
    "time": _time("time"),
    "status": _text("status"),
    "position": _position,
    "indexes": _indexes,
    "broker time": _time("broker_timestamp"),
    "publish time": _time("publish_time"),
    "transaction": _text("transaction"),
    "entries read": _text("entries_read"),
    "reason": _text("reason"),
}
NUMBERS: Final = frozenset({"index", "indexes", "entries read"})

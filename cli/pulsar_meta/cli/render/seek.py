"""The answers of `seek` as lines, rows and columns for scripts, and as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_meta.cli.render.tables import Detail, View
from pulsar_meta.cli.render.template import parse_template
from pulsar_meta.cli.render.text import one_line
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
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


# Why nothing was found, by status, unless the answer itself has a reason.
_INDEX_REASONS: Final = {
    "before-first": "it is before the first entry that the topic still has",
    "after-last": "it is after the last entry",
    "gap": "the two entries around it leave it out",
    "no-index": "the entries that could hold it have no broker metadata",
    "missing-ledger": "no source has the entries that could hold it",
    "unreadable": "an entry that could hold it is corrupt",
    "aborted": "its transaction was aborted",
    "marker": "its entry is a transaction marker",
    "open": "its transaction, or an earlier one, is still open",
    "unknown": "entries are missing that may end its transaction, or an earlier one",
}
_TIME_REASONS: Final = {
    "before-first": "nothing has expired",
    "after-last": "the last entry is earlier",
    "no-index": "no later entry has a broker time",
    "missing-ledger": "no source has the entries that could be the first",
    "unreadable": "an entry that could be the first is corrupt",
    "open": "no later entry can be read before an open transaction ends",
    "unknown": "entries are missing that may end a transaction",
}


def why_nothing(answer: Document) -> str:
    """Say in one line why an answer has no entry."""
    kind = "index" if "index" in answer else "time"
    reasons = _INDEX_REASONS if kind == "index" else _TIME_REASONS
    status = answer["status"]
    why = answer.get("reason") or reasons.get(status) or "the store has no such topic"
    cluster = f"{answer['cluster']}: " if "cluster" in answer else ""
    return f"{cluster}{answer['topic']}: nothing found for {kind} {answer[kind]}: {status}: {why}"


@dataclass(frozen=True)
class PositionLines:
    """Lines for scripts: the fields of `prefix`, and the position or `-`, with tabs between them.

    The topic comes first if the question named a partitioned or a scalable topic. `names` has all topics
    that were named.
    """

    prefix: tuple[str, ...]
    names: Sequence[str]

    def view(self) -> Detail:
        """Return the view of answers as such lines."""
        return Detail(self._lines)

    def _lines(self, answer: Document) -> Iterator[str]:
        fields = self.prefix
        if "topic" not in fields and ("scalable_topic" in answer or self._is_partition(answer["topic"])):
            fields = (*fields, "topic")
        head = [one_line(str(answer.get(field, ""))) for field in fields]
        yield "\t".join([*head, POSITION.line(answer)])

    def _is_partition(self, topic: str) -> bool:
        return str(TopicName.parse(topic).partitioned) in self.names


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

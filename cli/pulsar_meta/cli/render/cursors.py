"""Subscriptions as text: one line per subscription, all details of one, and its history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pulsar_meta.cli.render.pages import Cell, Column, Part, Row, Section
from pulsar_meta.cli.render.tables import Detail, View
from pulsar_meta.cli.render.values import acknowledged_lines, pair_lines
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time


def place_of(document: Document) -> str:
    """Return the place of a subscription's state, or the reason why it is unknown."""
    match document["state"]:
        case "ledger":
            return f"ledger {document['state_ledger']} entry {document['state_entry']}"
        case "unknown" | "fails" | "rewind" as state:
            return f"{state}: {document['why']}"
        case state:
            return str(state)


def backlog_of(document: Document) -> str:
    """Return the backlog in entries, or its minimum if only that is known."""
    if document["backlog"] is not None or document["backlog_at_least"] is None:
        return _number(document["backlog"])
    return f"{document['backlog_at_least']} or more"


def _line(document: Document) -> list[str]:
    last, age = document["last_active"], document["backlog_age"]
    numbers = (document[name] for name in ("backlog_messages", *COUNTS))
    return [
        document["topic"],
        document["cursor"],
        document["position"] or "",
        backlog_of(document),
        *map(_number, numbers),
        "" if age is None or age["since"] is None else iso_time(age["since"]),
        "" if last is None else iso_time(last),
        place_of(document),
    ]


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _heading(name: str) -> str:
    return name.replace("_", " ")


COUNTS = ("acked_ranges", "partial_batches")
LINE_FIELDS = (
    "topic", "cursor", "position", "state", "state_ledger", "state_entry", "backlog", "backlog_at_least",
    "backlog_messages", "acked_ranges", "acked_entries", "partial_batches", "backlog_age", "last_active",
    "why", "scalable_topic",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LinesView(View):
    """Subscriptions; an HTML page also has a heat map of each topic, from the field `by_ledger`."""

    def sections(self, documents: Iterable[Document]) -> Iterator[Section]:
        """Yield a heat map for each topic with a backlog, then the table."""
        from pulsar_meta.cli.render.pictures import heat_map

        lines = list(documents)
        by_topic: dict[str, list[Document]] = {}
        for line in lines:
            by_topic.setdefault(line["topic"], []).append(line)
        for topic, members in by_topic.items():
            if any(line["by_ledger"] for line in members):
                yield heat_map(topic, members)
        if len(by_topic) == 1:
            lines = [{**line, "topic": ""} for line in lines]
        of = f" of {next(iter(by_topic))}" if len(by_topic) == 1 else ""
        for section in View.sections(self, lines):
            yield replace(section, heading=f"Subscriptions{of}")


LINES = LinesView(
    [
        *("topic", "cursor", "position", "backlog", "messages", *map(_heading, COUNTS)),
        *("backlog since", "last active", "state"),
    ],
    _line,
    frozenset({"backlog", "messages", *map(_heading, COUNTS)}),
    fields=LINE_FIELDS,
    rare=frozenset(map(_heading, COUNTS)),
    title="Subscriptions",
    bars={"backlog": "backlog"},
)


def _details(document: Document) -> Iterator[str]:
    yield f"{document['topic']}  {document['cursor']}"
    position = document["position"] or "not known"
    yield f"  a broker that loads the topic resumes after {position} ({document['state']}: {document['why']})"
    messages = document["backlog_messages"]
    in_messages = "" if messages is None else f", {messages} messages"
    yield f"  backlog: {backlog_of(document) or 'not known'} entries{in_messages}"
    if document["backlog_age"] is not None:
        yield from _age(document["backlog_age"])
    if document["last_active"] is not None:
        yield f"  last active: {iso_time(document['last_active'])}"
    if "note" in document:
        yield f"  note: {document['note']}"
    yield from _record(document["record"])
    if "cursor_ledger" in document:
        yield from _ledger(document)
    yield from _pending(document)
    for limit in document["limits"]:
        left = limit["limit"] - limit["used"]
        reached = f"{left} left" if left > 0 else f"REACHED: {limit['beyond']}"
        origin = "default" if limit["from"] == "default" else f"of {limit['from']}"
        yield f"  {limit['setting']}: {limit['used']} of {limit['limit']} ({origin}), {reached}"


AGES = {
    "hour": "up to 1 hour",
    "day": "up to 1 day",
    "week": "up to 7 days",
    "month": "up to 30 days",
    "older": "older",
    "unknown": "of unknown age",
}


def _age(age: Document) -> Iterator[str]:
    """Yield the time of the oldest entry of a backlog, and its entries by age."""
    since = "an unknown time" if age["since"] is None else iso_time(age["since"])
    before = "before " if age["clock"] == "ledger" else ""
    yield f"  oldest unacknowledged entry: {age['oldest']}, from {before}{since}"
    counts = (f"{count} {AGES[name]}" for name, count in age["entries"].items() if count)
    yield f"  backlog by age: {', '.join(counts)}"


def _pending(document: Document) -> Iterator[str]:
    """Yield a line for each acknowledgment in an open transaction."""
    for ack in document["pending_acks"]:
        upto = "all up to " if ack["type"] == "cumulative" else ""
        runs = ", ".join("-".join(map(str, sorted(set(run)))) for run in ack.get("acked", ()))
        part = f", batch indexes {runs} of {ack['batch_size']}" if "acked" in ack else ""
        yield f"  acknowledged in the open transaction {ack['txn']}: {upto}{ack['position']}{part}"
    if "pending_acks_unknown" in document:
        yield f"  acknowledgments in open transactions may be others: {document['pending_acks_unknown']}"


def _record(record: Document) -> Iterator[str]:
    codec = "plain" if record["codec"] is None else record["codec"]
    yield f"record {record['path']}  version {record['version']}, {record['size']} bytes, {codec}"
    yield f"  mark-delete position: {record.get('mark_delete', 'none')}"
    yield from acknowledged_lines(record)
    yield from pair_lines("property", record.get("properties"))
    yield from pair_lines("subscription property", record.get("cursor_properties"))


def _ledger(document: Document) -> Iterator[str]:
    ledger, state = document["cursor_ledger"], document.get("ledger_state")
    unknown = {
        "unread": "not looked up",
        "absent": "BookKeeper does not know it",
        "broken": "broken metadata",
    }
    last = "not recorded" if ledger["last_entry"] is None else ledger["last_entry"]
    facts = unknown.get(ledger["metadata"]) or f"{ledger['state']}, last entry {last}"
    yield f"cursor ledger {ledger['ledger_id']}  {facts}"
    if state is None:
        yield "  its entries are not available"
        return
    yield f"  entry {state['position']}: mark-delete position {state['mark_delete']}, form {state['form']}"
    yield from acknowledged_lines(state)
    yield from pair_lines("property", state.get("properties"))


DETAIL_FIELDS = (
    *LINE_FIELDS, "record", "ledger_state", "cursor_ledger", "pending_acks", "pending_acks_unknown", "limits",
    "note",
)  # fmt: skip


def _strips(document: Document) -> Iterator[Section]:
    """Yield a section that draws the acknowledged ranges of each ledger as a strip."""
    state = document.get("ledger_state") if document["state"] == "ledger" else document["record"]
    acked = (state or {}).get("acked", ())
    if acked:
        yield Section(
            "Individually acknowledged",
            ["Each strip is a ledger up to its last acknowledged entry. Pale parts are not acknowledged."],
            columns=[Column("ledger", "number"), Column("acknowledged", "number"), Column("", "chart")],
            rows=[_strip(ledger) for ledger in acked],
        )


def _strip(ledger: Document) -> Row:
    runs = ledger["entries"]
    end = runs[-1][1] + 1
    parts = [Part(0, 1, "pale"), *(Part(first / end, (last + 1 - first) / end) for first, last in runs)]
    count = sum(last + 1 - first for first, last in runs)
    return Row([Cell(str(ledger["ledger_id"])), Cell(str(count)), Cell(parts=parts)])


DETAIL = Detail(_details, fields=DETAIL_FIELDS, title="A subscription", drawing=_strips)


def _history(document: Document) -> list[str]:
    properties = ", ".join(f"{name}={value}" for name, value in document["properties"].items())
    place = f"{document['ledger_id']}:{document['entry_id']}"
    counts = (str(document[name]) for name in ("acked_ranges", "acked_entries", "partial_batches"))
    return [document["cursor"], place, document["position"], document["form"], *counts, properties]


HISTORY_FIELDS = (
    "topic", "cursor", "ledger_id", "entry_id", "position", "form", "acked_ranges", "acked_entries",
    "partial_batches", "properties",
)  # fmt: skip
HISTORY = View(
    [
        "cursor",
        "entry",
        "position",
        "form",
        "acked ranges",
        "acked entries",
        "partial batches",
        "properties",
    ],
    _history,
    frozenset({"acked ranges", "acked entries", "partial batches"}),
    fields=HISTORY_FIELDS,
    title="A subscription over time",
    bars={"acked entries": "acked_entries"},
)

"""Every message that the Java client read, compared column by column with messages as rows."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from pulsar_meta.codecs.frames.row_schema import MESSAGE_COLUMNS
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.entries.entry_choice import Coverage, Limits, choose
from pulsar_meta.jobs.messages.reading import MessageCounts, MessageOptions
from pulsar_meta.jobs.messages.stream import read_messages
from pulsar_meta.jobs.spark.message_source import MessageSourceReader
from pulsar_meta.stores.registry import open_store
from tests.seek_truth import Truth, bookie_urls, is_encrypted, is_transactional, read_truth

# Topic, ledger, entry, batch index or -1. The topic is needed because shadow topics share ledgers.
Place = tuple[str, int, int, int]

SAME = "the same"
ENCRYPTED = "encrypted: the same but for the payload, which no row has"
# The names in the truth, and the values of a message without them.
FIELDS = {
    "prod": "producer_name",
    "seq": "sequence_id",
    "pt": "publish_time",
    "bt": "broker_timestamp",
    "key": "key",
}


@dataclass
class RowTable:
    """The truth's messages, compared with rows. `values` counts those that Java decoded, by type."""

    found: Counter[str] = field(default_factory=Counter)
    values: Counter[str] = field(default_factory=Counter)
    more: int = 0
    wrong: list[str] = field(default_factory=list)


def rows_of(
    folder: Path, topics: list[str], *, readable: bool = True
) -> tuple[dict[Place, Document], MessageCounts]:
    """Return the rows of topics by their places, and the counts."""
    counts, rows, faults = MessageCounts(), dict[Place, Document](), list[Any]()
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries(bookie_urls(folder)) as source,
    ):
        places = ((choice, Limits()) for choice in choose(topics, store, source, faults.append))
        options, seen = MessageOptions(), Coverage()
        for batch in read_messages(
            places, source, store, options, faults.append, counts, seen, readable=readable
        ):
            rows |= {place_of(row): row for row in batch.to_pylist()}
    assert faults == []
    return rows, counts


def source_rows(folder: Path, topics: list[str]) -> dict[Place, Document]:
    """Return the same rows read by Spark's data source, with its tasks and reader pickled as Spark does."""
    options = {
        "store": f"snapshot:{folder / 'metadata.ndjson'}", "entries": json.dumps(bookie_urls(folder)),
        "topics": json.dumps(topics), "readable": "true", "entriesperpartition": "40",
    }  # fmt: skip
    reader = MessageSourceReader(options, MESSAGE_COLUMNS)
    rows = dict[Place, Document]()
    for part in reader.partitions():
        there, sent = pickle.loads(pickle.dumps((reader, part)))
        for row in (row for batch in there.read(sent) for row in batch.to_pylist()):
            rows[place_of(row)] = row
    return rows


def place_of(row: Document) -> Place:
    """Return the place of a row's message."""
    batch_index = -1 if row["batch_index"] is None else row["batch_index"]
    return row["topic"], row["ledger_id"], row["entry_id"], batch_index


def truth_topics(truth: dict[str, Truth]) -> list[str]:
    """Return the topics whose messages are in the truth."""
    return sorted(topic for topic, facts in truth.items() if facts.get("messages"))


def compare_rows(folder: Path) -> RowTable:
    """Compare the rows of a capture with its truth."""
    topics = truth_topics(read_truth(folder))
    return compared(folder, rows_of(folder, topics)[0])


def compared(folder: Path, rows: dict[Place, Document]) -> RowTable:
    """Compare these rows with a capture's truth."""
    table, truth = RowTable(), read_truth(folder)
    topics = truth_topics(truth)
    for topic in topics:
        values = {(value["l"], value["e"], value["b"]): value for value in truth[topic].get("values", ())}
        for expected in truth[topic]["messages"]:
            place = (expected["l"], expected["e"], -1 if expected.get("b") is None else expected["b"])
            row = rows.pop((topic, *place), None)
            faults = ["no row"] if row is None else list(differences(topic, expected, row))
            if row is not None and place in values and not faults:
                faults += wrong_value(values[place], row)
                table.values[str(values[place]["type"])] += 1
            if faults:
                table.wrong.append(f"{topic} {place}: {', '.join(faults)}")
            else:
                table.found[ENCRYPTED if is_encrypted(topic) else SAME] += 1
    table.more = len(rows)
    for left, row in rows.items():
        if not is_encrypted(row["topic"]):
            table.wrong.append(f"{left}: a row that no reader was given")
    return table


def differences(topic: str, expected: dict[str, Any], row: Document) -> Iterator[str]:
    """Yield the differences from the message that the client received."""
    for name, column in FIELDS.items():
        if name in expected and row[column] != expected[name]:
            yield f"{column} {row[column]}, the truth has {expected[name]}"
    if (row["event_time"] or 0) != expected["et"]:
        yield "another event time"
    if dict(row["properties"]) != expected["props"]:
        yield "other properties"
    # Batches in transactions count as one message, which the client does not know.
    if expected.get("ix") is not None and row["index"] != expected["ix"] and not is_transactional(topic):
        yield f"index {row['index']}, the truth has {expected['ix']}"
    if is_encrypted(topic) and row["payload"] is None:
        return
    if hashlib.sha256(row["payload"]).hexdigest()[:16] != expected["sha"]:
        yield "another payload"


def wrong_value(expected: dict[str, Any], row: Document) -> list[str]:
    """Describe the differences between a row's value and the one that Java's client decoded."""
    if row["schema_version"] != expected["version"]:
        return [f"schema version {row['schema_version']}, the truth has {expected['version']}"]
    mine = None if row["value"] is None else json.loads(row["value"])
    kind, text = expected["type"], expected["value"]
    if kind == "KEY_VALUE":
        theirs: Any = {"key": of_java("?", text[0]), "value": of_java("?", text[1])}
    else:
        theirs = None if kind in (None, "BYTES") else of_java(kind, text)
    return [] if same(mine, theirs) else [f"value {mine}, the truth has {theirs}"]


def of_java(kind: str, text: str | None) -> Any:
    """Convert a value as Java prints it to its JSON form."""
    if text is None:
        return None
    if kind in ("DATE", "TIME", "TIMESTAMP"):
        return int(text)
    if kind in ("STRING", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME"):
        return text
    return text if text in ("NaN", "Infinity", "-Infinity") else json.loads(text)


def same(mine: Any, theirs: Any) -> bool:
    """Return True if two values are equal. Ours has numbers as text, bytes as base64, ISO 8601 times."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(same(mine[name], theirs[name]) for name in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, str) and type(theirs) is int:
        return int(mine) == theirs if mine.lstrip("-").isdecimal() else milliseconds(mine) == theirs
    if isinstance(mine, str) and isinstance(theirs, str) and mine != theirs:
        return mine in (f"{theirs}:00", theirs.replace(".500Z", ".5Z"), base64_of(theirs)) or mine == {
            "NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(theirs)  # fmt: skip
    return bool(mine == theirs)


def base64_of(text: str) -> str:
    """Convert bytes that Avro prints as Latin-1 to base64."""
    import base64

    return base64.b64encode(text.encode("latin-1", "replace")).decode()


def milliseconds(text: str) -> int:
    """Convert an ISO 8601 time in UTC to milliseconds."""
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(text)
    return int(
        Decimal((moment - datetime.fromtimestamp(0, UTC)).total_seconds()).scaleb(3).to_integral_value()
    )

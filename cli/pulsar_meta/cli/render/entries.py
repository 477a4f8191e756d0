"""Entries and messages as rows of tables and plain lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pulsar_meta.cli.render.tables import View
from pulsar_meta.cli.render.text import json_line
from pulsar_meta.codecs.frames.row_schema import (
    ENTRY_FIELDS,
    MESSAGE_FIELDS,
    PARQUET_COLUMNS,
    TEMPLATE_COLUMNS,
    types_of,
)
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata

ENTRY_COLUMNS: Final = (
    "position", "index", "time", "producer", "sequence", "messages", "size (bytes)", "codec", "checksum",
    "digest", "properties", "note",
)  # fmt: skip
MESSAGE_COLUMNS: Final = (
    "position", "index", "time", "producer", "sequence", "key", "event time", "size (bytes)", "checksum",
    "digest", "properties", "payload", "note",
)  # fmt: skip
NUMBERS: Final = frozenset({"index", "sequence", "messages", "size (bytes)"})
NONE: Final = "-"
# Characters of a payload or of properties that a table shows.
CELL: Final = 60


def entry_view() -> View:
    """Return a view with one row per entry."""
    return View(ENTRY_COLUMNS, _entry_row, NUMBERS, fields=ENTRY_FIELDS)


def message_view(*, short: bool = False) -> View:
    """Return a view with one row per document of `each_message`; `short` cells are for a terminal."""
    row = (lambda document: [shortened(cell) for cell in _message_row(document)]) if short else _message_row
    return View(MESSAGE_COLUMNS, row, NUMBERS, fields=MESSAGE_FIELDS)


def shortened(text: str) -> str:
    """Shorten a text to a cell, and escape characters that control a terminal."""
    cut = text if len(text) <= CELL else f"{text[: CELL - 1]}…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in cut)


def each_message(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield an entry's document once per message, with `message` set; once if it has no message."""
    for document in documents:
        messages = document["messages"]
        if not messages:
            yield document
        for message in messages:
            yield {**document, "message": message}


# The payload of a message is text in the requested form.
TEMPLATE_TYPES: Final = {**types_of(TEMPLATE_COLUMNS), "payload": "string"}
PARQUET_TYPES: Final = types_of(PARQUET_COLUMNS)


def parquet_row(document: Document) -> Document:
    """Return the Parquet columns of an entry; a number over 2⁶³-1 wraps, as in Java."""
    row = {**flat(document), "properties": list(document["metadata"].get("properties", {}).items())}
    for name, kind in PARQUET_TYPES.items():
        value = row.get(name)
        if kind == "int64" and isinstance(value, str):
            row[name] = (int(value) + 2**63) % 2**64 - 2**63
        elif kind == "string" and isinstance(value, dict):
            row[name] = json_line(value)
    return row


def flat(document: Document) -> Document:
    """Merge the fields of an entry, and of its `message` if it has one, into one object."""
    message = document.get("message", {})
    parts = (document["metadata"], document, message.get("metadata", {}), message)
    return {name: part[name] for part in parts for name in part if name in TEMPLATE_TYPES}


def _entry_row(document: Document) -> list[str]:
    metadata = document["metadata"]
    return [
        f"{document['ledger_id']}:{document['entry_id']}",
        _index_range(document),
        _entry_time(document),
        str(metadata.get("producer_name", NONE)),
        str(metadata.get("sequence_id", NONE)),
        str(metadata.get("num_messages_in_batch", 1 if metadata else NONE)),
        str(document["size"]),
        _compression(metadata),
        document["frame_checksum"],
        document["digest"],
        _properties(metadata),
        _note(document),
    ]


def _message_row(document: Document) -> list[str]:
    message: Document = document.get("message", {})
    of_entry, own = document["metadata"], message.get("metadata", {})
    place = f":{message['batch_index']}" if "batch_index" in message else ""
    return [
        f"{document['ledger_id']}:{document['entry_id']}{place}",
        str(message.get("index", NONE)),
        _entry_time(document),
        str(of_entry.get("producer_name", NONE)),
        str(own.get("sequence_id", of_entry.get("sequence_id", NONE))),
        str(own.get("key", NONE)),
        _time(own.get("event_time")),
        str(message.get("payload_size", document["size"])),
        document["frame_checksum"],
        document["digest"],
        _properties(own),
        str(message.get("payload", message.get("payload_sha256", message.get("payload_file", NONE)))),
        _note(document, own),
    ]


def _compression(metadata: Document) -> str:
    """Return the name of the compression, or `unknown(NUMBER)` if Pulsar has not assigned the number."""
    for field in metadata.get("unknown_fields", ()):
        if field["number"] == MessageMetadata.COMPRESSION_FIELD_NUMBER:
            return f"unknown({field['value']})"
    name: str = metadata.get("compression", "NONE")
    return name.lower()


def _index_range(document: Document) -> str:
    if "index" not in document:
        return NONE
    first, last = document["first_index"], document["last_index"]
    return str(last) if first == last else f"{first}-{last}"


def _entry_time(document: Document) -> str:
    return _time(document.get("broker_timestamp", document["metadata"].get("publish_time")))


def _time(milliseconds: int | str | None) -> str:
    """Format a time; Pulsar writes 0 if there is none."""
    number = int(milliseconds or 0)
    return (iso_time(number) or str(number)) if number else NONE


def _properties(metadata: Document) -> str:
    return " ".join(f"{name}={value}" for name, value in metadata.get("properties", {}).items()) or NONE


def _note(document: Document, own: Document | None = None) -> str:
    metadata = document["metadata"]
    notes = [document["unopened"]] if "unopened" in document else list(shape(metadata))
    if "log" in document:
        notes = [f"{document['unopened'].removeprefix('no frame: ')}: {_records(document['log'])}"]
    notes += [_records(reading) for reading in document.get("readings", ())]
    if document.get("message", {}).get("snapshot"):
        notes.append(_snapshot(document["message"]["snapshot"]))
    if "compacted_from" in document:
        place = document["compacted_from"]
        notes.append(f"compacted from {place['ledger_id']}:{place['entry_id']}")
    for txn in transaction_of(metadata):
        notes.append(f"{txn} {document['transaction_state']}" if "transaction_state" in document else txn)
    notes += _readable(document)
    if own is not None:
        notes += [word for word in ("compacted_out", "null_value") if own.get(word)]
    if document.get("first_index", 0) < 0:
        notes.append(f"index {document['index']} is smaller than its batch")
    if "broker_metadata" in document:
        numbers = (str(field["number"]) for field in document["broker_metadata"]["unknown_fields"])
        notes.append(f"unknown broker fields {', '.join(numbers)}")
    if "where" in document:
        notes.append(f"decided by the {document['where']['decided_at']}")
    notes += segment_of(document)
    return ", ".join(notes) or NONE


def _readable(document: Document) -> Iterator[str]:
    """Yield the reason why consumers don't receive a message, unless the note has it already."""
    readable, state = document.get("readable", True), document.get("transaction_state")
    if "forgotten" in document:
        yield "not in the newest snapshot"
    if readable is None:
        yield "may not be readable"
    elif not readable and "marker_type" not in document["metadata"] and state not in ("aborted", "open"):
        yield "behind an open transaction"


def _records(log: Document) -> str:
    """Describe the records of a log entry, each starting with its transaction."""
    return "; ".join(" ".join(_record(record)) for record in log["records"])


def _record(record: Document) -> Iterator[str]:
    yield f"txn {record['txn']}"
    yield str(record.get("metadata_op") or record.get("pending_ack_op"))
    # str(): a name that is not UTF-8 is an object, and an unknown status is a number.
    yield from (str(record[name]) for name in ("new_status", "ack_type") if name in record)
    yield from map(str, record.get("partitions", ()))
    for subscription in record.get("subscriptions", ()):
        yield f"{subscription.get('subscription', NONE)} of {subscription.get('topic', NONE)}"
    for position in record.get("pending_ack_metadata", ()):
        yield f"{position.get('ledgerId', NONE)}:{position.get('entryId', NONE)}"


def _snapshot(snapshot: Document) -> str:
    """Summarize a snapshot of a transaction buffer."""
    parts = []
    newest = snapshot.get("snapshot") or snapshot
    if "maxReadPositionLedgerId" in newest:
        parts.append(f"up to {newest['maxReadPositionLedgerId']}:{newest['maxReadPositionEntryId']}")
    parts.append(f"{len(newest.get('aborts') or ())} aborted")
    if "indexList" in snapshot:
        parts.append(f"{len(snapshot['indexList'] or ())} segments")
    return f"snapshot of {snapshot['topicName']}: {', '.join(parts)}"


def segment_of(document: Document) -> Iterator[str]:
    """Yield the segment of an entry if it was selected by the name of a scalable topic."""
    if "scalable_topic" in document:
        yield document["topic"]


def transaction_of(metadata: Document) -> Iterator[str]:
    """Yield the transaction of an entry, if it belongs to one."""
    if "txnid_most_bits" in metadata:
        yield f"txn {metadata['txnid_most_bits']}:{metadata.get('txnid_least_bits', 0)}"


def shape(metadata: Document) -> Iterator[str]:
    """Yield the kind of an entry, unless it is an ordinary message."""
    if "marker_type" in metadata:
        yield f"marker {metadata['marker_type']}"
    if metadata.get("encryption_keys"):
        yield "encrypted"
    if metadata.get("num_chunks_from_msg", 1) > 1:
        yield f"chunk {metadata.get('chunk_id', 0) + 1} of {metadata['num_chunks_from_msg']}"

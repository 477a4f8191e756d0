"""A report that compares the program's output for a capture with what the broker reported.

    python -m tests.capture_report FOLDER...

FOLDER is an unpacked capture: fixtures/captures/NAME.tar.xz with its truth, or a new one. Values, messages
and cursors go through the commands `decode`, `encode`, `dump-entries --deep` and `show-cursor`. Exits with 1
if anything is wrong or unexplained.
"""

from __future__ import annotations

import base64
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.batch import decompress_payload
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.stores.registry import open_store
from tests.cli.program import pulsar_meta_here
from tests.cursor_truth import CursorTable, compare_cursors
from tests.message_truth import RowTable, compare_rows
from tests.seek_truth import (
    SeekTable,
    Truth,
    bookie_urls,
    compare_capture,
    is_encrypted,
    is_transactional,
    read_truth,
)

CHUNKED = "in chunks, joined the same"
ENCRYPTED = "encrypted, no key"
FORGOTTEN = "aborted, and the broker had lost that out of its snapshots"


def run(*arguments: str, feed: bytes | None = None) -> bytes:
    """Return the stdout of a command. The exit code may report faults."""
    done = pulsar_meta_here(*arguments, stdin=feed or b"")
    if done.returncode not in (0, 4):
        raise SystemExit(f"pulsar-meta {' '.join(arguments[:3])}: {done.stderr.decode()}")
    return done.stdout


@dataclass
class ValueTable:
    """Counts of values by (kind, codec): all, decoded, and encoded again without a change."""

    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    decoded: Counter[tuple[str, str]] = field(default_factory=Counter)
    same: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def payload_of(value: bytes) -> bytes:
    """Return the payload of an envelope, or the value itself if it has none."""
    try:
        envelope = open_envelope(value)
    except DecodeError:
        return value
    return value if envelope is None else envelope.payload


def report_values(folder: Path) -> ValueTable:
    """Decode and encode every value of every snapshot in the folder."""
    table = ValueTable()
    for snapshot in sorted(folder.glob("metadata*.ndjson")):
        text = run("decode", "--store", f"snapshot:{snapshot}", "-o", "ndjson")
        documents = [json.loads(line) for line in text.splitlines()]
        encoded = {
            line["path"]: base64.b64decode(line["value"])
            for line in map(json.loads, run("encode", "-", feed=text).splitlines())
        }
        stored = {
            line["path"]: base64.b64decode(line["value"])
            for line in map(json.loads, snapshot.read_bytes().splitlines())
        }
        by_path = {document["path"]: document for document in documents}
        for path, value in stored.items():
            count_value(table, by_path.get(path), value, encoded.get(path), f"{snapshot.name} {path}")
    return table


def count_value(
    table: ValueTable, document: dict[str, Any] | None, value: bytes, encoded: bytes | None, name: str
) -> None:
    """Add one value to the table."""
    envelope = document.get("envelope") if document else None
    key = document["kind"] if document else "?", envelope["codec"] if envelope else "plain"
    table.seen[key] += 1
    if document is None or "error" in document:
        table.wrong.append(f"{name}: not decoded")
        return
    table.decoded[key] += 1
    if encoded is not None and payload_of(encoded) == payload_of(value):
        table.same[key] += 1
    else:
        table.wrong.append(f"{name}: encoded to other bytes")


def report_rocksdb(folder: Path) -> str:
    """Compare the standalone's own database with the snapshot of the same metadata."""
    if not (folder / "rocksdb").exists():
        return "no rocksdb"
    with open_store(f"rocksdb:{folder / 'rocksdb'}") as database:
        stored = {record.path: record.value for record in database.scan("/")}
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as snapshot:
        same = sum(stored.get(record.path) == record.value for record in snapshot.scan("/"))
    return f"rocksdb: {len(stored)} values, {same} equal to those of metadata.ndjson"


@dataclass
class MessageTable:
    """The truth's messages, compared with those that `dump-entries --deep` shows."""

    total: int = 0
    same: int = 0
    otherwise: Counter[str] = field(default_factory=Counter)
    more: int = 0
    wrong: list[str] = field(default_factory=list)


def shown(folder: Path, topics: list[str]) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Yield (entry, message) of topics. For an entry that can't be opened, the message is None."""
    sources = [part for url in bookie_urls(folder) for part in ("--entries", url)]
    store = f"snapshot:{folder / 'metadata.ndjson'}"
    how = ("--deep", "--payload", "hash", "--transactions", "-o", "ndjson")
    text = run("dump-entries", *topics, *how, "--store", store, *sources)
    for entry in map(json.loads, text.splitlines()):
        for message in entry["messages"] or [None]:
            yield entry, message


def report_messages(folder: Path, truth: dict[str, Truth]) -> MessageTable:
    """Compare the position, index, properties and payload hash of every message."""
    table, shown_messages = MessageTable(), {}
    topics = sorted(topic for topic, facts in truth.items() if facts.get("messages"))
    for entry, message in shown(folder, topics):
        batch = -1 if message is None else message.get("batch_index", -1)
        shown_messages[entry["ledger_id"], entry["entry_id"], batch] = (entry, message)
    with open_entries(bookie_urls(folder)) as source:
        matched = {
            match_message(table, topic, message, shown_messages, source, ledgers_of(truth[topic]))
            for topic in topics
            for message in truth[topic]["messages"]
        }
    table.more = len(set(shown_messages) - matched)
    transactional = {
        ledger for topic in topics if is_transactional(topic) for ledger in ledgers_of(truth[topic])
    }
    for place in sorted(set(shown_messages) - matched):
        entry = shown_messages[place][0]
        if entry["ledger_id"] in transactional and entry["readable"] is not False:
            table.wrong.append(f"{place}: readable is {entry['readable']}, and no reader was given it")
    return table


def ledgers_of(facts: Truth) -> list[int]:
    """Return the ids of a topic's ledgers as the broker listed them."""
    kept = "internal-info" if "internal-info" in facts else "internalStats"
    return [ledger["ledgerId"] for ledger in facts[kept]["ledgers"]]


def match_message(
    table: MessageTable,
    topic: str,
    expected: dict[str, Any],
    shown_messages: dict[Any, Any],
    source: EntrySource,
    ledgers: list[int],
) -> object:
    """Compare one message of the truth with the one shown at its place, and return that place."""
    table.total += 1
    batch = expected.get("b")
    place = (expected["l"], expected["e"], -1 if batch is None else batch)
    entry, message = shown_messages.get(place, (None, None))
    faults: list[str] = []
    if entry is None:
        faults = ["not shown"]
    elif "forgotten" in entry:
        table.otherwise[FORGOTTEN] += 1
    elif entry["readable"] is not True:
        faults = ["marked as invisible to consumers, but a consumer received it"]
    elif message is not None:
        faults = list(differences(topic, expected, entry, message))
    elif "num_chunks_from_msg" in entry["metadata"]:
        table.otherwise[CHUNKED] += 1
        if joined_chunks(source, ledgers, (expected["l"], expected["e"]))[:16] != expected["sha"]:
            faults = ["another payload in its chunks"]
    elif is_encrypted(topic):
        table.otherwise[ENCRYPTED] += 1
    else:
        faults = [f"not opened: {entry.get('unopened')}"]
    if faults:
        table.wrong.append(f"{topic} {place}: {', '.join(faults)}")
    elif message is not None:
        table.same += 1
    return place


def joined_chunks(source: EntrySource, ledgers: Iterable[int], last: tuple[int, int]) -> str:
    """Return the SHA-256 of a chunked message whose last chunk is the entry `last`."""
    raws = (raw for ledger_id in ledgers for raw in source.read_many(ledger_id))
    frames = {(raw.ledger_id, raw.entry_id): decode_frame(decode_bookie_entry(raw.data).data) for raw in raws}
    metadata = frames[last].metadata
    parts = {
        frame.metadata.chunk_id: bytes(frame.payload)
        for place, frame in frames.items()
        if frame.metadata.uuid == metadata.uuid and place <= last
    }
    joined = b"".join(parts[number] for number in sorted(parts))
    return sha256(decompress_payload(metadata, joined)).hexdigest()


def differences(
    topic: str, expected: dict[str, Any], entry: dict[str, Any], message: dict[str, Any]
) -> Iterator[str]:
    """Yield the differences from the message that the client received."""
    if (
        expected.get("ix") is not None
        and message.get("index") != expected["ix"]
        and not is_transactional(topic)
    ):
        yield f"index {message.get('index')}, the truth has {expected['ix']}"
    if message["metadata"].get("properties", {}) != expected["props"]:
        yield "other properties"
    if not message["payload_sha256"].startswith(expected["sha"]):
        yield "another payload"
    if expected.get("bt") is not None and entry.get("broker_timestamp") != expected["bt"]:
        yield "another broker timestamp"
    if entry["frame_checksum"] == "bad" or entry["digest"] == "bad":
        yield "a wrong checksum"


def lines_of(
    folder: Path,
    values: ValueTable,
    messages: MessageTable,
    rows: RowTable,
    seek: SeekTable,
    cursors: CursorTable,
) -> Iterable[str]:
    """Yield the report of one capture."""
    yield f"## {folder.name}"
    yield ""
    yield "| kind | codec | values | decoded | same payload again |"
    yield "|---|---|---:|---:|---:|"
    for key in sorted(values.seen):
        yield f"| {key[0]} | {key[1]} | {values.seen[key]} | {values.decoded[key]} | {values.same[key]} |"
    totals = (values.seen.total(), values.decoded.total(), values.same.total())
    yield f"| all | | {totals[0]} | {totals[1]} | {totals[2]} |"
    yield ""
    yield report_rocksdb(folder)
    yield (
        f"messages in the truth: {messages.total}; shown the same: {messages.same}; "
        + "; ".join([*(f"{reason}: {count}" for reason, count in sorted(messages.otherwise.items())), ""])
        + f"entries or messages that no consumer was given: {messages.more}"
    )
    compared = "; ".join(f"{how}: {count}" for how, count in sorted(rows.found.items()))
    yield (
        f"messages as rows, of those readers are given: {compared};"
        f" values as the client decoded them: {rows.values.total()}"
    )
    yield f"indexes asked: {seek.indexes}; as the truth: {seek.indexes_right}"
    yield f"times asked: {seek.times}; as by reading every entry: {seek.times_right}"
    for what, counts in (("index", seek.by_index), ("time", seek.by_time)):
        yield f"the broker's own answers by {what}: {counts.total()}"
        yield from (f"  {count:6} {reason}" for reason, count in counts.most_common())
    yield (
        f"cursors in the truth: {cursors.total}; as the broker said: {cursors.right};"
        f" of these with their state in a ledger: {cursors.in_ledgers}"
    )
    yield from (f"  {count:6} {reason}" for reason, count in cursors.by_reason.most_common())
    faults = [*values.wrong, *messages.wrong, *rows.wrong, *seek.wrong, *cursors.wrong]
    yield f"wrong or not explained: {len(faults)}"
    yield from (f"  {fault}" for fault in faults[:20])
    yield ""


def main(folders: list[str]) -> int:
    """Print the report of each folder. Returns 1 if anything is wrong."""
    if not folders:
        raise SystemExit(__doc__)
    worst = 0
    for folder in map(Path, folders):
        values, seek = report_values(folder), compare_capture(folder)
        messages, cursors = report_messages(folder, read_truth(folder)), compare_cursors(folder)
        rows = compare_rows(folder)
        print("\n".join(lines_of(folder, values, messages, rows, seek, cursors)))
        worst |= bool(values.wrong or messages.wrong or rows.wrong or seek.wrong or cursors.wrong)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

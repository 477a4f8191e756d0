"""Every message that the Java client read, compared field by field with `dump-entries --deep`."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import orjson

from pulsar_meta.codecs.frames.batch import decompress_payload
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import Frame, decode_frame
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from tests.cli.program import pulsar_meta_here

Position = tuple[int, int]

SAME = "the same"
CHUNKED = "chunked: the same when its chunks are joined"
ENCRYPTED = "encrypted: the same bytes"
TRANSACTION = "in a transaction, the same except for the client's index (real batches count one)"


def compare(capture: Path, entries: str) -> Counter[str]:
    """Count the truth's messages by how they compare with `dump-entries --deep`.

    `entries` is the URL of the capture's disks. Any result except the four constants above is a difference.
    """
    results: Counter[str] = Counter()
    with open_entries([entries]) as source:
        for truth in sorted(capture.glob("truth*.json")):
            topics = orjson.loads(truth.read_bytes())
            named = {name: facts for name, facts in topics.items() if facts.get("messages")}
            shown = dump(capture, entries, sorted(named))
            chunks = Chunks(source, shown)
            for facts in named.values():
                for message in facts["messages"]:
                    results[_compare_one(message, shown, chunks)] += 1
    return results


def dump(capture: Path, entries: str, names: list[str]) -> dict[Position, Document]:
    """Return the documents of the entries of topics."""
    arguments = ["--store", f"snapshot:{capture / 'metadata.ndjson'}", "--entries", entries]
    options = ["--deep", "--payload", "hash", "-o", "ndjson"]
    done = pulsar_meta_here("dump-entries", *names, *arguments, *options)
    assert done.returncode == 0, done.stderr
    documents = [orjson.loads(line) for line in done.stdout.splitlines()]
    return {(document["ledger_id"], document["entry_id"]): document for document in documents}


class Chunks:
    """Frames of messages that can't be shown one by one, read from the source itself."""

    def __init__(self, source: EntrySource, shown: dict[Position, Document]) -> None:
        self._source = source
        self._positions: defaultdict[str, list[Position]] = defaultdict(list)
        for position, document in shown.items():
            if "uuid" in document["metadata"]:
                self._positions[document["metadata"]["uuid"]].append(position)

    def frame(self, position: Position) -> Frame:
        """Return the frame of one entry."""
        return decode_frame(decode_bookie_entry(self._source.read(*position).data).data)

    def joined(self, position: Position) -> memoryview:
        """Return the payload of the chunked message whose last chunk is at `position`."""
        last = self.frame(position).metadata
        frames = [self.frame(at) for at in self._positions[last.uuid] if at <= position]
        frames.sort(key=lambda frame: frame.metadata.chunk_id)
        assert [frame.metadata.chunk_id for frame in frames] == list(range(last.num_chunks_from_msg))
        payload = b"".join(frame.payload for frame in frames)
        assert len(payload) == last.total_chunk_msg_size
        return decompress_payload(last, payload)


def _compare_one(expected: Document, shown: dict[Position, Document], chunks: Chunks) -> str:
    position = (expected["l"], expected["e"])
    document = shown.get(position)
    if document is None:
        return "entry not shown"
    if (document["frame_checksum"], document["digest"]) != ("ok", "ok"):
        return "a checksum is not right"
    if "unopened" in document:
        return _compare_unopened(expected, document, position, chunks)
    places = {message.get("batch_index", -1): message for message in document["messages"]}
    message = places.get(expected.get("b", -1))
    if message is None:
        return "message not shown"
    differences = [*_differences(expected, document, message)]
    if differences:
        return f"differs: {', '.join(differences)}"
    return TRANSACTION if "txnid_most_bits" in document["metadata"] else SAME


def _compare_unopened(expected: Document, document: Document, position: Position, chunks: Chunks) -> str:
    chunk = document["unopened"].startswith("chunk")
    payload = chunks.joined(position) if chunk else chunks.frame(position).payload
    differences = [*_entry_differences(expected, document)]
    if hashlib.sha256(payload).hexdigest()[:16] != expected["sha"]:
        differences.append("sha")
    if differences:
        return f"{document['unopened']} differs: {', '.join(differences)}"
    return CHUNKED if chunk else ENCRYPTED


def _entry_differences(expected: Document, document: Document) -> Iterator[str]:
    metadata = document["metadata"]
    if expected["prod"] != metadata["producer_name"]:
        yield "prod"
    if expected["pt"] != metadata["publish_time"]:
        yield "pt"
    # The client of 2.8.2 does not report them, so they are absent from its truth.
    if expected.get("bt") is not None and expected["bt"] != document.get("broker_timestamp"):
        yield "bt"


def _differences(fields: Document, document: Document, message: Document) -> Iterator[str]:
    yield from _entry_differences(fields, document)
    own = message["metadata"]
    index = message.get("index")
    if "txnid_most_bits" in document["metadata"] and index is not None:
        # The client computes the index as if the batch had advanced it by its size.
        index += message.get("batch_index", 0) - max(fields["n"], 1) + 1
    pairs = {
        "ix": (fields.get("ix", index) if fields.get("bt") is not None else index, index),
        "et": (fields["et"], own.get("event_time", 0)),
        "key": (fields.get("key"), own.get("key")),
        "props": (fields["props"], own.get("properties", {})),
        "seq": (fields["seq"], own.get("sequence_id", document["metadata"]["sequence_id"])),
        # The client returns no payload for a null value, but the entry has an empty one.
        "len": (fields["len"], None if own.get("null_value") else message["payload_size"]),
        "sha": (fields["sha"], message["payload_sha256"][:16]),
    }
    yield from (name for name, (expected, actual) in pairs.items() if expected != actual)

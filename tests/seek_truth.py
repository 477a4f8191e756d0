"""Positions of messages in a capture's truth and answers of its broker, compared with `seek`.

Used by the tests of seek and by the capture report (`python -m tests.capture_report`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame, decode_raw_message
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.seek.questions import INDEX, Kind, Question, SeekOptions
from pulsar_meta.jobs.seek.readings import CLOCKS, Reading, State, read_one
from pulsar_meta.jobs.seek.seek import Seeker, plan_topic, reading_order
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store

CAPTURES = (
    "pulsar-2.8.2", "pulsar-3.0.7", "pulsar-4.0.7", "pulsar-4.2.4", "pulsar-4.2.4-killed",
    "pulsar-4.2.4-3bookies", "pulsar-5.0.0-M1",
    "pulsar-5.0.0-M1-scalable", "pulsar-5.0.0-M1-scalable-running",
)  # fmt: skip
Truth = dict[str, Any]
At = tuple[int, int]

SAME = "the same"
BOTH_NOWHERE = "both: nowhere"
FIRST_ENTRY = "first entry of the topic: the broker answers -1:-1 below the entry's last index"
NO_METADATA = "the topic's first entry has no broker metadata: the broker answers 412 for every index"
TERMINATED = "terminated topic: the broker fails with 500"
NEXT_POSITION = "after the last entry, the broker answers with the position of the next one"
TERMINATED_TIME = "terminated topic: the broker finds nothing by time but its first entry"
COMPACTED = "compacted topic: the broker looks among the compacted entries, by their publish time"
NOT_WRITTEN = "shadow or terminated topic: of the last ledger the broker looks at the first entry alone"
NO_CALL = "the client of that version has no such call"


def read_truth(folder: Path) -> dict[str, Truth]:
    """Return the truth of each topic. Topics that loaded only after a repair are in a second file."""
    truth: dict[str, Truth] = orjson.loads((folder / "truth.json").read_bytes())
    cured = folder / "truth-after-revert.json"
    if cured.exists():
        for topic, facts in orjson.loads(cured.read_bytes()).items():
            if not truth.get(topic, {}).get("messages"):
                truth[topic] = facts
    # A scalable topic has no messages of its own, because they are in its segments.
    return {topic: facts for topic, facts in truth.items() if "record" not in facts}


def bookie_urls(folder: Path) -> list[str]:
    """Return the entry source URLs of a capture, one for each bookie's disk."""
    return [f"bookie-disk:{path}" for path in sorted(folder.glob("bookie*"))]


@dataclass
class CaptureSeek:
    """A capture opened for seeking."""

    folder: Path
    options: SeekOptions = field(default_factory=SeekOptions)

    def __post_init__(self) -> None:
        self.truth = read_truth(self.folder)
        self.store: Store = open_store(f"snapshot:{self.folder / 'metadata.ndjson'}")
        self.source: EntrySource = open_entries(bookie_urls(self.folder))
        self.seekers: dict[str, Seeker] = {}
        self.entries: dict[str, list[Reading]] = {}
        self.compacted: dict[str, list[tuple[At, int]]] = {}

    def seeker(self, topic: str) -> Seeker:
        """Return the seeker of a topic, created once."""
        if topic not in self.seekers:
            plan = plan_topic(self.store, self.source, TopicName.parse(topic), self.options, print)
            self.seekers[topic] = Seeker(plan, self.source, self.options)
        return self.seekers[topic]

    def ask(self, topic: str, kind: Kind, target: int) -> Document:
        """Return the answer to one question."""
        return self.seeker(topic).ask(Question(topic, kind, target))

    def readings(self, topic: str) -> list[Reading]:
        """Read every entry of a topic one after the other."""
        if topic not in self.entries:
            order = reading_order(self.seeker(topic).plan, self.source)
            positions = [order.position(ordinal) for ordinal in range(order.total)]
            self.entries[topic] = [read_one(self.source, *position) for position in positions]
        return self.entries[topic]

    def compacted_times(self, topic: str) -> list[tuple[At, int]]:
        """Return (original position, publish time) of the entries in the topic's compacted ledger."""
        if topic not in self.compacted:
            cursors = self.truth[topic]["internal-info"]["cursors"]
            ledger = cursors.get("__compaction", {}).get("properties", {}).get("CompactedTopicLedger")
            entries = self.source.read_many(ledger) if ledger is not None else ()
            self.compacted[topic] = [_compacted_entry(bytes(raw.data)) for raw in entries]
        return self.compacted[topic]

    def uses_only_first_entry(self, topic: str, ours: At | None, broker: object) -> bool:
        """Return True if the broker answers with the first entry of a last ledger that it does not write to.

        Such a ledger has no count of its entries. It belongs to a shadow topic or to a terminated one.
        """
        readings = self.readings(topic)
        last = readings[-1].ledger_id if readings else -1
        if broker != (last, 0) or (ours is not None and ours[0] != last):
            return False
        if "terminatedPosition" in self.truth[topic]["internal-info"]:
            return True
        return read_topic(self.store, TopicName.parse(topic)).shadow is not None

    def close(self) -> None:
        """Close the store and the source."""
        self.store.close()
        self.source.close()


def _compacted_entry(data: bytes) -> tuple[At, int]:
    raw = decode_raw_message(decode_bookie_entry(data).data)
    publish_time = decode_frame(raw.frame, verify=False).metadata.publish_time
    return (raw.message_id.ledgerId, raw.message_id.entryId), publish_time


def entry_ranges(readings: Sequence[Reading]) -> dict[int, Reading]:
    """Map each index to the first entry that has it."""
    entries: dict[int, Reading] = {}
    for reading in readings:
        if reading.state is State.READ and reading.first_index is not None and reading.last_index is not None:
            for index in range(reading.first_index, reading.last_index + 1):
                entries.setdefault(index, reading)
    return entries


def is_transactional(topic: str) -> bool:
    """Return True if the client computed wrong indexes, as for batches in transactions."""
    return topic.endswith(("/txn", "/money")) or "/txn/" in topic


def is_encrypted(topic: str) -> bool:
    """Return True if the truth was read by a consumer without the key."""
    return topic.endswith("/encrypted")


def expected_indexes(topic: str, facts: Truth) -> Iterator[tuple[int, At, int]]:
    """Yield (index, position, batch index) of the messages whose index in the truth is right."""
    for message in facts.get("messages", []):
        batch = message.get("b", -1)
        if message.get("ix") is None:
            continue
        if is_transactional(topic) and batch not in (-1, message.get("n", 0) - 1):
            continue
        yield message["ix"], (message["l"], message["e"]), batch


def expected_times(facts: Truth) -> list[tuple[int, At]]:
    """Return (time, position) of the messages in reading order, by the clock that the broker uses."""
    return [
        (message["pt"] if message.get("bt") is None else message["bt"], (message["l"], message["e"]))
        for message in facts.get("messages", [])
    ]


def position_of(answer: Document) -> At | None:
    """Return the position in an answer, or None if nothing was found."""
    return (answer["ledger_id"], answer["entry_id"]) if answer["status"] == "found" else None


def brokers_index_answer(answer: object) -> At | str:
    """Return the position that the broker answered, or the number of its HTTP error."""
    if isinstance(answer, dict):
        return answer["ledgerId"], answer["entryId"]
    return str(answer).split()[2].rstrip(":") if "HTTP Error" in str(answer) else str(answer)


def compare_index(capture: CaptureSeek, topic: str, index: int, brokers_answer: object) -> str | None:
    """Explain how the answer for an index and the broker's relate. Returns None if that is unexplained."""
    ours, broker = position_of(capture.ask(topic, INDEX, index)), brokers_index_answer(brokers_answer)
    readings = capture.readings(topic)
    if ours == broker:
        return SAME
    if ours is None and broker == "404":
        return BOTH_NOWHERE
    if capture.uses_only_first_entry(topic, ours, broker):
        return NOT_WRITTEN
    first = readings[0] if readings else None
    if first is None or (broker == "412" and first.last_index is None):
        return NO_METADATA if first else None
    here = (first.ledger_id, first.entry_id)
    if broker == (-1, -1) and ours in (None, here) and first.last_index and index < first.last_index:
        return FIRST_ENTRY
    return (
        TERMINATED
        if broker == "500" and "terminatedPosition" in capture.truth[topic]["internal-info"]
        else None
    )


def compare_time(capture: CaptureSeek, topic: str, time: int, brokers_answer: str) -> str | None:
    """Explain how the answer for a time and the broker's relate. Returns None if that is unexplained."""
    answer = capture.ask(topic, "time", time)
    ours = position_of(answer)
    broker: At | str = brokers_answer
    if brokers_answer[:1].isdigit() or brokers_answer.startswith("-1:"):
        ledger, entry, *_ = brokers_answer.split(":")
        broker = int(ledger), int(entry)
    if ours == broker:
        return SAME
    if capture.uses_only_first_entry(topic, ours, broker):
        return NOT_WRITTEN
    if "terminatedPosition" in capture.truth[topic]["internal-info"] and isinstance(broker, str):
        return TERMINATED_TIME
    if answer["status"] == "after-last" and isinstance(broker, tuple):
        readings = capture.readings(topic)
        return (
            NEXT_POSITION
            if all(broker > (reading.ledger_id, reading.entry_id) for reading in readings)
            else None
        )
    if broker == broker_in_compacted(capture.compacted_times(topic), time):
        return COMPACTED
    return NO_CALL if "TopicsImpl' object" in brokers_answer else None


def broker_in_compacted(kept: Sequence[tuple[At, int]], time: int) -> At | None:
    """Return the entry that the broker finds in a compacted ledger, the last one with that time."""
    if kept and kept[-1][1] == time:
        return kept[-1][0]
    return next((position for position, published in kept if published >= time), None)


@dataclass
class SeekTable:
    """The result of comparing one capture."""

    indexes: int = 0
    indexes_right: int = 0
    times: int = 0
    times_right: int = 0
    by_index: Counter[str] = field(default_factory=Counter)
    by_time: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def first_at_or_after(readings: Sequence[Reading], time: int) -> At | None:
    """Return the first entry at or after `time`, by the broker's or else the publish time, in a full scan."""
    for reading in readings:
        value = CLOCKS["auto"](reading)
        if value is not None and value[0] >= time:
            return reading.ledger_id, reading.entry_id
    return None


def compare_topic(capture: CaptureSeek, topic: str, facts: Truth, table: SeekTable) -> None:
    """Compare a topic with the truth, with a full scan and with the broker's answers."""
    readings = capture.readings(topic)
    entries = entry_ranges(readings)
    expected: dict[int, tuple[At, int | None]] = {
        index: ((reading.ledger_id, reading.entry_id), None) for index, reading in entries.items()
    }
    for index, position, batch in expected_indexes(topic, facts):
        # A consumer without the key sees an encrypted batch as one message.
        expected[index] = (position, None if is_transactional(topic) or is_encrypted(topic) else batch)
    for index, (position, place) in sorted(expected.items()):
        answer = capture.ask(topic, INDEX, index)
        table.indexes += 1
        if position_of(answer) == position and place in (None, answer["batch_index"]):
            table.indexes_right += 1
        else:
            table.wrong.append(f"{topic} index {index}: {answer}, the truth is {position} {place}")
    for said_index, brokers_answer in facts.get("getMessageIdByIndex", {}).items():
        reason = compare_index(capture, topic, int(said_index), brokers_answer)
        table.by_index[reason or "UNEXPLAINED"] += 1
        if reason is None:
            ours = capture.ask(topic, INDEX, int(said_index))
            table.wrong.append(f"{topic} index {said_index}: ours {ours}, the broker's {brokers_answer}")
    compare_times(capture, topic, facts, table)


def compare_times(capture: CaptureSeek, topic: str, facts: Truth, table: SeekTable) -> None:
    """Compare by time: each probed time, and for each message its time and the next millisecond."""
    readings = capture.readings(topic)
    probed = {int(time) for time in facts.get("getMessageIdByTimestamp", {})}
    for time in sorted(probed | {time + off for time, _ in expected_times(facts) for off in (0, 1)}):
        answer = capture.ask(topic, "time", time)
        table.times += 1
        if position_of(answer) == first_at_or_after(readings, time):
            table.times_right += 1
        else:
            table.wrong.append(f"{topic} time {time}: {answer}")
    for said_time, brokers_answer in facts.get("getMessageIdByTimestamp", {}).items():
        reason = compare_time(capture, topic, int(said_time), brokers_answer)
        table.by_time[reason or "UNEXPLAINED"] += 1
        if reason is None:
            ours = capture.ask(topic, "time", int(said_time))
            table.wrong.append(f"{topic} time {said_time}: ours {ours}, the broker's {brokers_answer}")


def compare_capture(folder: Path) -> SeekTable:
    """Compare all topics of a capture."""
    capture, table = CaptureSeek(folder), SeekTable()
    try:
        for topic, facts in sorted(capture.truth.items()):
            compare_topic(capture, topic, facts, table)
    finally:
        capture.close()
    return table

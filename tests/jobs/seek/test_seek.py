"""Seek in topics in memory: every kind of answer."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.seek.questions import Question, SeekOptions
from pulsar_meta.jobs.seek.seek import seek
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from tests.topic_builder import MemoryEntries, TopicBuilder


class World:
    """A store and a source with one topic `t`: ledgers 3 (closed) and 7 (open).

    Entries: 3:0 index 0, 3:1 batch 1-5, 3:2 transaction batch 6, 7:0 batch of one 7, 7:1 index 8.
    """

    def __init__(self) -> None:
        self.store, self.source = MemoryStore(), MemoryEntries()
        self.notes: list[str] = []
        self.topic = TopicBuilder("t", self.store, self.source)

    def fill(self, **properties: str) -> World:
        topic = self.topic
        topic.ledger(3, **properties)
        topic.publish(1000)
        topic.publish(1010, 5, behind=40)
        topic.publish(1020, 4, txn=True)
        topic.close_ledger(1025)
        topic.ledger(7)
        topic.publish(1030, 1)
        topic.publish(1040)
        topic.save()
        return self

    def ask(self, *questions: Question, **options: Any) -> list[Document]:
        return list(seek(self.store, self.source, questions, SeekOptions(**options), self.notes.append))

    def index(self, index: int, **options: Any) -> Document:
        (answer,) = self.ask(Question("t", "index", index), **options)
        return answer

    def time(self, time: int, **options: Any) -> Document:
        (answer,) = self.ask(Question("t", "time", time), **options)
        return answer


@pytest.fixture
def world() -> World:
    return World().fill()


def place(answer: Document) -> str:
    if answer["status"] != "found":
        assert "ledger_id" not in answer
        return str(answer["status"])
    return f"{answer['ledger_id']}:{answer['entry_id']}:{answer['batch_index']}"


EVERYWHERE = {
    0: "3:0:-1", 1: "3:1:0", 2: "3:1:1", 5: "3:1:4", 6: "3:2:0", 7: "7:0:0", 8: "7:1:-1", 9: "after-last",
}  # fmt: skip


def test_every_index_is_found_with_its_place_in_the_batch(world: World) -> None:
    assert {index: place(world.index(index)) for index in EVERYWHERE} == EVERYWHERE


def test_an_answer_has_the_fields_of_the_entry(world: World) -> None:
    assert world.index(2) == {
        "topic": "persistent://public/default/t", "index": 2, "status": "found", "ledger_id": 3,
        "entry_id": 1, "batch_index": 1, "first_index": 1, "last_index": 5, "broker_timestamp": 1010,
        "entries_read": world.source.reads,
    }  # fmt: skip


@pytest.mark.parametrize("claim", ["0", "4", "-7", "999999999999999999999", "x", ""])
def test_a_false_property_never_changes_an_answer(claim: str) -> None:
    world = World().fill(first_index=claim, mine=claim)
    for options in ({}, {"index_property": "mine"}):
        assert {index: place(world.index(index, **options)) for index in EVERYWHERE} == EVERYWHERE


def test_answers_keep_the_order_of_the_questions(world: World) -> None:
    questions = [Question("t", "index", index) for index in (8, 0, 9, 5)]
    assert [place(answer) for answer in world.ask(*questions)] == ["7:1:-1", "3:0:-1", "after-last", "3:1:4"]


def test_a_time_finds_the_first_entry_at_or_after_it(world: World) -> None:
    times = {0: "3:0:-1", 1000: "3:0:-1", 1001: "3:1:0", 1021: "7:0:0", 1040: "7:1:-1", 1041: "after-last"}
    assert {time: place(world.time(time)) for time in times} == times
    assert world.time(1001)["clock"] == "broker"
    late = world.time(1001, clock="publish")
    assert (place(late), late["clock"], late["publish_time"]) == ("3:2:0", "publish", 1020)


@pytest.mark.parametrize("skew", [-1, 0, 5, 60_000])
def test_false_close_times_never_change_an_answer(world: World, skew: int) -> None:
    for closed in (1, 1025, 10**15):
        world.topic.info.ledgerInfo[0].timestamp = closed
        world.store.values.clear()
        world.topic.save()
        for time, expected in ((1000, "3:0:-1"), (1020, "3:2:0"), (1021, "7:0:0"), (1041, "after-last")):
            assert place(world.time(time, skew=skew)) == expected


def test_entries_without_broker_metadata_have_no_index() -> None:
    world = World()
    world.topic.ledger(1)
    world.topic.publish(10, indexed=False)
    world.topic.close_ledger(11)
    world.topic.ledger(2)
    world.topic.index = 9
    world.topic.publish(20)
    world.topic.publish(30, indexed=False)
    world.topic.save()
    assert place(world.index(10)) == "2:0:-1"
    assert [place(world.index(index)) for index in (3, 11)] == ["no-index", "no-index"]
    assert place(world.time(10)) == "1:0:-1"
    assert world.time(10)["clock"] == "publish"
    assert place(world.time(10, clock="broker")) == "2:0:-1"
    assert place(world.time(25, clock="broker")) == "no-index"


def test_trimmed_empty_and_missing_indexes_have_their_status(world: World) -> None:
    del world.topic.info.ledgerInfo[0]
    world.store.values.clear()
    world.topic.save()
    assert place(world.index(3)) == "before-first"
    world.topic.publish(1050)
    world.topic.index += 5
    world.topic.publish(1060)
    assert place(world.index(11)) == "gap"
    nothing = World()
    nothing.topic.info.properties.add(key="index", value="41")
    nothing.topic.save()
    assert [place(nothing.index(index)) for index in (41, 42)] == ["before-first", "after-last"]
    assert place(nothing.time(1)) == "after-last"


def test_missing_ledgers_and_corrupt_entries_are_reported(world: World) -> None:
    broken = bytearray(world.source.held[3][1])
    broken[-1] ^= 1
    world.source.held[3][1] = bytes(broken)
    assert [place(world.index(index)) for index in (0, 3, 6)] == ["3:0:-1", "unreadable", "3:2:0"]
    assert place(world.time(1005)) == "unreadable"
    world.source.held[3][1] = b"\0"
    assert place(world.index(3)) == "unreadable"
    del world.source.held[3]
    assert [place(world.index(index)) for index in (0, 3, 7)] == ["missing-ledger", "missing-ledger", "7:0:0"]
    del world.source.held[7]
    assert place(world.index(7)) == "missing-ledger"


def test_a_ledger_truncated_at_the_source_is_missing(world: World) -> None:
    del world.source.held[3][2]
    assert [place(world.index(index)) for index in (5, 6, 7)] == ["3:1:4", "missing-ledger", "7:0:0"]


def test_a_terminated_topic_ends_at_its_termination(world: World) -> None:
    world.topic.info.terminatedPosition.ledgerId, world.topic.info.terminatedPosition.entryId = 7, 0
    world.store.values.clear()
    world.topic.save()
    assert [place(world.index(index)) for index in (7, 8)] == ["7:0:0", "after-last"]


def test_a_missing_topic_and_a_corrupt_record_are_reported(world: World) -> None:
    (nowhere,) = world.ask(Question("other", "index", 1))
    assert nowhere == {
        "topic": "persistent://public/default/other", "index": 1, "status": "no-topic", "entries_read": 0
    }  # fmt: skip
    world.store.put("/managed-ledgers/public/default/persistent/broken", b"\xff\xff", ABSENT)
    (broken,) = world.ask(Question("broken", "index", 1))
    assert (broken["status"], bool(broken["reason"])) == ("unreadable", True)


def test_a_partitioned_topic_has_an_answer_per_partition(world: World) -> None:
    world.store.put("/admin/partitioned-topics/public/default/persistent/p", b'{"partitions":3}', ABSENT)
    for number in (0, 2):
        part = TopicBuilder(f"p-partition-{number}", world.store, world.source)
        part.ledger(20 + number)
        part.publish(1)
        part.save()
    answers = world.ask(Question("p", "index", 0))
    assert [(answer["topic"][-1], place(answer)) for answer in answers] == [
        ("0", "20:0:-1"), ("1", "no-topic"), ("2", "22:0:-1"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [b"", b"{}", b'{"partitions": "x"}', b'{"partitions": -1}', b"[1]"])
def test_corrupt_partition_metadata_is_a_decode_error(world: World, value: bytes) -> None:
    world.store.put("/admin/partitioned-topics/public/default/persistent/p", value, ABSENT)
    with pytest.raises(DecodeError):
        world.ask(Question("p", "index", 0))


def test_an_invalid_topic_name_is_a_usage_error(world: World) -> None:
    with pytest.raises(UsageError):
        world.ask(Question("kafka://a/b/c", "index", 0))


def test_bounds_are_exclusive_and_hide_everything_outside(world: World) -> None:
    bounds = {"after": Position(3, 0), "before": Position(7, 1)}
    seen = {index: place(world.index(index, **bounds)) for index in (0, 1, 7, 8)}
    assert seen == {0: "before-first", 1: "3:1:0", 7: "7:0:0", 8: "after-last"}
    assert place(world.time(0, **bounds)) == "3:1:0"
    assert place(world.index(8, after=Position(99, 0))) == "after-last"
    assert place(world.index(8, before=Position(0, 0))) == "after-last"


def cursor(world: World, **fields: int) -> None:
    record = ManagedCursorInfo(**fields)  # type: ignore[arg-type]
    world.store.put(world.topic.topic.cursor_path("sub/ü"), record.SerializeToString(), ABSENT)


def test_a_cursor_hides_acknowledged_entries(world: World) -> None:
    cursor(world, cursorsLedgerId=-1, markDeleteLedgerId=3, markDeleteEntryId=1)
    assert [place(world.index(index, cursor="sub/ü")) for index in (5, 6)] == ["before-first", "3:2:0"]
    with pytest.raises(NotFoundError):
        world.index(5, cursor="nobody")


def test_the_position_of_a_cursor_in_use_comes_from_its_ledger(world: World) -> None:
    cursor(world, cursorsLedgerId=50, markDeleteLedgerId=3, markDeleteEntryId=-1)
    assert place(world.index(0, cursor="sub/ü")) == "3:0:-1"
    assert len(world.notes) == 1
    assert "ledger 50" in world.notes[0]
    state = PositionInfo(ledgerId=7, entryId=0).SerializeToString()
    world.source.held[50] = {4: encode_bookie_entry(50, 4, 3, len(state), state)}
    assert [place(world.index(index, cursor="sub/ü")) for index in (7, 8)] == ["before-first", "7:1:-1"]
    assert len(world.notes) == 1


@pytest.mark.parametrize(
    ("now", "newest", "oldest_expired"),
    [
        (11_000, "before-first", False),  # exactly as old as the time to live, so not expired
        (11_001, "3:0:-1", False),
        (11_011, "3:1:0", False),
        (11_025, "3:2:0", False),
        (12_000, "7:1:-1", False),
        (16_000, "7:1:-1", False),  # exactly one and a half times as old, so not expired
        (16_001, "7:1:-1", True),
    ],
)
def test_expiry_follows_the_brokers_rules(world: World, now: int, newest: str, oldest_expired: bool) -> None:
    (answer,) = world.ask(Question("t", "time", now - 10_000, time_to_live=10))
    assert (place(answer), answer["oldest_expired"]) == (newest, oldest_expired)


def test_the_only_entry_of_a_topic_expires() -> None:
    world = World()
    world.topic.ledger(3)
    world.topic.publish(1000)
    world.topic.save()
    for target, newest in ((1000, "before-first"), (1001, "3:0:-1")):
        (answer,) = world.ask(Question("t", "time", target, time_to_live=10))
        assert place(answer) == newest


def test_nothing_expires_in_an_empty_topic() -> None:
    world = World()
    world.topic.save()
    (answer,) = world.ask(Question("t", "time", 5, time_to_live=10))
    assert (place(answer), answer["oldest_expired"]) == ("after-last", False)


def test_reads_in_batches_give_the_same_answers(world: World) -> None:
    world.source.entries_per_read = 100
    assert {index: place(world.index(index)) for index in EVERYWHERE} == EVERYWHERE
    world.source.held[3][1] = b"\0"
    assert [place(world.index(index)) for index in (0, 3, 6)] == ["3:0:-1", "unreadable", "3:2:0"]
    del world.source.held[3][1]
    assert [place(world.index(index)) for index in (0, 3, 6)] == ["3:0:-1", "missing-ledger", "3:2:0"]

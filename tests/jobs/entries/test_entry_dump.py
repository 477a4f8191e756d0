"""Documents of entries: whatever the bytes, there is a document, and what is wrong is told."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.cli.render.entries import each_message, entry_view, message_view
from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.codecs.frames.batch import join_batch
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.entry_json import PAYLOAD_FORMS
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.codecs.json_text import dumps
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.entries.entry_choice import Bound
from pulsar_meta.jobs.entries.entry_dump import DataEntry, DumpOptions, describe
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata

ROUNDS = 3_000


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """Return a frame with a few bytes changed, cut out or put in."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at:at] = chance.randbytes(chance.randint(1, 4))
            case 1:
                del data[at : at + chance.randint(1, 8)]
            case _:
                data[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
    return bytes(data)


def test_every_damaged_frame_becomes_a_document(capture: Callable[[str], Path]) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4')}"]) as source:
        frames = [
            bytes(decode_bookie_entry(entry.data).data)
            for ledger_id in source.ledgers()[::9]
            for entry in source.read_many(ledger_id, 0, 2)
        ]
    chance = random.Random(20_26)
    told: list[PulsarMetaError] = []
    for number in range(ROUNDS):
        data = memoryview(damaged(chance.choice(frames), chance))
        entry = DataEntry(1, number, data, "absent")
        form = chance.choice(PAYLOAD_FORMS)
        document = describe(entry, EntryFormat(), DumpOptions(deep=True, form=form), told.append)
        assert dumps(document)
        assert len(entry_view().row(document)) == len(entry_view().columns)
        for row in each_message([document]):
            assert len(message_view(short=True).row(row)) == len(message_view().columns)
    assert len(told) > ROUNDS / 2
    assert all(str(error) for error in told)


@pytest.mark.parametrize(
    ("text", "bound"),
    [("0", Bound(0)), ("-10", Bound(-10)), ("7:3", Bound(3, 7)), ("007", Bound(7)), ("21:9:2", Bound(9, 21))],
)
def test_bounds(text: str, bound: Bound) -> None:
    assert Bound.parse(text) == bound


@pytest.mark.parametrize("text", ["", ":", "1:", ":1", "a", "1:-1", "-1:1", "1:2:3:4", "0x1", "1.5"])
def test_bounds_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="ENTRY or LEDGER:ENTRY"):
        Bound.parse(text)


def test_a_batch_that_says_3_and_holds_2_shows_the_2_and_reports_the_fault() -> None:
    batch = join_batch([(SingleMessageMetadata(payload_size=0), b"payload %d" % number) for number in (0, 1)])
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=3)
    entry = DataEntry(1, 2, memoryview(encode_frame(metadata, batch)), "absent")
    reported: list[PulsarMetaError] = []
    document = describe(entry, EntryFormat(), DumpOptions(deep=True, form="text"), reported.append)
    assert [message["payload"] for message in document["messages"]] == ["payload 0", "payload 1"]
    assert document["unopened"] == "the entry says 3 messages, its payload has 2"
    assert [str(error) for error in reported] == ["entry 1:2: the entry says 3 messages, its payload has 2"]

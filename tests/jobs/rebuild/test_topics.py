"""What is reported about a rebuilt topic."""

from __future__ import annotations

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.rebuild.evidence import DataClues
from pulsar_meta.jobs.rebuild.topics import FoundTopic

NAME = TopicName.parse("persistent://public/default/t")


def test_messages_are_counted_and_times_span_all_ledgers() -> None:
    clues = (
        DataClues(1, 5, first_time=300, last_time=900),
        DataClues(2, 7),
        DataClues(3, 1, first_time=200, last_time=800),
    )
    for some, expected in ((clues, (13, 200, 900)), (clues[1:2], (7, None, None))):
        facts = FoundTopic(NAME, "certain", (), (), clues=some).rebuilt({}).facts
        assert tuple(facts[name] for name in ("messages", "first_time", "last_time")) == expected

"""What is reported about a rebuilt topic."""

from __future__ import annotations

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.rebuild.evidence import DataClues
from pulsar_meta.jobs.rebuild.ledgers import FoundLedger
from pulsar_meta.jobs.rebuild.striping import Quorum, Striping
from pulsar_meta.jobs.rebuild.topics import FoundTopic, record_of
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo

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


def test_the_disks_tell_the_size_of_a_ledger_that_was_open() -> None:
    """A closed ledger of the old record stays as it is, and newer ledgers are added."""
    old = ManagedLedgerInfo()
    old.ledgerInfo.add(ledgerId=1, entries=50, size=5000, timestamp=7)
    old.ledgerInfo.add(ledgerId=2)
    striping = Striping(Quorum(1, 1), ())
    found = [FoundLedger(number, 9, 8, 900, "CRC32C", striping) for number in (1, 2, 3)]
    record, deleted = record_of(found, old, {})
    rows = [(info.ledgerId, info.entries, info.size) for info in record.ledgerInfo]
    assert (rows, deleted) == ([(1, 50, 5000), (2, 9, 900), (3, 9, 900)], [])

"""Evidence for and against a ledger belonging to a topic, in captures of real brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.topics.bookkeeper import read_bookkeeper_ledger
from pulsar_meta.jobs.topics.completeness import completeness_of
from pulsar_meta.jobs.topics.evidence import (
    Case,
    EvidenceReader,
    Piece,
    TopicLedgers,
    Witness,
    fits_by_time,
    foreignness,
    membership,
)
from pulsar_meta.jobs.topics.scope import Scope
from pulsar_meta.jobs.topics.topic import Ledger, topics_in
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store

Capture = Callable[[str], Path]
NAMES = ("pulsar-2.8.2", "pulsar-3.0.7", "pulsar-4.0.7", "pulsar-4.2.4", "pulsar-4.2.4-3bookies")


def copied_store(folder: Path) -> MemoryStore:
    """Load the store of a capture into memory."""
    store = MemoryStore()
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as snapshot:
        store.values = {record.path: record for record in snapshot.scan()}
    return store


@contextmanager
def evidence_of(folder: Path) -> Iterator[EvidenceReader]:
    """Open a reader of the evidence in a capture with all its disks."""
    with open_entries([f"bookie-disk:{folder}"]) as source:
        yield EvidenceReader(copied_store(folder), source, completeness_of(source))


def listed(store: MemoryStore) -> list[TopicLedgers]:
    """Return the topics with several ledgers, as their records list them."""

    def created(ledger_id: int) -> int | None:
        return read_bookkeeper_ledger(store, ledger_id).created

    topics = topics_in(store, Scope())
    return [TopicLedgers(topic.name, topic.ledgers, created) for topic in topics if len(topic.ledgers) >= 3]


def without(topic: TopicLedgers, ledger_id: int) -> TopicLedgers:
    """Return a topic with one ledger removed from its list."""
    return replace(topic, ledgers=[ledger for ledger in topic.ledgers if ledger.ledger_id != ledger_id])


@pytest.mark.parametrize("name", NAMES)
def test_two_witnesses_assign_an_unlisted_ledger_to_its_topic(capture: Capture, name: str) -> None:
    certain = 0
    with evidence_of(capture(name)) as reader:
        assert isinstance(reader.store, MemoryStore)
        for topic in listed(reader.store):
            for ledger in topic.ledgers[1:-1]:
                if not ledger.entries:
                    continue
                case = membership(reader, without(topic, ledger.ledger_id), ledger.ledger_id)
                assert case.contradicts == ()
                assert Witness.METADATA in case.witnesses
                certain += case.allows_repair
    assert certain > 5


@pytest.mark.parametrize("name", ["pulsar-4.0.7", "pulsar-4.2.4-3bookies"])
def test_a_ledger_of_another_topic_is_never_inserted(capture: Capture, name: str) -> None:
    tried = 0
    with evidence_of(capture(name)) as reader:
        assert isinstance(reader.store, MemoryStore)
        topics = listed(reader.store)
        for topic in topics:
            for other in topics:
                for ledger in other.ledgers if other is not topic else ():
                    case = membership(reader, topic, ledger.ledger_id)
                    assert not case.allows_repair
                    assert Witness.METADATA in {piece.witness for piece in case.contradicts}
                    tried += 1
    assert tried > 100


def test_disks_contradict_custom_metadata_with_a_wrong_topic(capture: Capture) -> None:
    with evidence_of(capture("pulsar-4.2.4")) as reader:
        assert isinstance(reader.store, MemoryStore)
        topic = next(topic for topic in listed(reader.store) if topic.name.endswith("/orders"))
        other = next(candidate for candidate in listed(reader.store) if candidate.name.endswith("/plain"))
        moved = topic.ledgers[1].ledger_id
        renamed = replace(topic, name=other.name, ledgers=other.ledgers)
        # The metadata names "orders", and the test asks as if that were wrong.
        case = membership(reader, renamed, moved, listed_by=[topic.name])
    assert not case.allows_repair
    assert {Witness.LIST, Witness.METADATA} <= {piece.witness for piece in case.contradicts}
    assert topic.name in case.other_reading


def test_a_copied_record_is_no_evidence(capture: Capture) -> None:
    with evidence_of(capture("pulsar-4.2.4")) as reader:
        store = reader.store
        assert isinstance(store, MemoryStore)
        topic = next(candidate for candidate in listed(store) if candidate.name.endswith("/orders"))
        original = store.values[ledger_path(topic.ids[0])]
        store.values[ledger_path(999_999)] = original._replace(path=ledger_path(999_999))
        case = membership(reader, topic, 999_999)
        assert not case.allows_repair
        says = [piece.says for piece in case.contradicts]
        assert "no bookie has an entry of it" in says
        assert any(f"identical to that of ledger {topic.ids[0]}" in text for text in says)


def test_one_witness_allows_no_repair_and_names_the_next_step() -> None:
    piece = Piece(Witness.METADATA, "its metadata says so")
    single = Case("it is so", (piece,), next_step="Look at the disks")
    assert not single.allows_repair
    assert single.doubt() == "not certain: only one witness says that it is so. Look at the disks"
    assert replace(single, only_witness=True).allows_repair
    two = replace(single, supports=(piece, Piece(Witness.DISKS, "so do the disks")))
    assert two.allows_repair
    assert two.doubt() == ""
    same = replace(single, supports=(piece, Piece(Witness.METADATA, "and so does another field")))
    assert not same.allows_repair


def test_the_reading_with_more_witnesses_is_likelier() -> None:
    case = Case(
        "ledger 7 is lost",
        (Piece(Witness.LIST, "the list names it"),),
        (Piece(Witness.DISKS, "a bookie has it"), Piece(Witness.METADATA, "BookKeeper knows it")),
        other_reading="ledger 7 is whole",
    )
    assert not case.is_likely
    assert case.doubt() == (
        "more likely: ledger 7 is whole (a bookie has it; BookKeeper knows it). Less likely: ledger 7 is lost"
    )


def test_neither_of_two_readings_is_likelier() -> None:
    list_says, disks_say = Piece(Witness.LIST, "the list names it"), Piece(Witness.DISKS, "no bookie has it")
    case = Case("ledger 7 is lost", (disks_say,), (list_says,), next_step="Read it")
    assert case.doubt() == (
        "undecided: either ledger 7 is lost (no bookie has it), or it is not true that ledger 7 is lost"
        " (the list names it). Read it"
    )


def test_a_listed_ledger_is_no_evidence_against_its_removal() -> None:
    topic = TopicLedgers("persistent://public/default/a", [Ledger(3, 5), Ledger(7, 5)])
    case = membership(EvidenceReader(MemoryStore()), topic, 7)
    assert case.witnesses == {Witness.LIST}
    assert foreignness(case).contradicts == ()


@pytest.mark.parametrize(
    ("created", "closed", "following", "answer"),
    [
        (1_000_000, 900_000, 2_000_000, True),
        (100_000, 900_000, 2_000_000, False),
        (3_000_000, 900_000, 2_000_000, False),
        (900_010, 900_000, 900_020, True),
        (905_000, 900_000, 901_000, None),
        (500_000, 900_000, 901_000, False),
        (None, 900_000, 901_000, None),
        (1_000_000, None, 2_000_000, None),
    ],
)
def test_a_ledger_is_created_while_no_other_is_open(
    created: int | None, closed: int | None, following: int | None, answer: bool | None
) -> None:
    fit = fits_by_time(created, closed, following)
    assert (None if fit is None else fit[0]) is answer

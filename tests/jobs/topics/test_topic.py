"""Topics in the store, compared with what their brokers reported, and records made by hand."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.topics.scope import Scope
from pulsar_meta.jobs.topics.topic import Ledger, Position, read_topic, topics_in, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store

TOPIC = TopicName.parse("made")


def stored(info: ManagedLedgerInfo) -> MemoryStore:
    store = MemoryStore()
    store.put(TOPIC.path, info.SerializeToString(), ABSENT)
    return store


def test_ledgers_equal_those_that_the_broker_reported(capture: Callable[[str], Path]) -> None:
    folder = capture("pulsar-4.2.4")
    truth = orjson.loads((folder / "truth.json").read_bytes())
    compared = 0
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        for name, reported in truth.items():
            if "ledgers" not in reported.get("internal-info", {}):
                continue
            topic = read_topic(store, TopicName.parse(name))
            expected = {ledger["ledgerId"]: ledger for ledger in reported["internal-info"]["ledgers"]}
            for ledger in topic.ledgers:
                # Some were opened, closed or trimmed between the broker's answer and its end.
                facts = expected.get(ledger.ledger_id, {})
                if ledger.closed_at is not None and facts.get("timestamp") == ledger.closed_at:
                    assert (ledger.entries, ledger.size) == (facts["entries"], facts["size"])
                    compared += 1
    assert compared > 20


def test_an_open_ledger_has_no_count_yet() -> None:
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=8, entries=3, size=9, timestamp=5)
    info.ledgerInfo.add(ledgerId=9)
    info.ledgerInfo.add(ledgerId=7, entries=0, size=0, timestamp=4)
    topic = read_topic(stored(info), TOPIC)
    assert [(ledger.ledger_id, ledger.entries, ledger.state) for ledger in topic.ledgers] == [
        (7, 0, "closed"),
        (8, 3, "closed"),
        (9, None, "open"),
    ]
    assert pickle.loads(pickle.dumps(topic)) == topic


def test_the_termination_gives_the_count_of_open_ledgers() -> None:
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=8)
    info.ledgerInfo.add(ledgerId=9)
    info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = 8, 6
    topic = read_topic(stored(info), TOPIC)
    assert [ledger.entries for ledger in topic.ledgers] == [7, 0]
    assert topic.terminated == Position(8, 6)


def test_a_property_may_be_in_a_record_twice() -> None:
    info = ManagedLedgerInfo()
    ledger = info.ledgerInfo.add(ledgerId=8)
    for value in ("1", "2"):
        ledger.properties.add(key="first-index", value=value)
    assert read_topic(stored(info), TOPIC).ledgers[0].values("first-index") == ("1", "2")


def test_a_corrupt_record_is_reported_and_skipped_or_raised() -> None:
    store, reported = stored(ManagedLedgerInfo()), list[PulsarMetaError]()
    store.put(TopicName.parse("broken").path, b"\x0a\xff", ABSENT)
    assert [topic.name for topic in topics_in(store, Scope(), reported.append)] == [str(TOPIC)]
    assert [error.source for error in reported] == [TopicName.parse("broken").path]
    with pytest.raises(DecodeError):
        list(topics_in(store, Scope()))
    with pytest.raises(NotFoundError):
        read_topic(store, TopicName.parse("absent"))


def test_metadata_of_many_ledgers_is_read_in_one_request(
    capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    request_sizes: list[int] = []
    faults: list[PulsarMetaError] = []
    folder = capture("pulsar-4.2.4")
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        ledgers = [ledger for topic in topics_in(store, Scope()) for ledger in topic.ledgers]
        read_many = store.read_many

        def counted(paths: Sequence[str]) -> list[Versioned | None]:
            request_sizes.append(len(paths))
            return read_many(paths)

        monkeypatch.setattr(store, "read_many", counted)
        with_metadata = list(with_bookkeeper(store, [*ledgers, Ledger(10**9)], faults.append))
    assert request_sizes == [len(ledgers) + 1]
    assert [ledger.ledger_id for ledger in with_metadata] == [
        *(ledger.ledger_id for ledger in ledgers),
        10**9,
    ]
    assert [ledger.metadata for ledger in with_metadata] == ["known"] * len(ledgers) + ["absent"]
    assert list(with_bookkeeper(None, ledgers, faults.append)) == ledgers
    assert faults == []

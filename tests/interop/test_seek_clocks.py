"""Producers whose clocks disagree (PIP-70's case): by the broker's clock every answer is exact.

The broker's own answers by time and by index are asked while it runs; `seek` then reads what it left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.seek.questions import Kind, Question, SeekOptions
from pulsar_meta.jobs.seek.readings import Reading, read_one
from pulsar_meta.jobs.seek.seek import Seeker, plan_topic, reading_order
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from tests.servers.admin import AdminError
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop

TOPIC = "public/default/clocks"
HOUR = 3_600_000
SETTINGS = {
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "20",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}


@dataclass
class Left:
    """What the broker left, and what it had said: its answers by time and by index."""

    store: Store
    source: EntrySource
    readings: list[Reading]
    by_time: dict[int, Any]
    by_index: dict[int, Any]

    def ask(self, kind: Kind, target: int, **options: Any) -> Document:
        """Return the answer to one question, asked for itself."""
        topic, chosen = TopicName.parse(TOPIC), SeekOptions(**options)
        plan = plan_topic(self.store, self.source, topic, chosen, print)
        return Seeker(plan, self.source, chosen).ask(Question(str(topic), kind, target))


def ask_broker(pulsar: PulsarStandalone, path: str) -> Any:
    """Return the broker's position, None where it finds none."""
    try:
        found = pulsar.admin("GET", f"persistent/{TOPIC}/{path}")
    except AdminError as error:
        if error.status != 404:
            raise
        return None
    return found["ledgerId"], found["entryId"]


@pytest.fixture(scope="module")
def left() -> Iterator[Left]:
    with PulsarStandalone("4.2.4", settings=SETTINGS) as pulsar:
        offsets = [-HOUR, 0, HOUR, 700, -90_000]
        began = time.time_ns() // 1_000_000
        sent = pulsar.call("tests.servers.clocks:publish", pulsar.service_url, TOPIC, offsets, 24, 0.003)
        assert len(sent) == 120
        by_index = {index: ask_broker(pulsar, f"getMessageIdByIndex?index={index}") for index in range(122)}
        stats = pulsar.admin("GET", f"persistent/{TOPIC}/internalStats")
        assert len(stats["ledgers"]) >= 6
        probed = range(began, time.time_ns() // 1_000_000 + 50, 7)
        by_time = {probe: ask_broker(pulsar, f"messageid/{probe}") for probe in probed[:300]}
        pulsar.stop()
        urls = [f"bookie-disk:{path}" for path in pulsar.bookie_dirs]
        with open_store(pulsar.store_url) as store, open_entries(urls) as source:
            order = reading_order(
                plan_topic(store, source, TopicName.parse(TOPIC), SeekOptions(), print), source
            )
            positions = [order.position(ordinal) for ordinal in range(order.total)]
            readings = [read_one(source, *position) for position in positions]
            assert [(reading.ledger_id, reading.entry_id) for reading in readings] == sent
            yield Left(store, source, readings, by_time, by_index)


def first(readings: list[Reading], clock: str, target: int) -> Reading | None:
    return next((reading for reading in readings if getattr(reading, clock) >= target), None)


def place(answer: Document) -> tuple[int, int] | None:
    return (answer["ledger_id"], answer["entry_id"]) if answer["status"] == "found" else None


def test_the_clocks_do_disagree(left: Left) -> None:
    published = [reading.publish_time or 0 for reading in left.readings]
    assert published != sorted(published)
    by_broker = [reading.broker_timestamp or 0 for reading in left.readings]
    assert by_broker == sorted(by_broker)


@pytest.mark.parametrize("skew", [-1, 0, 60_000])
def test_by_the_brokers_clock_every_answer_is_the_first_entry_and_the_brokers(left: Left, skew: int) -> None:
    stamps = {reading.broker_timestamp for reading in left.readings if reading.broker_timestamp}
    compared = 0
    for target in sorted(stamps | {stamp + 1 for stamp in stamps} | set(left.by_time)):
        expected = first(left.readings, "broker_timestamp", target)
        answer = left.ask("time", target, skew=skew)
        assert place(answer) == ((expected.ledger_id, expected.entry_id) if expected else None)
        broker = left.by_time.get(target)
        if expected and broker is not None:
            assert place(answer) == broker
            compared += 1
    assert compared > 20


def test_by_the_producers_clock_it_is_a_crossing_and_exhaustively_the_first(left: Left) -> None:
    readings = left.readings
    for reading in readings:
        target = reading.publish_time or 0
        found = place(left.ask("time", target, clock="publish"))
        if found is not None:
            at = next(at for at, other in enumerate(readings) if (other.ledger_id, other.entry_id) == found)
            assert (readings[at].publish_time or 0) >= target
            assert at == 0 or (readings[at - 1].publish_time or 0) < target
        expected = first(readings, "publish_time", target)
        assert expected is not None
        exhaustive = left.ask("time", target, clock="publish", exhaustive=True)
        assert place(exhaustive) == (expected.ledger_id, expected.entry_id)


def test_every_index_is_the_brokers(left: Left) -> None:
    assert {index: place(left.ask("index", index)) for index in left.by_index} == left.by_index

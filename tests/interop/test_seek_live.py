"""Seek beside a running broker: through ZooKeeper and `bookie:`, in closed ledgers and the open one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.seek.questions import Question, SeekOptions
from pulsar_meta.jobs.seek.seek import Cluster, seek
from pulsar_meta.jobs.spark.seek import seek_with_spark
from pulsar_meta.stores.registry import open_store
from tests.servers.admin import AdminError
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop

TOPIC = "public/default/live"
SETTINGS = {
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "50",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
Place = tuple[int, int] | None


@pytest.fixture(scope="module")
def pulsar() -> Iterator[PulsarStandalone]:
    environment = {"PULSAR_STANDALONE_USE_ZOOKEEPER": "1"}
    with PulsarStandalone("4.2.4", settings=SETTINGS, environment=environment) as running:
        publish(running, 170)
        yield running


def publish(pulsar: PulsarStandalone, count: int) -> list[tuple[int, int]]:
    target = "tests.servers.clocks:publish"
    sent: list[tuple[int, int]] = pulsar.call(target, pulsar.service_url, TOPIC, [0], count, 0.0)
    return sent


def brokers(pulsar: PulsarStandalone, index: int) -> Place:
    try:
        found = pulsar.admin("GET", f"persistent/{TOPIC}/getMessageIdByIndex?index={index}")
    except AdminError as error:
        if error.status != 404:
            raise
        return None
    return found["ledgerId"], found["entryId"]


def place(answer: Document) -> Place:
    return (answer["ledger_id"], answer["entry_id"]) if answer["status"] == "found" else None


def with_engine(pulsar: PulsarStandalone, indexes: list[int], *, spark: bool) -> list[Place]:
    questions = [Question(TOPIC, "index", index) for index in indexes]
    url = pulsar.store_url
    with open_store(url) as store, open_entry_sources(["bookie:"], store) as source:
        if spark:
            cluster = Cluster(store, source, ("bookie:",))
            answers = seek_with_spark([(cluster, questions)], SeekOptions(), print, SparkSettings("local[2]"))
        else:
            answers = seek(store, source, questions, SeekOptions(), print)
        return [place(answer) for answer in answers]


def test_every_index_is_the_brokers(pulsar: PulsarStandalone) -> None:
    indexes = list(range(172))
    assert with_engine(pulsar, indexes, spark=False) == [brokers(pulsar, index) for index in indexes]


def test_what_is_published_meanwhile_is_found_in_the_open_ledger(pulsar: PulsarStandalone) -> None:
    last = next(index for index in range(10_000) if brokers(pulsar, index) is None) - 1
    sent = publish(pulsar, 3)
    assert with_engine(pulsar, [last + 1, last + 2, last + 3, last + 4], spark=False) == [*sent, None]
    # Nobody was fenced: the same ledgers go on taking entries.
    assert len(publish(pulsar, 2)) == 2


@pytest.mark.spark
def test_spark_reads_live_bookies(pulsar: PulsarStandalone) -> None:
    indexes = [160, 3, 77, 10_000]
    assert with_engine(pulsar, indexes, spark=True) == [brokers(pulsar, index) for index in indexes]

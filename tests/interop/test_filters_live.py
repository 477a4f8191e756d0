"""Filters, plans and checks on live bookies that a broker and real producers are using."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.servers.cluster import Cluster

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("pulsar-meta")
FILTER = "tests.interop.region_filter"
INTERCEPTORS = ",".join(
    f"org.apache.pulsar.common.intercept.Append{name}MetadataInterceptor"
    for name in ("BrokerTimestamp", "Index")
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker with an EntryFilter, and a topic of 60 messages in batches and 10 alone, still written."""
    settings = {"brokerEntryMetadataInterceptors": INTERCEPTORS}
    with Cluster(racks=["A"], settings=settings, inside=f"{FILTER}:nothing") as running:
        client = pulsar.Client(
            running.brokers[0].service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        batched = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=200)
        for number in range(60):
            batched.send_async(b"x", lambda *_: None, properties={"region": "eu" if number % 3 else "us"})
        batched.flush()
        alone = client.create_producer("t", batching_enabled=False)
        for _ in range(10):
            alone.send(b"y", properties={"region": "us"})
        running.call(0, f"{FILTER}:install")
        yield running
        client.close()


def run(cluster: Cluster, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    sources = ["--store", cluster.store_url, "--entries", "bookie:"]
    return subprocess.run(
        [PROGRAM, command, "t", *sources, *options], capture_output=True, text=True, timeout=120, check=False
    )


def test_live_entries_verify(cluster: Cluster) -> None:
    done = run(cluster, "verify-entries", "-v")
    assert (done.returncode, done.stdout) == (0, "")


def test_live_entries_are_filtered(cluster: Cluster) -> None:
    done = run(cluster, "dump-entries", "--where", "region=us", "--deep", "-o", "ndjson")
    assert done.returncode == 0, done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(len(document["messages"]) for document in documents) == 30
    assert {document["where"]["decided_at"] for document in documents} == {"entry", "message"}


def test_at_entry_level_it_says_what_an_entry_filter_in_the_broker_says(cluster: Cluster) -> None:
    client = pulsar.Client(
        cluster.brokers[0].service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    taken = [consumer.receive(20_000) for _ in range(10)]
    assert {message.properties()["region"] for message in taken} == {"us"}
    client.close()
    theirs = cluster.call(0, f"{FILTER}:verdicts")
    done = run(cluster, "dump-entries", "--where", "region=us", "--level", "entry", "-o", "ndjson")
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    ours = {f"{document['ledger_id']}:{document['entry_id']}" for document in documents}
    assert len(ours) == 10
    assert ours == {place for place, verdict in theirs.items() if verdict}
    assert len(theirs) > len(ours)


def test_live_topics_are_planned(cluster: Cluster) -> None:
    done = run(cluster, "plan-batches", "--keys", "region", "-o", "json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["messages"] == 70
    assert plan["after"]["batches"] > plan["before"]["batches"]
    assert plan["breaking_keys"]["region"] > 0
    # Reading fenced nothing: the producers' topic takes more.
    client = pulsar.Client(
        cluster.brokers[0].service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    client.create_producer("t").send(b"z")
    client.close()

"""Filters on captured topics: `--level entry` says what an EntryFilter in a broker on that data says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.servers.pulsar import PulsarStandalone
from tests.servers.versions import NEWEST

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("pulsar-meta")
FILTER = "tests.interop.region_filter"


@pytest.fixture(scope="module")
def folder(capture: Callable[[str], Path]) -> Path:
    return capture("pulsar-4.2.4")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[PulsarStandalone]:
    """A broker on the captured data, with an EntryFilter for region=us that remembers its verdicts."""
    with PulsarStandalone(NEWEST, data=folder) as running:
        running.call(f"{FILTER}:install")
        yield running


def positions(folder: Path, topic: str, *options: str) -> set[str]:
    sources = ["--store", f"snapshot:{folder}/metadata.ndjson", "--entries", f"bookie-disk:{folder}/bookie0"]
    command = [str(PROGRAM), "dump-entries", topic, *sources, "-o", "ndjson", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    documents = map(json.loads, done.stdout.splitlines())
    return {f"{document['ledger_id']}:{document['entry_id']}" for document in documents}


def verdicts(broker: PulsarStandalone, topic: str, wanted: set[str]) -> dict[str, bool]:
    """Read the topic through the broker until its filter has seen every entry that is wanted."""
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(topic, "filtered", initial_position=pulsar.InitialPosition.Earliest)
    seen: dict[str, bool] = {}
    end = time.monotonic() + 60
    while not wanted <= seen.keys() and time.monotonic() < end:
        try:
            while True:
                consumer.acknowledge(consumer.receive(500))
        except pulsar.Timeout:
            seen = broker.call(f"{FILTER}:verdicts")
    client.close()
    return {place: verdict for place, verdict in seen.items() if place in wanted}


@pytest.mark.parametrize("topic", ["orders", "cpp-none", "go-none"])
def test_entry_level_equals_the_brokers_filter(broker: PulsarStandalone, folder: Path, topic: str) -> None:
    every = positions(folder, topic)
    theirs = verdicts(broker, topic, every)
    assert theirs.keys() == every
    ours = positions(folder, topic, "--where", "region=us", "--level", "entry")
    assert ours == {place for place, verdict in theirs.items() if verdict}

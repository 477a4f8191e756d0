"""A database that `restore` makes: a broker of the release that the values are from lives on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest

from tests.cli.program import pulsar_meta_here
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop

ORDERS = "persistent://public/default/orders"


@pytest.mark.parametrize("version", ["4.0.7", "4.2.4"])
def test_a_broker_on_a_restored_database(
    version: str, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    folder, data = capture(f"pulsar-{version}"), tmp_path / "data"
    file = tmp_path / "all.ndjson.zst"
    taken = pulsar_meta_here("snapshot", file, "--store", f"rocksdb:{folder / 'rocksdb'}", folder=tmp_path)
    assert taken.returncode == 0, taken.stderr
    shutil.copytree(folder / "bookie0", data / "bookie0")
    words = ["restore", f"snapshot:{file}", "--store", f"rocksdb:{data / 'rocksdb'}", "--allow-unreadable"]
    plan = pulsar_meta_here(*words, "--dry-run", "-o", "json", folder=tmp_path)
    assert plan.returncode == 0, plan.stderr
    assert not (data / "rocksdb").exists()
    ran = pulsar_meta_here(*words, "--yes", "-o", "json", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["created"] == json.loads(plan.stdout)["created"] > 300
    floor = json.loads(ran.stdout)["counters"]["/ledgers/idgen"]
    truth = json.loads((folder / "truth.json").read_text())
    with PulsarStandalone(version, data=data) as running:
        client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        assert count(client, ORDERS) == len(truth[ORDERS]["messages"])
        producer = client.create_producer("persistent://public/default/new-after-restore")
        assert producer.send(b"new").ledger_id() >= floor
        client.close()


def count(client: pulsar.Client, topic: str) -> int:
    """Return how many messages a reader gets from the first one on."""
    reader, number = client.create_reader(topic, pulsar.MessageId.earliest), 0
    while reader.has_message_available():
        reader.read_next(10_000)
        number += 1
    return number

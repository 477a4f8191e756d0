"""Messages of a running cluster, from its live bookies and its ZooKeeper, while the broker is up."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_meta.jobs.spark.message_source import MessageSourceReader
from tests.cli.program import pulsar_meta_here
from tests.servers.jvm import Jvm
from tests.servers.pulsar import PulsarStandalone
from tests.servers.schemas import CLIENT, NAMESPACE

pytestmark = pytest.mark.interop
# As many as the client sends, and how many of them have a value: all but one without a schema, one null value
# and one of a type that nobody decodes.
SENT, VALUES = 97, 94


def test_every_message_and_value_comes_from_live_bookies(tmp_path: Path) -> None:
    pulsar = PulsarStandalone(
        "4.2.4",
        settings={"transactionCoordinatorEnabled": "true"},
        environment={"PULSAR_STANDALONE_USE_ZOOKEEPER": "1"},
    )
    with pulsar, Jvm("4.2.4", heap="512m") as java:
        pulsar.admin("PUT", f"namespaces/{NAMESPACE}", {})
        pulsar.admin("PUT", f"persistent/{NAMESPACE}/parted/partitions", 2)
        java.call(f"{CLIENT}:produce_all", pulsar.service_url, f"persistent://{NAMESPACE}")
        store = pulsar.store_url
        where = ["--store", store, "--entries", "bookie:"]
        done = pulsar_meta_here("export", NAMESPACE, "--to", tmp_path / "out", *where)
        options = {"store": store, "entries": "bookie:", "topics": NAMESPACE}
        reader = MessageSourceReader(options, ["value", "error"])
        rows = [
            row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()
        ]
        java.call("tests.servers.clients.java:close")
    assert done.returncode == 4, done.stderr
    assert f"{SENT} messages".encode() in done.stderr
    assert len(rows) == SENT
    assert sum(row["value"] is not None for row in rows) == VALUES
    assert next(row["error"] for row in rows if row["error"]).endswith("PROTOBUF are not supported")

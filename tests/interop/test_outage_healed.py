"""Pulsar 4.2.4 cannot load three topics that it wrote itself; one command brings them back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pulsar_meta.stores.registry import open_store
from tests.cli.program import environment, pulsar_meta
from tests.servers.admin import AdminError
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop

VERSION = "4.2.4"
# Its truth was read without the key, which the client here does not do.
ENCRYPTED = "persistent://public/default/encrypted"
LOST = {f"persistent://public/default/{name}" for name in ("marks", "compacted", "delayed-buckets")}


def unloadable(pulsar: PulsarStandalone, topics: set[str]) -> dict[str, str]:
    """Return which of the topics the broker fails to load, and what it says."""
    failed = {}
    for topic in topics:
        try:
            domain, name = topic.split("://")
            tenant, namespace, local = name.split("/", 2)
            path = f"{domain}/{tenant}/{namespace}/{quote(local, safe='')}"
            pulsar.admin("GET", f"{path}/internalStats")
        except AdminError as error:
            if error.status != 500:
                raise
            failed[topic] = str(error)
    return failed


def read_all(pulsar: PulsarStandalone, topic: str) -> list[tuple[int, int, int, str]]:
    """Return every message of a topic: ledger, entry, batch index, the beginning of its SHA-256."""
    import hashlib

    import pulsar as client

    found = []
    # The first reader may wait half a minute, as long as the broker waits for snapshots of transactions that
    # compaction has removed (apache/pulsar#18833); then the topic is loaded anew, and the reader answered.
    errors = client.ConsoleLogger(client.LoggerLevel.Error)
    connected = client.Client(pulsar.service_url, operation_timeout_seconds=90, logger=errors)
    reader = connected.create_reader(topic, client.MessageId.earliest)
    while reader.has_message_available():
        message = reader.read_next(20_000)
        where = message.message_id()
        stated = hashlib.sha256(message.data()).hexdigest()[:16]
        found.append((where.ledger_id(), where.entry_id(), where.batch_index(), stated))
    connected.close()
    return found


def promised(truth: Path, topic: str) -> list[tuple[int, int, int, str]]:
    messages = json.loads(truth.read_text())[topic]["messages"]
    return [(m["l"], m["e"], -1 if m["b"] is None else m["b"], m["sha"]) for m in messages]


def values(metadata: Path) -> dict[str, bytes]:
    with open_store(f"rocksdb:{metadata}") as store:
        return {value.path: value.value for value in store.scan("/managed-ledgers")}


def test_the_outage_is_healed_and_the_healing_undone(capture: Callable[[str], Path], tmp_path: Path) -> None:
    data, env = capture(f"pulsar-{VERSION}"), environment(tmp_path / "state")
    others = set(json.loads((data / "truth.json").read_text())) - LOST - {ENCRYPTED}
    undo_file, healed = tmp_path / "undo.ndjson", tmp_path / "healed"
    transactions = {"transactionCoordinatorEnabled": "true"}
    with PulsarStandalone(VERSION, data=data, settings=transactions) as pulsar:
        store = pulsar.store_url
        failed = unloadable(pulsar, LOST | others)
        assert failed.keys() == LOST, failed
        running = pulsar_meta("compress-cursors", "--store", store, "--compression", "none", "--yes", env=env)
        assert running.returncode == 7, "a broker holds the database"
        pulsar.stop()

        before = values(pulsar.metadata_dir)
        readable = pulsar_meta(
            "check-readable", "--store", store, "--for-version", VERSION, "-o", "json", env=env
        )
        assert readable.returncode == 1
        assert {fault["topic"] for fault in json.loads(readable.stdout)} == LOST
        done = pulsar_meta(
            *("compress-cursors", "--store", store, "--compression", "none", "--yes", "-o", "json"),
            *("--undo-file", undo_file),
            env=env,
        )
        assert done.returncode == 0, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout)
        assert summary["rewritten"] == sum(
            value[:2] == b"Gx" for path, value in before.items() if len(path.split("/")) == 7
        )
        shutil.copytree(pulsar.metadata_dir, healed)

        pulsar.start()
        assert unloadable(pulsar, LOST | others) == {}
        for truth, topics in (("truth-after-revert.json", LOST), ("truth.json", others)):
            for topic in topics:
                assert read_all(pulsar, topic) == promised(data / truth, topic), topic
        pulsar.stop()

        shutil.rmtree(pulsar.metadata_dir)
        shutil.copytree(healed, pulsar.metadata_dir)
        refused = pulsar_meta("undo", undo_file, "--store", store, "--yes", "-o", "json", env=env)
        assert refused.returncode == 7
        assert json.loads(refused.stdout)["skipped_for"] == {"unreadable": len(LOST)}
        undone = pulsar_meta("undo", undo_file, "--store", store, "--yes", "--allow-unreadable", env=env)
        assert undone.returncode == 0, undone.stderr
        assert values(pulsar.metadata_dir) == before
        pulsar.start()
        failed = unloadable(pulsar, LOST | others)
        assert failed.keys() == LOST, failed

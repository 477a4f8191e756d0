"""Names that lie on the disks of real brokers: by messages that a client sent on, and by replication."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import pulsar_meta_here
from tests.servers import replicated
from tests.servers.jvm import Jvm
from tests.servers.pulsar import PulsarStandalone
from tests.servers.versions import VERSIONS

pytestmark = pytest.mark.interop

CLIENT = "tests.servers.clients.java"
TOPIC, PARTED = "persistent://public/default/cart", "persistent://public/default/parted"


@pytest.fixture(params=VERSIONS)
def pulsar(request: pytest.FixtureRequest) -> Iterator[PulsarStandalone]:
    # The Java client of these tests has transactions enabled.
    with PulsarStandalone(request.param, settings={"transactionCoordinatorEnabled": "true"}) as running:
        yield running


def test_dead_letters_name_where_they_are_from(pulsar: PulsarStandalone) -> None:
    """The name of the retry topic itself, and of the dead letters', says nothing on the disks."""
    pulsar.admin("PUT", "persistent/public/default/parted/partitions", 2)
    with Jvm(pulsar.version, heap="512m") as java:
        for topic in (TOPIC, PARTED):
            payloads = [{"payload": f"{topic} {at}".encode(), "key": str(at)} for at in range(20)]
            java.call(f"{CLIENT}:produce", pulsar.service_url, topic, payloads, {"batch": 0})
            java.call(f"{CLIENT}:put_off", pulsar.service_url, topic, "work", 20, 1)
        java.call(f"{CLIENT}:close")
    pulsar.stop()
    found = pulsar.directory / "found"
    words = ["rebuild", "--entries", f"bookie-disk:{pulsar.bookie_dirs[0]}", "--output", str(found)]
    ran = pulsar_meta_here(*words, "-o", "json", folder=pulsar.directory)
    assert ran.returncode == 0, ran.stderr
    topics = {line["topic"]: line for line in json.loads(ran.stdout) if line.get("messages")}
    named = {name for name in topics if "lost-found" not in name and "/__" not in name}
    assert named == {TOPIC, f"{PARTED}-partition-0", f"{PARTED}-partition-1"}
    assert topics[TOPIC]["messages"] == 20
    assert any("was moved from it and contains its name" in text for text in topics[TOPIC]["evidence"])
    assert sum(topics[name]["messages"] for name in named) == 40
    # Its state was in the store alone: of the subscription only the name is left.
    gone = {(line["topic"], line["cursor"]) for line in json.loads(ran.stdout) if line["certainty"] == "gone"}
    assert gone == {(name, "work") for name in named}
    ran = pulsar_meta_here(*words[:3], "--unnamed", "-o", "json", folder=pulsar.directory)
    lines = [line for line in json.loads(ran.stdout) if "ledger_id" not in line]
    assert {(line["topic"], line["cursor"], line["position"]) for line in lines} == {
        (*one, None) for one in gone
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_markers_name_replicated_subscriptions(version: str, tmp_path: Path) -> None:
    """Two clusters that replicate, killed: the ledgers of cursors are those that the brokers had."""
    stated = replicated.make(version, tmp_path)
    for name, topics in stated.items():
        words = ["rebuild", "--entries", f"bookie-disk:{tmp_path / name}", "--cluster", name]
        ran = pulsar_meta_here(*words, "--output", str(tmp_path / f"{name}.found"), "-o", "json")
        assert ran.returncode == 0, ran.stderr
        lines = [line for line in json.loads(ran.stdout) if "cursor_ledger" in line]
        made = {line["cursor_ledger"]: (line["cursor"], line["position"]) for line in lines}
        for said in topics.values():
            for cursor, one in said["cursors"].items():
                if cursor in ("audit", "ship", "billing%2Fa", "pulsar.dedup"):
                    assert made[one["ledger"]] == (cursor.replace("%2F", "/"), one["position"])

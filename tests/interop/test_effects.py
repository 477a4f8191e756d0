"""The effects of damage on brokers, as the pages of the findings describe them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest

from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.registry import open_store
from tests.interop.changed_records import edit, edit_ledger, edit_topic, topic_record
from tests.servers.admin import AdminError
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop
INSIDE = "tests.interop.wounded_inside"
DEFAULT = "persistent://public/default"
FAN = "/managed-ledgers/public/default/persistent/fanout/fan-001"
# How long a client tries.
SECONDS = 10


def set_index(value: str) -> Callable[[Any], None]:
    def change(info: Any) -> None:
        [pair] = info.properties
        assert pair.key == "index"
        pair.value = value

    return change


def invert_range(store: Store, path: str) -> None:
    """Let a cursor acknowledge entries 8 to 3 of its topic's first ledger."""

    def changed(value: bytes) -> bytes:
        info = decode_cursor(value)
        added = info.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = info.markDeleteLedgerId
        added.lowerEndpoint.entryId, added.upperEndpoint.entryId = 7, 3
        return info.SerializeToString()

    edit(store, path, changed)


def add_namespace(store: Store, name: str, boundaries: list[str]) -> None:
    """Add a namespace with the policies of `public/default` and other bundles."""
    document = json.loads(store.read("/admin/policies/public/default").value)
    document["bundles"]["boundaries"] = boundaries
    document["bundles"]["numBundles"] = len(boundaries) - 1
    store.put(f"/admin/policies/{name}", json.dumps(document).encode(), ABSENT)


def damage(store: Store) -> None:
    """Damage one topic or namespace for each effect."""

    def ended(info: Any) -> None:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = info.ledgerInfo[-1].ledgerId, 20

    def large_quorum(metadata: Any) -> None:
        metadata.quorumSize = 2

    edit_topic(store, "codec-lz4", set_index("3"))
    edit_topic(store, "codec-none", set_index("x"))
    edit_topic(store, "strings", ended)
    invert_range(store, FAN)
    edit_ledger(store, topic_record(store, "cpp-lz4").ledgerInfo[-1].ledgerId, large_quorum)
    add_namespace(store, "public/split", ["0x00000000", "0x80000000"])
    add_namespace(store, "public/hole", ["0x00000000", "0x80000000", "0x40000000", "0xffffffff"])
    add_namespace(store, "nobody/here", ["0x00000000", "0xffffffff"])


@pytest.fixture(scope="module")
def broker(version: str, capture: Callable[[str], Path]) -> Iterator[PulsarStandalone]:
    """A broker on damaged metadata."""
    standalone = PulsarStandalone(version, data=capture(f"pulsar-{version}"))
    with closing(standalone):
        with open_store(standalone.store_url, read_only=False) as store:
            damage(store)
        standalone.start()
        yield standalone


def load(broker: PulsarStandalone, name: str) -> str:
    """Return the state of a topic's list that the broker loaded, or its error."""
    try:
        return str(broker.admin("GET", f"persistent/public/default/{name}/internalStats")["state"])
    except AdminError as error:
        return str(error)


@contextmanager
def client(broker: PulsarStandalone) -> Iterator[pulsar.Client]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    connected = pulsar.Client(broker.service_url, operation_timeout_seconds=SECONDS, logger=logger)
    with closing(connected):
        yield connected


def send(broker: PulsarStandalone, topic: str) -> tuple[int, int]:
    """Publish a message and return its position."""
    with client(broker) as connected:
        sent = connected.create_producer(topic, send_timeout_millis=SECONDS * 1000).send(b"x")
        return sent.ledger_id(), sent.entry_id()


def test_a_range_that_ends_before_it_begins_with_another_setting(
    version: str, capture: Callable[[str], Path]
) -> None:
    # This test is the first, because two brokers on one capture need the same port for its bookie.
    settings = {"managedLedgerUnackedRangesOpenCacheSetEnabled": "false"}
    broker = PulsarStandalone(version, data=capture(f"pulsar-{version}"), settings=settings)
    with closing(broker):
        with open_store(broker.store_url, read_only=False) as store:
            invert_range(store, FAN)
        broker.start()
        assert "Invalid range: (152:7..152:3]" in load(broker, "fanout")


def test_an_index_property_that_is_behind_gives_indexes_again(broker: PulsarStandalone) -> None:
    position = send(broker, "public/default/codec-lz4")
    assert broker.call(f"{INSIDE}:index_of_next_message", f"{DEFAULT}/codec-lz4") == 5
    assert position[1] == 0


def test_an_index_property_that_is_no_number_keeps_the_topic_from_loading(broker: PulsarStandalone) -> None:
    assert 'NumberFormatException: For input string: \\"x\\"' in load(broker, "codec-none")


def test_a_quorum_above_the_ensemble_keeps_the_topic_from_loading(broker: PulsarStandalone) -> None:
    assert "ManagedLedgerException" in load(broker, "cpp-lz4")


def test_readers_of_a_topic_that_was_terminated_after_its_end(broker: PulsarStandalone) -> None:
    """A reader sees no message at all. A consumer receives them all, and never the end."""
    assert load(broker, "strings") == "Terminated"
    with client(broker) as connected:
        reader = connected.create_reader(f"{DEFAULT}/strings", pulsar.MessageId.earliest)
        assert not reader.has_message_available()
        consumer = connected.subscribe(
            f"{DEFAULT}/strings", "all", initial_position=pulsar.InitialPosition.Earliest
        )
        for _ in range(30):
            consumer.receive(60_000)
        with pytest.raises(pulsar.Timeout):
            consumer.receive(2000)


def test_a_range_that_ends_before_it_begins_is_ignored(broker: PulsarStandalone) -> None:
    assert load(broker, "fanout") == "LedgerOpened"
    ranges = broker.call(f"{INSIDE}:acknowledged_ranges", f"{DEFAULT}/fanout", "fan-001")
    assert ranges == "[(152:1..152:3]]"


@pytest.mark.parametrize("topic", ["public/split/a", "public/hole/a"])
def test_without_valid_bundles_lookups_fail(broker: PulsarStandalone, topic: str) -> None:
    with pytest.raises(pulsar.Timeout):
        send(broker, topic)


def test_without_authorization_a_tenant_needs_no_record(broker: PulsarStandalone) -> None:
    assert send(broker, "nobody/here/a")[1] == 0

"""Whether a store can be upgraded to another release: the verdict and its reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.check.upgrade import is_live_step, survey
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.damage import healthy_store

Capture = Callable[[str], Path]
PLAIN = TopicName.parse("public/default/plain").path


def verdict(store: Store, version: str, source: EntrySource | None = None) -> tuple[str, dict[str, Any]]:
    answer = survey(store, source, version, CheckOptions(releases=(version,))).verdict()
    return answer["verdict"], {reason["reason"]: reason for reason in answer["reasons"]}


def put(store: MemoryStore, path: str, value: bytes) -> MemoryStore:
    store.values[path] = Versioned(path, value, 0)
    return store


@pytest.mark.parametrize(
    ("name", "version", "expected", "reasons"),
    [
        ("pulsar-4.0.7", "3.0.7", "safe", set()),
        ("pulsar-4.0.7", "4.2.4", "not-safe", {"compressed-cursor-with-properties"}),
        ("pulsar-4.0.7", "4.2.5", "unknown", {"compressed-cursor-with-properties"}),
        ("pulsar-4.2.4", "4.0.7", "unknown", {"ledger-properties"}),
        ("pulsar-5.0.0-M1", "4.0.7", "not-safe", {"ledger-properties", "rocksdb-tables-6"}),
        ("pulsar-4.2.4-3bookies", "4.2.4", "safe", set()),
        ("pulsar-4.2.4-3bookies", "5.0.0-M1", "safe", set()),
        ("pulsar-4.2.4-3bookies", "5.0.0", "unknown", {"release-untried", "compressed-ledger"}),
    ],
)
def test_captures_have_the_expected_verdicts(
    capture: Capture, name: str, version: str, expected: str, reasons: set[str]
) -> None:
    with open_store(f"rocksdb:{capture(name)}/rocksdb") as store:
        result, reasons_found = verdict(store, version)
    counted = {name for name, reason in reasons_found.items() if reason["verdict"] != "note"}
    assert (result, counted) == (expected, reasons)
    assert all(reason["source"] for reason in reasons_found.values())


@pytest.mark.parametrize(
    ("version", "supported"), [("2.9.1", False), ("4.2.4", True), ("5.0.0-M1", False), ("5.0.0", False)]
)
def test_a_cluster_on_etcd_needs_a_release_with_etcd(capture: Capture, version: str, supported: bool) -> None:
    class CopyOfEtcd(MemoryStore):
        origin = {"store": {"url": "etcd://etcd1:2379", "instance_id": None}}  # noqa: RUF012

    values = healthy_store(capture("pulsar-4.2.4-3bookies")).values
    for store in (MemoryStore("etcd://etcd1:2379"), CopyOfEtcd("snapshot:copy.ndjson")):
        store.values = dict(values)
        result, reasons = verdict(store, version)
        assert ("store-unsupported" not in reasons) == supported
        assert supported or result == "not-safe"


@pytest.mark.parametrize(
    ("url", "version", "supported"),
    [
        ("zk://zk1:2181", "5.0.0", True),
        ("oxia://oxia1:6648", "5.0.0-M1", True),
        ("oxia://oxia1:6648", "3.2.4", False),
        ("zk://zk1:2181#ledgers=etcd://etcd1:2379", "5.0.0-M1", False),
        ("zk://zk1:2181#ledgers=etcd://etcd1:2379", "4.2.4", True),
    ],
)
def test_the_kind_of_both_stores_counts(capture: Capture, url: str, version: str, supported: bool) -> None:
    store = MemoryStore(url)
    store.values = dict(healthy_store(capture("pulsar-4.2.4-3bookies")).values)
    assert ("store-unsupported" not in verdict(store, version)[1]) == supported


def test_a_copy_of_an_unknown_store_says_so(capture: Capture) -> None:
    store = MemoryStore("dir:/tmp/copy")
    store.values = dict(healthy_store(capture("pulsar-4.2.4-3bookies")).values)
    assert verdict(store, "5.0.0-M1")[1]["store-kind-unseen"]["verdict"] == "note"
    assert "store-kind-unseen" not in verdict(store, "4.2.4")[1]


@pytest.mark.parametrize(
    ("url", "version", "start"),
    [
        (
            "etcd://etcd1:2379",
            "5.0.0-M1",
            "This cluster cannot be upgraded to 5.0.0-M1 as it is, because: Pulsar 5.0.0-M1 can",
        ),
        ("zk://zk1:2181", "5.0.0-M1", "This cluster can be upgraded to 5.0.0-M1, because no check"),
        (
            "zk://zk1:2181",
            "6.1.0",
            "It is not known if this cluster can be upgraded to 6.1.0, because: we tested",
        ),
    ],
)
def test_the_summary_is_a_sentence_about_the_cluster(
    capture: Capture, url: str, version: str, start: str
) -> None:
    store = MemoryStore(url)
    store.values = dict(healthy_store(capture("pulsar-4.2.4-3bookies")).values)
    answer = survey(store, None, version, CheckOptions(releases=(version,))).verdict()
    assert answer["summary"].startswith(start)


def test_a_step_back_is_a_downgrade(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4-3bookies"))
    put(store, "/loadbalance/brokers/b:8080", b'{"brokerVersion":"4.2.4"}')
    answer = survey(store, None, "4.0.7", CheckOptions(releases=("4.0.7",))).verdict()
    assert "be downgraded to 4.0.7" in answer["summary"]


def test_large_cursors_with_properties_are_compressed_by_pulsar_5(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4-3bookies"))
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=0)
    info.cursorProperties.add(name="a", value="b" * 20000)
    put(store, f"{PLAIN}/large", info.SerializeToString())
    reasons = verdict(store, "5.0.0-M1")[1]
    assert reasons["cursors-compressed-by-default"]["places"] == ["persistent://public/default/plain large"]
    assert "cursors-compressed-by-default" not in verdict(store, "4.2.4")[1]


def test_an_untested_release_is_unknown(capture: Capture) -> None:
    result, reasons = verdict(healthy_store(capture("pulsar-4.2.4-3bookies")), "6.1.0")
    assert (result, reasons["release-untried"]["verdict"]) == ("unknown", "unknown")


def test_cursor_states_in_ledgers_are_checked_if_entries_are_given(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-killed")
    store = healthy_store(folder)
    assert verdict(store, "3.0.7")[1]["cursor-states-unseen"]["count"] == 1
    assert "cursor-states-unseen" not in verdict(store, "4.0.7")[1]
    with open_entries([f"bookie-disk:{folder}"]) as source:
        # This cursor has no individual acknowledgements.
        assert set(verdict(store, "3.0.7", source)[1]) == {"ledger-properties"}


def test_partitions_need_a_partitioned_topic_since_4_1(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4-3bookies"))
    del store.values["/admin/partitioned-topics/public/default/persistent/parted"]
    assert verdict(store, "4.0.7")[0] != "not-safe"
    result, reasons = verdict(store, "4.2.4")
    assert (result, reasons["partition-without-parent"]["count"]) == ("not-safe", 3)


def test_policies_in_a_topic_stay_there_in_pulsar_5(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4-3bookies"))
    assert verdict(store, "5.0.0-M1")[1]["topic-policies-stay"]["verdict"] == "note"
    assert "topic-policies-stay" not in verdict(store, "4.2.4")[1]
    for path in [path for path in store.values if "__change_events" in path]:
        del store.values[path]
    assert "topic-policies-stay" not in verdict(store, "5.0.0-M1")[1]


def _shadow(store: MemoryStore) -> None:
    info = decode_managed_ledger(store.values[PLAIN].value)
    info.properties.add(key="PULSAR.SHADOW_SOURCE", value="persistent://public/default/orders")
    put(store, PLAIN, info.SerializeToString())


def _offloaded(store: MemoryStore) -> None:
    info = decode_managed_ledger(store.values[PLAIN].value)
    context = info.ledgerInfo[0].offloadContext
    context.uidMsb, context.uidLsb, context.complete, context.timestamp = 1, 2, True, 3
    context.driverMetadata.name = "azureblob"
    put(store, PLAIN, info.SerializeToString())


def _copied(store: MemoryStore, path: str) -> None:
    put(store, path, store.values[PLAIN].value)
    del store.values[PLAIN]


@pytest.mark.parametrize(
    ("change", "version", "reason", "expected"),
    [
        (_shadow, "2.11.0", "shadow-topic", "not-safe"),
        (_offloaded, "4.2.4", "offload-driver", "unknown"),
        (
            lambda store: _copied(store, "/managed-ledgers/public/cluster/old/persistent/plain"),
            "5.0.0-M1",
            "v1-topic-name",
            "not-safe",
        ),
        (
            lambda store: put(store, "/txn/id/0_0", b'{"state":"OPEN"}'),
            "4.2.4",
            "transactions-in-the-store",
            "not-safe",
        ),
        (
            lambda store: put(store, "/pulsar/migration-coordinator/migration", b'{"phase":"COPYING"}'),
            "4.2.4",
            "store-migration",
            "not-safe",
        ),
        (
            lambda store: put(store, "/ledgers/underreplication/ledgers/0000/0001/urL0000000007", b"x"),
            "4.2.4",
            "replication-unfinished",
            "unknown",
        ),
        (
            lambda store: put(
                store, "/loadbalance/brokers/b:8080", json.dumps({"brokerVersion": "2.8.2"}).encode()
            ),
            "4.2.4",
            "release-step",
            "unknown",
        ),
        (
            lambda store: put(store, "/admin/policies/public/cluster/old", b"{}"),
            "5.0.0",
            "v1-namespace",
            "not-safe",
        ),
        (
            lambda store: put(store, "/admin/topic-policies/local/public/default/persistent/plain", b"{}"),
            "4.2.4",
            "topic-policies-in-store",
            "not-safe",
        ),
        (
            lambda store: put(
                store, "/ledgers/LAYOUT", b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1"
            ),
            "4.2.4",
            "bookies-layout",
            "unknown",
        ),
        (
            lambda store: put(store, "/admin/configuration", b'{"dispatcherMaxReadBatchSize":"1"}'),
            "4.2.4",
            "dynamic-settings",
            "note",
        ),
        (
            lambda store: _copied(store, "/managed-ledgers/public/functions/persistent/metadata"),
            "5.0.0-M1",
            "functions-in-use",
            "note",
        ),
        (lambda store: put(store, PLAIN, b"\xff"), "4.2.4", "record-undecodable", "not-safe"),
        (
            lambda store: _copied(
                store, "/managed-ledgers/public/default/persistent/__transaction_buffer_snapshot_segments"
            ),
            "2.11.0",
            "segmented-transaction-snapshots",
            "not-safe",
        ),
    ],
)
def test_each_reason_changes_the_verdict(
    capture: Capture, change: Callable[[MemoryStore], None], version: str, reason: str, expected: str
) -> None:
    store = healthy_store(capture("pulsar-4.2.4-3bookies"))
    assert reason not in verdict(store, version)[1]
    change(store)
    assert verdict(store, version)[1][reason]["verdict"] == expected


def test_scalable_topics_prevent_a_downgrade_below_5(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-5.0.0-M1-scalable"))
    assert verdict(store, "4.2.4")[1]["scalable-topic"]["verdict"] == "not-safe"
    reasons = verdict(store, "5.0.0-M1")[1]
    assert "scalable-topic" not in reasons
    assert reasons["topics-migrated"]["count"] == 2


@pytest.mark.parametrize(
    ("before", "after", "promised"),
    [
        ((3, 0), (4, 0), True),
        ((3, 2), (4, 4), True),
        ((4, 0), (3, 0), True),
        ((2, 11), (3, 0), True),
        ((3, 2), (5, 0), False),
        ((2, 8), (2, 10), False),
        ((2, 11), (4, 0), False),
    ],
)
def test_supported_steps_are_those_of_the_project(
    before: tuple[int, int], after: tuple[int, int], promised: bool
) -> None:
    assert is_live_step(before, after) is promised

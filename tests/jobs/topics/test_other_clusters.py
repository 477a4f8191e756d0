"""Ledgers that other clusters refer to, in the same store or in another one."""

from __future__ import annotations

from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.topics.other_clusters import OtherClusters, cluster_roots
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import RoutedStore

ORDERS = TopicName.parse("orders")


def with_topic(store: MemoryStore, *ledgers: int, root: str = "") -> MemoryStore:
    """Add a topic with ledgers to a store, below a root."""
    info = ManagedLedgerInfo()
    for ledger_id in ledgers:
        info.ledgerInfo.add(ledgerId=ledger_id, entries=5, size=50, timestamp=1)
    store.put(f"{root}{ORDERS.path}", info.SerializeToString(), ABSENT)
    return store


def test_a_cluster_below_another_root_owns_its_ledgers() -> None:
    store = with_topic(with_topic(MemoryStore(), 1, 4), 2, 3, root="/eu/west")
    cursor = ManagedCursorInfo(cursorsLedgerId=9)
    store.put(f"/eu/west{ORDERS.cursor_path('sub')}", cursor.SerializeToString(), ABSENT)
    store.put("/admin/clusters/west", b"{}", ABSENT)
    assert cluster_roots(store) == ["/eu/west"]
    others = OtherClusters(store)
    assert others.named.tolist() == [2, 3, 9]
    assert not others.names(1)
    owners_of_ledgers = others.owners([1, 2, 9])
    assert {ledger_id: str(owners[0]) for ledger_id, owners in owners_of_ledgers.items()} == {
        2: "persistent://public/default/orders of /eu/west",
        9: "persistent://public/default/orders, subscription sub of /eu/west",
    }


def test_a_cluster_with_its_own_bookkeeper_owns_other_ledgers() -> None:
    store = with_topic(with_topic(MemoryStore(), 1), 2, root="/west")
    store.put(f"/west{ledger_path(2)}", b"", ABSENT)
    assert OtherClusters(store).trees == []


def test_another_store_owns_ledgers_and_a_copy_of_the_same_does_not() -> None:
    store, other = with_topic(MemoryStore(), 1), with_topic(MemoryStore("memory:other"), 2)
    assert OtherClusters(store, [other]).named.tolist() == [2]
    again = MemoryStore("memory:by-another-address")
    again.values = dict(store.values)
    assert OtherClusters(store, [again]).trees == []


def test_a_tree_that_is_found_and_named_counts_once() -> None:
    store = with_topic(with_topic(MemoryStore(), 1), 2, root="/west")
    west = with_topic(MemoryStore("memory:west"), 2)
    others = OtherClusters(store, [west, west])
    assert [tree.label for tree in others.trees] == ["/west"]


def test_the_store_of_bookkeeper_may_have_other_clusters() -> None:
    main, bookkeeper = (
        with_topic(MemoryStore("memory:a"), 1),
        with_topic(MemoryStore("memory:b"), 3, root="/x"),
    )
    bookkeeper.put(ledger_path(1), b"", ABSENT)
    assert OtherClusters(RoutedStore(main, bookkeeper)).named.tolist() == [3]


def test_an_unreadable_record_may_refer_to_any_ledger() -> None:
    store = with_topic(MemoryStore(), 1)
    store.put(f"/west{ORDERS.path}", b"\xff\xfe garbage", ABSENT)
    faults: list[str] = []
    others = OtherClusters(store, report=lambda error: faults.append(str(error)))
    assert not others.names(1)
    assert others.broken == len(faults) == 1

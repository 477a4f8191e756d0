"""Paths of things that commands name by words."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.jobs.values.places import path_of, paths_of, places_below
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore

TOPICS = "/managed-ledgers/public/default"


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["/a/b/"], "/a/b"),
        (["/"], "/"),
        (["topic", "orders"], f"{TOPICS}/persistent/orders"),
        (["cursor", "orders", "a/b c"], f"{TOPICS}/persistent/orders/a%2Fb+c"),
        (["ledger", "17"], "/ledgers/00/0000/L0017"),
        (["namespace", "public/default"], "/admin/policies/public/default"),
        (["broker", "b:8080"], "/loadbalance/brokers/b:8080"),
    ],
)
def test_words_select_a_path(words: list[str], path: str) -> None:
    assert path_of(words) == path


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["admin/policies"], "; did you mean /admin/policies?"),
        (["public/default/orders"], "; did you mean topic public/default/orders?"),
        (["ledgr", "17"], "; did you mean ledger 17?"),
        (["ledger", "x"], ""),
        (["namespace", "public"], ""),
        (["broker", "a/b"], ""),
        (["zzz", "17"], ""),
        ([], ""),
        ([""], ""),
    ],
)
def test_other_words_are_a_usage_error(words: list[str], meant: str) -> None:
    with pytest.raises(UsageError) as error:
        path_of(words)
    assert error.value.message.partition("`broker ID`")[2] == meant


def test_a_namespace_contains_its_topics() -> None:
    store = MemoryStore()
    store.put("/admin/policies/public/default", b"{}", ABSENT)
    assert places_below(store, ["namespace", "public/default"]) == ["/admin/policies/public/default"]
    store.put(f"{TOPICS}/persistent/orders", b"x", ABSENT)
    assert places_below(store, ["namespace", "public/default"]) == [f"{TOPICS}/persistent"]
    assert paths_of(store, ["namespace", "public/default"]) == ["/admin/policies/public/default"]
    store.put("/admin/partitioned-topics/public/default/persistent/parts", b'{"partitions":2}', ABSENT)
    assert places_below(store, ["topic", "parts"]) == [
        f"{TOPICS}/persistent/parts-partition-{number}" for number in range(2)
    ]

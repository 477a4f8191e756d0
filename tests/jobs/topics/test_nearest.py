"""Suggestions for a name that does not exist."""

from __future__ import annotations

import pytest

from pulsar_meta.jobs.topics.nearest import did_you_mean, nearest_name
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    for path in (
        "/managed-ledgers/public/default/persistent/orders",
        "/managed-ledgers/public/default/persistent/orders/batch-idx",
        "/managed-ledgers/public/default/persistent/a%2Fb",
        "/admin/policies/public/default",
        "/ledgers/00/0000/L0017",
        "/topics/public/default/invoices",
    ):
        store.put(path, b"x", ABSENT)
    return store


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/managed-ledgers/public/default/persistent/order", "persistent://public/default/orders"),
        ("/managed-ledgers/public/default/persistent/a%2Fc", "persistent://public/default/a/b"),
        ("/managed-ledgers/public/default/persistent/orders/batch-id", "batch-idx"),
        ("/managed-ledgers/pulic/default/persistent/orders", "persistent://public/default/orders"),
        ("/managed-ledgers/public/defalt/persistent/nothing", "public/default/persistent"),
        ("/admin/policies/public/defualt", "/admin/policies/public/default"),
        ("/admim", "/admin"),
        ("/managed-ledgers/public/default/persistent/invoice", "topic://public/default/invoices"),
    ],
)
def test_a_similar_name_is_suggested(store: MemoryStore, path: str, meant: str) -> None:
    assert did_you_mean(store, path) == f"; did you mean {meant}?"


@pytest.mark.parametrize(
    "path", ["/managed-ledgers/public/default/persistent/zzz", "/zzz", "/", "/admin/policies", "/ledgers/xx"]
)
def test_nothing_is_suggested_if_no_name_is_similar(store: MemoryStore, path: str) -> None:
    assert did_you_mean(store, path) == ""


def test_the_number_of_compared_names_is_bounded() -> None:
    assert nearest_name("name-9", (f"name-{number}" for number in range(10**6))) != ""
    assert nearest_name("name", ()) == ""

"""A view with changes reads like a store in which the changes were written, and leaves the store as it is."""

from __future__ import annotations

from random import Random

import pytest

from pulsar_meta.codecs.errors import ConflictError, NotFoundError
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.memory import MemoryStore, OverlayStore

PATHS = [f"/{first}{rest}" for first in "abc" for rest in ("", "/x", "/x/y", "-x", "/z")]


def change(store: Store, rng: Random) -> None:
    """Write and delete values."""
    for path in rng.sample(PATHS, 8):
        value = store.read_many([path])[0]
        if value is not None and rng.random() < 0.4:
            store.delete(path, value.version)
        else:
            store.put(path, bytes([rng.randrange(256)]), ABSENT if value is None else value.version)


@pytest.mark.parametrize("seed", range(30))
def test_a_view_reads_as_if_its_changes_were_written(seed: int) -> None:
    base, written = MemoryStore(), MemoryStore()
    for store in (base, written):
        change(store, Random(seed))
    before, view = dict(base.values), OverlayStore(base)
    for changed in (view, written):
        change(changed, Random(seed + 1000))
    assert base.values == before
    for path in ("/", *PATHS):
        assert view.children(path) == written.children(path), path
        found = {value.path: value.value for value in view.scan(path)}
        assert found == {value.path: value.value for value in written.scan(path)}
    assert [value and value.value for value in view.read_many(PATHS)] == [
        value and value.value for value in written.read_many(PATHS)
    ]
    order = [value.path for value in view.scan()]
    assert all(order.index(path) < order.index(f"{path}/x") for path in order if f"{path}/x" in order)


def test_a_view_compares_versions() -> None:
    base = MemoryStore()
    base.put("/a", b"1", ABSENT)
    view = OverlayStore(base)
    with pytest.raises(ConflictError):
        view.put("/a", b"2", 7)
    view.delete("/a", 0)
    with pytest.raises(NotFoundError):
        view.read("/a")
    assert view.put("/a", b"3", ABSENT) == 0
    assert base.read("/a").value == b"1"

"""Every verb of `repair` but the generator's, as `check` names it, on each server; and undone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.damage import (
    Patient,
    cluster_damage,
    cursor_damage,
    damaged,
    healthy_store,
    ledger_damage,
    record_damage,
)

DAMAGE = (
    *(
        ledger_damage.metadata_gone,
        record_damage.topic_garbage,
        ledger_damage.in_two_topics,
        ledger_damage.counts_zero,
    ),
    *(ledger_damage.terminated, record_damage.parent_gone, cursor_damage.cursor_ledger_foreign),
    *(cursor_damage.compacted_ledger_gone, cluster_damage.schema_ledger_gone, cluster_damage.offload_begun),
)
VERBS = {
    *("ledger-metadata", "topic-record", "missing-ledger", "count", "termination", "partitions", "cursor"),
    *("compaction", "schema", "offload"),
}


@pytest.fixture(scope="module")
def patient(capture: Callable[[str], Path]) -> Patient:
    """A wound for each verb, on topics of their own."""
    store = healthy_store(capture("pulsar-4.2.4"))
    for seed in range(100):
        done = damaged(store, Random(seed), DAMAGE)
        codes = {one.code for one in done.expected}
        if {"schema-ledger-missing", "compaction-ledger-missing"} <= codes and not any(
            one.code == "system-topic-unreadable" for one in done.expected
        ):
            return done
    raise AssertionError("no seed makes them all")


@pytest.fixture(params=["zookeeper", "etcd", "oxia"])
def url(request: pytest.FixtureRequest, patient: Patient, root: str) -> Iterator[str]:
    """The server with the wounded store in it."""
    address = request.getfixturevalue(f"{request.param}_server").address
    found = f"{'zk' if request.param == 'zookeeper' else request.param}://{address}"
    if request.param == "zookeeper":
        with open_store(found, read_only=False) as whole:
            whole.put(root, b"", ABSENT)
        found += root
    kept = {
        path: held.value for path, held in patient.store.values.items() if _is_copied(patient.store, path)
    }
    with open_store(found, read_only=False) as store:
        for path, value in sorted(kept.items()):
            _put(store, path, value)
        yield found
        for path in sorted(kept, reverse=True):
            with suppress(NotFoundError):
                store.delete(path, store.read(path).version)


def _is_copied(store: MemoryStore, path: str) -> bool:
    held = store.values[path]
    parts = ("/managed-ledgers/public/default/", "/ledgers/", "/schemas/", "/admin/")
    return path.startswith(parts) and not held.ephemeral and "idgen" not in path


def _put(store: Store, path: str, value: bytes) -> None:
    try:
        version = store.read(path).version
    except NotFoundError:
        version = ABSENT
    store.put(path, value, version)


def held(url: str) -> dict[str, bytes]:
    with open_store(url) as store:
        scanned = ("/managed-ledgers/public/default", "/ledgers", "/schemas", "/admin")
        return {one.path: one.value for path in scanned for one in store.scan(path) if one.value}


def test_what_check_names_repairs_it_and_undo_takes_it_back(
    url: str, patient: Patient, tmp_path: Path
) -> None:
    env = environment(tmp_path)
    expected = {(one.code, one.where) for one in patient.expected}
    before = held(url)

    def found() -> dict[str, dict[str, str]]:
        done = as_text(pulsar_meta_here("check", "--store", url, "-o", "ndjson", env=env))
        assert done.returncode in (0, 1), done.stderr
        documents = [json.loads(line) for line in done.stdout.splitlines()]
        return {one["repair"]: one for one in documents if (one["code"], one.get("topic")) in expected}

    commands, undo_files = found(), list[str]()
    assert {shlex.split(command)[2] for command in commands} == VERBS
    for command, finding in commands.items():
        words = shlex.split(command)[1:]
        if words[1] in ("missing-ledger", "cursor"):
            words += ["--confirm", finding["topic"]]
        if words[1] == "cursor":
            # No entry says where it stood.
            words += ["--earliest"]
        done = as_text(pulsar_meta_here(*words, "--yes", "-o", "json", env=env))
        assert done.returncode == 0, (command, done.stderr)
        undo_files.append(json.loads(done.stdout)["undo_file"])
    assert found() == {}
    for file in reversed(undo_files):
        done = as_text(pulsar_meta_here("undo", file, "--store", url, "--yes", "--allow-unreadable", env=env))
        assert done.returncode == 0, done.stderr
    assert held(url) == before
